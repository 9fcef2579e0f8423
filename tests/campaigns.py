"""A small campaign to try things on: four weeks, a table, a ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from fedhist import BudgetFile, Limit
from tests.support.api import Definition, HowToRun, LocalRunner, RunRecord, new_campaign, windows_in

SHOPS = ("bakery", "cinema", "library")
MONDAYS = ("2020-09-28", "2020-10-05", "2020-10-12", "2020-10-19")
WEEKS = ("2020-W40", "2020-W41", "2020-W42", "2020-W43")
TOTAL = Limit(4, 1e-6)


def visits(users: int = 120) -> pl.DataFrame:
    """Everybody goes to a shop in every week; nobody to the library in the first."""
    rows = [
        (f"u{user}", SHOPS[(user + week) % (2 if week == 0 else 3)], day)
        for week, day in enumerate(MONDAYS)
        for user in range(users)
    ]
    return pl.DataFrame(rows, schema=["user", "item", "when"], orient="row")


def campaign_in(folder: Path, **changes: Any) -> Definition:
    """A new campaign over a public list of shops, made before its first week was over."""
    usual: dict[str, Any] = {
        "windows": windows_in("2020-W40..2020-W43"),
        "plan": {"domain": "closed"},
        "items": SHOPS,
        "ledger": folder / "ledger.db",
        "total": TOTAL,
        "reading": {"user": "user", "item": "item", "time": "when"},
        "now": datetime(2020, 9, 1, tzinfo=UTC),
    }
    return new_campaign(folder / "campaign", **usual | changes)


def runner_of(definition: Definition, data: object = None) -> LocalRunner:
    """Runs its windows over this data, without reports."""
    return LocalRunner(definition, visits() if data is None else data, HowToRun())


def runs_of(definition: Definition) -> list[RunRecord]:
    """The windows' runs in its ledger."""
    return [run for run in BudgetFile.open(definition.ledger, create=False).runs() if "kind" not in run.plan]


def bytes_in(folder: Path) -> dict[str, bytes]:
    """Everything that the campaign released."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.glob("2020-*/*"))
        if path.is_file()
    }
