"""Verdicts on the paper: a printed number against our interval, or a claim against our means."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from fedhist.simulations.experiments.summaries import Summary
from fedhist.simulations.experiments.tables import Row, interval_text

PAPER_RUNS = 3
"""The paper averages its open-domain curves over three runs; it does not say how many runs its tables have."""


class Verdict(StrEnum):
    """All verdicts."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    HOLDS = "holds"
    FAILS = "does not hold"
    IMPOSSIBLE = "can't be reproduced"


def rounding_ends(printed: str) -> tuple[float, float]:
    """The smallest and the largest number that round to a printed one, half a unit of the last digit away."""
    number = Decimal(printed)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - finite numbers only
    half = Decimal(5).scaleb(exponent - 1)
    return float(number - half), float(number + half)


def judge(printed: str, ours: Summary) -> Verdict:
    """Inside if some number that rounds to the printed one is in the 95 % interval of the mean of three new runs.

    The paper's number is a mean of few runs and varies as ours do. The interval of our mean alone would shrink with our
    trials until it excludes every such number. A single trial has no interval and must itself round to the number.
    """
    return _overlap(printed, *(ours.of_runs(PAPER_RUNS) or (ours.mean, ours.mean)))


def judge_mean(printed: str, ours: Summary) -> Verdict:
    """The same against the 95 % interval of our mean: whether the printed number could be the exact mean."""
    low, high = ours.low, ours.high
    return _overlap(printed, ours.mean if low is None else low, ours.mean if high is None else high)


def _overlap(printed: str, low: float, high: float) -> Verdict:
    least, most = rounding_ends(printed)
    return Verdict.INSIDE if least <= high and low <= most else Verdict.OUTSIDE


def number_row(where: Row, printed: str, ours: Summary | None, *, why: str = "") -> Row:
    """One row of a table: the paper's number beside ours, and the verdict.

    Args:
        where: the columns that identify the number.
        printed: the paper's number, which stands for all that round to it.
        ours: our trials, or None if there is nothing to run.
        why: what is missing, or a caveat about our number.
    """
    row = where | {
        "paper": printed, "ours": None, "interval": "", "low": None, "high": None, "runs_interval": "",
        "runs_low": None, "runs_high": None, "std": None, "trials": 0, "ratio": None, "away": None,
        "verdict": str(Verdict.IMPOSSIBLE), "of_mean": "", "why": why,
    }  # fmt: skip
    if ours is None:
        return row
    low, high = ours.of_runs(PAPER_RUNS) or (None, None)
    row |= ours.columns("ours") | {
        "runs_interval": interval_text(low, high), "runs_low": low, "runs_high": high,
        "std": ours.std, "trials": ours.trials, "ratio": ours.mean / float(printed),
        "away": None if not ours.std else (float(printed) - ours.mean) / ours.std,
    }  # fmt: skip
    if not why:
        row |= {"verdict": str(judge(printed, ours)), "of_mean": str(judge_mean(printed, ours))}
    return row


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and what we find.

    Args:
        text: what the paper says, with the number by which we judge it.
        data: the users on which we tested it.
        found: what we measured.
        holds: None when the claim can't be tested; then `found` says why.
    """

    text: str
    data: str
    found: str
    holds: bool | None

    def row(self) -> Row:
        """The claim as a row of a table."""
        verdict = Verdict.IMPOSSIBLE if self.holds is None else Verdict.HOLDS if self.holds else Verdict.FAILS
        return {"claim": self.text, "data": self.data, "found": self.found, "verdict": str(verdict)}
