"""The parts of a comparison's page: the best method for each set of users, the charts, and the table that matters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedhist.protocol.errors import InvalidFile
from fedhist.simulations.report.charts import BarChart, LineChart, number
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.methods import (
    AXES,
    BUDGETS,
    Answer,
    Row,
    answers_of,
    cost_words,
    measure_of,
    method_names,
    varied_numbers,
)
from fedhist.simulations.report.pieces import Tile, figure, section, table, tiles

_NUMBERS = (
    *AXES, "users", "trials", "group", "gap_mean", "upper_limits", "loss_mean", "loss_low", "loss_high",
    "estimate_loss_mean", "estimate_loss_low", "estimate_loss_high", "threshold_mean", "released_mean", "epsilon_total",
    "epsilon_tight",
)  # fmt: skip
_ROWS_SHOWN = 200


def comparison_rows(rows: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """The rows of a table as it was written, with numbers where they are needed; an empty cell is None."""
    read: list[dict[str, Any]] = []
    for row in rows:
        known: dict[str, Any] = {name: value or None for name, value in row.items()}
        known |= {name: _number(row[name]) if row.get(name) else None for name in _NUMBERS}
        read.append(known | {"private": bool(row.get("epsilon_total"))})
    if any(row.get("method") is None for row in read):
        for row, name in zip(read, method_names(read), strict=True):
            row["method"] = name
    return read


def _number(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidFile("a cell of table.csv is not a number", allowed="the file as a run wrote it")
    return found


def comparison_parts(
    rows: Sequence[Row], charts: Sequence[LineChart | BarChart], all_charts: int
) -> list[str]:
    """The page from its numbers at the top to its table, as HTML."""
    answers = answers_of(rows)
    drawn = "".join(map(figure, charts))
    lead = "Lower is better, and 0 is the exact histogram. A method that is not private reads the exact data."
    if all_charts > len(charts):
        lead += f" Shown are the first {len(charts)} of {all_charts} charts."
    return [
        tiles(_tiles(rows, answers)),
        _best(answers),
        section("losses", "Losses", f'<div class="grid">{drawn}</div>', lead=lead) if charts else "",
        _measured(rows),
    ]


def _tiles(rows: Sequence[Row], answers: Sequence[Answer]) -> list[Tile]:
    sets = list(dict.fromkeys(row["data"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    trials = {row.get("trials") for row in rows} - {None}
    shown = [
        Tile(
            "data sets", f"{len(sets):,}", ", ".join(map(str, sets[:4])) + (" ..." if len(sets) > 4 else "")
        ),
        Tile("methods", f"{len(methods):,}", f"{len(rows):,} combinations with data and settings"),
    ]
    if len(trials) == 1:
        shown.append(Tile("trials", f"{trials.pop():,.0f}", "of each combination"))
    if len(answers) == 1:
        (answer,) = answers
        note = f"{_measure(answer.best)} {number(answer.best[f'{measure_of(answer.best)}_mean'])}"
        shown.append(Tile("best private method", str(answer.best["method"]), note, truth=True))
    return shown


def _measure(row: Row) -> str:
    return "mean relative loss" if measure_of(row) == "loss" else "mean loss of the estimates"


def _best(answers: Sequence[Answer]) -> str:
    if not answers:
        return ""
    settings = any(answer.setting for answer in answers)
    headings = ["data", *(["at"] if settings else []), "best private method", "not different from it"]
    headings += [_measure(answers[0].best), "95 % interval"]
    rows = []
    for answer in answers[:_ROWS_SHOWN]:
        same = "a single trial tells nothing apart" if answer.unclear else answer.same_words
        stem = measure_of(answer.best)
        interval = _interval(answer.best, stem)
        rows.append([
            answer.data, *([answer.setting] if settings else []), answer.best["method"], same or "none",
            number(answer.best[f"{stem}_mean"]), interval,
        ])  # fmt: skip
    lead = (
        "Among private methods with the same users and budget. Trials share users and noise, so methods are compared "
        "trial by trial, and a method is different if the 95 % interval of its mean gap to the best lies above 0."
    )
    uneven = cost_words(answers)
    said = f"<p>{text(uneven[:1].upper() + uneven[1:])}.</p>" if uneven else ""
    content = f'<div class="panel">{table(headings, rows, numeric=len(headings) - 2)}{said}</div>'
    return section("best", "The best method", content, lead=lead)


def _measured(rows: Sequence[Row]) -> str:
    """The table that matters, sorted by loss for each set of users and budget."""
    varied = [name for name in ("items", *BUDGETS) if name in varied_numbers(rows)]
    headings = ["data", "method", "result", *(AXES[name] for name in varied)]
    # A total is one by tight composition.
    cost = "epsilon_total" if all(row.get("total_epsilon") is None for row in rows) else "epsilon_tight"
    headings += ["loss", "95 % interval", "estimate loss", "threshold C", "items released", "total epsilon"]
    ordered = sorted(rows, key=lambda row: (row.get("group") or 0, _rank(row), str(row["data"])))
    shown = [
        [
            row["data"], row["method"], row.get("result") or "", *(_text(row, name) for name in varied),
            _text(row, "loss_mean"), _interval(row, "loss"), _text(row, "estimate_loss_mean"),
            _text(row, "threshold_mean"), _text(row, "released_mean"), _text(row, cost),
        ]
        for row in ordered[:_ROWS_SHOWN]
    ]  # fmt: skip
    more = f"<p>{len(rows) - _ROWS_SHOWN:,} more rows are in the file.</p>" if len(rows) > _ROWS_SHOWN else ""
    lead = (
        "Loss is the l1 error of the released values over the true total, estimate loss that of the estimates. The "
        "threshold, the number of items and the losses are means over trials. A row without epsilon is not private."
    )
    content = f'<div class="panel long">{table(headings, shown, numeric=3)}{more}</div>'
    return section("measured", "What was measured", content, lead=lead)


def _rank(row: Row) -> float:
    value = row.get(f"{measure_of(row)}_mean")
    return math.inf if value is None else float(value)


def _text(row: Row, name: str) -> str:
    return "" if row.get(name) is None else number(row[name])


def _interval(row: Row, stem: str) -> str:
    low, high = row.get(f"{stem}_low"), row.get(f"{stem}_high")
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"
