"""The parts of a comparison's page: the best method for each set of users, the charts, and the table that matters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedhist.display.plurals import counted
from fedhist.protocol.errors import InvalidFile
from fedhist.simulations.report.charts import BarChart, LineChart, number
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
from fedhist.simulations.report.pieces import Card, cards, figure, section, table

_NUMBERS = (
    *AXES, "users", "trials", "group", "gap_mean", "loss_mean", "loss_low", "loss_high",
    "estimate_loss_mean", "estimate_loss_low", "estimate_loss_high", "threshold_mean", "released_mean",
    "significant_mean", "epsilon_total", "epsilon_tight",
)  # fmt: skip
_ROWS_SHOWN = 200
_NAMED = 3


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


def comparison_headline(rows: Sequence[Row]) -> str:
    """The comparison in one sentence."""
    answers = answers_of(rows)
    methods = counted(len({row["method"] for row in rows}), "method")
    if not answers:
        return f"{methods} compared, none of them private with a loss to rank it by."
    if len(answers) == 1:
        (answer,) = answers
        best = answer.best
        loss = number(best[f"{measure_of(best)}_mean"])
        said = f"{best['method']} is the best private method on {answer.where}, with a {_measure(best)} of {loss}"
        if answer.unclear:
            return f"{said}; a single trial proves nothing."
        return f"{said}; not different from it: {answer.same_words}." if answer.same else f"{said}."
    said = f"{methods} compared in {counted(len(answers), 'setting')} of users and budget"
    wins = Counter(str(row["method"]) for answer in answers for row in (answer.best, *answer.same))
    most = max(wins.values())
    winners = [method for method, count in wins.items() if count == most]
    names = " and ".join(filter(None, [", ".join(winners[:-1]), winners[-1]]))
    who = f"{names} {'is' if len(winners) == 1 else 'are each'}"
    if len(winners) > _NAMED:
        who = f"{len(winners)} methods are each"
    return f"{said}: {who} the best, or not different from it, in {most} of them."


def comparison_parts(
    rows: Sequence[Row], charts: Sequence[LineChart | BarChart], all_charts: int
) -> list[str]:
    """The page from its first screen to its table, as HTML."""
    answers = answers_of(rows)
    drawn = "".join(map(figure, charts))
    lead = "Lower is better. A method that is not private reads the exact data."
    if all_charts > len(charts):
        lead += f" Shown are the first {len(charts)} of {all_charts} charts."
    return [
        cards(_cards(rows, answers)),
        _best(answers),
        section("losses", "Losses", f'<div class="grid">{drawn}</div>', lead=lead) if charts else "",
        _measured(rows),
    ]


def _cards(rows: Sequence[Row], answers: Sequence[Answer]) -> list[Card]:
    sets = list(dict.fromkeys(str(row["data"]) for row in rows))
    methods = {row["method"] for row in rows}
    named = ", ".join(sets[:4]) + (" ..." if len(sets) > 4 else "")
    several = [
        f"On {counted(len(sets), 'data set')}: {named}.",
        f"{counted(len(rows), 'combination')} with settings.",
    ]
    return [
        Card("What was compared", counted(len(methods), "method"), several),
        Card("How good they are", *_goodness(answers)),
        Card("How far to trust it", *_certainty(rows, answers)),
    ]


def _goodness(answers: Sequence[Answer]) -> tuple[str, list[str]]:
    losses = [float(answer.best[f"{measure_of(answer.best)}_mean"]) for answer in answers]
    if not losses:
        return "no loss", ["No private method has a loss."]
    low, high = number(min(losses)), number(max(losses))
    best = low if low == high else f"{low} to {high}"
    values = "estimates" if measure_of(answers[0].best) == "estimate_loss" else "released values"
    return best, [
        f"Relative loss of the best private method: the absolute errors of all {values} over the true total. 0 is the "
        "exact histogram, and a histogram of zeros loses 1."
    ]


def _certainty(rows: Sequence[Row], answers: Sequence[Answer]) -> tuple[str, list[str]]:
    trials = sorted({int(row["trials"]) for row in rows if row.get("trials") is not None})
    value = (
        f"{trials[0]:,} to {trials[-1]:,} trials" if len(trials) > 1 else counted(sum(trials) or 1, "trial")
    )
    said = ["A single trial tells nothing apart: use more --trials."]
    if not any(answer.unclear for answer in answers):
        said = ["Methods share users and noise in each trial, and are compared trial by trial."]
    uneven = cost_words(answers)
    return value, [*said, *([f"{uneven[:1].upper()}{uneven[1:]}."] if uneven else [])]


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
    content = f'<div class="panel">{table(headings, rows, numeric=len(headings) - 2)}</div>'
    return section("best", "The best method", content, lead=lead)


def _measured(rows: Sequence[Row]) -> str:
    """The table that matters, sorted by loss for each set of users and budget."""
    varied = [name for name in ("items", *BUDGETS) if name in varied_numbers(rows)]
    headings = ["data", "method", "result", *(AXES[name] for name in varied)]
    # A total is one by tight composition.
    cost = "epsilon_total" if all(row.get("total_epsilon") is None for row in rows) else "epsilon_tight"
    headings += [
        "loss",
        "95 % interval",
        "estimate loss",
        "threshold C",
        "released",
        "above 0",
        "total epsilon",
    ]
    ordered = sorted(rows, key=lambda row: (row.get("group") or 0, _rank(row), str(row["data"])))
    shown = [
        [
            row["data"], row["method"], row.get("result") or "", *(_text(row, name) for name in varied),
            _text(row, "loss_mean"), _interval(row, "loss"), _text(row, "estimate_loss_mean"),
            _text(row, "threshold_mean"), _text(row, "released_mean"), _text(row, "significant_mean"),
            _text(row, cost),
        ]
        for row in ordered[:_ROWS_SHOWN]
    ]  # fmt: skip
    more = (
        f"<p>{counted(len(rows) - _ROWS_SHOWN, 'more row')} in the file.</p>"
        if len(rows) > _ROWS_SHOWN
        else ""
    )
    lead = (
        "Loss is the l1 error of the released values over the true total, estimate loss that of the estimates. The "
        "threshold, the number of items, that of items significantly above 0 (95 %) and the losses are means over "
        "trials. A row without epsilon is not private."
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
