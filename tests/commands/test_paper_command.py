"""`fedhist paper` on tiny sets: every report has its numbers, verdicts, claims and figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import rows_of
from tests.support.api import (
    EXPERIMENTS,
    Setup,
    UserSet,
    basic_total,
    make_population,
    materialise,
    paper_figures,
    paper_tables,
    planned_charges,
    read_file,
    tight_total,
)
from tests.support.api import beyond_module as beyond

WORDS = "user,item\n" + "".join(
    f"u{user},{word}\n" for user in range(60) for word in ("the", "the", "you", "today")[: 1 + user % 4]
)
NUMBER = {"paper", "ours", "low", "high", "verdict", "of_mean", "why", "trials"}


@pytest.fixture
def tiny(monkeypatch):
    """The experiments with a few hundred users."""
    kinds = {"numbers": "paper-non-iid", "text": "paper-non-iid-text"}
    readings = {reading: ("paper-iid", kind, 200) for reading, kind in kinds.items()}
    for module in (paper_tables, paper_figures):
        monkeypatch.setattr(module, "READINGS", readings)
    monkeypatch.setattr(paper_figures, "STAND_IN_USERS", (300, 300))
    monkeypatch.setattr(paper_figures, "DEBIAS_USERS", (500, 500))
    monkeypatch.setattr(beyond, "USERS", (300, 300))


@pytest.fixture
def paper(fedhist, tiny):
    def call(name, *arguments):
        (report,) = fedhist("paper", name, "--quick", "--workers", 1, "--json", *arguments).document()
        return report

    return call


def refusal(outcome):
    """The one sentence with which a call was refused."""
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    return outcome.err


def test_the_table_of_open_domains_has_all_printed_numbers_in_both_readings(paper, tmp_path):
    report = paper("table-open")
    rows = report["rows"]
    assert all(row.keys() >= NUMBER for row in rows)
    by_reading = {name: [row for row in rows if row["reading"] == name] for name in ("numbers", "text")}
    assert {row["paper"] for row in by_reading["numbers"]} == {
        n for line in paper_tables.PRINTED.values() for n in line
    }
    assert {row["d"] for row in by_reading["text"]} == {50}
    missing = [row for row in rows if row["data"] == "Sent. 140"]
    assert len(missing) == 8
    assert all(row["verdict"] == "can't be reproduced" and "Sentiment140" in row["why"] for row in missing)
    assert any("help.sentiment140.com" in note for note in report["notes"])
    assert {row["verdict"] for row in rows if row not in missing} <= {"inside", "outside"}
    assert all(row["low"] <= row["ours"] <= row["high"] for row in rows if row not in missing)
    written = rows_of(tmp_path / "fedhist-paper/table-open.csv")
    assert [row["paper"] for row in written] == [row["paper"] for row in rows]
    assert (tmp_path / "fedhist-paper/NOT-PRIVATE.txt").exists()


def test_a_second_call_takes_the_file_s_word_for_it(paper, tmp_path):
    first = paper("figure-sparsity")
    trials = tmp_path / "fedhist-paper/trials/trials.jsonl"
    lines = trials.read_text()
    assert paper("figure-sparsity")["rows"] == first["rows"]
    assert trials.read_text() == lines


@pytest.mark.parametrize("name", ["figure-open", "figure-bounded", "figure-sparsity", "figure-debias"])
def test_a_figure_has_claims_with_verdicts_and_says_that_nothing_is_printed(name, paper, tmp_path):
    report = paper(name)
    assert report["rows"]
    verdicts = {"holds", "does not hold", "can't be reproduced"}
    assert {claim["verdict"] for claim in report["claims"]} <= verdicts
    assert any("no numbers" in note for note in report["notes"])
    assert any("NOT private" in note for note in report["notes"])
    assert [(tmp_path / path).suffix for path in report["figures"]] == [".svg", ".png"]
    assert all((tmp_path / path).exists() for path in report["figures"])


def test_beyond_sets_ours_against_the_best_of_the_paper_s(paper, tmp_path):
    """On synthetic sets and on the whole of a file, however small."""
    (tmp_path / "good.csv").write_text(table_with(13))
    report = paper("beyond", "--data", "good.csv")
    for row in report["rows"]:
        theirs = {name: value for name, value in row.items() if name.startswith("loss_")}
        assert row["its_loss"] == min(theirs.values())
        assert row["gap"] == pytest.approx(row["estimate"] - row["its_loss"])
        assert row["loss"] > 0
        assert row["result"] in ("better", "worse", "not different")
    assert {row["domain"] for row in report["rows"]} == {"closed", "open"}
    assert {row["data"] for row in report["rows"]} > {"heavy-tailed", "good"}


def test_all_methods_of_beyond_cost_the_same_in_all():
    users = UserSet(kind="heavy-tailed", name="h", users=1000, items=50)
    for cells in (beyond.closed_cells(users, 50, 150.0), beyond.open_cells(users, 150.0)):
        charges = {name: planned_charges(cell.plan(1000, 50)) for name, cell in cells.items()}
        calibrated = [name for name in charges if name.startswith(beyond.DEFAULT)]
        by_total = [tight_total(charges.pop(name)) for name in calibrated]
        totals = [basic_total(of) for of in charges.values()]
        assert len({(round(one.epsilon, 9), round(one.delta, 12)) for one in totals}) == 1
        for tight in by_total:
            assert 0.999 * totals[0].epsilon <= tight.epsilon <= totals[0].epsilon * (1 + 1e-9)
            # Laplace noise alone spends none.
            assert tight.delta in (0, pytest.approx(totals[0].delta))


class TestWords:
    def test_other_data_is_shown_and_not_judged(self, paper, tmp_path):
        (tmp_path / "words.csv").write_text(WORDS)
        rows = paper("table-words", "--data", "words.csv")["rows"]
        mine = [row for row in rows if row["data"] == "words"]
        assert {(row["word"], row["column"]) for row in mine} == {
            (word, column) for word in ("the", "today", "you") for column in ("clipping", "debiasing")
        }
        assert all(row["ours"] is not None and "not the paper's data" in row["why"] for row in mine)
        assert len([row for row in rows if row["data"] == "Sent. 140"]) == 6


def table_with(items, more=""):
    """Sixty users over so many items."""
    lines = (f"u{number % 60},i{number}\n" for number in range(items))
    return "user,item\n" + "".join(lines) + "".join(f"u{user},i0\n" for user in range(60)) + more


BY_SIZE = {"figure-bounded": 100, "figure-sparsity": 1000, "figure-open": 1000, "table-open": 100}


class TestFilesWithFewItems:
    @pytest.mark.parametrize(("name", "needed"), BY_SIZE.items())
    def test_by_name_they_are_refused_before_anything_runs(self, name, needed, fedhist, tiny, tmp_path):
        (tmp_path / "good.csv").write_text(table_with(13))
        refused = refusal(fedhist("paper", name, "--quick", "--workers", 1, "--data", "good.csv"))
        assert f"no file has the {needed:,} items that are needed (good.csv has 13)" in refused
        assert not (tmp_path / "fedhist-paper/trials").exists()

    @pytest.mark.parametrize(("name", "needed"), BY_SIZE.items())
    def test_among_all_they_are_left_out_with_a_note(self, name, needed, tiny, tmp_path):
        (tmp_path / "good.csv").write_text(table_with(13))
        file = read_file(tmp_path / "good.csv", None, 0)
        report = EXPERIMENTS[name](Setup(quick=True, seed=0, workers=1, out=tmp_path, data=(file,)))
        told = f"good.csv has 13 items, and {needed:,} are needed: left out"
        assert any(note.endswith(told) for note in report.notes)
        assert not any("without --data" in note for note in report.notes)
        assert not any(row["data"] == "good" for row in report.rows)
        assert not any(claim.data.startswith("good") for claim in report.claims)

    def test_what_a_file_has_is_used_and_the_rest_is_told(self, paper, tmp_path):
        (tmp_path / "good.csv").write_text(table_with(150))
        report = paper("figure-bounded", "--data", "good.csv")
        assert {(row["data"], row["d"]) for row in report["rows"]} == {("good", 100)}
        assert "good.csv has 150 items, and 1,000 are needed: left out" in report["notes"]


def test_a_synthetic_population_by_name_is_drawn_from_the_seed(paper, tmp_path):
    name = "synthetic:zipf?users=200&items=120"
    rows = paper("figure-bounded", "--data", name)["rows"]
    assert {row["data"] for row in rows} == {"zipf?users=200&items=120"}
    file = read_file(Path(name), None, 5)
    setup = Setup(quick=True, seed=5, workers=1, out=tmp_path, data=(file,))
    expected = materialise(make_population(name, seed=5))
    assert setup.data[0].population.totals().tolist() == expected.totals().tolist()
    assert replace(setup, workers=2).data == setup.data
