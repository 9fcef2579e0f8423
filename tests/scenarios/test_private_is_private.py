"""A run that says `private` can't be undone by who reads all of it, and no output shows a person's row."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import fedhist as library
from fedhist import Plan
from tests.builders import Fedhist, document_in, files_in, rows_of, write_records

ITEMS = ["park", "zoo", "library"]
PEOPLE = [(f"u{user}", item, 1 + user % 3) for user in range(300) for item in ITEMS[: 1 + user % 2]]
ROW = {"park": 79_199, "zoo": 60_077, "library": 50_021}
"""What one user has: numbers that nobody else has, nor all together."""
NOT_PRIVATE = "note: evaluated run, not private: it was compared with the exact data\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "items.txt").write_text("\n".join(ITEMS))
    return write_records(tmp_path / "t.csv", PEOPLE, "user", "item", "count")


def counts_without_noise(folder: Path) -> list[float]:
    """Who reads a seeded folder draws its noise again, over users who have nothing, and takes it off."""
    document = document_in(folder)
    plan = replace(Plan.from_json(document["plan"]), selector="fixed", threshold=document["threshold"])
    nobody = library.SparsePopulation.from_scipy(csr_array((plan.users, plan.items or 0), dtype=np.int64))
    noise = library.simulate(nobody, plan, seed=document["seed"]).release.histogram
    return [
        round(float(row["value"]) - one)
        for row, one in zip(rows_of(folder / "histogram.csv"), noise, strict=True)
    ]


class TestSeeds:
    def test_the_noise_of_a_seeded_run_can_be_taken_off_so_it_is_not_private_nor_charged(
        self, fedhist: Fedhist, table: Path, tmp_path: Path
    ) -> None:
        fixed = ("--selector", "fixed", "--threshold", 50)
        run = ("run", "--data", table, "--items-file", "items.txt", *fixed, "--seed", 7)
        outcome = fedhist(*run, "--out", "r")
        exact = [sum(count for _, item, count in PEOPLE if item == one) for one in ITEMS]
        assert counts_without_noise(tmp_path / "r") == exact
        assert document_in("r")["private"] is False
        assert outcome.out.startswith("note: seeded run, not private")
        assert Path("r/NOT-PRIVATE.txt").read_text().startswith("seeded run, not private")
        before = files_in(tmp_path)
        refused = fedhist(*run, "--ledger", "l")
        assert (refused.code, files_in(tmp_path)) == (2, before)
        assert refused.err.startswith("error: --ledger with --seed")

    def test_synthetic_users_are_nobody(self, fedhist: Fedhist) -> None:
        run = ("run", "--users", 200, "--items", 4, "--seed", 1, "--ledger", "l", "--json")
        document = fedhist(*run).document()
        assert (document["private"], document["relative_loss"] is None) == (False, False)
        assert library.histogram("synthetic:zipf?users=200&items=4").relative_loss is not None


class TestEvaluation:
    def test_people_are_evaluated_on_request_alone_and_that_is_not_private(
        self, fedhist: Fedhist, table: Path, tmp_path: Path
    ) -> None:
        listed = ("run", "--data", table, "--items-file", "items.txt")
        assert fedhist(*listed, "--ledger", "l", "--out", "usual").code == 0
        usual = document_in("usual")
        assert usual["private"] is True and usual["relative_loss"] is None
        assert "simulation.json" not in files_in(tmp_path / "usual")
        outcome = fedhist(*listed, "--evaluate", "--out", "looked")
        assert outcome.out.startswith("note: evaluated run, not private")
        assert document_in("looked")["private"] is False
        refused = fedhist(*listed, "--evaluate", "--ledger", "m")
        assert refused.err.startswith("error: --ledger with --evaluate") and not Path("m").exists()

    def test_items_are_found_privately_on_both_sides_and_a_small_table_says_what_to_do(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        small = write_records(tmp_path / "s.csv", PEOPLE[:9], "user", "item", "count")
        for flags in ((), ("--evaluate",)):
            first = fedhist("run", "--data", small, *flags, "--out", f"r{len(flags)}").out.split(
                "population"
            )[0]
            assert document_in(f"r{len(flags)}")["plan"]["domain"] == "open"
            # That it is not private comes before all else.
            if flags:
                first = first.removeprefix(NOT_PRIVATE)
            assert first.startswith("note: nothing was released")
            for words in ("--items-file", "more users", "--epsilon", "--evaluate"):
                assert words in first
        with pytest.warns(UserWarning, match="nothing was released.*items=.*evaluate=True"):
            library.histogram(small)


@pytest.mark.parametrize("masks", [(), ("--masking", "secagg", "--nodes", 10)], ids=["clear", "masked"])
@pytest.mark.parametrize("domain", ["closed", "open"])
@pytest.mark.parametrize("evaluated", [True, False])
def test_no_output_shows_a_persons_row(
    fedhist: Fedhist, tmp_path: Path, masks: tuple[Any, ...], domain: str, *, evaluated: bool
) -> None:
    """The users are sorted by their totals: the one with the row is the one whom a view used to show."""
    few = [(f"u{user}", item, 1) for user in range(66) for item in ITEMS]
    rows = few[: 3 * 65] + [("somebody-known", item, count) for item, count in ROW.items()]
    write_records(tmp_path / "t.csv", rows, "user", "item", "count")
    (tmp_path / "items.txt").write_text("\n".join(ITEMS))
    listed = ("--items-file", "items.txt") if domain == "closed" else ("--epsilon", 20)
    flags = (*listed, *masks, *(("--evaluate",) if evaluated else ()))
    common = ("--max-threshold", 10**6, "--selector", "fixed", "--threshold", 10**6, "--trace", "--verbose")
    outcome = fedhist("run", "--data", "t.csv", *common, *flags, "--out", "r")
    assert outcome.code == 0, outcome.err
    told = outcome.out + outcome.err + fedhist("trace", "show", "r", "--every-message").out
    told += "".join(path.read_text(errors="replace") for path in Path("r").iterdir())
    told = told.replace(",", "").replace("\N{NO-BREAK SPACE}", "")
    for number in ROW.values():
        # Not as some of the digits of a time.
        assert not re.search(rf"(?<!\d){number}(?!\d)", told)
    assert "somebody-known" not in told
    if evaluated:
        views = json.loads(Path("r/simulation.json").read_text())["views"]
        assert views and {view["participant"] for view in views} == {"a made-up user"}
