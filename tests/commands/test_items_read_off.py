"""A list of items that was inferred from the data: what says that the release is not private, and what refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist import InvalidInput, Plan, read_population, simulate
from tests.builders import Fedhist, document_in, write_npz, write_records
from tests.support.api import ItemOrigin, write_matrix
from tests.support.refusals import refused

REASON = "not private: the items were inferred from the data"
PRIVATE = {"ledger": ("--ledger", "led.db"), "not evaluated": ()}
INFERRED = ("--domain", "closed", "--evaluate")


# Twenty users who have "common", and one who has "secret".
PAIRS = [*((f"u{user}", "common") for user in range(20)), ("u20", "secret")]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_records(tmp_path / "t.csv", PAIRS, "user", "item")


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """A matrix whose items have numbers and no names."""
    return write_npz(tmp_path / "n.npz", np.full((20, 3), 2))


@pytest.fixture
def files(fedhist: Fedhist, table: Path, tmp_path: Path) -> dict[str, Path]:
    """The same data in every kind of file that has names."""
    import polars as pl

    pl.read_csv(table).write_csv(tmp_path / "t.tsv", separator="\t")
    pl.read_csv(table).write_ndjson(tmp_path / "t.jsonl")
    pl.read_csv(table).write_parquet(tmp_path / "t.parquet")
    write_matrix(read_population(table), tmp_path / "t.npz")
    return {kind: tmp_path / f"t.{kind}" for kind in ("csv", "tsv", "jsonl", "parquet", "npz")}


class TestSaid:
    def test_a_list_of_items_read_off_the_data_is_not_private(self, fedhist: Fedhist, table: Path) -> None:
        outcome = fedhist("run", "--data", table, *INFERRED, "--trace", "--out", "r")
        assert outcome.code == 0, outcome.err
        assert outcome.out.count(f"note: {REASON}") == 1
        printed = fedhist("run", "--data", table, *INFERRED, "--json").document()
        for document in (document_in("r"), printed):
            assert document["private"] is False
            assert document["simulation_only"] is True
            assert {"items", "plan", "released_items", "significant_items"} <= set(document["not_private"])
            assert [note for note in document["notes"] if "inferred" in note] == [document["notes"][0]]
            assert document["notes"][0].startswith(REASON)
            # What the mechanisms cost is what they cost.
            assert all(entry["private"] for entry in document["ledger"])
            assert document["total"]["epsilon"] == pytest.approx(1.1)
        assert Path("r/NOT-PRIVATE.txt").read_text().startswith(REASON)
        page = Path("r/report.html").read_text(encoding="utf-8")
        assert "not private: do not publish" in page
        assert REASON.removeprefix("not private: t") in page
        assert "weighted-quantile (not private)" not in outcome.out

    @pytest.mark.parametrize(
        ("flags", "what"),
        [
            (("n.npz", "--top-items", 2, "--domain", "closed"), "the top items"),
            (("n.npz", "--top-items", 2, "--domain", "open"), "the top items"),
            (("t.csv", "--normalise", "nfc", "--domain", "closed"), "the items"),
        ],
    )
    def test_top_items_of_any_domain_and_renamed_ones_say_it_too(
        self, fedhist: Fedhist, numbered: Path, table: Path, flags: tuple[Any, ...], what: str
    ) -> None:
        document = fedhist("run", "--data", *flags, "--evaluate", "--json").document()
        assert document["private"] is False
        assert document["notes"][0].startswith(f"not private: {what} were inferred from the data")


class TestRefused:
    def test_from_python_too(self, table: Path) -> None:
        population = read_population(table)
        plan = Plan(users=population.users, items=population.domain_size)
        spent: list[Any] = []
        for asked, code in (({}, "items-from-the-data"), ({"evaluate": True}, "not-private")):
            with refused(InvalidInput, code):
                simulate(population, plan, journal=spent.append, **asked)
        assert spent == []
        result = simulate(population, plan, evaluate=True)
        assert not result.release.private
        assert result.notes[0].startswith(REASON)
        assert "inferred from the data" in result._repr_html_()


class TestAllowed:
    @pytest.mark.parametrize("flags", PRIVATE.values(), ids=PRIVATE)
    @pytest.mark.parametrize("how", ["list", "open", "numbers", "synthetic", "synthetic top"])
    def test_public_items_are_private_as_before(
        self, fedhist: Fedhist, table: Path, numbered: Path, flags: tuple[str, ...], how: str
    ) -> None:
        Path("items.txt").write_text("common\nrare\n")
        asked = {
            "list": ("--data", table, "--items-file", "items.txt"),
            "open": ("--data", table, "--domain", "open", "--max-threshold", 50),
            "numbers": ("--data", numbered),
            "synthetic": ("--users", 50, "--items", 5),
            "synthetic top": ("--users", 50, "--items", 5, "--top-items", 2),
        }[how]
        outcome = fedhist("run", *asked, *flags, "--out", "r")
        assert outcome.code == 0, outcome.err
        document = document_in("r")
        assert "items" not in document.get("not_private", [])
        # Synthetic users are evaluated, and nobody.
        evaluated = how.startswith("synthetic")
        assert document["private"] is not evaluated
        assert Path("r/NOT-PRIVATE.txt").exists() == evaluated


class TestOrigin:
    def test_of_what_is_read(self, files: dict[str, Path], numbered: Path) -> None:
        for path in files.values():
            assert read_population(path).item_origin is ItemOrigin.DATA
            assert read_population(path, items=["common"]).item_origin is ItemOrigin.PUBLIC
            assert read_population(path, top_items=1).item_origin is ItemOrigin.TOP
        plain = read_population(numbered)
        assert plain.item_origin is ItemOrigin.PUBLIC
        assert plain.select_items([0, 1]).item_origin is ItemOrigin.PUBLIC

    def test_a_list_does_not_undo_a_choice_by_totals(self, table: Path) -> None:
        top = read_population(table, top_items=2)
        assert top.select_items([0], labels=["common"]).item_origin is ItemOrigin.TOP
