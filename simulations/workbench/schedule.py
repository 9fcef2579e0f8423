"""`fedhist.Schedule`: a release of every window of a calendar, under one total."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fedhist.client.files.columns import Columns
from fedhist.display.tables import data_frame, html_table
from fedhist.protocol.errors import FedhistError, InvalidInput
from fedhist.protocol.item_lists import checked_edges, edges_of
from fedhist.protocol.plan.fields import FIELDS, PlanSettings
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.ledger import Limit, Spending
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.advice import plan_warnings
from fedhist.server.disk import new_file
from fedhist.server.schedule import (
    ScheduleFile,
    WindowState,
    lost_words,
    new_schedule,
    read_schedule,
    run_due,
)
from fedhist.server.steps import planned_charges
from fedhist.simulations.datasets.loading import Wanted
from fedhist.simulations.report.over_time import released_rows, schedule_page
from fedhist.simulations.workbench.arguments import labels_in
from fedhist.simulations.workbench.carrying_out import Asked, carry_out
from fedhist.simulations.workbench.spelling import python_words
from fedhist.simulations.workbench.watching import Watcher

if TYPE_CHECKING:
    from fedhist.simulations.simulation import Result

PAGE_FILE = "index.html"
DEFAULT_DELTA = 1e-6
_NEARLY, _MOST_DELTA = 0.9, 0.4
HEADINGS = ("window", "status", "epsilon", "delta", "items", "threshold", "standard_error")
"""Of a window in `Schedule.show`, what tables show."""


class _Warning(Watcher):
    def say(self, text: str) -> None:
        warnings.warn(text, stacklevel=2)


class Schedule:
    """Releases of the same people's data, one for each window of a calendar, charged to one ledger.

    Its folder holds schedule.toml, a folder for each release, and a page. Get one from `Schedule.new`, or by naming the
    folder of one that was made before.

    Args:
        folder: of the schedule.
        moved: the folder lies somewhere else than it did, and there is no other copy.
        watcher: follows its runs; None warns of what should be known.
    """

    def __init__(self, folder: str | Path, *, moved: bool = False, watcher: Watcher | None = None) -> None:
        with python_words():
            file = read_schedule(Path(folder))
            file.open_ledger(moved=moved)
        self.folder, self.page = file.folder, file.folder / PAGE_FILE
        self._watcher = watcher or _Warning()

    @property
    def file(self) -> ScheduleFile:
        """What its file says now: a session may be older than the last correction."""
        with python_words():
            return read_schedule(self.folder)

    @classmethod
    def new(
        cls,
        folder: str | Path,
        *,
        windows: str | Iterable[str],
        ledger: str | Path,
        data: str | Path | None = None,
        epsilon: float | None = None,
        user: str | int = "user",
        item: str | int = "item",
        count: str | int | None = None,
        time: str | int | None = None,
        items: Iterable[str | int] | None = None,
        bins: Collection[float] | str | None = None,
        separator: str | None = None,
        normalise: str | None = None,
        strict: bool = False,
        users: int | None = None,
        spare: int = 0,
        delay: int = 0,
        **settings: Unpack[PlanSettings],
    ) -> Schedule:
        """Make a schedule, without reading any data. The folder is written whole or not at all.

        The total is split evenly: every window gets the same budget, the largest with which all of them fit into the
        total as the ledger counts.

        Args:
            folder: a new one; its name is that of the schedule.
            windows: the calendar: "2026-W40..2026-W52", "2026-W40x13", or a list of windows that share no day.
            ledger: the file that all windows are charged to, made if missing. Without a limit, it gets the total.
            data: the path of the table, if it is always the same.
            epsilon: of all windows together, for one user, ever; None is the ledger's limit.
            user: the column of the user.
            item: the column of the item.
            count: the column of the count.
            time: the column of the time.
            items: the public list of the items. Without it and `bins`, items are found privately.
            bins: rising edges for the numbers in the item column.
            separator: of text files.
            normalise: "nfc" or "casefold", to write names alike.
            strict: stop at the first row without a user, an item or a count, instead of leaving such rows out.
            users: the number of users, if it is known; nodes of Flower need it. With `neighbours="add-or-remove-one"`
                the number that stands for that of the users, which is hidden then.
            spare: windows that the total has room for beside the calendar, to repeat some that are lost.
            delay: days after a window's end before it is due, for data that comes late.
            settings: other fields of `Plan` by name; `delta` is of all windows together, 1e-6 if left out.
        """
        delta = settings.pop("delta", None)
        closed = items is not None or bins is not None
        plan: dict[str, Any] = {"domain": "closed" if closed else "open", **settings}
        for name in plan:
            if name not in FIELDS:
                raise TypeError(f"Schedule.new() got an unexpected keyword argument {name!r}")
        with python_words():
            if bins is not None and not isinstance(bins, str):
                bins = ",".join(map(repr, checked_edges(bins)))
            names = labels_in(items)
            columns = {
                "user": user,
                "item": item,
                "count": count,
                "time": time,
                "separator": separator,
                "bins": bins,
                "strict": strict or None,
            }
            columns_of(columns, None)
            both = items is not None and bins is not None
            if both or "window" in plan or (plan["domain"] == "closed") != closed:
                raise InvalidInput(
                    "a schedule's plan with a window, or with a domain that its items contradict",
                    allowed="--windows for the calendar; --items-file or --bins with a closed domain, and neither with "
                    "an open one",
                    code="window-or-domain",
                )
            total = None
            if epsilon is not None or delta is not None:
                total = Limit(epsilon, DEFAULT_DELTA if delta is None else delta)  # type: ignore[arg-type]  # refused
            size = len(names) if names is not None else None if bins is None else len(edges_of(bins)) - 1
            fields = {name: value for name, value in plan.items() if value != FIELDS[name].default}
            new_schedule(
                Path(folder),
                windows=[windows] if isinstance(windows, str) else windows,
                ledger=Path(ledger),
                total=total,
                plan=fields | {"users": users, "items": size},
                columns=columns | {"normalise": normalise},
                items=None if names is None else [str(name) for name in names],
                data=None if data is None else Path(data),
                spare=spare,
                delay=delay,
            )
        return cls(folder)

    def run(
        self,
        data: object = None,
        *,
        again: str | Iterable[str] = (),
        until: str | date | None = None,
        engine: str = "in-process",
        nodes: int | None = None,
        ray_address: str | None = None,
        workers: int | None = None,
        memory: str | int | None = None,
        trace: bool = False,
    ) -> dict[str, Result]:
        """Run what is due; the results by window.

        A window whose release is in the folder is never run again. One that was charged and whose result is lost stays
        as it is, unless it is named in `again`: then it is charged and run once more.

        Args:
            data: a table that has the windows' rows, as in `fedhist.histogram`; None for the file that was named.
            again: windows that are lost.
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
        file, results, watcher = self.file, dict[str, Any](), self._watcher
        data = file.data if data is None else data
        if data is None or Wanted(data=data).synthetic is not None or "time" not in file.columns:
            raise InvalidInput(
                "a schedule over data without times",
                allowed="a table, and a column of times that the schedule names",
                advice="nodes of Flower name their own",
                code="no-times",
            )

        def run_window(file: ScheduleFile, state: WindowState, fields: Mapping[str, Any]) -> None:
            hidden = fields.get("neighbours") == Neighbours.ADD_OR_REMOVE_ONE
            asked = Asked(
                data=data,
                users=fields.get("users") if hidden else None,
                columns=columns_of(file.columns, state.window),
                items_file=file.items,
                open_domain=fields["domain"] == "open",
                normalise=file.columns.get("normalise"),
                ledger=file.ledger,
                ledger_label=state.label,
                engine=engine,
                nodes=nodes,
                ray_address=ray_address,
                workers=workers,
                memory=memory,
                trace=trace,
            )

            # The data says how many users there are, unless that is hidden, and the list or the bins how many items.
            settings = {name: value for name, value in fields.items() if name not in ("users", "items")}
            finished = carry_out(asked, settings, target=lambda: state.folder, watcher=watcher)
            results[state.window.text] = finished.result
            if not hidden and not any(shard.nonzeros for shard in finished.loaded.population.shards()):
                watcher.say(f"the data has no rows in {state.window}: its release is noise, and was paid for")

        again = [again] if isinstance(again, str) else again
        try:
            with python_words():
                run_due(self.folder, run_window, again=again, until=until, tell=watcher.say)
        finally:
            with suppress(FedhistError):
                self.show()
        return results

    def show(self) -> dict[str, Any]:
        """Where it stands: every window, what is spent and left, what is next; and bring its page up to date."""
        said = self._standing()
        with new_file(self.page, force=True) as file:
            file.write(schedule_page(said, HEADINGS, cells_of(said)).encode("utf-8"))
        return said

    def to_frame(self) -> Any:
        """All releases as one data frame: a row for each item and window."""
        return data_frame(released_rows(self._standing()["windows"]), None, texts=("window", "item"))

    def _standing(self) -> dict[str, Any]:
        file = self.file
        budget, total = file.open_ledger(), file.total
        limit, left, runs = budget.limit, budget.left(), budget.runs()
        plan, spent, states = file.plan_for(file.windows[0]), file.spent(runs), file.states(runs)
        cost = Spending.of(planned_charges(plan))
        to_come = [state for state in states if state.status in ("due", "waiting")]
        room = min(total.runs_left(spent, cost), budget.runs_left(cost) or 0)
        whole = cost.times(len(states))
        together = file.plan_for(file.windows[0], epsilon=total.epsilon, delta=min(total.delta, _MOST_DELTA))
        weak = {name: text for name, text in plan_warnings(together).items() if name in ("epsilon", "delta")}
        advice = plan_warnings(plan) | {name: f"all windows together: {text}" for name, text in weak.items()}
        claims = (
            ("time" not in file.columns, "it names no column of times, so only nodes of Flower can run it"),
            (
                total.claimed(whole) < _NEARLY * total.epsilon,
                "the windows have less than the total: the ledger's limit is lower, or other runs took of it",
            ),
            (
                len(to_come) == len(states) > sum(state.status == "waiting" for state in states) + 1,
                "several windows are over: one without rows, before the data begins, is paid for like any other",
            ),
            (
                len(to_come) > room,
                f"only {room:,} of the {len(to_come):,} windows to come fit into the total and the ledger's limit",
            ),
        )
        return {
            "folder": str(file.folder),
            "page": str(self.page),
            "ledger": str(file.ledger),
            "total": {"epsilon": total.epsilon, "delta": total.delta},
            "each": cost.cost.to_json(),
            "all": {"epsilon": total.claimed(whole), "delta": total.delta, "sum": whole.epsilon},
            "spent": {"epsilon": total.claimed(spent), "delta": total.delta},
            "limit": None if limit is None else {"epsilon": limit.epsilon, "delta": limit.delta},
            "left": None if left is None else left.to_json(),
            "windows_left": room,
            "windows": [_window(state) for state in states],
            "notes": [
                *(
                    text
                    for name, text in advice.items()
                    if "users" in file.plan or name not in ("users", "delta")
                ),
                *(text for holds, text in claims if holds),
                *(lost_words(state) for state in states if state.status == "lost"),
                *(f"next: {one.window}, due from {one.due_from:%Y-%m-%d}, 0:00 UTC" for one in to_come[:1]),
            ],
        }

    def __repr__(self) -> str:
        """How far it has come."""
        try:
            said = self._standing()
        except InvalidInput:
            return f"Schedule({str(self.folder)!r}, which can't be read)"
        done = sum(window["status"] == "done" for window in said["windows"])
        return (
            f"Schedule({str(self.folder)!r}, {done} of {len(said['windows'])} windows, epsilon "
            f"{said['spent']['epsilon']:.4g} of {said['total']['epsilon']:.4g} at delta {said['total']['delta']:.3g})"
        )

    def _repr_html_(self) -> str:
        """How a notebook shows it: the calendar."""
        return html_table(repr(self), cells_of(self._standing()), headings=HEADINGS)


def cells_of(said: Mapping[str, Any]) -> list[list[str]]:
    """The windows of what `Schedule.show` returns, as HEADINGS name their values."""
    rows = [[window[name] for name in HEADINGS] for window in said["windows"]]
    return [
        ["" if one is None else one if isinstance(one, str) else f"{one:,.4g}" for one in row] for row in rows
    ]


def columns_of(said: Mapping[str, Any], window: Window | None) -> Columns:
    """The columns that a schedule reads."""
    named = {
        name: said[name] for name in said if name not in ("bins", "normalise") and said[name] is not None
    }
    bins = None if said.get("bins") is None else edges_of(said["bins"])
    return Columns(**named, bins=bins, window=window)


def _window(state: WindowState) -> dict[str, Any]:
    document = state.document or {}
    found = document.get("released_items", 0) > 0
    return {
        "window": state.window.text,
        "status": state.status,
        "due_from": state.due_from.isoformat(),
        "folder": str(state.folder),
        "epsilon": state.counted.epsilon or None,
        "delta": state.counted.delta if state.counted.epsilon else None,
        "items": document.get("released_items"),
        "threshold": document["threshold"] if found else None,
        "standard_error": document["standard_error"] if found else None,
    }
