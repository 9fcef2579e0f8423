"""Rows added up by user and item: the same population for any batches, partitions and room."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import SeededSource, SparsePopulation, SystemSource
from tests.support.api import (
    MAX_USER_TOTAL,
    InvalidPopulation,
    ItemChoice,
    StoredPopulation,
    Tabulation,
    table_row,
)
from tests.support.api import MemoryLimit as Memory
from tests.support.api import count_module as counting
from tests.support.populations import AnyOrder
from tests.support.refusals import refused

ROOMY, NO_ROOM = Memory(8 << 30, 2), Memory(1 << 28, 2)

Row = tuple[Any, Any, int]
rows_of_text = st.lists(
    st.tuples(st.sampled_from(["ana", "bo", "", "çé", "zoe"]), st.text(max_size=3), st.integers(0, 3)),
    min_size=1,
    max_size=60,
)
rows_of_numbers = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20), st.integers(0, 3)),
    min_size=1,
    max_size=60,
)


def expected(rows: list[Row]) -> tuple[list[dict[Any, int]], list[Any]]:
    """Users with their counts, and the items in order, in plain Python."""
    users: dict[Any, Counter[Any]] = {}
    totals: Counter[Any] = Counter()
    for user, item, count in rows:
        users.setdefault(user, Counter())[item] += count
        totals[item] += count
    order = sorted(totals, key=lambda item: (-totals[item], len(str(item).encode()), str(item)))
    return AnyOrder(
        dict(sorted(one.items(), key=lambda pair: order.index(pair[0]))) for one in users.values()
    ), order


def read_back(population: SparsePopulation) -> tuple[list[dict[Any, int]], list[Any]]:
    labels, users = list(population.labels or ()), []
    for shard in population.shards():
        for place in range(shard.users):
            entries = slice(int(shard.offsets[place]), int(shard.offsets[place + 1]))
            items = shard.items[entries].tolist()
            users.append({labels[i]: c for i, c in zip(items, shard.counts[entries].tolist(), strict=True)})
    return AnyOrder(users), labels


def row_from(start: int, row: int, role: str) -> str:
    return table_row(start + row, role)


def tabulate(
    rows: list[Row], *, batch: int, memory: Memory, counted: bool = True, **options: Any
) -> SparsePopulation:
    table = pl.DataFrame(
        {
            "user": [row[0] for row in rows],
            "item": [row[1] for row in rows],
            "count": [row[2] for row in rows],
        },
        schema_overrides={"count": pl.Int64},
    )
    if not counted:
        table = table.drop("count")
    again = [(table.slice(start, batch), partial(row_from, start)) for start in range(0, len(rows), batch)]
    rows_in = Tabulation(memory=memory, rng=SystemSource(), again=lambda: again)
    for piece, where in again:
        rows_in.add(piece, where)
    return rows_in.population(**options)


@pytest.fixture(params=["small parts", "parts as they are"])
def _parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of a few rows, which are added up piece by piece, and chunks of a few pairs."""
    if request.param == "small parts":
        monkeypatch.setattr(Memory, "batch_rows", 5)
        monkeypatch.setattr(counting, "_PARTITION_ROWS", 2)
        monkeypatch.setattr(counting, "_MOST_ROWS", 3)
        monkeypatch.setattr(counting, "_FEWEST_ROWS", 4)


@pytest.mark.usefixtures("_parts")
class TestAnyWay:
    @pytest.mark.parametrize("memory", [ROOMY, NO_ROOM])
    @pytest.mark.parametrize("counted", [True, False])
    def test_it_is_what_plain_python_counts(self, memory: Memory, counted: bool) -> None:
        @settings(max_examples=30, deadline=None)
        @given(
            rows=rows_of_text | rows_of_numbers,
            batch=st.integers(1, 70),
        )
        def check(rows: list[Row], batch: int) -> None:
            if not counted:
                rows = [(user, item, 1) for user, item, _ in rows]
            found = tabulate(rows, batch=batch, memory=memory, counted=counted)
            assert isinstance(found, StoredPopulation) == (memory is NO_ROOM)
            assert read_back(found) == expected(rows)

        check()

    def test_items_of_a_list_in_its_order_and_every_user_stays(self) -> None:
        rows: list[Row] = [("a", "x", 1), ("b", "y", 2), ("c", "x", 4), ("c", "z", 1)]
        found = tabulate(rows, batch=2, memory=NO_ROOM, choice=ItemChoice(listed=["z", "w", "x"]))
        assert read_back(found) == ([{"x": 1}, {}, {"x": 4, "z": 1}], ["z", "w", "x"])
        assert (found.dropped_items, found.dropped_count) == (1, 2)

    def test_names_that_are_written_alike_are_one_item(self) -> None:
        rows: list[Row] = [("a", "X", 1), ("a", "x", 2), ("b", "y", 9), ("b", "Z", 1)]
        choice = ItemChoice(rename=str.lower)
        found = tabulate(rows, batch=1, memory=NO_ROOM, choice=choice)
        assert read_back(found) == ([{"x": 3}, {"y": 9, "z": 1}], ["y", "x", "z"])


