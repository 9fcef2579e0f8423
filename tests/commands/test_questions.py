"""`fedhist run --question`: several histograms of the same people under one budget."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.builders import Fedhist, document_in, files_in, page_in, rows_of, runs_in

TOTAL = ("--total-epsilon", 4, "--total-delta", 1e-6)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    random = np.random.default_rng(5)
    pl.DataFrame(
        {
            "user": random.integers(0, 300, 1_500),
            "place": random.choice(["park", "shop: east"], 1_500),
            "kind": random.choice(["rest", "work"], 1_500),
            "hour": random.uniform(0, 24, 1_500),
        }
    ).write_csv(tmp_path / "visits.csv")
    (tmp_path / "places.txt").write_text("park\nshop: east\n")
    return tmp_path / "visits.csv"


@pytest.fixture
def asked(table: Path) -> tuple[object, ...]:
    places = f"place:items-file={table.with_name('places.txt')}:weight=4"
    return (
        *("run", "--data", table, "--question", places, "--question", "when:item=hour:bins=0,12,24"),
        *TOTAL,
    )


def test_each_question_has_a_folder_and_one_table_shows_all(
    fedhist: Fedhist, asked: tuple[object, ...], tmp_path: Path
) -> None:
    outcome = fedhist(*asked, "--seed", 1, "--out", tmp_path / "answers")
    assert "epsilon 4 at delta 1e-06 in all" in outcome.out
    assert "place" in outcome.out and "when" in outcome.out
    document = document_in(tmp_path / "answers")
    assert list(document["questions"]) == ["place", "when"]
    assert 3.96 < document["tight"]["epsilon"] <= 4 < document["total"]["epsilon"]
    for name in ("place", "when"):
        folder = tmp_path / "answers" / name
        assert {"histogram.csv", "plan.json", "report.html", "result.json"} <= set(files_in(folder))
        part = document_in(folder)
        # A page of one answer says what all of them cost.
        assert part.pop("together") == {"questions": 2, **document["tight"]}
        assert (
            "one of 2 questions about the same users. Together they cost epsilon" in page_in(folder).words()
        )
        assert part.items() <= document["questions"][name].items()
    assert [row["item"] for row in rows_of(tmp_path / "answers" / "place" / "histogram.csv")] == [
        "park",
        "shop: east",
    ]
    assert "holds the answers to several questions" in fedhist("report", tmp_path / "answers").err
    plans = [document["questions"][name]["plan"] for name in ("place", "when")]
    assert plans[0]["epsilon"] > 1.5 * plans[1]["epsilon"]


def test_json_is_one_document_and_the_same_seed_gives_it_again(
    fedhist: Fedhist, asked: tuple[object, ...], tmp_path: Path
) -> None:
    before = files_in(tmp_path)
    first, again = (fedhist(*asked, "--seed", 1, "--no-evaluate", "--json").document() for _ in range(2))
    assert first == again
    assert first["questions"]["place"]["status"] == "released"
    assert first["questions"]["place"]["relative_loss"] is None
    assert files_in(tmp_path) == before


def test_masks_and_the_ledger_are_for_all_questions_at_once(
    fedhist: Fedhist, asked: tuple[object, ...], tmp_path: Path
) -> None:
    ledger = tmp_path / "people.ledger"
    flags = ("--masking", "secagg", "--nodes", 6, "--ledger", ledger, "--json")
    document = fedhist(*asked, *flags).document()
    rounds = [document["questions"][name]["rounds"] for name in ("place", "when")]
    # One session: what a participant sent is the same for both.
    assert rounds[0]["release"]["bytes"] == rounds[1]["release"]["bytes"]
    [run] = runs_in(ledger)
    assert run.status == "released"
    assert {charge.parameters["question"] for charge in run.charges} == {"place", "when"}
    shown = fedhist("ledger", "show", ledger)
    assert "questions" in shown.out
    listed = json.loads(fedhist("ledger", "show", ledger, "--json").out)
    assert list(listed["runs"][0]["plan"]["questions"]) == ["place", "when"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--question", "town", *TOTAL), "town"),
        (("--question", "place", "--question", "place", *TOTAL), "two questions are called place"),
        (("--question", "place:weight=0", *TOTAL), "the weight of place is 0"),
        (("--question", "place:weight=much", *TOTAL), "weight of --question place is 'much'"),
        (("--question", "place:wait=2", *TOTAL), "did you mean weight?"),
        (("--question", "place:masking=secagg", *TOTAL), "give it once, for all questions"),
        (("--question", "place:epsilon=1", *TOTAL), "give the question a weight"),
        (("--question", "place:weight=1:weight=2", *TOTAL), "has weight twice"),
        (("--question", "hour:bins=", *TOTAL), "has bins without a value"),
        (("--question", "hour:bins=3,2", *TOTAL), "bins"),
        (("--question", "place"), "--question without --total-epsilon"),
        (("--question", "place", "--epsilon", 1, *TOTAL), "--epsilon with --question"),
        (("--question", "place", "--trials", 2, *TOTAL), "--trials with --question"),
        (("--question", "place", "--bins", "0,1", *TOTAL), "--bins with --question"),
        (("--question", "place:domain=closed", "--no-evaluate", *TOTAL), "inferred from the data"),
    ],
)
def test_what_can_not_be_asked_is_refused_before_anything_is_written(
    fedhist: Fedhist, table: Path, tmp_path: Path, flags: tuple[object, ...], words: str
) -> None:
    before = files_in(tmp_path)
    outcome = fedhist("run", "--data", table, *flags, "--ledger", tmp_path / "people.ledger")
    assert outcome.code == 2
    assert words in " ".join(outcome.err.split())
    assert "?." not in outcome.err
    assert files_in(tmp_path) == before


def test_questions_need_a_table(fedhist: Fedhist) -> None:
    assert "--question without a table" in fedhist("run", "--question", "place", *TOTAL).err


def test_an_answer_of_little_use_is_announced(
    fedhist: Fedhist, asked: tuple[object, ...], tmp_path: Path
) -> None:
    outcome = fedhist(*asked[:-4], "--total-epsilon", 0.02, "--out", tmp_path / "answers")
    assert "note: when: the noise will exceed a typical item" in " ".join(outcome.err.split())
