"""Names of items in order, and each Python's own when it is needed."""

from __future__ import annotations

import pickle
import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.api import Numbering, StoredNames, chosen_names, order_of_texts

TEXTS = st.text(st.sampled_from("aäz\0€🎉"), max_size=20)


@settings(max_examples=150, deadline=None)
@given(names=st.lists(TEXTS, unique=True, min_size=1, max_size=40), data=st.data())
def test_names_are_ordered_as_python_orders_them(names: list[str], data: st.DataObject) -> None:
    totals = data.draw(st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names)))
    order = order_of_texts(pl.Series(names), np.array(totals)).tolist()
    key = [(-total, len(name.encode()), name) for name, total in zip(names, totals, strict=True)]
    assert order == sorted(range(len(names)), key=key.__getitem__)
    chosen = chosen_names(StoredNames(pl.Series(names)), np.array(order))
    assert list(chosen) == [names[number] for number in order]


def test_many_names_stay_in_their_column() -> None:
    names = [f"name-{n}-é" * (n % 3) for n in range(100_000)]
    found = chosen_names(StoredNames(pl.Series(names)), np.arange(len(names)))
    assert isinstance(found, StoredNames)
    assert (len(found), list(found)) == (len(names), names)
    assert (found[7], found[-1], found[5:9], found[9:1:-3]) == (
        names[7],
        names[-1],
        names[5:9],
        names[9:1:-3],
    )
    assert found.index(names[39_998]) == 39_998
    with pytest.raises(IndexError):
        found[100_000]
    assert list(pickle.loads(pickle.dumps(found))) == names  # noqa: S301 - ours


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), different=st.integers(1, 3000), batches=st.integers(1, 5))
def test_keys_are_numbered_as_they_appear(seed: int, different: int, batches: int) -> None:
    drawn = random.Random(seed)
    # Half of them share their first bits, so that they meet in the table.
    pool = [drawn.getrandbits(64) >> (drawn.choice([0, 30])) for _ in range(different)]
    numbering, numbers = Numbering(), dict[int, int]()
    for _ in range(batches):
        keys = [drawn.choice(pool) for _ in range(drawn.randrange(1, 4000))]
        for key in keys:
            numbers.setdefault(key, len(numbers))
        found, new = numbering.of(np.array(keys, dtype=np.uint64))
        assert found.tolist() == [numbers[key] for key in keys]
        known = numbering.length - len(new)
        assert [numbers[keys[place]] for place in new.tolist()] == list(range(known, numbering.length))
    assert numbering.length == len(numbers)
