"""One budget for all rounds, and warnings before it is spent, as a user meets them."""

from __future__ import annotations

import pytest

from fedhist import Plan, plan_for_total
from tests.builders import Fedhist

SMALL = ("--users", 1_500, "--items", 20)
TOTAL = ("--total-epsilon", 1.1, "--total-delta", 1e-6)


class TestRun:
    def test_a_total_is_met_by_the_ledger_s_tight_total(self, fedhist: Fedhist) -> None:
        document = fedhist("run", *SMALL, *TOTAL, "--json").document()
        assert 1.0999 < document["tight"]["epsilon"] <= 1.1
        assert document["tight"]["delta"] == 1e-6
        assert Plan.from_json(document["plan"]) == plan_for_total(
            total_epsilon=1.1, total_delta=1e-6, users=1_500, items=20
        )
        (note,) = (note for note in document["notes"] if note.startswith("total epsilon 1.1: "))
        assert "less noise than a total by addition" in note

    def test_a_delta_that_laplace_noise_does_not_spend_is_noted(self, fedhist: Fedhist) -> None:
        document = fedhist("run", *SMALL, *TOTAL, "--mechanism", "laplace", "--json").document()
        assert any("--total-delta 1e-06 is not used" in note for note in document["notes"])
        assert document["total"] == {"epsilon": pytest.approx(1.1), "delta": 0.0}

    def test_a_warning_comes_before_the_run_and_stays_in_the_result(self, fedhist: Fedhist) -> None:
        outcome = fedhist("run", "--users", 50, "--items", 30, "--seed", 1, "--out", "r")
        assert "the noise will exceed a typical item" in outcome.err
        assert "ask at least" in outcome.err
        document = fedhist("run", "--users", 50, "--items", 30, "--seed", 1, "--json").document()
        assert sum("the noise will exceed a typical item" in note for note in document["notes"]) == 1


def test_compare_takes_totals_and_shows_that_they_are_met(fedhist: Fedhist) -> None:
    flags = ("--total-epsilon", "0.5,1.1", "--total-delta", "1/2n", "--selectors", "weighted-quantile,oracle")
    rows = fedhist("compare", *SMALL, *flags, "--trials", 2, "--workers", 1, "--json").document()
    for row in rows:
        total = 0.5 if row["epsilon"] <= 0.5 else 1.1
        if row["selector"] == "oracle":
            assert (row["epsilon"], row["epsilon_tight"]) == (total, None)
        else:
            assert total * 0.9999 < row["epsilon_tight"] <= total
            assert row["delta_tight"] <= 1 / 3_000
