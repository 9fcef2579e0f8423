"""The page of a comparison or of a rerun of the paper: charts of its losses, its figures, its tables."""

from __future__ import annotations

import base64
import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedhist.server.result_folder import NOT_PRIVATE_FILE
from fedhist.simulations.report.charts import number
from fedhist.simulations.report.comparison_charts import MAX_CHARTS, comparison_charts
from fedhist.simulations.report.comparison_parts import comparison_parts, comparison_rows
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.page import fill
from fedhist.simulations.report.pieces import BADGE, section, table
from fedhist.simulations.report.run_data import damaged

Row = Mapping[str, str]
TABLE_FILE, JOURNAL_FILE = "table.csv", "journal.jsonl"
ROWS_SHOWN = 200
MAX_FIGURES = 24
_FIGURE_BYTES = 400_000
_PAGE_BYTES = 1_600_000


def is_experiment(folder: Path) -> bool:
    """Whether the folder looks like one of `fedhist compare` or `fedhist paper`."""
    return (
        (folder / NOT_PRIVATE_FILE).is_file()
        and any(folder.glob("*.csv"))
        and not (folder / "result.json").exists()
    )


def experiment_page(folder: Path) -> str:
    """The folder's tables and figures as one self-contained HTML document. InvalidFile if a table is damaged."""
    name = folder.resolve().name
    tables = {path.stem: _read_rows(path) for path in sorted(folder.glob("*.csv"))}
    comparison = (folder / TABLE_FILE).is_file() and (folder / JOURNAL_FILE).is_file()
    kind = "fedhist compare" if comparison else "fedhist paper"
    head = (
        f'<header><p class="kicker">{kind}</p><h1><bdi>{text(name)}</bdi></h1><p class=kinds>'
        '<span class="badge loud">not private, simulation only: losses are measured against the exact data</span>'
        "</p></header>"
    )
    parts, charts = [head], []
    if comparison:
        rows = comparison_table(folder)
        charts = comparison_charts(rows)
        parts += comparison_parts(rows, charts[:MAX_CHARTS], len(charts))
        charts = charts[:MAX_CHARTS]
    parts.append(_verdicts(tables))
    # A comparison's figure shows what its charts show, and its first table what matters of all columns.
    parts.append("" if comparison else _figures(folder))
    shown = {stem: rows for stem, rows in tables.items() if not stem.endswith("-claims")}
    parts += [_folded(stem, rows) if comparison else _table(stem, rows) for stem, rows in shown.items()]
    data = {"name": name, "charts": {chart.name: asdict(chart) for chart in charts}}
    return fill(title=f"fedhist: {name}", body="".join(parts), data=data)


def comparison_table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a comparison's folder. InvalidFile if they are damaged, or if it is no comparison."""
    rows = _read_rows(folder / TABLE_FILE)
    if not rows or not {"data", "selector", "loss_mean"} <= set(rows[0]):
        raise damaged(folder / TABLE_FILE)
    return comparison_rows(rows)


def _verdicts(tables: Mapping[str, Sequence[Row]]) -> str:
    """The paper's claims with their verdicts."""
    drawn = [
        f"<h3>{text(name.removesuffix('-claims'))}</h3>{_rows(rows)}"
        for name, rows in tables.items()
        if name.endswith("-claims") and rows
    ]
    return section("claims", "Claims", f'<div class="panel">{"".join(drawn)}</div>') if drawn else ""


def _figures(folder: Path) -> str:
    """Figures as pictures: a script in one would not run."""
    drawn, room = [], _PAGE_BYTES
    figures = sorted(path for path in folder.glob("*.svg") if path.stat().st_size <= _FIGURE_BYTES)
    for path in figures[:MAX_FIGURES]:
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


def _folded(name: str, rows: Sequence[Row]) -> str:
    """A table that opens when it is asked for."""
    return section(
        f"table-{text(name)}",
        f"All columns: {name}.csv",
        f'<details class="panel long"><summary>{len(rows):,} rows</summary>{_rows(rows)}</details>',
    )


def _rows(rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>No rows.</p>"
    columns = [name for name in rows[0] if any(row.get(name) for row in rows)]
    shown = [[_shown(row.get(name) or "") for name in columns] for row in rows[:ROWS_SHOWN]]
    return table(columns, shown, numeric=len(columns))


def _shown(value: str) -> str:
    """A number with its significant digits; any other text unchanged."""
    try:
        return number(float(value)) if "." in value or "e" in value else value
    except ValueError:
        return value


def _read_rows(path: Path) -> list[Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise damaged(path) from None
    if any(None in row or None in row.values() for row in rows):
        raise damaged(path)
    return list(rows)
