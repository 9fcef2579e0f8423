"""Tables that are read batch by batch from several files: what broke it once."""

from __future__ import annotations

import copy
import errno
import gzip
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedhist import Columns, InvalidInput, SparsePopulation, SystemSource, read_population
from tests.support.api import (
    MAX_USER_TOTAL,
    InvalidFile,
    InvalidPopulation,
    ItemChoice,
    NotWritten,
    StoredPopulation,
    Tabulation,
    memory_limit,
    over_items,
    read_node_data,
)
from tests.support.api import MemoryLimit as Memory
from tests.support.api import count_module as counting
from tests.support.populations import AnyOrder
from tests.support.refusals import refused

SMALL = "256MiB"

STRICT = Columns(strict=True)


@pytest.fixture(params=[None, SMALL])
def memory(request: pytest.FixtureRequest) -> str | None:
    found: str | None = request.param
    return found


def folder(place: Path, files: dict[str, str | bytes | pl.DataFrame]) -> Path:
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pl.DataFrame):
            content.write_parquet(path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return place


def users_of(population: SparsePopulation) -> list[dict[Any, int]]:
    """Each user's counts by label, in the order in which they are stored; users in any order."""
    rows, labels = population.histograms, population.labels or ()
    bounds = zip(rows.offsets[:-1].tolist(), rows.offsets[1:].tolist(), strict=True)
    return AnyOrder(
        {labels[i]: c for i, c in zip(rows.items[a:b].tolist(), rows.counts[a:b].tolist(), strict=True)}
        for a, b in bounds
    )


@pytest.mark.parametrize("first", [1, 2])
def test_counts_in_one_file_and_none_in_another(tmp_path: Path, memory: str | None, first: int) -> None:
    files = {
        f"{first}.csv": "user,item,count\na,x,3\nb,y,2\n",
        f"{3 - first}.csv": "item,user\nx,a\nz,b\n",
    }
    found = read_population(folder(tmp_path, {**files}), memory=memory)
    assert users_of(found) == [{"x": 4}, {"y": 2, "z": 1}]


def test_counts_in_one_batch_and_none_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "batch_rows", 2)
    rows = Tabulation(memory=memory_limit(SMALL), rng=SystemSource())
    rows.add(pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "count": [3, 2]}))
    rows.add(pl.DataFrame({"user": ["a", "b"], "item": ["x", "z"]}))
    assert users_of(rows.population()) == [{"x": 4}, {"y": 2, "z": 1}]


@pytest.mark.parametrize("other", [pl.UInt16, pl.Int16, pl.Int64, pl.UInt32])
def test_whole_numbers_of_another_width_in_another_file(tmp_path: Path, other: Any) -> None:
    small = pl.DataFrame({"user": [1, 2], "item": [1, 2]}, schema={"user": pl.UInt8, "item": pl.UInt8})
    wide = pl.DataFrame({"user": [1, 3], "item": [300, 2]}, schema={"user": other, "item": other})
    found = read_population(folder(tmp_path, {"1.parquet": small, "2.parquet": wide}))
    assert users_of(found) == [{1: 1, 300: 1}, {2: 1}, {2: 1}]


def test_another_type_in_another_file_is_told_with_the_file(tmp_path: Path) -> None:
    place = folder(
        tmp_path, {"1.parquet": pl.DataFrame({"user": [1], "item": [1]}), "2.csv": "user,item\n1,1\n"}
    )
    with refused(InvalidPopulation, "mixed-column", "line 2", "2.csv"):
        read_population(place)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("2.csv", "user,item\na,x\nb\n", ("missing-value", "line 3", "2.csv")),
        ("2.csv", "user,item\na,x\nb,y,z\n", ("too-many-fields", "line 3", "2.csv")),
        (
            "2.jsonl",
            '{"user":"a","item":"x"}\n{"user":"a","item":"y","count":-1}\n',
            ("bad-count", "line 2"),
        ),
        ("2.csv", "", ("empty-file", "2.csv")),
        (
            "2.csv.gz",
            gzip.compress(b"user,item\n" + b"a,x\n" * 999, mtime=0)[:-20],
            ("damaged-file", "2.csv.gz"),
        ),
    ],
)
def test_the_file_of_a_folder_that_is_broken_is_named_with_its_own_line(
    tmp_path: Path, name: str, content: str | bytes, told: tuple[str, ...]
) -> None:
    with refused(InvalidInput, *told):
        read_population(folder(tmp_path, {"1.csv": "user,item\na,x\nb,y\n", name: content}), columns=STRICT)


