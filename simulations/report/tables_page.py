"""The page of a comparison or of a rerun of the paper: charts of its losses, its figures, its tables."""

from __future__ import annotations

import base64
import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fedhist.protocol.errors import InvalidFile
from fedhist.simulations.report.charts import AnyChart, Bar, BarChart, Line, LineChart, number
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.page import fill
from fedhist.simulations.report.pieces import BADGE, Tile, figure, section, table, tiles

Row = Mapping[str, str]
TABLE_FILE, JOURNAL_FILE, MARK_FILE = "table.csv", "journal.jsonl", "NOT-PRIVATE.txt"
AXES = {
    "items": "items d",
    "epsilon_select": "epsilon of the choice",
    "epsilon": "epsilon of the histogram",
    "max_threshold": "largest threshold C_m",
    "delta": "delta of the histogram",
    "threshold": "threshold C",
}
"""What a comparison may vary, and what its axis is called."""

ROWS_SHOWN = 200
MAX_CHARTS = 12
MAX_FIGURES = 24
_FIGURE_BYTES = 400_000
_PAGE_BYTES = 1_600_000
_LOOKS = 7


@dataclass(frozen=True)
class Experiment:
    """A folder of tables and figures.

    Args:
        name: what the page is called.
        tables: rows by the name of their file, without its ending.
        figures: SVG files.
        comparison: whether it is one of `fedhist compare`.
    """

    name: str
    tables: Mapping[str, Sequence[Row]] = field(repr=False)
    figures: Sequence[Path]
    comparison: bool


def is_experiment(folder: Path) -> bool:
    """Whether the folder looks like one of `fedhist compare` or `fedhist paper`."""
    return (
        (folder / MARK_FILE).is_file() and any(folder.glob("*.csv")) and not (folder / "result.json").exists()
    )


def read_experiment(folder: Path) -> Experiment:
    """The tables and figures in this folder. InvalidFile, in one sentence, if one is damaged."""
    tables = {path.stem: _read_rows(path) for path in sorted(folder.glob("*.csv"))}
    comparison = (folder / TABLE_FILE).is_file() and (folder / JOURNAL_FILE).is_file()
    if comparison and not {"data", "selector", "loss_mean"} <= set(
        tables["table"][0] if tables["table"] else ()
    ):
        raise _damaged(folder / TABLE_FILE)
    figures = sorted(path for path in folder.glob("*.svg") if path.stat().st_size <= _FIGURE_BYTES)
    return Experiment(folder.resolve().name, tables, figures[:MAX_FIGURES], comparison)


def experiment_page(experiment: Experiment) -> str:
    """One self-contained HTML document."""
    kind = "fedhist compare" if experiment.comparison else "fedhist paper"
    head = (
        f'<header><p class="kicker">{kind}</p><h1><bdi>{text(experiment.name)}</bdi></h1><p class=kinds>'
        '<span class="badge loud">not private, simulation only: losses are measured against the exact data</span>'
        "</p></header>"
    )
    charts = list(comparison_charts(experiment.tables["table"])) if experiment.comparison else []
    parts = [head]
    if experiment.comparison:
        parts.append(tiles(_tiles(experiment.tables["table"])))
    if charts:
        drawn = "".join(figure(chart) for chart in charts)
        lead = "Lower is better. A selector without a total epsilon reads the exact data."
        parts.append(section("losses", "Losses", f'<div class="grid">{drawn}</div>', lead=lead))
    parts.append(_verdicts(experiment))
    # A comparison's figure shows what its charts show.
    parts.append("" if charts else _figures(experiment))
    parts += [_table(name, rows) for name, rows in experiment.tables.items() if not name.endswith("-claims")]
    data = {"name": experiment.name, "charts": {chart.name: asdict(chart) for chart in charts}}
    return fill(title=f"fedhist: {experiment.name}", body="".join(parts), data=data)


def comparison_charts(rows: Sequence[Row]) -> Iterator[AnyChart]:
    """A chart for each data set and what else varies: lines along the first setting that varies, or bars."""
    varied = [name for name in AXES if len({row.get(name, "") for row in rows} - {""}) > 1]
    along = varied[0] if varied else None
    others = [
        name for name in ("data", "release", *varied[1:]) if len({row.get(name, "") for row in rows}) > 1
    ]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name, "") for name in others), []).append(row)
    for place, (values, group) in enumerate(list(groups.items())[:MAX_CHARTS]):
        named = ", ".join(
            value if name in ("data", "release") else f"{AXES[name]} {value}"
            for name, value in zip(others, values, strict=True)
        )
        title = f"Mean relative loss, {named or rows[0].get('data', '')}"
        name = f"loss-{place + 1}"
        yield _bars(name, title, group) if along is None else _lines(name, title, group, along)


