"""A campaign over a table on this machine, from its definition to its page: what the command and `Campaign` call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.client.files.columns import Columns
from fedhist.client.files.item_choice import NORMALISATIONS, ItemChoice
from fedhist.client.files.new_files import new_file
from fedhist.client.files.read import check_bins
from fedhist.protocol.errors import FedhistError, InvalidInput
from fedhist.protocol.labels.intervals import edges_of
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.calibration import is_number
from fedhist.protocol.privacy.concentrated import Limit, Spending
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.campaign.calendar import windows_in
from fedhist.server.campaign.definition import Definition
from fedhist.server.campaign.running import WindowRun, new_campaign, run_due
from fedhist.server.campaign.state import WindowState, ledger_of, opened, states_of
from fedhist.simulations.datasets.loading import Wanted
from fedhist.simulations.report.over_time import campaign_page
from fedhist.simulations.workbench.carrying_out import Asked, carry_out
from fedhist.simulations.workbench.checks import check_population
from fedhist.simulations.workbench.watching import Watcher

if TYPE_CHECKING:
    from fedhist.server.ledger.budget_file import BudgetFile
    from fedhist.simulations.simulation import Result

PAGE_FILE = "index.html"
DEFAULT_DELTA = 1e-6
HEADINGS = ("window", "status", "epsilon", "delta", "items", "threshold", "std. error")
"""Of `Campaign.rows`."""


@dataclass(frozen=True, kw_only=True)
class HowToRun:
    """How a window's rounds are run; nothing of it changes a release or its cost."""

    engine: str = "in-process"
    nodes: int | None = None
    ray_address: str | None = None
    workers: int | None = None
    memory: str | int | None = None
    trace: bool = False


def define(
    folder: Path,
    *,
    windows: str | Iterable[str],
    ledger: Path,
    total_epsilon: float | None,
    total_delta: float | None,
    reading: Mapping[str, Any],
    plan: Mapping[str, Any],
    **rules: Any,
) -> Definition:
    """Make a campaign; a plan without a domain gets the one that its list of items asks for."""
    if total_epsilon is None and total_delta is not None:
        raise InvalidInput(
            "--total-delta without --total-epsilon",
            allowed="both of them, or neither",
            code="total-delta-alone",
        )
    for name, value in (("--total-epsilon", total_epsilon), ("--total-delta", total_delta)):
        if value is not None and not is_number(value):
            raise InvalidInput(f"{name} is {value!r}", allowed="a number", code="bad-value")
    total = None
    if total_epsilon is not None:
        total = Limit(total_epsilon, DEFAULT_DELTA if total_delta is None else total_delta)
    calendar = windows_in(windows)
    how = {name: value for name, value in reading.items() if value is not None}
    columns = columns_in(how, calendar[0] if "time" in how else None)
    if how.get("normalise") not in (None, *NORMALISATIONS):
        raise InvalidInput(
            f"--normalise is {how['normalise']!r}", allowed=", ".join(NORMALISATIONS), code="bad-value"
        )
    rename = NORMALISATIONS[how["normalise"]] if "normalise" in how else None
    check_bins(columns, ItemChoice(listed=rules.get("items"), rename=rename))
    fields, closed = dict(plan), rules.get("items") is not None or "bins" in how
    if fields.get("domain") is None:
        fields["domain"] = "closed" if closed else "open"
    if (fields["domain"] == "closed") != closed:
        raise InvalidInput(
            f"a campaign over {'an open domain' if closed else 'a closed domain'} "
            f"{'with' if closed else 'without'} a list of items",
            allowed="--items-file or --bins with a closed domain, and neither with an open one",
            advice="items that are inferred from the data are not private",
        )
    if hides_users(fields):
        check_population(Wanted(users=fields.get("users"), data=folder), hidden=True)
    if "bins" in how:
        fields["items"] = len(edges_of(how["bins"])) - 1
    return new_campaign(
        folder, windows=calendar, ledger=ledger, total=total, reading=how, plan=fields, **rules
    )


def hides_users(fields: Mapping[str, Any]) -> bool:
    """Whether plans of these fields hide how many users there are, so that the campaign has to give a number."""
    return fields.get("neighbours") == Neighbours.ADD_OR_REMOVE_ONE


def columns_in(reading: Mapping[str, Any], window: Window | None) -> Columns:
    """The columns that a campaign reads."""
    named = {
        name: reading[name] for name in ("user", "item", "count", "separator", "time") if name in reading
    }
    bins = edges_of(reading["bins"]) if "bins" in reading else None
    return Columns(**named, bins=bins, window=window)