class TestFolders:
    def test_a_file_with_several_names_is_read_once_and_links_may_lead_in_circles(
        self, tmp_path: Path
    ) -> None:
        folder(tmp_path / "data", {"a/one.csv": "user,item\na,x\n", "b/[two]*?.csv": "user,item\nb,y\n"})
        (tmp_path / "data" / "again.csv").symlink_to("a/one.csv")
        (tmp_path / "data" / "a" / "loop").symlink_to("..")
        (tmp_path / "linked").symlink_to("data")
        for path in (tmp_path / "data", tmp_path / "data/**/*.csv", tmp_path / "linked"):
            assert users_of(read_population(path)) == [{"x": 1}, {"y": 1}]

    def test_a_linked_sub_folder_is_read(self, tmp_path: Path) -> None:
        folder(tmp_path, {"other/b.csv": "user,item\nb,y\n", "data/a.csv": "user,item\na,x\n"})
        (tmp_path / "data" / "more").symlink_to("../other")
        assert read_population(tmp_path / "data").users == 2

    def test_a_link_to_nothing_is_not_passed_over(self, tmp_path: Path) -> None:
        folder(tmp_path, {"a.csv": "user,item\na,x\n"})
        (tmp_path / "b.csv").symlink_to("gone.csv")
        with refused(InvalidFile, "missing-file", "b.csv"):
            read_population(tmp_path)

    def test_a_name_that_the_system_refuses_is_a_sentence(self) -> None:
        with refused(InvalidFile, "not-readable"):
            read_population(Path("a" * 300 + ".csv"))

    def test_a_folder_that_may_not_be_opened_is_not_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder(tmp_path, {"a.csv": "user,item\na,x\n", "closed/b.csv": "user,item\nb,y\n"})
        opened = os.scandir

        def refusing(path: Any) -> Any:
            if str(path).endswith("closed"):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return opened(path)

        monkeypatch.setattr(os, "scandir", refusing)
        with refused(InvalidFile, "not-readable"):
            read_population(tmp_path)

    def test_a_folder_may_be_called_like_a_table(self, tmp_path: Path) -> None:
        folder(tmp_path / "x.csv", {"day=1/a.csv": "user,item\na,x\n", "day=2/_SUCCESS": "", ".b.csv": "no"})
        assert read_population(tmp_path / "x.csv").users == 1


class TestOrder:
    """What a device draws depends on the order of a user's items, which a list must not change."""

    rows = "user,item\na,x\na,y\nb,y\nb,z\nb,z\nb,z\nb,x\n"

    def test_a_list_keeps_the_order_by_total(self, tmp_path: Path, memory: str | None) -> None:
        path = folder(tmp_path, {"t.csv": self.rows}) / "t.csv"
        whole, listed = read_population(path), ["w", "x", "y", "z"]
        found = read_population(path, items=listed, memory=memory)
        assert AnyOrder(list(user) for user in users_of(found)) == [["x", "y"], ["z", "x", "y"]]
        assert AnyOrder(list(user) for user in users_of(over_items(whole, ItemChoice(listed=listed)))) == [
            ["x", "y"],
            ["z", "x", "y"],
        ]

    def test_bins_keep_the_order_by_total(self, tmp_path: Path, memory: str | None) -> None:
        path = folder(tmp_path, {"t.csv": "user,item\na,1\na,5\na,9\nb,9\nb,9\nb,5\n"}) / "t.csv"
        found = read_population(path, columns=Columns(bins=[0, 2, 6, 10]), memory=memory)
        assert AnyOrder(list(user) for user in users_of(found)) == [
            ["[6, 10)", "[2, 6)", "[0, 2)"],
            ["[6, 10)", "[2, 6)"],
        ]

    def test_names_that_are_one_keep_the_order_of_the_first(self) -> None:
        table = pl.DataFrame({"user": ["a", "a", "a", "b"], "item": ["X", "x", "y", "y"]})
        choice = ItemChoice(listed=["x", "y"], rename=str.lower)
        rows = Tabulation(memory=memory_limit(), rng=SystemSource())
        rows.add(table)
        whole = Tabulation(memory=memory_limit(), rng=SystemSource())
        whole.add(table)
        for found in (rows.population(choice), over_items(whole.population(), choice)):
            assert AnyOrder(list(user.items()) for user in users_of(found)) == [
                [("y", 1), ("x", 2)],
                [("y", 1)],
            ]


