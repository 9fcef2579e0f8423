"""A small schedule to try things on: four weeks, a table, a ledger."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fedhist
from fedhist import BudgetFile
from tests.support.api import RunRecord, schedule_module

SHOPS = ("bakery", "cinema", "library")
MONDAYS = ("2020-09-28", "2020-10-05", "2020-10-12", "2020-10-19")
WEEKS = ("2020-W40", "2020-W41", "2020-W42", "2020-W43")
TOTAL = fedhist.Limit(4, 1e-6)


def visits(users: int = 120) -> pl.DataFrame:
    """Everybody goes to a shop in every week; nobody to the library in the first."""
    rows = [
        (f"u{user}", SHOPS[(user + week) % (2 if week == 0 else 3)], day)
        for week, day in enumerate(MONDAYS)
        for user in range(users)
    ]
    return pl.DataFrame(rows, schema=["user", "item", "when"], orient="row")


@contextmanager
def clock(*time: int, zone: Any = UTC) -> Iterator[None]:
    """The machine's clock shows this time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(schedule_module, "now", lambda: datetime(*time, tzinfo=zone))
        yield


def schedule_in(folder: Path, **changes: Any) -> fedhist.Schedule:
    """A new one over a public list of shops, made before its first week was over."""
    usual: dict[str, Any] = {
        "windows": "2020-W40..2020-W43",
        "items": SHOPS,
        "ledger": folder / "ledger.db",
        "epsilon": TOTAL.epsilon,
        "delta": TOTAL.delta,
        "time": "when",
    }
    with clock(2020, 9, 1):
        return fedhist.Schedule.new(folder / "autumn", **usual | changes)


def statuses(made: fedhist.Schedule) -> list[str]:
    """Of its windows, in order."""
    return [window["status"] for window in made.show()["windows"]]


def ledger_of(made: fedhist.Schedule) -> BudgetFile:
    """The file that it charges."""
    return BudgetFile.open(said_in(made)["ledger"], create=False)


def said_in(made: fedhist.Schedule) -> dict[str, Any]:
    """What its file says."""
    return tomllib.loads((made.folder / "schedule.toml").read_text(encoding="utf-8"))


def runs_of(made: fedhist.Schedule) -> list[RunRecord]:
    """The windows' runs in its ledger."""
    return [run for run in ledger_of(made).runs() if "kind" not in run.plan]


def bytes_in(folder: Path) -> dict[str, bytes]:
    """Everything that was released."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.glob("2020-*/*"))
        if path.is_file()
    }