def test_a_user_with_more_rows_than_a_piece_is_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_MOST_ROWS", 100)
    drawn = random.Random(1)
    rows: list[Row] = [
        ("heavy" if drawn.random() < 0.9 else f"u{n}", f"i{drawn.randrange(40)}", 1) for n in range(2_000)
    ]
    for counted in (True, False):
        found = tabulate(rows, batch=333, memory=NO_ROOM, counted=counted)
        assert read_back(found) == expected(rows)


@pytest.mark.parametrize("item_bits", [2, 7, 20, 31])
@pytest.mark.parametrize("bits", [0, 5, 10])
def test_keys_that_differ_in_one_bit_are_two_users(bits: int, item_bits: int) -> None:
    """Whatever is left of a key beside the rank of an item."""
    keys = np.append(np.uint64(0), np.uint64(1) << np.arange(64 - bits, dtype=np.uint64))
    for counts in (None, np.full(3 * len(keys), 2)):
        users = np.tile(keys, 3)
        items = np.repeat(np.array([0, 1, 0], dtype=np.uint64), len(keys))
        rows, sums = counting.added_up([counting.Rows(users, items, counts)], bits=bits, item_bits=item_bits)
        assert np.array_equal(np.unique(rows.users), keys)
        assert sums.begins.tolist() == list(range(0, 2 * len(keys), 2))
        assert sums.items.tolist() == [0, 1] * len(keys)
        assert sums.counts.tolist() == [2 if counts is None else 4, 1 if counts is None else 2] * len(keys)


@pytest.mark.parametrize("memory", [ROOMY, NO_ROOM])
def test_two_users_are_never_one_among_a_million_items(memory: Memory) -> None:
    """20 bits of a row's word are the item's: whole numbers keep all bits of their keys all the same."""
    users = np.arange(1 << 20, dtype=np.int64) << 44
    rows = Tabulation(memory=memory, rng=SystemSource())
    rows.add(pl.DataFrame({"user": users, "item": np.arange(1 << 20)}))
    assert rows.population().users == 1 << 20


@pytest.mark.parametrize(
    "users", [list(range(200)), [f"user {n}" for n in range(200)]], ids=["numbers", "text"]
)
def test_keys_are_new_in_every_run_and_those_of_a_seed_are_not(users: list[Any]) -> None:
    """Nobody can choose names that meet who does not know the keys, and the order of users is that of their keys."""

    def order(rng: SystemSource | SeededSource) -> list[int]:
        rows = Tabulation(memory=ROOMY, rng=rng)
        rows.add(pl.DataFrame({"user": users, "item": range(200)}))
        found = rows.population()
        return [int(found.labels[item]) for item in found.histograms.items.tolist()]  # type: ignore[index]

    assert order(SeededSource(1)) == order(SeededSource(1))
    orders = [order(rng) for rng in (SeededSource(1), SeededSource(2), SystemSource(), SystemSource())]
    assert len(set(map(tuple, orders))) == 4
    assert {tuple(sorted(one)) for one in orders} == {tuple(range(200))}


def test_the_first_user_with_too_much_is_named_whatever_the_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "_PARTITION_ROWS", 1)
    rows: list[Row] = [("ok", "x", 1)]
    rows += [(f"u{n}", "x", MAX_USER_TOTAL) for n in range(20)] + [(f"u{n}", "y", n) for n in range(20)]
    with refused(InvalidPopulation, "total-too-large", "row 3"):
        tabulate(rows, batch=7, memory=NO_ROOM)


def test_columns_of_other_types_in_another_file_are_refused() -> None:
    rows = Tabulation(memory=ROOMY, rng=SystemSource())
    rows.add(pl.DataFrame({"user": [1], "item": ["x"]}))
    with refused(InvalidPopulation, "mixed-column", "row 1"):
        rows.add(pl.DataFrame({"user": ["1"], "item": ["x"]}))


def test_a_category_is_its_name(tmp_path: Path) -> None:
    table = pl.DataFrame({"user": ["a", "b", "a"], "item": ["x", "y", "x"]}).cast({"item": pl.Categorical})
    rows = Tabulation(memory=ROOMY, rng=SystemSource())
    for start in range(3):
        rows.add(table.slice(start, 1))
    assert read_back(rows.population()) == ([{"x": 2}, {"y": 1}], ["x", "y"])
