"""Rows of tables, their files, and means over trials with their standard deviation and 95 % interval."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhist.display.tables import interval_text
from fedhist.server.disk import new_file

Row = dict[str, Any]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all columns in the order in which they first appear; a missing value is an empty cell."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write_whole(path, text.getvalue().encode())


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the same columns, with their types."""
    import polars as pl

    # Into memory first: on a full disk polars raises an error of its own and leaves half a file.
    file = io.BytesIO()
    pl.DataFrame(list(rows), infer_schema_length=None).write_parquet(file)
    _write_whole(path, file.getvalue())


def _write_whole(path: Path, content: bytes) -> None:
    with new_file(path, force=True) as file:
        file.write(content)


CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """The mean of some trials.

    Args:
        mean: over the trials.
        std: the standard deviation of one trial; None for a single trial.
        low, high: the 95 % interval of the mean, by Student's t; None for a single trial.
        trials: the number of trials.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    trials: int

    def of_runs(self, runs: int) -> tuple[float, float] | None:
        """The interval that contains the mean of this number of new trials in 95 % of cases."""
        return self._around(_student(self.trials) * math.sqrt(1 / self.trials + 1 / runs))

    def among(self, intervals: int) -> tuple[float, float] | None:
        """The mean's interval if this number of intervals must all be right in 95 % of cases (Bonferroni)."""
        return self._around(_student(self.trials, (1 - CONFIDENCE) / intervals) / math.sqrt(self.trials))

    def _around(self, deviations: float) -> tuple[float, float] | None:
        if self.std is None:
            return None
        return self.mean - deviations * self.std, self.mean + deviations * self.std

    def columns(self, name: str = "loss") -> Row:
        """The mean and its interval as columns of a table; `name` is the column of the mean."""
        interval = interval_text(self.low, self.high)
        return {name: self.mean, "interval": interval, "low": self.low, "high": self.high}


def summarise(values: Sequence[float]) -> Summary:
    """The summary of one measurement over the trials."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Summary(mean, None, None, None, 1)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = _student(count) * std / math.sqrt(count)
    return Summary(mean, std, mean - half, mean + half, count)


def _student(trials: int, missed: float = 1 - CONFIDENCE) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(trials - 1, 1 - missed / 2))
