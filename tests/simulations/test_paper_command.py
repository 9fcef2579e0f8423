"""`fedhist paper` on tiny sets: every report has its numbers, verdicts, claims and figures."""

from __future__ import annotations

import csv

import pytest

from fedhist.simulations.experiments import beyond, figure_bounded, figure_debias, figure_open, table_open
from fedhist.simulations.paper_command import EXPERIMENTS

WORDS = "user,item\n" + "".join(
    f"u{user},{word}\n" for user in range(60) for word in ("the", "the", "you", "today")[: 1 + user % 4]
)
NUMBER = {"paper", "ours", "low", "high", "verdict", "of_mean", "why", "trials"}


@pytest.fixture
def tiny(monkeypatch):
    """The experiments with a few hundred users."""
    readings = {
        "numbers": ("paper-iid", "paper-non-iid", 200),
        "text": ("paper-iid", "paper-non-iid-text", 250),
    }
    for module in (table_open, figure_open):
        monkeypatch.setattr(module, "READINGS", readings)
    monkeypatch.setattr(figure_bounded, "STAND_IN_USERS", (300, 300))
    monkeypatch.setattr(figure_debias, "USERS", (2_000, 2_000))
    monkeypatch.setattr(beyond, "USERS", (300, 300))


@pytest.fixture
def paper(fedhist, tiny):
    def call(name, *arguments):
        (report,) = fedhist("paper", name, "--quick", "--workers", 1, "--json", *arguments).document()
        return report

    return call


def test_the_table_of_open_domains_has_all_printed_numbers_in_both_readings(paper, tmp_path):
    report = paper("table-open")
    rows = report["rows"]
    assert all(row.keys() >= NUMBER for row in rows)
    by_reading = {name: [row for row in rows if row["reading"] == name] for name in ("numbers", "text")}
    assert {row["paper"] for row in by_reading["numbers"]} == {
        n for line in table_open.PRINTED.values() for n in line
    }
    assert {row["d"] for row in by_reading["text"]} == {50}
    missing = [row for row in rows if row["data"] == "Sent. 140"]
    assert len(missing) == 8
    assert all(row["verdict"] == "can't be reproduced" and "Sentiment140" in row["why"] for row in missing)
    assert any("help.sentiment140.com" in note for note in report["notes"])
    assert {row["verdict"] for row in rows if row not in missing} <= {"inside", "outside"}
    assert all(row["low"] <= row["ours"] <= row["high"] for row in rows if row not in missing)
    with (tmp_path / "fedhist-paper/table-open.csv").open() as file:
        assert [row["paper"] for row in csv.DictReader(file)] == [row["paper"] for row in rows]
    assert (tmp_path / "fedhist-paper/NOT-PRIVATE.txt").exists()


def test_a_second_call_takes_the_journal_s_word_for_it(paper, tmp_path):
    first = paper("figure-debias")
    journal = tmp_path / "fedhist-paper/journals/figure-debias-quick/journal.jsonl"
    lines = journal.read_text()
    assert paper("figure-debias")["rows"] == first["rows"]
    assert journal.read_text() == lines


@pytest.mark.parametrize("name", ["figure-open", "figure-bounded", "figure-sparsity", "figure-debias"])
def test_a_figure_has_claims_with_verdicts_and_says_that_nothing_is_printed(name, paper, tmp_path):
    report = paper(name)
    assert report["rows"]
    assert {claim["verdict"] for claim in report["claims"]} <= {
        "holds",
        "does not hold",
        "can't be reproduced",
    }
    assert any("no numbers" in note for note in report["notes"])
    assert any("NOT private" in note for note in report["notes"])
    assert [(tmp_path / path).suffix for path in report["figures"]] == [".svg", ".png"]
    assert all((tmp_path / path).exists() for path in report["figures"])


def test_beyond_sets_ours_against_the_best_of_the_paper_s(paper):
    report = paper("beyond")
    for row in report["rows"]:
        theirs = {name: value for name, value in row.items() if name.startswith("loss_")}
        assert row["its_loss"] == min(theirs.values())
        assert row["gap"] == pytest.approx(row["loss"] - row["its_loss"])
        assert row["result"] in ("better", "worse", "not different")
    assert {row["domain"] for row in report["rows"]} == {"closed", "open"}


def test_all_methods_of_beyond_cost_the_same_in_all():
    from fedhist.protocol.privacy.composition import basic_total
    from fedhist.server.coordinator import planned_charges
    from fedhist.simulations.experiments.user_sets import UserSet

    users = UserSet(kind="heavy-tailed", name="h", users=1000, items=50)
    for cells in (beyond.closed_cells(users, 50, 150.0), beyond.open_cells(users, 150.0)):
        totals = [basic_total(planned_charges(cell.plan(1000, 50))) for cell in cells.values()]
        assert len({(round(one.epsilon, 9), round(one.delta, 12)) for one in totals}) == 1


class TestWords:
    def test_without_data_it_says_what_is_missing_and_where_to_get_it(self, fedhist):
        shown = fedhist("paper", "table-words")
        assert shown.code == 0
        assert "can't be reproduced" in shown.out
        assert "help.sentiment140.com" in shown.out

    def test_other_data_is_shown_and_not_judged(self, paper, tmp_path):
        (tmp_path / "words.csv").write_text(WORDS)
        rows = paper("table-words", "--data", "words.csv")["rows"]
        mine = [row for row in rows if row["data"] == "words"]
        assert {(row["word"], row["column"]) for row in mine} == {
            (word, column) for word in ("the", "today", "you") for column in ("clipping", "debiasing")
        }
        assert all(row["ours"] is not None and "not the paper's data" in row["why"] for row in mine)
        assert len([row for row in rows if row["data"] == "Sent. 140"]) == 6

    def test_files_without_the_words_are_refused(self, fedhist, tmp_path):
        (tmp_path / "places.csv").write_text("user,item\na,park\nb,park\n")
        refused = fedhist("paper", "table-words", "--data", "places.csv")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "--vocabulary" in refused.err


class TestCommand:
    def test_help_tells_what_each_takes(self, fedhist):
        for name in [*EXPERIMENTS, "all"]:
            shown = " ".join(fedhist("paper", name, "--help").out.split())
            assert "on two cores" in shown and "--quick" in shown

    def test_a_missing_file_is_one_sentence(self, fedhist, tmp_path):
        refused = fedhist("paper", "all", "--data", "nothing.npz")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("out", ["taken", "taken/p"])
    def test_a_place_where_there_can_be_no_folder_is_one_sentence(self, fedhist, tmp_path, out):
        (tmp_path / "taken").write_text("dear")
        refused = fedhist("paper", "figure-debias", "--quick", "--out", out)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert f"can't write into {out}" in refused.err
        assert "finished trials" not in refused.err
        assert (tmp_path / "taken").read_text() == "dear"

    def test_a_vocabulary_of_another_length_is_refused(self, fedhist, tmp_path):
        from scipy.sparse import csr_array, save_npz

        save_npz(tmp_path / "m.npz", csr_array([[1, 2], [0, 3]]))
        (tmp_path / "v.txt").write_text("the\n")
        refused = fedhist("paper", "table-words", "--data", "m.npz", "--vocabulary", "v.txt")
        assert refused.code == 2
        assert "1 names" in refused.err
