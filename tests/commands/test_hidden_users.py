"""add-or-remove-one over tables: nothing but noised values differs between a table with a user and one without."""

from __future__ import annotations

import itertools
import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array, save_npz

import fedhist
from fedhist import BudgetFile, SeededSource
from tests.builders import Fedhist, files_in, write_records
from tests.support.api import Asked, Event, Read, Watcher, carry_out
from tests.support.refusals import refused

ITEMS = ("tea", "milk")
ROWS = [(f"u{number}", ITEMS[number % 2], 1 + number % 5) for number in range(40)]
KINDS = {"without listed items": ("unlisted", 7), "without counts": ("tea", 0)}


class Fixed(SeededSource):
    """The same draws in every run that believes it has those of the operating system."""

    def __init__(self) -> None:
        super().__init__(5)

    seeded = False


@pytest.fixture
def same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("simulations.simulation", "simulations.engines.in_process", "client.files.read"):
        monkeypatch.setattr(f"fedhist.{module}.SystemSource", Fixed)


@pytest.fixture
def gone(same_noise: None, tmp_path: Path) -> str:
    """The name of a user who is read after all others, so that these round as before without them."""
    for number in itertools.count():
        path = write_records(tmp_path / "order.csv", [*ROWS, (f"gone{number}", "tea", 1_000)])
        *_, last = fedhist.read_population(path, items=ITEMS).shards()
        if last.counts[-1] == 1_000:
            return f"gone{number}"
    raise AssertionError


def left_by(
    fedhist: Fedhist, folder: Path, rows: list[tuple[str, str, int]], *more: object
) -> dict[str, Any]:
    """All that a run over these rows writes, prints and charges."""
    folder.mkdir()
    write_records(folder / "visits.csv", rows)
    (folder / "items.txt").write_text("\n".join(ITEMS))
    # Only names that stay the same may be printed.
    os.chdir(folder)
    done = fedhist(
        "run", "--data", "visits.csv", "--neighbours", "add-or-remove-one", "--users", 30, "--no-evaluate",
        "--out", "result", "--ledger", "people.ledger", "--trace", "--verbose", *more,
    )  # fmt: skip
    assert done.code == 0, done.err
    with sqlite3.connect("people.ledger") as database:
        charged = [
            database.execute("SELECT * FROM charges").fetchall(),
            [row[2:] for row in database.execute("SELECT * FROM runs")],
        ]
    written = {name: Path("result", name).read_bytes() for name in files_in(Path("result"))}
    return {"out": done.out, "err": done.err, "ledger": charged, **written}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "more",
    [(), ("--mechanism", "laplace"), ("--debias", "poisson"), ("--workers", 2)],
    ids=["usual", "laplace", "debias", "workers"],
)
def test_folder_screen_trace_and_ledger_are_the_same_without_the_user(
    fedhist: Fedhist, tmp_path: Path, gone: str, kind: str, more: tuple[object, ...]
) -> None:
    listed = ("--items-file", "items.txt", *more)
    with_user = left_by(fedhist, tmp_path / "with", [*ROWS, (gone, *KINDS[kind])], *listed)
    without = left_by(fedhist, tmp_path / "without", ROWS, *listed)
    assert set(with_user) >= {"result.json", "histogram.csv", "plan.json", "trace.jsonl", "report.html"}
    for name, content in with_user.items():
        assert without[name] == content, name
    assert b'"users_public": false' in with_user["result.json"]
    assert "30 users (given, the real number is hidden) x 2 items" in with_user["out"]
    assert not any("40" in text or "41" in text for text in (with_user["err"],))


@pytest.mark.parametrize("release", ["discover", "truncated-laplace"])
def test_over_an_open_domain_only_released_names_and_values_differ(
    fedhist: Fedhist, tmp_path: Path, gone: str, release: str
) -> None:
    open_domain = ("--domain", "open", "--release", release)
    with_user = left_by(fedhist, tmp_path / "with", [*ROWS, (gone, "a-name-of-their-own", 0)], *open_domain)
    without = left_by(fedhist, tmp_path / "without", ROWS, *open_domain)
    for name, content in with_user.items():
        assert without[name] == content, name


