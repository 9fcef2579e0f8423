"""When a printed number counts as reproduced, at the edge and beyond, and the intervals behind it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.api import (
    Claim,
    Summary,
    Verdict,
    judge,
    judge_mean,
    number_row,
    result_of,
    rounding_ends,
    summarise,
)


def summary(low, high, trials=10):
    return Summary(mean=(low + high) / 2, std=(high - low) / 4, low=low, high=high, trials=trials)


class TestIntervals:
    def test_mean_spread_and_student_s_interval(self):
        found = summarise([1.0, 2.0, 3.0, 4.0])
        assert found.mean == 2.5
        assert found.std == pytest.approx(math.sqrt(5 / 3))
        # 3.182446 is the 97.5 % quantile of Student's t with 3 degrees of freedom.
        half = 3.182446 * math.sqrt(5 / 3) / 2
        assert (found.low, found.high) == pytest.approx((2.5 - half, 2.5 + half))

    def test_intervals_that_are_to_be_right_all_together_are_wider(self):
        found = summarise([1.0, 2.0, 3.0, 4.0])
        assert found.among(1) == pytest.approx((found.low, found.high))
        # 12.924 is the 99.95 % quantile of Student's t with 3 degrees of freedom.
        half = 12.924 * math.sqrt(5 / 3) / 2
        assert found.among(50) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-4)

    def test_one_trial_has_a_mean_only(self):
        found = summarise([0.5])
        assert found == Summary(mean=0.5, std=None, low=None, high=None, trials=1)
        assert found.of_runs(3) is found.among(50) is None


class TestPrintedNumbers:
    @pytest.mark.parametrize(
        ("text", "low", "high"),
        [
            ("0.001", 0.0005, 0.0015),
            ("0.0026", 0.00255, 0.00265),
            ("0.1250", 0.12495, 0.12505),
            ("7", 6.5, 7.5),
        ],
    )
    def test_they_stand_for_what_rounds_to_them(self, text, low, high):
        assert rounding_ends(text) == (low, high)

    @pytest.mark.parametrize(
        ("low", "high", "verdict"),
        [
            (0.0020, 0.0030, "inside"),
            (0.00265, 0.0030, "inside"),
            (0.002650001, 0.0030, "outside"),
            (0.0010, 0.00255, "inside"),
            (0.0010, 0.002549999, "outside"),
            (0.00256, 0.00257, "inside"),
        ],
    )
    def test_inside_is_touching_our_interval(self, low, high, verdict):
        assert judge_mean("0.0026", summary(low, high)) == verdict

    def test_a_single_trial_must_round_to_it(self):
        assert judge("0.0026", summarise([0.00264])) is Verdict.INSIDE
        assert judge("0.0026", summarise([0.00266])) is Verdict.OUTSIDE

    def test_a_number_that_three_runs_give_may_lie_outside_the_mean_s_interval(self):
        ours = summarise([0.01, 0.02, 0.03, 0.02] * 10)
        assert judge_mean("0.0160", ours) is Verdict.OUTSIDE
        assert judge("0.0160", ours) is Verdict.INSIDE
        assert judge("0.0600", ours) is Verdict.OUTSIDE

    def test_means_of_three_runs_are_inside_in_95_of_100(self):
        random = np.random.default_rng(6)
        inside = 0
        for _ in range(600):
            ours = summarise(random.normal(0.5, 0.01, size=20).tolist())
            paper = f"{random.normal(0.5, 0.01, size=3).mean():.9f}"
            inside += judge(paper, ours) is Verdict.INSIDE
        assert 545 <= inside <= 592


class TestRows:
    def test_a_row_has_both_numbers_and_the_verdict(self):
        row = number_row({"d": 50}, "0.0026", summary(0.002, 0.003))
        assert (row["d"], row["paper"], row["ours"], row["verdict"]) == (50, "0.0026", 0.0025, "inside")
        assert row["ratio"] == pytest.approx(0.0025 / 0.0026)
        assert row["away"] == pytest.approx(0.0001 / 0.00025)

    @pytest.mark.parametrize(
        ("holds", "verdict"), [(True, "holds"), (False, "does not hold"), (None, "can't be reproduced")]
    )
    def test_a_claim_holds_or_not_or_can_t_be_looked_at(self, holds, verdict):
        assert Claim("text", "data", "found", holds).row()["verdict"] == verdict

    @pytest.mark.parametrize(
        ("low", "high", "result"),
        [
            (-2, -1, "better"),
            (1, 2, "worse"),
            (-1, 1, "not different"),
            (0, 1, "not different"),
            (None, None, "unknown"),
        ],
    )
    def test_ours_is_better_when_the_paired_interval_leaves_out_zero(self, low, high, result):
        assert result_of(low, high) == result
