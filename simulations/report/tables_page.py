"""The page of a comparison or of a rerun of the paper: charts of its losses, its figures, its tables."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedhist.display.plurals import counted
from fedhist.server.result_folder import NOT_PRIVATE_FILE
from fedhist.simulations.report.chart_file import CHARTS_SUFFIX, read_charts
from fedhist.simulations.report.charts import AnyChart, number
from fedhist.simulations.report.comparison_charts import MAX_CHARTS, comparison_charts
from fedhist.simulations.report.comparison_parts import comparison_headline, comparison_parts, comparison_rows
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.page import fill
from fedhist.simulations.report.pieces import figure, head, section, table
from fedhist.simulations.report.run_data import damaged

Row = Mapping[str, str]
TABLE_FILE, JOURNAL_FILE = "table.csv", "journal.jsonl"
_CLAIMS = "-claims"
ROWS_SHOWN = 200
MOST_CHARTS = 36
_LOSS = (
    '<p class="lead">A relative loss or error is the sum of all absolute errors over the true total: 0 is exact, and a '
    "histogram of zeros loses 1.</p>"
)
_HOLDS, _FAILS = "holds", "does not hold"
_WARNING = (
    '<span class="badge loud">not private, simulation only: losses are measured against the exact data</span>'
)


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
    if comparison:
        rows = comparison_table(folder)
        every = comparison_charts(rows)
        charts: Sequence[AnyChart] = every[:MAX_CHARTS]
        parts = [head("fedhist compare", name, comparison_headline(rows), _WARNING)]
        parts += comparison_parts(rows, every[:MAX_CHARTS], len(every))
        parts += [_folded(stem, rows_) for stem, rows_ in tables.items()]
    else:
        drawn, charts = _figures(folder)
        claims = {stem: rows_ for stem, rows_ in tables.items() if stem.endswith(_CLAIMS)}
        shown = {stem: rows_ for stem, rows_ in tables.items() if stem not in claims}
        parts = [
            head("fedhist paper", name, _claims_headline(claims, shown), _WARNING),
            _LOSS,
            _verdicts(claims),
            drawn,
        ]
        parts += [_table(stem, rows_) for stem, rows_ in shown.items()]
    data = {"name": name, "charts": {chart.name: asdict(chart) for chart in charts}}
    return fill(title=f"fedhist: {name}", body="".join(parts), data=data)


def comparison_table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a comparison's folder. InvalidFile if they are damaged, or if it is no comparison."""
    rows = _read_rows(folder / TABLE_FILE)
    if not rows or not {"data", "selector", "loss_mean"} <= set(rows[0]):
        raise damaged(folder / TABLE_FILE)
    return comparison_rows(rows)


def _claims_headline(claims: Mapping[str, Sequence[Row]], shown: Mapping[str, Sequence[Row]]) -> str:
    """The verdicts in one sentence; without any, what there is."""
    verdicts = [row.get("verdict") for rows in claims.values() for row in rows]
    numbers = [row["verdict"] for rows in shown.values() for row in rows if row.get("verdict")]
    said = []
    if verdicts:
        holding, failing = verdicts.count(_HOLDS), verdicts.count(_FAILS)
        others = len(verdicts) - holding - failing
        said.append(f"of {counted(len(verdicts), 'claim')} of the paper, {holding} {_hold(holding)}")
        said[-1] += f" and {failing} {'does' if failing == 1 else 'do'} not"
        said[-1] += f"; {others} can't be judged" if others else ""
    if numbers:
        inside = numbers.count("inside")
        are = "is" if inside == 1 else "are"
        said.append(f"of {counted(len(numbers), 'printed number')}, {inside} {are} inside of our intervals")
    words = "; ".join(said) or f"{counted(len(shown), 'table')} of the paper, run again"
    return f"{words[:1].upper()}{words[1:]}."


def _hold(claims: int) -> str:
    return "holds" if claims == 1 else "hold"


def _verdicts(claims: Mapping[str, Sequence[Row]]) -> str:
    """The paper's claims with their verdicts."""
    drawn = [
        f"<h3>{text(name.removesuffix(_CLAIMS))}</h3>{_rows(rows)}" for name, rows in claims.items() if rows
    ]
    lead = "What the paper says of its figures, and whether it is so in ours."
    return (
        section("claims", "Claims", f'<div class="panel">{"".join(drawn)}</div>', lead=lead) if drawn else ""
    )


def _figures(folder: Path) -> tuple[str, list[AnyChart]]:
    """The charts of the folder's figures, drawn again for the page, and these charts."""
    drawn: list[str] = []
    charts: list[AnyChart] = []
    more = 0
    for path in sorted(folder.glob(f"*{CHARTS_SUFFIX}")):
        stem = path.name.removesuffix(CHARTS_SUFFIX)
        found, heading = read_charts(path)
        kept = found[: max(0, MOST_CHARTS - len(charts))]
        more += len(found) - len(kept)
        named = [replace(chart, name=f"{stem}-{place}") for place, chart in enumerate(kept, 1)]
        said = "".join(f"<p>{text(line)}</p>" for line in heading)
        if named:
            grid = f'<div class="grid">{"".join(map(figure, named))}</div>'
            drawn.append(section(f"figure-{text(stem)}", f"Figure: {stem}", said, grid))
        charts += named
    left_out = f"<p>{counted(more, 'more chart')} in the folder's figures.</p>" if more else ""
    return "".join(drawn) + left_out, charts


def _table(name: str, rows: Sequence[Row]) -> str:
    more = (
        f"<p>{counted(len(rows) - ROWS_SHOWN, 'more row')} in the file.</p>" if len(rows) > ROWS_SHOWN else ""
    )
    return section(
        f"table-{text(name)}", f"Table: {name}", f'<div class="panel long">{_rows(rows)}{more}</div>'
    )


def _folded(name: str, rows: Sequence[Row]) -> str:
    """A table that opens when it is asked for."""
    return section(
        f"table-{text(name)}",
        f"All columns: {name}.csv",
        f'<details class="panel long"><summary>{counted(len(rows), "row")}</summary>{_rows(rows)}</details>',
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
