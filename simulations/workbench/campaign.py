"""`fedhist.Campaign`: a release of every window of a calendar, under one total."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fedhist.client.files.columns import Columns
from fedhist.client.files.new_files import new_file
from fedhist.display.frames import data_frame
from fedhist.display.html_table import html_table
from fedhist.protocol.errors import FedhistError, InvalidInput
from fedhist.protocol.labels.intervals import edges_of
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.plan.settings import PlanSettings
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.concentrated import Limit
from fedhist.protocol.privacy.ledger import Cost
from fedhist.server.campaign.calendar import windows_in
from fedhist.server.campaign.definition import Definition
from fedhist.server.campaign.running import WindowRun, new_campaign, run_due
from fedhist.server.campaign.state import WindowState, ledger_of, opened, states_of
from fedhist.simulations.datasets.loading import Wanted
from fedhist.simulations.report.over_time import campaign_page, released_rows
from fedhist.simulations.workbench.arguments import labels_in
from fedhist.simulations.workbench.carrying_out import Asked, carry_out
from fedhist.simulations.workbench.spelling import python_words
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
    report: bool = True


class Campaign:
    """Releases of the same people's data, one for each window of a calendar, charged to one ledger.

    Get one from `Campaign.new`, or by naming the folder of one that was made before.

    Args:
        folder: of the campaign.
        moved: the folder lies somewhere else than it did, and there is no other copy.
    """

    def __init__(self, folder: str | Path, *, moved: bool = False) -> None:
        with python_words():
            self.definition: Definition = opened(Path(folder), moved=moved)

    @classmethod
    def new(
        cls,
        folder: str | Path,
        *,
        windows: str | Iterable[str],
        ledger: str | Path,
        total_epsilon: float | None = None,
        total_delta: float | None = None,
        user: str = "user",
        item: str = "item",
        count: str | None = None,
        time: str | None = None,
        items: Iterable[str | int] | None = None,
        bins: Collection[float] | str | None = None,
        separator: str | None = None,
        normalise: str | None = None,
        users: int | None = None,
        thresholds: str | None = None,
        discover: str = "each",
        spare: int = 0,
        delay: int = 0,
        **settings: Unpack[PlanSettings],
    ) -> Campaign:
        """Define a campaign, without reading any data. The folder is written whole or not at all.

        The total is split evenly: every window gets the same budget, the largest with which all of them fit into the
        total as the ledger counts.

        Args:
            folder: a new one.
            windows: the calendar: "2026-W40..2026-W52", "2026-W40x13", or a list of windows that share no day.
            ledger: the file that all windows are charged to, made if missing. Without a limit, it gets the total.
            total_epsilon: of all windows together, for one user, ever; None is the ledger's limit.
            total_delta: the same of delta; 1e-6 if left out.
            user: the column of the user, in the tables to come.
            item: the column of the item.
            count: the column of the count.
            time: the column of the time.
            items: the public list of the items. Without it and `bins`, items are found privately.
            bins: rising edges for the numbers in the item column.
            separator: of text files.
            normalise: "nfc" or "casefold", to write names alike.
            users: the number of users, if it is known; nodes of Flower need it.
            thresholds: "choose" one in every window; "narrow", choose near the last one; or "first", choose one in
                the first window and keep it. None is "first" with `visits`, and "choose" without.
            discover: find items in "each" window, beside those that are known from earlier ones, or in the "first".
            spare: windows that the total has room for beside the calendar, to repeat some that broke off.
            delay: days after a window's end before it is due, for data that comes late.
            settings: other fields of `Plan` by name; `visits` gives each user one bound for the whole campaign.
        """
        fields: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        for name in fields:
            if name not in FIELDS:
                raise TypeError(f"Campaign.new() got an unexpected keyword argument {name!r}")
        edges = bins if bins is None or isinstance(bins, str) else ",".join(map(repr, map(float, bins)))
        with python_words():
            reading = {
                "user": user,
                "item": item,
                "count": count,
                "time": time,
                "separator": separator,
                "bins": edges,
                "normalise": normalise,
            }
            listed = labels_in(items)
            made = define(
                Path(folder),
                windows=windows,
                ledger=Path(ledger),
                total_epsilon=total_epsilon,
                total_delta=total_delta,
                reading=reading,
                items=None if listed is None else [str(name) for name in listed],
                plan=fields | {"users": users},
                thresholds=thresholds,
                discover=discover,
                spare=spare,
                delay=delay,
            )
        return cls(made.place)

    def run(
        self,
        data: object,
        *,
        again: str | Iterable[str] = (),
        until: str | date | datetime | None = None,
        engine: str = "in-process",
        nodes: int | None = None,
        ray_address: str | None = None,
        workers: int | None = None,
        memory: str | int | None = None,
        trace: bool = False,
    ) -> dict[str, Result]:
        """Run what is due, in order; the results by window.

        A window whose release is in the folder is never run again. One that was charged and whose result is lost stays
        as it is, unless it is named in `again`: then it is charged and run once more.

        Args:
            data: a table that has the windows' rows, as in `fedhist.histogram`.
            again: windows that broke off.
            until: run what was due then.
            engine: where the devices run, as in `fedhist.histogram`.
            nodes: the number of nodes.
            ray_address: of a cluster.
            workers: the number of processes.
            memory: how much reading a table may use.
            trace: also write what happened.

        Raises:
            HeldByAnother: somebody else is running it.
            InvalidInput: folder, ledger, clock or data that can't be right; nothing was spent.
            BudgetExceeded: the next window does not fit; nothing was spent on it.
        """
        how = HowToRun(
            engine=engine, nodes=nodes, ray_address=ray_address, workers=workers, memory=memory, trace=trace
        )
        running = LocalRunner(self.definition, data, how)
        with python_words():
            run_and_draw(self.definition.place, running, again=again, until=until)
        return running.results

    @property
    def windows(self) -> tuple[str, ...]:
        """The calendar."""
        return tuple(window.text for window in self.definition.windows)

    @property
    def due(self) -> tuple[str, ...]:
        """The windows that `run` would run now."""
        now = datetime.now(UTC)
        return tuple(one.window.text for one in self._states() if one.status(now) == "due")

    @property
    def total(self) -> Limit:
        """What all windows may cost together, for one user, ever."""
        return self.definition.total

    @property
    def spent(self) -> Cost:
        """What the campaign has cost so far, at its total's delta."""
        return Cost(self.total.claimed(spent_on(self._states())), self.total.delta)

    @property
    def left(self) -> Cost:
        """The total's epsilon that is not spent, at its delta."""
        return Cost(max(self.total.epsilon - self.spent.epsilon, 0.0), self.total.delta)

    @property
    def releases(self) -> dict[str, Path]:
        """The folders of the windows that are released."""
        return {one.window.text: one.folder for one in self._states() if one.document is not None}

    @property
    def page(self) -> Path:
        """The page of the campaign, which `run` brings up to date."""
        return self.definition.place / PAGE_FILE

    def to_frame(self) -> Any:
        """All releases as one data frame: a row for each item and window."""
        return data_frame(released_rows(self._states()), None, texts=("window", "item"))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A row for each window, as HEADINGS name them."""
        now = datetime.now(UTC)
        return [row_of(one, now) for one in self._states()]

    def __repr__(self) -> str:
        """How far it has come."""
        try:
            done, spent = len(self.releases), self.spent.epsilon
        except InvalidInput:
            return f"Campaign({str(self.definition.place)!r}, which can't be read)"
        return (
            f"Campaign({str(self.definition.place)!r}, {done} of {len(self.windows)} windows, epsilon {spent:.4g} of "
            f"{self.total.epsilon:.4g} at delta {self.total.delta:.3g})"
        )

    def _repr_html_(self) -> str:
        """How a notebook shows it: the calendar."""
        return html_table(repr(self), self.rows, headings=HEADINGS)

    def _states(self) -> list[WindowState]:
        return states_of(self.definition, ledger_of(self.definition).runs())


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
        raise InvalidInput("--total-delta without --total-epsilon", allowed="both of them, or neither")
    total = None
    if total_epsilon is not None:
        total = Limit(total_epsilon, DEFAULT_DELTA if total_delta is None else total_delta)
    calendar = windows_in(windows)
    how = {name: value for name, value in reading.items() if value is not None}
    columns_in(how, calendar[0] if "time" in how else None)
    fields, closed = dict(plan), rules.get("items") is not None or "bins" in how
    if fields.get("domain") is None:
        fields["domain"] = "closed" if closed else "open"
    if (fields["domain"] == "closed") != closed:
        raise InvalidInput(
            f"a campaign over {'an open domain' if closed else 'a closed domain'} "
            f"{'with' if closed else 'without'} a list of items",
            allowed="--items-file or --bins with a closed domain, and neither with an open one",
            advice="items that are read off the data are not private",
        )
    if "bins" in how:
        fields["items"] = len(edges_of(how["bins"])) - 1
    return new_campaign(
        folder, windows=calendar, ledger=ledger, total=total, reading=how, plan=fields, **rules
    )


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
            columns=columns_in(reading, window.window),
            item_names=None if window.items is None else list(window.items),
            open_domain=window.fields["domain"] == "open",
            normalise=reading.get("normalise"),
            ledger=window.ledger,
            ledger_label=window.label,
            campaign_memory=self.definition.memory,
            **vars(self.how),
        )
        # The data says how many users there are, and the list or the bins how many items.
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


def spent_on(states: Iterable[WindowState]) -> Any:
    """What these windows count."""
    from fedhist.protocol.privacy.concentrated import Spending

    return Spending.total(one.counted for one in states)


def room_left(definition: Definition, states: Iterable[WindowState], budget: BudgetFile) -> int:
    """How many more windows of the later kind fit into the total and the ledger's limit."""
    states = list(states)
    own = definition.total.runs_left(spent_on(states), definition.later.cost)
    ledger = budget.runs_left(definition.later.cost)
    return own if ledger is None else min(own, ledger)


def _moment(until: str | date | datetime | None) -> datetime | None:
    """A time of UTC, from a text, a day, which is its first moment, or a time."""
    if isinstance(until, str):
        try:
            until = datetime.fromisoformat(until)
        except ValueError:
            raise InvalidInput(
                f"--until is {until!r}", allowed="a day or a time, as in 2026-11-18 or 2026-11-18T09:30"
            ) from None
    if until is None:
        return None
    if not isinstance(until, datetime):
        until = datetime(until.year, until.month, until.day)
    return until.replace(tzinfo=UTC) if until.tzinfo is None else until
