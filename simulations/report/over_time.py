"""The page of a campaign: its items over time with their lower limits, its thresholds, and what is spent and left.

Everything on it is public: releases, plans and charges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from fedhist.display.plurals import counted
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.concentrated import Spending
from fedhist.simulations.report.charts import Line, LineChart, figure, number, style_rules
from fedhist.simulations.report.page import Tile, fill, grid, head, panel, section, text, tiles
from fedhist.simulations.report.run_data import RunData, read_run

if TYPE_CHECKING:
    from fedhist.server.campaign.definition import Definition
    from fedhist.server.campaign.state import WindowState
    from fedhist.server.ledger.budget_file import BudgetFile

ITEMS_SHOWN = 12
REPORT_FILE, HISTOGRAM_FILE = "report.html", "histogram.csv"

Points = Mapping[int, tuple[float, float]]
"""Values by window, each with the lower limit of what it stands for; twice the value if there is none."""


def campaign_page(
    definition: Definition, states: Sequence[WindowState], budget: BudgetFile, now: datetime
) -> str:
    """The whole document."""
    releases = {state.window: read_run(state.folder) for state in states if state.document is not None}
    name = definition.place.name
    parts = [
        head("fedhist campaign", name, _about(definition)),
        tiles(_tiles(definition, states, budget, now)),
        _items(definition, releases),
        _spending(definition, states, releases),
        section(
            "calendar",
            "Calendar",
            panel(_calendar(states, now), kind="panel long"),
            lead="Each window is released once. Cost is that of all its runs, also those that broke off.",
        ),
    ]
    return fill(title=f"fedhist: {name}", body="".join(parts), styles=style_rules())


def released_rows(states: Sequence[WindowState]) -> dict[str, list[Any]]:
    """All releases as columns: a row for each item and window."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("window", "item", "value", "standard_error", "estimate", "at_least")
    }
    for state in states:
        if state.document is None:
            continue
        run = read_run(state.folder)
        columns["window"] += [state.window.text] * len(run.labels)
        columns["item"] += run.labels
        for column, values in zip(
            ("value", "standard_error", "estimate", "at_least"),
            (run.values, run.errors, run.estimates, run.at_least),
            strict=True,
        ):
            columns[column] += values.tolist()
    return columns


def _about(definition: Definition) -> str:
    windows, total = definition.windows, definition.total
    return (
        f"{counted(len(windows), 'window')}, {windows[0]} to {windows[-1]}. All of them together cost one user at most "
        f"epsilon {total.epsilon:g} at delta {total.delta:g}, also where a later one is planned in view of earlier "
        f"releases."
    )


def _tiles(
    definition: Definition, states: Sequence[WindowState], budget: BudgetFile, now: datetime
) -> Iterator[Tile]:
    total, done = definition.total, sum(state.document is not None for state in states)
    spent = Spending.total(state.counted for state in states)
    claimed = total.claimed(spent)
    yield Tile("released", f"{done} of {len(states)}", "windows")
    yield Tile(
        "spent on one user, ever", number(claimed), f"of epsilon {total.epsilon:g}, delta {total.delta:g}"
    )
    limit, left = budget.limit, budget.left()
    if limit is not None and left is not None:
        yield Tile(
            "left in the ledger",
            number(round(left.epsilon, 4)),
            f"of epsilon {limit.epsilon:g}, with all other runs",
        )
    broken = [state for state in states if state.status(now) == "broken off"]
    if broken:
        yield Tile("broken off", f"{len(broken)}", "charged, and not released")
    due = [state for state in states if state.status(now) in ("due", "waiting")]
    if due:
        ready = "due now" if due[0].status(now) == "due" else f"due from {due[0].due_from:%Y-%m-%d}, 0:00 UTC"
        yield Tile("next", due[0].window.text, ready)


def _items(definition: Definition, releases: Mapping[Window, RunData]) -> str:
    """A panel for each of the largest items."""
    if not releases:
        return section("items", "Items over time", "<p>Nothing is released yet.</p>")
    places = {window: place for place, window in enumerate(definition.windows)}
    seen: dict[str, dict[int, tuple[float, float]]] = {}
    for window, run in releases.items():
        for row, label in enumerate(run.labels):
            seen.setdefault(label, {})[places[window]] = float(run.estimates[row]), float(run.at_least[row])
    # The largest in all releases together: an item that one of them lacks has nothing there.
    order = sorted(seen, key=lambda label: -sum(value for value, _ in seen[label].values()))
    shown = order[:ITEMS_SHOWN]
    last = max(places[window] for window in releases)
    windows = definition.windows[: last + 1]
    panels = [
        figure(over_windows(f"item-{place}", label, windows, seen[label], what="estimate"))
        for place, label in enumerate(shown)
    ]
    what = "All items" if len(order) <= len(shown) else f"The {len(shown)} largest of {len(order):,} items"
    return section(
        "items",
        "Items over time",
        grid(*panels),
        lead=f"{what}. The short line below an estimate is at_least, a lower limit of the count (95 %). Clipping takes "
        "away, most from large items.",
    )