def test_a_row_more_is_in_the_sum_whatever_number_was_given(tmp_path: Path) -> None:
    rows = pl.DataFrame({"user": [f"u{number}" for number in range(5_000)], "item": ["tea"] * 5_000})
    for given in (1, 4_999, 5_000, 20_000):
        result = fedhist.histogram(
            rows, items=ITEMS, users=given, neighbours="add-or-remove-one", epsilon=5.0, selector="fixed",
            threshold=2.0, max_threshold=4.0,
        )  # fmt: skip
        assert result.release.histogram == pytest.approx([5_000, 0], abs=30)
        assert result.users == {"release": given}
        assert set(result.seconds.values()) == {report.seconds for report in result.rounds.values()} == {0.0}


class Recording(Watcher):
    """Keeps what a person would see."""

    def __init__(self) -> None:
        self.events = list[Event]()
        self.seen = list[object]()

    def reading(self, stage: str, done: int, total: int) -> None:
        self.seen.append(stage)

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def say(self, text: str) -> None:
        self.seen.append(text)


@pytest.mark.parametrize("neighbours", ["zero-out", "add-or-remove-one"])
def test_progress_says_nothing_of_how_much_is_read(tmp_path: Path, neighbours: str) -> None:
    path, watcher = write_records(tmp_path / "visits.csv", ROWS), Recording()
    hidden = neighbours == "add-or-remove-one"
    asked = Asked(data=path, item_names=ITEMS, users=30 if hidden else None)
    carry_out(asked, {"neighbours": neighbours}, target=lambda: None, watcher=watcher)
    assert any(isinstance(event, Read) for event in watcher.events) == bool(watcher.seen) == (not hidden)


EMPTY: dict[str, Any] = {
    "polars": pl.DataFrame(schema={"user": pl.String, "item": pl.String}),
    "pandas": pd.DataFrame({"user": ["x"], "item": ["y"]}).head(0),
    "pyarrow": pl.DataFrame(schema={"user": pl.Int64, "item": pl.String}).to_arrow(),
    "matrix": csr_array((0, 2), dtype=np.int64),
}


@pytest.mark.parametrize("kind", [*EMPTY, "csv", "jsonl", "empty jsonl", "parquet", "npz"])
@pytest.mark.filterwarnings("ignore:.*nothing was released")
@pytest.mark.parametrize("domain", ["closed", "open"])
def test_an_empty_table_is_answered(tmp_path: Path, kind: str, domain: str) -> None:
    data = EMPTY.get(kind)
    if kind == "csv":
        data = write_records(tmp_path / "rows.csv", [])
    elif kind.endswith("jsonl"):
        data = tmp_path / "rows.jsonl"
        data.write_text("" if kind == "empty jsonl" else "\n")
    elif kind == "parquet":
        data = tmp_path / "rows.parquet"
        EMPTY["polars"].write_parquet(data)
    elif kind == "npz":
        data = tmp_path / "rows.npz"
        save_npz(data, EMPTY["matrix"])
    items = None if domain == "open" or kind in ("matrix", "npz") else ITEMS
    result = fedhist.histogram(
        data,
        items=items,
        domain=domain,
        users=50,
        neighbours="add-or-remove-one",
        epsilon=5.0,
        max_threshold=8.0,
    )
    assert result.release.private
    assert len(result.release.histogram) == (0 if domain == "open" else 2)
    assert np.abs(result.release.histogram).max(initial=0) < 100
    with refused(fedhist.FedhistError, "no-users"):
        fedhist.histogram(data, items=items, domain=domain)


def test_a_ledger_has_charges_of_one_relation(fedhist: Fedhist, tmp_path: Path) -> None:
    write_records(tmp_path / "visits.csv", ROWS)
    (tmp_path / "items.txt").write_text("\n".join(ITEMS))
    relations = {"zero-out": (), "replace-one": (), "add-or-remove-one": ("--users", 30)}
    for first, second in itertools.permutations(relations, 2):
        ledger = f"{first} then {second}.ledger"
        first_run, second_run = (
            fedhist(
                "run", "--data", "visits.csv", "--items-file", "items.txt", "--no-evaluate", "--ledger", ledger,
                "--neighbours", relation, "--out", f"{ledger} {relation}", *relations[relation],
            )
            for relation in (first, second)
        )  # fmt: skip
        assert first_run.code == 0 != second_run.code
        assert f"private for {second} neighbours and the ledger holds entries for {first}" in second_run.err
        assert {c.neighbours for c in BudgetFile.open(tmp_path / ledger, create=False).charges()} == {first}
