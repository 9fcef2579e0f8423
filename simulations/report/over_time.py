"""The page of a campaign: its items over time with their lower limits, its thresholds, and what is spent and left.

Everything on it is public: releases, plans and charges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from fedhist.display.plurals import counted
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.concentrated import Spending
from fedhist.simulations.report.axes import linear, tick_text
from fedhist.simulations.report.charts import number
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.marks import Box, Dot, Drawing, Mark, Stroke, Words
from fedhist.simulations.report.page import fill
from fedhist.simulations.report.pieces import Tile, section, table, tiles
from fedhist.simulations.report.run_data import RunData, read_run
from fedhist.simulations.report.svg import svg

if TYPE_CHECKING:
    from fedhist.server.campaign.definition import Definition
    from fedhist.server.campaign.state import WindowState
    from fedhist.server.ledger.budget_file import BudgetFile

ITEMS_SHOWN = 12
REPORT_FILE, HISTOGRAM_FILE = "report.html", "histogram.csv"
_WIDTH, _HEIGHT = 480, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 14, 24
_MOST_NAMES = 6

Point = tuple[float, float]
"""A value, and the lower limit of what it stands for; twice the value if there is none."""


def campaign_page(
    definition: Definition, states: Sequence[WindowState], budget: BudgetFile, now: datetime
) -> str:
    """The whole document."""
    releases = {state.window: read_run(state.folder) for state in states if state.document is not None}
    name = definition.place.name
    head = (
        f'<header><p class="kicker">fedhist campaign</p><h1><bdi>{text(name)}</bdi></h1>'
        f"<p class=lead>{text(_about(definition), 600)}</p></header>"
    )
    parts = [
        head,
        tiles(_tiles(definition, states, budget, now)),
        _items(definition, releases),
        _spending(definition, states, releases),
        section(
            "calendar",
            "Calendar",
            f'<div class="panel long">{_calendar(states, now)}</div>',
            lead="Each window is released once. Cost is that of all its runs, also those that broke off.",
        ),
    ]
    data = {
        "name": name,
        "windows": [_window_data(state, now) for state in states],
        "total": {"epsilon": definition.total.epsilon, "delta": definition.total.delta},
    }
    return fill(title=f"fedhist: {name}", body="".join(parts), data=data)


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
    seen: dict[str, dict[int, Point]] = {}
    for window, run in releases.items():
        for row, label in enumerate(run.labels):
            seen.setdefault(label, {})[places[window]] = float(run.estimates[row]), float(run.at_least[row])
    # The largest in all releases together: an item that one of them lacks has nothing there.
    order = sorted(seen, key=lambda label: -sum(value for value, _ in seen[label].values()))
    shown = order[:ITEMS_SHOWN]
    last = max(places[window] for window in releases)
    windows = definition.windows[: last + 1]
    panels = "".join(
        _panel(f"item-{place}", label, windows, seen[label], what="estimate")
        for place, label in enumerate(shown)
    )
    what = "All items" if len(order) <= len(shown) else f"The {len(shown)} largest of {len(order):,} items"
    return section(
        "items",
        "Items over time",
        f'<div class="grid">{panels}</div>',
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
    panels = ""
    if claimed:
        title = f"Budget: epsilon spent so far, at delta {definition.total.delta:g}"
        panels += _panel(
            "budget", title, definition.windows, claimed, what="epsilon", limit=definition.total.epsilon
        )
    if thresholds:
        panels += _panel(
            "thresholds",
            "Thresholds, in counts of one user",
            definition.windows,
            thresholds,
            what="threshold",
        )
    return section("budget", "Budget and thresholds", f'<div class="grid">{panels}</div>') if panels else ""


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


def _window_data(state: WindowState, now: datetime) -> dict[str, Any]:
    return {
        "window": state.window.text,
        "status": state.status(now),
        "epsilon": state.counted.cost.epsilon,
        "delta": state.counted.cost.delta,
    }


def _panel(
    identity: str,
    title: str,
    windows: Sequence[Window],
    points: Mapping[int, Point],
    *,
    what: str,
    limit: float | None = None,
) -> str:
    """Values over windows as a figure, with a table of them."""
    about = (
        f'class="chart" tabindex="0" role="group" data-chart="{identity}" '
        f'aria-label="{text(title)}. Arrow keys read the values."'
    )
    drawn = svg(over_windows(windows, points, what=what, limit=limit), about)
    limited = any(least < value for value, least in points.values())
    rows = [
        [windows[place].text, number(value), *([number(least)] if limited else [])]
        for place, (value, least) in sorted(points.items())
    ]
    heads = ["window", what, *(["at least"] if limited else [])]
    return (
        f'<figure class="panel" id="chart-{identity}"><figcaption><bdi>{text(title)}</bdi></figcaption>{drawn}'
        f"<details><summary>Values</summary>{table(heads, rows)}</details></figure>"
    )


def over_windows(
    windows: Sequence[Window], points: Mapping[int, Point], *, what: str, limit: float | None = None
) -> Drawing:
    """Values by window, joined where windows follow each other, with their lower limits and a total."""
    return Drawing(_WIDTH, _HEIGHT, tuple(_marks(windows, points, what, limit)))


def _marks(
    windows: Sequence[Window], points: Mapping[int, Point], what: str, limit: float | None
) -> Iterator[Mark]:
    step = (_WIDTH - _LEFT - _RIGHT) / len(windows)
    largest = max(*(value for value, _ in points.values()), limit or 0.0, 0.0)
    up = linear(0.0, largest * 1.06, _HEIGHT - _BOTTOM, _TOP)

    def across(place: int) -> float:
        return _LEFT + step * (place + 0.5)

    for tick in up.ticks():
        y = up.place(tick)
        yield Stroke("gridline", (((_LEFT, y), (_WIDTH - _RIGHT, y)),))
        yield Words("tick", _LEFT - 5, y + 3.5, tick_text(tick), "end")
    yield Stroke("axis", (((_LEFT, up.start), (_WIDTH - _RIGHT, up.start)),))
    every = -(-len(windows) // _MOST_NAMES)
    names = short_names(windows)
    for place in range(0, len(windows), every):
        yield Words("tick", across(place), up.start + 15, names[place], "middle")
    if limit is not None:
        y = up.place(limit)
        yield Stroke("rule0", (((_LEFT, y), (_WIDTH - _RIGHT, y)),))
        yield Words("rule-name", _LEFT + 4, y + 14, f"total {number(limit)}")
    joined = tuple(
        ((across(a), up.place(points[a][0])), (across(b), up.place(points[b][0])))
        for a, b in pairwise(sorted(points))
        if b == a + 1
    )
    if joined:
        yield Stroke("line s0", joined)
    for place, (value, least) in sorted(points.items()):
        x, tip = across(place), f"{what} {number(value)}"
        if least < value:
            y = up.place(least)
            tip += f", at least {number(least)}"
            yield Stroke("interval s0", (((x - 5, y), (x + 5, y)),))
        yield Dot("dot s0", x, up.place(value), 3.0)
        yield Box("hit", x - step / 2, _TOP, step, up.start - _TOP, (windows[place].text, tip))


def short_names(windows: Sequence[Window]) -> list[str]:
    """The windows' names, without a year that all of them share."""
    texts = [window.text.partition("/")[0] for window in windows]
    shared = len({name[:5] for name in texts}) == 1 and all(len(name) > len("2026-") for name in texts)
    return [name[5:] if shared else name for name in texts]