def _bars(name: str, title: str, rows: Sequence[Row]) -> BarChart:
    ordered = sorted(rows, key=lambda row: _number(row["loss_mean"]))
    return BarChart(
        name=name,
        title=title,
        x_label="relative loss",
        y_label="selector",
        truth=True,
        bars=tuple(
            Bar(
                label=row["selector"],
                value=_number(row["loss_mean"]),
                low=_number(row["loss_low"]) if row.get("loss_low") else None,
                high=_number(row["loss_high"]) if row.get("loss_high") else None,
            )
            for row in ordered
        ),
        value_name="mean relative loss",
        interval_name="95 % interval of the mean",
    )


def _lines(name: str, title: str, rows: Sequence[Row], along: str) -> LineChart:
    by_selector: dict[str, dict[float, float]] = {}
    for row in rows:
        if row.get(along):
            by_selector.setdefault(row["selector"], {})[_number(row[along])] = _number(row["loss_mean"])
    xs = sorted({x for points in by_selector.values() for x in points})
    whole = {selector: points for selector, points in by_selector.items() if set(points) == set(xs)}
    return LineChart(
        name=name,
        title=title,
        x_label=AXES[along],
        y_label="relative loss",
        truth=True,
        lines=tuple(
            Line(selector, f"s{place % _LOOKS}", xs, [points[x] for x in xs])
            for place, (selector, points) in enumerate(whole.items())
        ),
        log_x=xs[0] > 0 and xs[-1] / xs[0] >= 5,
    )


def _tiles(rows: Sequence[Row]) -> list[Tile]:
    private = [row for row in rows if row.get("epsilon_total")]
    shown = [Tile("combinations", f"{len(rows):,}", "of data, selector and settings")]
    if private:
        best = min(private, key=lambda row: _number(row["loss_mean"]))
        note = f"mean relative loss {number(_number(best['loss_mean']))}, on {best['data']}"
        shown.append(Tile("lowest, private", best["selector"], note, truth=True))
    return shown


def _verdicts(experiment: Experiment) -> str:
    """The claims of the paper and what became of them."""
    drawn = [
        f"<h3>{text(name.removesuffix('-claims'))}</h3>{_rows(rows)}"
        for name, rows in experiment.tables.items()
        if name.endswith("-claims") and rows
    ]
    return section("claims", "Claims", f'<div class="panel">{"".join(drawn)}</div>') if drawn else ""


def _figures(experiment: Experiment) -> str:
    """Figures as pictures: whatever is in them can't run."""
    drawn, room = [], _PAGE_BYTES
    for path in experiment.figures:
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        room -= len(data)
        if room < 0:
            break
        name = text(path.stem)
        drawn.append(
            f'<figure class="panel picture"><figcaption>{name} {BADGE}</figcaption>'
            f'<img alt="{name}" src="data:image/svg+xml;base64,{data}"></figure>'
        )
    return section("figures", "Figures", f'<div class="grid wide">{"".join(drawn)}</div>') if drawn else ""


def _table(name: str, rows: Sequence[Row]) -> str:
    more = f"<p>{len(rows) - ROWS_SHOWN:,} more rows are in the file.</p>" if len(rows) > ROWS_SHOWN else ""
    return section(
        f"table-{text(name)}", f"Table: {name}", f'<div class="panel long">{_rows(rows)}{more}</div>'
    )


def _rows(rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>No rows.</p>"
    columns = [name for name in rows[0] if any(row.get(name) for row in rows)]
    shown = [[_shown(row.get(name) or "") for name in columns] for row in rows[:ROWS_SHOWN]]
    return table(columns, shown, numeric=len(columns))


def _shown(value: str) -> str:
    """Numbers with the digits that count; anything else as it is."""
    try:
        return number(float(value)) if "." in value or "e" in value else value
    except ValueError:
        return value


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidFile(
            "a loss in table.csv is not a number", allowed="the file as a run wrote it"
        ) from None


def _read_rows(path: Path) -> list[Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise _damaged(path) from None
    if any(None in row or None in row.values() for row in rows):
        raise _damaged(path)
    return list(rows)


def _damaged(path: Path) -> InvalidFile:
    return InvalidFile(
        f"{path} is missing or damaged", allowed="the file as a run wrote it", advice="run it again"
    )
