"""The page of a schedule: its items over time with their lower limits, and what each window cost.

Everything on it is public: releases, plans and charges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedhist.simulations.report.charts import Line, LineChart, figure
from fedhist.simulations.report.page import fill, grid, head, panel, paragraphs, section, table, text
from fedhist.simulations.report.run import read_run

ITEMS_SHOWN = 12
COLUMNS = {"value": "values", "standard_error": "errors", "estimate": "estimates", "at_least": "at_least"}


def released_rows(windows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """All releases of a schedule's windows as columns: a row for each item and window."""
    columns: dict[str, list[Any]] = {name: [] for name in ("window", "item", *COLUMNS)}
    for window in windows:
        if window["status"] == "done":
            run = read_run(Path(window["folder"]))
            columns["window"] += [window["window"]] * len(run.labels)
            columns["item"] += run.labels
            for name, values in COLUMNS.items():
                columns[name] += getattr(run, values).tolist()
    return columns


def schedule_page(said: Mapping[str, Any], headings: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """The whole document.

    Args:
        said: where the schedule stands.
        headings: of the table of its windows.
        cells: a row of it for each.
    """
    rows = released_rows(said["windows"])
    names = [window["window"] for window in said["windows"]]
    seen: dict[str, dict[int, tuple[float, float]]] = {}
    for window, item, value, least in zip(
        *(rows[name] for name in ("window", "item", "estimate", "at_least")), strict=True
    ):
        seen.setdefault(item, {})[names.index(window)] = value, least
    # The largest in all releases together: an item that one of them lacks has nothing there.
    order = sorted(seen, key=lambda item: -sum(value for value, _ in seen[item].values()))[:ITEMS_SHOWN]
    charts = [
        figure(over_windows(f"item-{place}", item, names, seen[item])) for place, item in enumerate(order)
    ]
    links = [
        f'<a href="{text(folder.name)}/{"report.html" if (folder / "report.html").is_file() else "histogram.csv"}">'
        f"{text(window['window'])}</a>"
        for window in said["windows"]
        if window["status"] == "done" and (folder := Path(window["folder"]))
    ]
    total, spent = said["total"], said["spent"]["epsilon"]
    headline = (
        f"{len(links)} of {len(names)} windows, {names[0]} to {names[-1]}. They add up for one user: all cost at "
        f"most epsilon {total['epsilon']:g} at delta {total['delta']:g}, also where a later one is planned in view of "
        f"earlier releases. So far it is epsilon {spent:.4g}."
    )
    lead = (
        "The largest items. The short line below an estimate is at_least, a lower limit of the count (95 %)."
    )
    body = [
        head("fedhist schedule", Path(said["folder"]).name, headline),
        paragraphs(said["notes"]),
        section("items", "Items over time", grid(*charts) or "<p>Nothing is released yet.</p>", lead=lead),
        section(
            "calendar", "Calendar", panel(table(headings, cells, numeric=2), f"<p>{' '.join(links)}</p>")
        ),
    ]
    return fill(Path(said["folder"]).name, *body)


def over_windows(
    name: str, title: str, names: Sequence[str], points: Mapping[int, tuple[float, float]]
) -> LineChart:
    """Values by window with their lower limits."""
    places = sorted(points)
    limited = any(least < value for value, least in points.values())
    ends = [points[place][::-1] for place in places] if limited else []
    line = Line("estimate", "s0", places, [points[place][0] for place in places], ends)
    # Without a year that all of them share.
    short = [
        one[5:] if len({each[:5] for each in names}) == 1 and len(one) > len("2026-") else one
        for one in names
    ]
    return LineChart(name, title, "window", "estimate", truth=False, lines=[line], log_x=False, x_names=short)
