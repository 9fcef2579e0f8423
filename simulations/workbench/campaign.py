"""`fedhist.Campaign`: a release of every window of a calendar, under one total."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fedhist.display.frames import data_frame
from fedhist.display.html_table import html_table
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.labels.intervals import checked_edges
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.plan.settings import PlanSettings
from fedhist.protocol.privacy.concentrated import Limit
from fedhist.protocol.privacy.ledger import Cost
from fedhist.server.campaign.definition import Definition
from fedhist.server.campaign.state import WindowState, ledger_of, opened, states_of
from fedhist.simulations.report.over_time import released_rows
from fedhist.simulations.workbench.arguments import labels_in
from fedhist.simulations.workbench.campaign_runs import (
    HEADINGS,
    PAGE_FILE,
    HowToRun,
    LocalRunner,
    define,
    row_of,
    run_and_draw,
    spent_on,
)
from fedhist.simulations.workbench.spelling import python_words

if TYPE_CHECKING:
    from fedhist.simulations.simulation import Result


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
        thresholds: str = "choose",
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
            users: the number of users, if it is known; nodes of Flower need it. With `neighbours="add-or-remove-one"`
                the number that stands for that of the users, which is hidden then.
            thresholds: "choose" one in every window; "narrow", choose near the last one; or "first", choose one in
                the first window and keep it.
            discover: find items in "each" window, beside those that are known from earlier ones, or in the "first".
            spare: windows that the total has room for beside the calendar, to repeat some that broke off.
            delay: days after a window's end before it is due, for data that comes late.
            settings: other fields of `Plan` by name.
        """
        fields: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        for name in fields:
            if name not in FIELDS:
                raise TypeError(f"Campaign.new() got an unexpected keyword argument {name!r}")
        with python_words():
            edges = (
                bins if bins is None or isinstance(bins, str) else ",".join(map(repr, checked_edges(bins)))
            )
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