class TestNodes:
    def test_a_row_without_a_whole_count_does_not_take_its_user_along(self, tmp_path: Path) -> None:
        rows = "user,item,count\na,x,3\na,y,1e12\nb,y,2.5\n,y,2\nc,x,2147483647\nc,z,1\nc,,3\nd,z,1\nd,,2147483647\n"
        found, left_out = read_node_data(folder(tmp_path, {"t.csv": rows}) / "t.csv")
        assert users_of(found) == [{"x": 3}, {}, {}, {"z": 1}]
        # a's second, b's, nobody's, c's three and d's second.
        assert left_out == 7

    def test_files_of_a_folder(self, tmp_path: Path) -> None:
        place = folder(
            tmp_path,
            {
                "a.csv": "user,item,count\na,x,1\nb,,2\n",
                "b.jsonl": '{"user":"a","item":"y","count":"?"}\n{"user":"c","item":"x"}\n',
            },
        )
        for path in (place, place / "*"):
            # A node is never strict: one user's row would stop all others.
            found, left_out = read_node_data(path, columns=STRICT)
            assert (users_of(found), left_out) == ([{"x": 1}, {}, {"x": 1}], 2)


def test_items_outside_the_list_count_in_a_users_total_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pl.DataFrame(
        {
            "user": ["a"] * 6,
            "item": ["x", "out", "out", "x", "out", "x"],
            "count": [1, MAX_USER_TOTAL, 1, 1, 1, 1],
        }
    )
    for most in (1, 2, 1000):
        monkeypatch.setattr(counting, "_MOST_ROWS", most)
        monkeypatch.setattr(Memory, "batch_rows", 1)
        rows = Tabulation(memory=memory_limit(SMALL), rng=SystemSource())
        for place in range(table.height):
            rows.add(table.slice(place, 1))
        with refused(InvalidPopulation, "total-too-large"):
            rows.population(ItemChoice(listed=["x"]))


def test_partitions_are_made_when_all_rows_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """However wrong a guess of the number of rows would have been."""
    monkeypatch.setattr(counting, "_PARTITION_ROWS", 64)
    seen: list[tuple[str, int, int]] = []
    rows = Tabulation(
        memory=memory_limit(SMALL), rng=SystemSource(), tell=lambda *progress: seen.append(progress)
    )
    for start in range(0, 1000, 100):
        users = [f"u{n % 300}" for n in range(start, start + 100)]
        rows.add(pl.DataFrame({"user": users, "item": ["x"] * 100}))
    found = rows.population()
    assert {total for stage, _, total in seen if stage == "group"} == {16}
    assert (found.users, found.totals().tolist()) == (300, [1000])


class TestCopies:
    def test_a_copy_of_a_population_in_files_is_in_memory(self, tmp_path: Path) -> None:
        path = folder(tmp_path, {"t.csv": "user,item\na,x\nb,y\nb,x\n"}) / "t.csv"
        stored = read_population(path, memory=SMALL)
        assert isinstance(stored, StoredPopulation)
        for made in (copy.copy(stored), copy.deepcopy(stored), pickle.loads(pickle.dumps(stored))):  # noqa: S301 - ours
            assert type(made) is SparsePopulation
            assert users_of(made) == users_of(stored)
            del made
        assert stored.totals().tolist() == [2, 1]


class TestTemporaryFiles:
    @pytest.fixture
    def temporary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        place = tmp_path / "temporary"
        place.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(place))
        yield place
        assert list(place.iterdir()) == []

    def test_a_full_disk_is_a_sentence(
        self, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        rows = b"user,item\na,secret\n"
        folder(tmp_path, {"t.csv": rows})
        monkeypatch.setattr(os, "pwrite", full)
        with refused(NotWritten, "not-written") as caught:
            read_population(tmp_path / "t.csv", memory=SMALL)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["9" * 400, "0", "-1GB", "1e9", "nan", "255MiB", "1 XB", "", True])
def test_what_is_no_size_of_memory_is_refused(text: str | bool) -> None:
    with refused(InvalidInput, "bad-memory-limit", "--memory"):
        memory_limit(text)


def test_a_lack_of_memory_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, {"t.csv": "user,item\na,x\n"}) / "t.csv"

    def exhausted(*_: object, **__: object) -> Any:
        raise OSError("Cannot allocate memory (os error 12)")

    monkeypatch.setattr(pl, "scan_csv", exhausted)
    with refused(InvalidFile, "not-enough-memory"):
        read_population(path)
