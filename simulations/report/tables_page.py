"""The page of a comparison or of a rerun of the paper: charts of its losses, its figures, its tables."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhist.display.plurals import counted
from fedhist.protocol.errors import InvalidFile
from fedhist.server.result_folder import NOT_PRIVATE_FILE
from fedhist.simulations.report.charts import CHARTS_SUFFIX, figure, number, read_charts, style_rules
from fedhist.simulations.report.comparison_charts import MAX_CHARTS, comparison_charts
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
from fedhist.simulations.report.page import card, fill, grid, head, panel, paragraphs, section, table, text
from fedhist.simulations.report.run_data import damaged

Cells = Mapping[str, str]
TABLE_FILE, JOURNAL_FILE = "table.csv", "journal.jsonl"
ROWS_SHOWN, MOST_CHARTS = 200, 36
_CLAIMS = "-claims"
_NUMBERS = (
    *AXES, "users", "trials", "group", "gap_mean", "loss_mean", "loss_low", "loss_high",
    "estimate_loss_mean", "estimate_loss_low", "estimate_loss_high", "threshold_mean", "released_mean",
    "significant_mean", "epsilon_total", "epsilon_tight",
)  # fmt: skip
_NAMED = 3
_WARNING = (
    '<span class="badge loud">not private, simulation only: losses are measured against the exact data</span>'
)
_LOSS = (
    "A relative loss or error is the sum of all absolute errors over the true total: 0 is exact, and a histogram of "
    "zeros loses 1."
)
_MEASURED = (
    "Loss is the l1 error of the released values over the true total, estimate loss that of the estimates. The "
    "threshold, the number of items, that of items significantly above 0 (95 %) and the losses are means over trials. "
    "A row without epsilon is not private."
)
_BEST = (
    "Among private methods with the same users and budget. Trials share users and noise, so methods are compared trial "
    "by trial, and a method is different if the 95 % interval of its mean gap to the best lies above 0."
)


def is_experiment(folder: Path) -> bool:
    """Whether the folder looks like one of `fedhist compare` or `fedhist paper`."""
    marked, has_run = (folder / NOT_PRIVATE_FILE).is_file(), (folder / "result.json").exists()
    return marked and not has_run and any(folder.glob("*.csv"))


def experiment_page(folder: Path) -> str:
    """The folder's tables and figures as one self-contained HTML document. InvalidFile if a table is damaged."""
    name = folder.resolve().name
    comparison = (folder / TABLE_FILE).is_file() and (folder / JOURNAL_FILE).is_file()
    parts = _comparison(name, comparison_table(folder)) if comparison else _paper(name, folder)
    return fill(title=f"fedhist: {name}", body="".join(parts), styles=style_rules())


