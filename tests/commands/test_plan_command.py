"""`fedhist plan` as a user calls it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedhist import HeavyTailedPopulation, Plan, plan_for_total
from tests.builders import Fedhist, rows_of
from tests.support.api import Outlook, Predictor, curve, print_curve, row_of

SMALL = ("plan", "--users", 800, "--items", 20)
PREDICTOR = Predictor(HeavyTailedPopulation(users=800, items=20, seed=0))
DATA = "user,item,count\nana,park,3\nana,zoo,1\nben,park,9\ncleo,museum,2\ndan,park,40\n"


class TestRows:
    def test_they_are_the_predictions_with_their_cost(self, fedhist: Fedhist) -> None:
        document = fedhist(*SMALL, "--epsilon", "0.5,2", "--epsilon-select", 0.2, "--json").document()
        for row, epsilon in zip(document["rows"], (0.5, 2.0), strict=True):
            expected = PREDICTOR.predict(Plan(users=800, items=20, epsilon=epsilon, epsilon_select=0.2))
            assert row["relative_loss"] == expected.relative_loss
            assert row["threshold"] == expected.threshold
            assert (row["epsilon"], row["epsilon_select"]) == (epsilon, 0.2)
            assert row["total_epsilon"] == pytest.approx(epsilon + 0.2)
            assert row["tight_epsilon"] < row["total_epsilon"]
        assert document["private"] is False
        assert document["epsilon_is"] == "histogram"

    @pytest.mark.parametrize(
        ("text", "epsilons"),
        [
            ("1", [1.0]),
            ("2,1", [1.0, 2.0]),
            ("0.1:10:3", [0.1, 1.0, 10.0]),
            ("1.0001:1.0009:5", [1.0]),
            ("0.5:1", pytest.approx(np.geomspace(0.5, 1, 10), rel=1e-2)),
        ],
    )
    def test_a_range_is_read(self, fedhist: Fedhist, text: str, epsilons: Any) -> None:
        rows = fedhist(*SMALL, "--epsilon", text, "--delta", 0, "--json").document()["rows"]
        assert [row["epsilon"] for row in rows] == epsilons
        assert {row["delta"] for row in rows} == {0.0}

    def test_with_best_split_an_epsilon_is_a_total_and_no_other_split_is_better(
        self, fedhist: Fedhist
    ) -> None:
        document = fedhist(*SMALL, "--epsilon", "0.5,3", "--best-split", "--json").document()
        assert document["epsilon_is"] == "total"
        for row, total in zip(document["rows"], (0.5, 3.0), strict=True):
            assert total * (1 - 1e-4) < row["tight_epsilon"] <= total < row["total_epsilon"]
            for share in (0.01, 0.5):
                other = plan_for_total(
                    total_epsilon=total, users=800, items=20, epsilon_select=round(total * share, 6)
                )
                assert PREDICTOR.predict(other).relative_loss >= row["relative_loss"]
        usual = plan_for_total(total_epsilon=3.0, users=800, items=20)
        assert document["default_split_losses"][1] == PREDICTOR.predict(usual).relative_loss
        assert any("splits it by itself" in note for note in document["notes"])

    def test_an_open_domain_has_keys(self, fedhist: Fedhist) -> None:
        flags = ("--domain", "open", "--epsilon", "0.5,20", "--max-threshold", 100)
        few, many = fedhist(*SMALL, *flags, "--json").document()["rows"]
        assert 0 <= few["recall"] < many["recall"] <= 1 + 1e-9
        assert many["released_items"] == pytest.approx(20 * many["recall"], rel=0.01)
        assert "keys" in fedhist(*SMALL, *flags).out

    def test_a_file_is_read_and_told_to_be_public(self, fedhist: Fedhist, tmp_path: Path) -> None:
        (tmp_path / "visits.csv").write_text(DATA)
        outcome = fedhist("plan", "--data", "visits.csv", "--epsilon", "1,100")
        assert outcome.code == 0, outcome.err
        assert "4 users (the number is public) x 3 items (visits.csv)" in outcome.out
        assert "not private: that data must be public" in outcome.out
        assert "Nothing was charged" in " ".join(outcome.out.split())

    def test_a_selector_without_a_known_law_is_drawn_and_says_so(self, fedhist: Fedhist) -> None:
        document = fedhist(*SMALL, "--epsilon", 1, "--selector", "m-quantile", "--json").document()
        assert document["rows"][0]["draws"] == 5
        assert document["rows"][0]["delta_select"] == 1e-6
        assert any("no known law" in note for note in document["notes"])

    def test_a_useless_answer_is_told_before_it_costs(self, fedhist: Fedhist) -> None:
        flags = ("plan", "--users", 2_000, "--items", 1_000, "--domain", "open", "--epsilon", "0.1,20")
        notes = fedhist(*flags, "--json").document()["notes"]
        assert any("up to epsilon 0.1," in note and "empty histogram" in note for note in notes)

    def test_a_few_users_of_a_named_family_stand_for_many(self, fedhist: Fedhist) -> None:
        document = fedhist(
            "plan", "--users", 300_000, "--items", 100, "--sizes", "50:8,99:90", "--epsilon", 1, "--json"
        ).document()
        assert document["population"]["users"] == 300_000
        notes = " ".join(document["notes"])
        assert "20,000 users of this population stand for all 300,000" in notes
        assert "lognormal totals between 50 %: 8, 99 %: 90" in notes

    def test_the_oracle_costs_no_finite_epsilon_and_nothing_is_written(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        assert "not private" in fedhist(*SMALL, "--epsilon", 1, "--selector", "oracle").out
        assert list(tmp_path.iterdir()) == []
        document = fedhist(*SMALL, "--epsilon", 1, "--selector", "oracle", "--json").document()
        assert document["rows"][0]["total_epsilon"] is None


class TestTable:
    @staticmethod
    def printed(width: int, kind: dict[str, Any]) -> str:
        fields = {"users": 800, "items": 20} | kind
        outlook = Outlook(PREDICTOR, fields)
        epsilons = [0.5, 2.0, 20.0]
        console = Console(file=io.StringIO(), width=width)
        rows = [row_of(row) for row in curve(outlook, epsilons, totals=False)]
        print_curve(console, epsilons, rows, totals=False, target=0.5)
        return console.file.getvalue()

    @pytest.mark.parametrize("kind", [{}, {"domain": "open", "items": None, "max_threshold": 100}])
    @pytest.mark.parametrize("width", [80, 100, 120, 200])
    def test_it_fits_the_terminal_with_a_falling_curve(self, width: int, kind: dict[str, Any]) -> None:
        lines = self.printed(width, kind).splitlines()
        assert max(map(len, lines)) <= width
        assert "…" not in "".join(lines)
        dots = [line.index("●") for line in lines if "●" in line]
        assert len(dots) == 3
        assert dots == sorted(dots, reverse=True)
        assert dots[0] > dots[-1]


class TestTarget:
    def test_the_epsilon_that_is_told_reaches_it_and_a_little_less_does_not(self, fedhist: Fedhist) -> None:
        target = fedhist(*SMALL, "--target-error", 0.5, "--json").document()["target"]
        at, below = (
            PREDICTOR.predict(Plan(users=800, items=20, epsilon=epsilon)).relative_loss
            for epsilon in (target["epsilon"], 0.97 * target["epsilon"])
        )
        assert at <= 0.5 < below
        assert f"--epsilon {target['epsilon']:g} " in target["words"]

    def test_a_range_that_begins_below_it_says_so(self, fedhist: Fedhist) -> None:
        target = fedhist(*SMALL, "--epsilon", "5:10:3", "--target-error", 0.9, "--json").document()["target"]
        assert target["at_start_of_range"]
        assert target["epsilon"] == 5.0

    def test_out_of_reach_still_shows_all_and_names_the_best_and_where(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        call = (*SMALL, "--epsilon", "1:4:3", "--target-error", 0.001)
        outcome = fedhist(*call, "--figure", "ahead.svg")
        assert (outcome.code, outcome.err) == (0, "")
        document = fedhist(*call, "--json").document()
        target = document["target"]
        assert not target["reached"] and target["epsilon"] is None
        assert target["least_error"] == min(row["relative_loss"] for row in document["rows"])
        assert target["least_at_epsilon"] == 4.0
        said = " ".join(outcome.out.split())
        assert "none of this range is predicted to reach it" in said
        least = float(said.split("The least error is ")[1].split(",")[0])
        assert least == pytest.approx(target["least_error"], rel=1e-3)
        assert "at epsilon 4;" in said
        assert "0.001 is out of reach" in (tmp_path / "ahead.svg").read_text()

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (
                (
                    "--users",
                    5000,
                    "--items",
                    100,
                    "--epsilon",
                    "1:10:3",
                    "--target-error",
                    0.12,
                    "--epsilon-select",
                    0.01,
                ),
                "epsilon' = 0.01 alone costs",
            ),
            ((*SMALL[1:], "--max-threshold", 3, "--target-error", 0.1), "raise --max-threshold"),
        ],
    )
    def test_out_of_reach_points_at_what_stands_in_the_way(
        self, fedhist: Fedhist, flags: tuple[Any, ...], words: str
    ) -> None:
        """No epsilon of the histogram helps against a poor choice, or against clipping."""
        assert words in fedhist("plan", *flags, "--json").document()["target"]["words"]
        wider = ("--epsilon-select", 2, "--max-threshold", 1500)
        assert fedhist("plan", *flags, *wider, "--json").document()["target"]["reached"]


class TestSplit:
    def test_the_best_split_meets_the_total_and_says_how_flat_it_is(self, fedhist: Fedhist) -> None:
        split = fedhist(*SMALL, "--epsilon", 1, "--total-epsilon", 1.1, "--json").document()["split"]
        row = split["row"]
        assert 1.0999 < row["tight_epsilon"] <= 1.1
        assert split["usual_row"]["relative_loss"] >= row["relative_loss"]
        assert row["relative_loss"] == min(tried["relative_loss"] for tried in split["tried"])
        assert split["flat_from"] <= split["best_share"] <= split["flat_to"]
        for tried in split["tried"]:
            inside = split["flat_from"] <= tried["share"] <= split["flat_to"]
            assert not inside or tried["relative_loss"] <= 1.05 * row["relative_loss"]
        assert "splits tried" in split["words"]

    def test_a_total_delta_is_shared_when_the_selector_spends_some(self) -> None:
        settings = {"users": 800, "items": 20}
        alone = Outlook(PREDICTOR, settings, total_delta=1e-5).split(2.0, 0.25)
        assert alone.delta == 1e-5
        both = Outlook(PREDICTOR, settings | {"selector": "m-quantile"}, total_delta=1e-5).split(2.0, 0.25)
        assert both.epsilon_select == 0.5
        assert both.delta == pytest.approx(0.75e-5)
        assert both.delta_select == pytest.approx(0.25e-5)

    def test_an_epsilon_of_the_choice_that_is_given_is_the_split_of_the_run(self, fedhist: Fedhist) -> None:
        flags = ("--epsilon", 1, "--total-epsilon", 1.1, "--epsilon-select", 0.05)
        assert fedhist(*SMALL, *flags, "--json").document()["split"]["usual_row"]["epsilon_select"] == 0.05


class TestFiles:
    def test_csv_has_the_rows(self, fedhist: Fedhist, tmp_path: Path) -> None:
        document = fedhist(*SMALL, "--epsilon", "1,2", "--csv", "rows.csv", "--json").document()
        losses = [float(row["relative_loss"]) for row in rows_of(tmp_path / "rows.csv")]
        assert losses == [row["relative_loss"] for row in document["rows"]]

    def test_figures_are_drawn(self, fedhist: Fedhist, tmp_path: Path) -> None:
        flags = ("--epsilon", "0.5:8:4", "--target-error", 0.6, "--total-epsilon", 1, "--delta", 0)
        for name, beginning in (("svg", b"<?xml"), ("PNG", b"\x89PNG")):
            assert fedhist(*SMALL, *flags, "--figure", f"f.{name}").code == 0
            assert (tmp_path / f"f.{name}").read_bytes().startswith(beginning)

    def test_a_file_that_exists_is_replaced_with_force(self, fedhist, tmp_path):
        (tmp_path / "rows.csv").write_text("mine")
        assert fedhist(*SMALL, "--epsilon", "1", "--csv", "rows.csv", "--force").code == 0
        assert len(rows_of(tmp_path / "rows.csv")) == 1