@dataclass
class LocalRunner:
    """Runs windows over a table on this machine, and keeps their results."""

    definition: Definition
    data: object
    how: HowToRun
    watcher: Watcher = field(default_factory=Watcher)
    results: dict[str, Result] = field(default_factory=dict)

    def __call__(self, window: WindowRun) -> None:
        """Run one."""
        reading = self.definition.reading
        if "time" not in reading:
            raise InvalidInput(
                "the campaign names no time column, so only nodes of Flower can run it",
                allowed="campaigns that were made with --time-column",
                advice="make a new one with the same ledger",
            )
        asked = Asked(
            data=self.data,
            users=self.definition.plan.get("users") if hides_users(window.fields) else None,
            columns=columns_in(reading, window.window),
            item_names=None if window.items is None else list(window.items),
            open_domain=window.fields["domain"] == "open",
            normalise=reading.get("normalise"),
            ledger=window.ledger,
            ledger_label=window.label,
            **vars(self.how),
        )
        # The data says how many users there are, unless that is hidden, and the list or the bins how many items.
        fields = {name: value for name, value in window.fields.items() if name not in ("users", "items")}

        def on_plan(plan: Any) -> Any:
            window.check(plan)
            return self.watcher.observe

        finished = carry_out(
            asked, fields, target=lambda: window.target, watcher=self.watcher, on_plan=on_plan
        )
        self.results[window.window.text] = finished.result


def run_and_draw(
    folder: Path,
    running: LocalRunner,
    *,
    again: str | Iterable[str],
    until: str | date | datetime | None,
    **how: Any,
) -> list[Window]:
    """Run what is due, and bring the page up to date however that ends."""
    if running.data is None or Wanted(data=running.data).synthetic is not None:
        raise InvalidInput(
            "a campaign over data without times",
            allowed="a table with a column of times: a data frame, or the path of a file",
            code="no-times",
        )
    windows = [Window.parse(text) for text in ([again] if isinstance(again, str) else again)]
    try:
        return run_due(folder, running, again=windows, until=_moment(until), **how)
    finally:
        with suppress(FedhistError):
            write_page(opened(folder))


def write_page(definition: Definition) -> Path:
    """Draw the campaign's page, in the place of the one before."""
    budget = ledger_of(definition)
    text = campaign_page(definition, states_of(definition, budget.runs()), budget, datetime.now(UTC))
    path = definition.place / PAGE_FILE
    with new_file(path, force=True) as file:
        file.write(text.encode("utf-8"))
    return path


def row_of(state: WindowState, now: datetime) -> tuple[str, ...]:
    """A window as HEADINGS name its values."""
    cost, document = state.counted, state.document
    spent = (f"{cost.epsilon:.4g}", f"{cost.delta:.3g}") if cost.epsilon else ("", "")
    if document is None:
        return (state.window.text, state.status(now), *spent, "", "", "")
    threshold, error = document["threshold"], document["standard_error"]
    found = document["released_items"] > 0
    return (
        state.window.text,
        "released",
        *spent,
        f"{document['released_items']:,}",
        f"{threshold:,.4g}" if found else "",
        f"{error:,.4g}" if found and error is not None else "",
    )


def spent_on(states: Iterable[WindowState]) -> Spending:
    """What these windows count."""
    return Spending.total(one.counted for one in states)


def room_left(definition: Definition, states: Iterable[WindowState], budget: BudgetFile) -> int:
    """How many more windows of the later kind fit into the total and the ledger's limit."""
    states = list(states)
    own = definition.total.runs_left(spent_on(states), definition.later.cost)
    ledger = budget.runs_left(definition.later.cost)
    return own if ledger is None else min(own, ledger)


def _moment(until: str | date | datetime | None) -> datetime | None:
    """A time of UTC, from a text, a day, which is its first moment, or a time."""
    if until is None:
        return None
    wrong = InvalidInput(
        f"--until is {until!r}", allowed="a day or a time, as in 2026-11-18 or 2026-11-18T09:30"
    )
    if isinstance(until, str):
        try:
            until = datetime.fromisoformat(until)
        except ValueError:
            raise wrong from None
    if not isinstance(until, date):
        raise wrong
    if not isinstance(until, datetime):
        until = datetime(until.year, until.month, until.day)
    return until.replace(tzinfo=UTC) if until.tzinfo is None else until