def comparison_table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a comparison's folder, with numbers where they are needed; an empty cell is None.

    InvalidFile if they are damaged, or if it is no comparison.
    """
    cells = _cells(folder / TABLE_FILE)
    if not cells or not {"data", "selector", "loss_mean"} <= set(cells[0]):
        raise damaged(folder / TABLE_FILE)
    rows: list[dict[str, Any]] = []
    for row in cells:
        known: dict[str, Any] = {name: value or None for name, value in row.items()}
        known |= {name: _number(row[name]) if row.get(name) else None for name in _NUMBERS}
        rows.append(known | {"private": bool(row.get("epsilon_total"))})
    names = method_names(rows)
    return [row | {"method": row.get("method") or name} for row, name in zip(rows, names, strict=True)]


def _number(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidFile("a cell of table.csv is not a number", allowed="the file as a run wrote it")
    return found


def _cells(path: Path) -> list[Cells]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise damaged(path) from None
    if any(None in row or None in row.values() for row in rows):
        raise damaged(path)
    return list(rows)


def _comparison(name: str, rows: Sequence[Row]) -> Iterator[str]:
    """The answer in one sentence, what it rests on, the best methods, the charts, the table that matters."""
    answers, charts = answers_of(rows), comparison_charts(rows)
    yield head("fedhist compare", name, _answer(rows, answers), _WARNING)
    yield panel(*_cards(rows, answers), kind="cards")
    if answers:
        yield _best(answers)
    lead = "Lower is better. A method that is not private reads the exact data."
    if len(charts) > MAX_CHARTS:
        lead += f" Shown are the first {MAX_CHARTS} of {len(charts)} charts."
    if charts:
        yield section("losses", "Losses", grid(*map(figure, charts[:MAX_CHARTS])), lead=lead)
    yield _measured(rows)


def _answer(rows: Sequence[Row], answers: Sequence[Answer]) -> str:
    methods = counted(len({row["method"] for row in rows}), "method")
    if not answers:
        return f"{methods} compared, none of them private with a loss to rank it by."
    if len(answers) == 1:
        (answer,) = answers
        best = answer.best
        loss = f"a {_measure(best)} of {number(best[f'{measure_of(best)}_mean'])}"
        same = f"; not different from it: {answer.same_words}" if answer.same else ""
        unclear = "; a single trial proves nothing" if answer.unclear else same
        return f"{best['method']} is the best private method on {answer.where}, with {loss}{unclear}."
    wins = Counter(str(row["method"]) for answer in answers for row in (answer.best, *answer.same))
    most = max(wins.values())
    *others, last = [method for method, count in wins.items() if count == most]
    who = f"{', '.join(others)} and {last} are each" if others else f"{last} is"
    if len(others) >= _NAMED:
        who = f"{len(others) + 1} methods are each"
    said = f"{methods} compared in {counted(len(answers), 'setting')} of users and budget"
    return f"{said}: {who} the best, or not different from it, in {most} of them."


def _cards(rows: Sequence[Row], answers: Sequence[Answer]) -> Iterator[str]:
    sets = list(dict.fromkeys(str(row["data"]) for row in rows))
    named = ", ".join(sets[:4]) + (" ..." if len(sets) > 4 else "")
    methods = counted(len({row["method"] for row in rows}), "method")
    where = [f"On {counted(len(sets), 'data set')}: {named}."]
    yield card("What was compared", methods, [*where, f"{counted(len(rows), 'combination')} with settings."])
    losses = sorted(float(answer.best[f"{measure_of(answer.best)}_mean"]) for answer in answers)
    goodness = " to ".join(dict.fromkeys(map(number, (losses[0], losses[-1])))) if losses else "no loss"
    yield card("How good they are", goodness, [f"The loss of the best private method. {_LOSS}"])
    trials = sorted({int(row["trials"]) for row in rows if row.get("trials") is not None}) or [1]
    said = ["Methods share users and noise in each trial, and are compared trial by trial."]
    if any(answer.unclear for answer in answers):
        said = ["A single trial tells nothing apart: use more --trials."]
    uneven = cost_words(answers)
    several = f"{trials[0]:,} to {trials[-1]:,} trials" if len(trials) > 1 else counted(trials[0], "trial")
    yield card(
        "How far to trust it", several, [*said, *([f"{uneven[:1].upper()}{uneven[1:]}."] if uneven else [])]
    )


def _measure(row: Row) -> str:
    return "mean relative loss" if measure_of(row) == "loss" else "mean loss of the estimates"


def _best(answers: Sequence[Answer]) -> str:
    rows = [
        [
            answer.data,
            answer.setting,
            answer.best["method"],
            "a single trial tells nothing apart" if answer.unclear else answer.same_words or "none",
            number(answer.best[f"{measure_of(answer.best)}_mean"]),
            _interval(answer.best, measure_of(answer.best)),
        ]
        for answer in answers[:ROWS_SHOWN]
    ]
    measured = _measure(answers[0].best)
    heads = ["data", "at", "best private method", "not different from it", measured, "95 % interval"]
    if not any(answer.setting for answer in answers):
        heads, *rows = ([data, *rest] for data, _, *rest in (heads, *rows))
    listed = panel(table(heads, rows, numeric=len(heads) - 2))
    return section("best", "The best method", listed, lead=_BEST)


def _measured(rows: Sequence[Row]) -> str:
    """The table that matters, sorted by loss for each set of users and budget."""
    # A total is one by tight composition.
    cost = "epsilon_total" if all(row.get("total_epsilon") is None for row in rows) else "epsilon_tight"
    varied = {name: AXES[name] for name in ("items", *BUDGETS) if name in varied_numbers(rows)}
    columns = {
        **varied, "loss_mean": "loss", "interval": "95 % interval", "estimate_loss_mean": "estimate loss",
        "threshold_mean": "threshold C", "released_mean": "released", "significant_mean": "above 0",
        cost: "total epsilon",
    }  # fmt: skip
    ordered = sorted(rows, key=lambda row: (row.get("group") or 0, _rank(row), str(row["data"])))
    shown = [
        [
            row["data"],
            row["method"],
            row.get("result") or "",
            *(_interval(row, "loss") if name == "interval" else _text(row, name) for name in columns),
        ]
        for row in ordered[:ROWS_SHOWN]
    ]
    listed = table(["data", "method", "result", *columns.values()], shown, numeric=3)
    lead = f"{_MEASURED} All columns are in {TABLE_FILE}."
    return section("measured", "What was measured", panel(listed, _more(rows), kind="panel long"), lead=lead)


def _rank(row: Row) -> float:
    value = row.get(f"{measure_of(row)}_mean")
    return math.inf if value is None else float(value)


def _text(row: Row, name: str) -> str:
    return "" if row.get(name) is None else number(row[name])


def _interval(row: Row, stem: str) -> str:
    low, high = row.get(f"{stem}_low"), row.get(f"{stem}_high")
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"


def _more(rows: Sequence[Any]) -> str:
    more = len(rows) - ROWS_SHOWN
    return f"<p>{counted(more, 'more row')} in the file.</p>" if more > 0 else ""


def _paper(name: str, folder: Path) -> Iterator[str]:
    """How many claims hold, the claims, the figures drawn again, and all other tables."""
    tables = {path.stem: _cells(path) for path in sorted(folder.glob("*.csv"))}
    claims = {stem: tables.pop(stem) for stem in list(tables) if stem.endswith(_CLAIMS)}
    yield head("fedhist paper", name, _verdicts(claims, tables), _WARNING)
    yield f'<p class="lead">{_LOSS}</p>'
    judged = [
        f"<h3>{text(stem.removesuffix(_CLAIMS))}</h3>{_rows(rows)}" for stem, rows in claims.items() if rows
    ]
    lead = "What the paper says of its figures, and whether it is so in ours."
    yield section("claims", "Claims", panel(*judged), lead=lead) if judged else ""
    drawn = more = 0
    for path in sorted(folder.glob(f"*{CHARTS_SUFFIX}")):
        stem = path.name.removesuffix(CHARTS_SUFFIX)
        found, heading = read_charts(path)
        kept = found[: max(0, MOST_CHARTS - drawn)]
        drawn, more = drawn + len(kept), more + len(found) - len(kept)
        figures = [figure(replace(chart, name=f"{stem}-{place}")) for place, chart in enumerate(kept, 1)]
        yield (
            section(f"figure-{stem}", f"Figure: {stem}", paragraphs(heading), grid(*figures)) if kept else ""
        )
    yield f"<p>{counted(more, 'more chart')} in the folder's figures.</p>" if more else ""
    for stem, rows in tables.items():
        listed = panel(_rows(rows), _more(rows), kind="panel long")
        yield section(f"table-{stem}", f"Table: {stem}", listed)


def _verdicts(claims: Mapping[str, Sequence[Cells]], tables: Mapping[str, Sequence[Cells]]) -> str:
    """The verdicts in one sentence; without any, what there is."""
    verdicts = Counter(row.get("verdict") for rows in claims.values() for row in rows)
    numbers = [row["verdict"] for rows in tables.values() for row in rows if row.get("verdict")]
    said = []
    if total := verdicts.total():
        holding, failing = verdicts["holds"], verdicts["does not hold"]
        hold, fail = "holds" if holding == 1 else "hold", "does" if failing == 1 else "do"
        said.append(f"of {counted(total, 'claim')} of the paper, {holding} {hold} and {failing} {fail} not")
        if others := total - holding - failing:
            said.append(f"{others} can't be judged")
    if numbers:
        inside = numbers.count("inside")
        are = "is" if inside == 1 else "are"
        said.append(f"of {counted(len(numbers), 'printed number')}, {inside} {are} inside of our intervals")
    words = "; ".join(said) or f"{counted(len(tables), 'table')} of the paper, run again"
    return f"{words[:1].upper()}{words[1:]}."


def _rows(rows: Sequence[Cells]) -> str:
    columns = [name for name in (rows[0] if rows else ()) if any(row.get(name) for row in rows)]
    shown = [[_shown(row.get(name) or "") for name in columns] for row in rows[:ROWS_SHOWN]]
    return table(columns, shown, numeric=len(columns)) if columns else "<p>No rows.</p>"


def _shown(value: str) -> str:
    """A number with its significant digits; any other text unchanged."""
    try:
        return number(float(value)) if "." in value or "e" in value else value
    except ValueError:
        return value