def _spending(
    definition: Definition, states: Sequence[WindowState], releases: Mapping[Window, RunData]
) -> str:
    """What was spent after each window that has cost something, and the thresholds."""
    spent = list(accumulate((state.counted for state in states), lambda a, b: Spending.total((a, b))))
    claimed = {
        place: (value := definition.total.claimed(sum_), value)
        for place, (state, sum_) in enumerate(zip(states, spent, strict=True))
        if state.counted.epsilon
    }
    thresholds = {
        place: (run.threshold, run.threshold)
        for place, window in enumerate(definition.windows)
        if (run := releases.get(window)) is not None and not run.found_nothing
    }
    charts = []
    if claimed:
        title = f"Budget: epsilon spent so far, at delta {definition.total.delta:g}"
        limit = definition.total.epsilon
        charts.append(over_windows("budget", title, definition.windows, claimed, what="epsilon", limit=limit))
    if thresholds:
        title = "Thresholds, in counts of one user"
        charts.append(over_windows("thresholds", title, definition.windows, thresholds, what="threshold"))
    return section("budget", "Budget and thresholds", grid(*map(figure, charts))) if charts else ""


def _calendar(states: Sequence[WindowState], now: datetime) -> str:
    heads = ("window", "status", "epsilon", "delta", "items", "threshold", "std. error", "")
    rows = "".join(f"<tr>{''.join(_cells(state, now))}</tr>" for state in states)
    numeric = range(2, 7)
    top = "".join(
        f"<th{' class=number' if place in numeric else ''}>{text(head)}</th>"
        for place, head in enumerate(heads)
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody>'
        "</table></div>"
    )


def _cells(state: WindowState, now: datetime) -> Iterator[str]:
    document, cost = state.document, state.counted.cost
    status = state.status(now)
    yield f"<td>{text(state.window.text)}</td>"
    waits = f" for {state.due_from:%Y-%m-%d}" if status == "waiting" else ""
    yield f"<td>{text(status + waits)}</td>"
    numbers = [number(cost.epsilon), f"{cost.delta:.3g}"] if cost.epsilon else ["", ""]
    if document is None:
        numbers += ["", "", ""]
    else:
        found = document["released_items"] > 0
        error = document["standard_error"]
        numbers += [f"{document['released_items']:,}", number(document["threshold"]) if found else ""]
        numbers.append(number(error) if found and error is not None else "")
    for one in numbers:
        yield f"<td class=number>{text(one)}</td>"
    yield f"<td>{_link(state) if document is not None else ''}</td>"


def _link(state: WindowState) -> str:
    name = REPORT_FILE if (state.folder / REPORT_FILE).is_file() else HISTOGRAM_FILE
    words = "report" if name == REPORT_FILE else "values"
    return f'<a href="{text(state.folder.name)}/{name}">{words}</a>'


def over_windows(
    name: str,
    title: str,
    windows: Sequence[Window],
    points: Points,
    *,
    what: str,
    limit: float | None = None,
) -> LineChart:
    """Values by window with their lower limits and a total."""
    places = sorted(points)
    limited = any(least < value for value, least in points.values())
    ends = [points[place][::-1] for place in places] if limited else []
    lines = [Line(what, "s0", places, [points[place][0] for place in places], ends)]
    if limit is not None:
        lines.append(Line("total", "s1", list(range(len(windows))), [limit] * len(windows)))
    names = short_names(windows)
    return LineChart(name, title, "window", what, truth=False, lines=lines, log_x=False, x_names=names)


def short_names(windows: Sequence[Window]) -> list[str]:
    """The windows' names, without a year that all of them share."""
    texts = [window.text.partition("/")[0] for window in windows]
    shared = len({name[:5] for name in texts}) == 1 and all(len(name) > len("2026-") for name in texts)
    return [name[5:] if shared else name for name in texts]
