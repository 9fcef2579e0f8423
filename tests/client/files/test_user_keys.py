"""Users are known by their names in later runs, in any order and kind of table, and by nobody without the secret."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedhist import Columns, SparsePopulation, read_frame, read_population
from tests.support.api import name_keys, number_keys, user_key_of

KEY = user_key_of(b"s" * 32)
KEYED = Columns(user_key=KEY)


def keys_of(population: SparsePopulation) -> list[int]:
    assert population.user_keys is not None
    keys: list[int] = population.user_keys.tolist()
    return keys


def test_a_key_is_of_the_text_of_a_name_and_of_the_secret() -> None:
    names = pl.Series(["7", "x", "7", "é"])
    keys = name_keys(names, KEY)
    assert keys[0] == keys[2] and len(set(keys.tolist())) == 3
    assert keys[0] == name_keys(pl.Series([7]), KEY)[0] == number_keys(7, 1, KEY)[0]
    assert (keys == name_keys(names.cast(pl.Categorical), KEY)).all()
    assert not set(keys.tolist()) & set(name_keys(names, user_key_of(b"t" * 32)).tolist())
    # As it was written before, or devices would forget their users.
    assert number_keys(0, 2, KEY).tolist() == [12866229873795087686, 9167542097896569248]


@pytest.mark.parametrize("memory", [None, "256MiB"])
def test_a_population_has_the_keys_of_its_users_in_their_order(tmp_path: Path, memory: str | None) -> None:
    rng = np.random.default_rng(1)
    users = rng.integers(0, 5_000, 150_000)
    table = pl.DataFrame({"user": users, "item": rng.integers(0, 20, len(users))})
    table.write_parquet(tmp_path / "t.parquet")
    found = read_population(tmp_path / "t.parquet", columns=KEYED, memory=memory)
    first = table["user"].unique(maintain_order=True)
    assert keys_of(found) == name_keys(first, KEY).tolist()
    assert keys_of(found.part(10, 20)) == keys_of(found)[10:20]
    assert keys_of(found.keep_top_items(3)) == keys_of(found.select_items([1, 2])) == keys_of(found)
    plain = read_population(tmp_path / "t.parquet", memory=memory)
    assert plain.user_keys is None
    assert (plain.totals() == found.totals()).all() and plain.users == found.users


def test_names_that_are_texts_or_numbers_are_one_user() -> None:
    texts = read_frame(pl.DataFrame({"user": ["3", "1"], "item": ["a", "a"]}), columns=KEYED)
    numbers = read_frame(pl.DataFrame({"user": [1, 3], "item": ["a", "a"]}), columns=KEYED)
    assert keys_of(texts) == keys_of(numbers)[::-1]
    assert "user_key" not in KEYED.given and "ssss" not in repr(KEYED)
