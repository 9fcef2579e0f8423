"""A comparison, from the rows of its table: what its methods are called, which is the best where, its charts, its page.

The page of a rerun of the paper, whose folder has many such tables, is here too.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedhist.display.text import counted
from fedhist.server.folder import NOT_PRIVATE_FILE
from fedhist.simulations.report.charts import (
    CHARTS_SUFFIX,
    Bar,
    BarChart,
    Chart,
    Line,
    LineChart,
    damaged,
    figure,
    number,
    read_charts,
)
from fedhist.simulations.report.page import (
    SERIES,
    card,
    fill,
    grid,
    head,
    panel,
    paragraphs,
    section,
    sentence,
    table,
    text,
)

Row = Mapping[str, Any]

AXES = {
    "items": "items d",
    "total_epsilon": "epsilon of all rounds",
    "total_delta": "delta of all rounds",
    "epsilon_select": "epsilon of the choice",
    "epsilon": "epsilon of the histogram",
    "max_threshold": "largest threshold C_m",
    "delta": "delta of the histogram",
    "delta_select": "delta of the choice",
    "threshold": "threshold C",
}
"""The numbers that a comparison may vary, and what an axis calls them."""

BUDGETS = ("total_epsilon", "total_delta", "epsilon", "delta", "epsilon_select", "delta_select")
TABLE_FILE, TRIALS_FILE = "table.csv", "trials.jsonl"
MAX_CHARTS, ROWS_SHOWN, MOST_PAPER_CHARTS = 12, 200, 36
_SHORT = {
    "items": "d", "total_epsilon": "total epsilon", "total_delta": "total delta", "epsilon": "epsilon",
    "delta": "delta", "epsilon_select": "epsilon'", "delta_select": "delta'", "max_threshold": "C_m",
    "threshold": "C",
}  # fmt: skip
_KINDS = ("selector", "mechanism", "release", "debias", "masking", "noise_from")
"""What a method has, or has not."""

_WORDS: dict[tuple[str, Any], str] = {
    ("debias", "poisson"): "debiased", ("masking", "none"): "", ("noise_from", "server"): "",
    ("noise_from", "devices"): "noise by devices",
}  # fmt: skip
_WITH_NONE = ("threshold", "delta", "delta_select", "total_delta")
"""Numbers that some methods do not have: their rows belong to all values."""

_NUMBERS = (
    *AXES, "users", "trials", "group", "gap_mean", "loss_mean", "loss_low", "loss_high",
    "estimate_loss_mean", "estimate_loss_low", "estimate_loss_high", "threshold_mean", "released_mean",
    "significant_mean", "epsilon_total", "epsilon_tight",
)  # fmt: skip
_CLAIMS = "-claims"
_NAMED = 4
# A loss from here on is no better than that of releasing nothing.
_NOTHING = 0.999
_LOG_RATIO = 8
# An interval is drawn up to this multiple of the largest mean.
_WIDEST = 2.5
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
    f"A row without epsilon is not private. All columns are in {TABLE_FILE}."
)
_BEST = (
    "Among private methods with the same users and budget. Trials share users and noise, so methods are compared trial "
    "by trial, and a method is different if the 95 % interval of its mean gap to the best lies above 0."
)


def _stem(row: Row) -> str:
    """What methods are ranked by, as the beginning of its columns: loss, or estimate_loss."""
    return str(row.get("ranked_by") or "loss").replace("-", "_")


def _loss(row: Row, end: str = "mean") -> Any:
    """Mean, low or high of the loss that methods are ranked by."""
    return row.get(f"{_stem(row)}_{end}")


def _measure(row: Row) -> str:
    return f"mean relative loss{'' if _stem(row) == 'loss' else ' of the estimates'}"


# --- What methods are called, and which is the best.


def varied_numbers(rows: Sequence[Row]) -> list[str]:
    """The numbers that were varied: those in which two rows differ that are alike in all else that came before.

    So a delta that follows from the mechanism, or an epsilon that follows from a total, is none.
    """
    chosen: list[str] = []
    for name in AXES:
        seen: dict[tuple[Any, ...], set[Any]] = {}
        for row in rows:
            alike = (row["data"], *(row.get(one) for one in (*_KINDS, *chosen)))
            if row.get(name) is not None:
                seen.setdefault(alike, set()).add(row[name])
        if any(len(values) > 1 for values in seen.values()):
            chosen.append(name)
    return chosen


def method_names(rows: Sequence[Row], *, without: Collection[str] = ()) -> list[str]:
    """What the method of each row is called: its selector, and whatever else differs between methods.

    Args:
        rows: of one table.
        without: numbers that stand elsewhere, such as on an axis. Items and budgets always do, apart from parts of a
            total.
    """
    kinds = [name for name in _KINDS[1:] if len({row.get(name) for row in rows}) > 1]
    budgets = BUDGETS if all(row.get("total_epsilon") is None for row in rows) else BUDGETS[:2]
    numbers = [name for name in varied_numbers(rows) if name not in {"items", *budgets, *without}]

    def named(row: Row) -> str:
        words = [_WORDS.get((name, row.get(name)), str(row.get(name) or "")) for name in kinds]
        words += [f"{_SHORT[name]} {row[name]:,g}" for name in numbers if row.get(name) is not None]
        called = ", ".join(filter(None, [row["selector"], *words]))
        return called if row["private"] else f"{called} (not private)"

    return [named(row) for row in rows]


@dataclass(frozen=True)
class Answer:
    """The best private method for some users and a budget, and those that the trials can't tell from it.

    Args:
        data: the name of the users.
        setting: the items and the budget, where they vary; else empty.
        best: its row.
        same: the rows of methods that are not different, the best of them first.
        unclear: True after a single trial, which tells nothing apart.
        costs: the least and the largest total epsilon of the private methods.
    """

    data: str
    setting: str
    best: Row
    same: tuple[Row, ...]
    unclear: bool
    costs: tuple[float, float]

    @property
    def where(self) -> str:
        """The users and the budget."""
        return f"{self.data}, {self.setting}" if self.setting else self.data

    @property
    def words(self) -> str:
        """The answer as a sentence."""
        mean = f"a mean {_stem(self.best).replace('_', ' ')} of {_loss(self.best):.4g}"
        nothing = ", where a histogram of zeros loses 1" if _loss(self.best) >= _NOTHING else ""
        same = f"; not different from it: {self.same_words}" if self.same else ""
        if self.unclear:
            same = ", by a single trial that proves nothing: use more --trials"
        return f"best on {self.where}: {self.best['method']}, with {mean}{nothing}{same}"

    @property
    def same_words(self) -> str:
        """The methods that are not different, the first few by name."""
        more = len(self.same) - _NAMED
        named = [str(row["method"]) for row in self.same[:_NAMED]]
        return "; ".join([*named, *([f"and {more} more"] if more > 0 else [])])


def cost_words(answers: Sequence[Answer]) -> str:
    """A sentence if methods that are compared do not cost the same; else empty."""
    for low, high in (answer.costs for answer in answers):
        if high > 1.001 * low:
            return (
                f"methods that are compared do not all cost the same, here from {low:.4g} to {high:.4g}: "
                "--total-epsilon compares them at one cost"
            )
    return ""


def answers_of(rows: Sequence[Row]) -> list[Answer]:
    """The best method for each set of users and each budget, in the order of the rows."""
    settings = [name for name in ("items", *BUDGETS) if name in varied_numbers(rows)]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row.get("group")), []).append(row)
    answers = []
    for group in groups.values():
        best = next((row for row in group if row.get("result") == "best"), None)
        if best is None or _loss(best) is None:
            continue
        rivals = [row for row in group if row is not best and row["private"]]
        alike = [row for row in rivals if row.get("result") == "not different"]
        same = tuple(sorted(alike, key=lambda row: float(row.get("gap_mean") or 0)))
        unclear = bool(rivals) and best.get("trials") == 1
        cost = "epsilon_total" if best.get("total_epsilon") is None else "epsilon_tight"
        spent = [row[cost] for row in (best, *rivals) if row.get(cost) is not None] or [0.0]
        # Some methods spend no delta, whatever was offered.
        shared = {name: max(row.get(name) or 0 for row in group) for name in settings}
        setting = ", ".join(f"{_SHORT[name]} {value:,g}" for name, value in shared.items() if value)
        answers.append(Answer(best["data"], setting, best, same, unclear, (min(spent), max(spent))))
    return answers


# --- Charts.


def comparison_charts(rows: Sequence[Row]) -> list[Chart]:
    """A chart for each data set, and for each value of all that varies but one number, which is the x axis.

    Where no number varies, every method is a dot in a row of its own. A row without a number, such as the threshold
    that only the selector fixed is given, belongs to all values of it. A row without a loss is not drawn.
    """
    by_data: dict[str, list[Row]] = {}
    for row in rows:
        if _loss(row) is not None:
            by_data.setdefault(str(row["data"]), []).append(row)
    charts: list[Chart] = []
    for data, these in by_data.items():
        along, *rest = varied_numbers(these) or [""]
        # Beside another number, a threshold tells methods apart.
        others = [name for name in rest if name != "threshold"]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row, name in zip(these, method_names(these, without=(along, *others)), strict=True):
            for values in product(*(_belongs(row, one, these) for one in others)):
                groups.setdefault(values, []).append({**row, "called": name})
        for values, group in groups.items():
            named = [f"{AXES[one]} {value:,g}" for one, value in zip(others, values, strict=True)]
            title = f"{_measure(these[0]).capitalize()}, {', '.join([data, *named])}"
            charts.append((_lines if along else _dots)(f"loss-{len(charts) + 1}", title, group, along))
    return charts


def _belongs(row: Row, name: str, rows: Sequence[Row]) -> list[Any]:
    """The values of a number that the row stands for."""
    value = row.get(name)
    if value or (value is not None and name not in _WITH_NONE):
        return [value]
    return sorted({one[name] for one in rows if one.get(name)})


def _lines(name: str, title: str, rows: Sequence[Row], along: str) -> Chart:
    methods: dict[str, dict[float, Row]] = {}
    for row in rows:
        methods.setdefault(row["called"], {}).update(dict.fromkeys(_belongs(row, along, rows), row))
    means = {method: sum(map(_loss, found.values())) / len(found) for method, found in methods.items()}
    kept = sorted(sorted(methods, key=means.__getitem__)[: len(SERIES)], key=list(methods).index)
    if len(kept) < len(methods):
        title += f"; the {len(kept)} best of {len(methods)} methods"
    lines = []
    for place, method in enumerate(kept):
        xs, found = zip(*sorted(methods[method].items()), strict=True)
        ends = [_ends(row) or (_loss(row), _loss(row)) for row in found] if any(map(_ends, found)) else []
        lines.append(Line(method, f"s{place}", list(xs), [_loss(row) for row in found], ends))
    drawn = [y for line in lines for y in line.ys]
    low, high = min(x for line in lines for x in line.xs), max(x for line in lines for x in line.xs)
    return LineChart(
        name,
        title,
        AXES[along],
        _label(rows),
        truth=True,
        lines=lines,
        log_x=low > 0 and high >= _LOG_RATIO * low,
        log_y=_wide(drawn),
        low_y=min(drawn) / 3 if _wide(drawn) else 0.0,
        high_y=_WIDEST * max(drawn),
    )


def _dots(name: str, title: str, rows: Sequence[Row], along: str) -> Chart:
    ordered = sorted(rows, key=_loss)
    return BarChart(
        name,
        title,
        _label(rows),
        "method",
        truth=True,
        bars=[
            Bar(
                row["called"],
                _loss(row),
                _loss(row, "low"),
                _loss(row, "high"),
                best=row.get("result") == "best",
            )
            for row in ordered
        ],
        value_name="mean relative loss",
        interval_name="95 % interval of the mean",
        log_x=_wide([_loss(row) for row in rows]),
        dots=True,
    )


def _ends(row: Row) -> tuple[float, float] | None:
    low, high = _loss(row, "low"), _loss(row, "high")
    return None if low is None or high is None else (low, high)


def _label(rows: Sequence[Row]) -> str:
    known = any(map(_ends, rows))
    return "relative loss, mean and 95 % interval" if known else "relative loss of a single trial"


def _wide(losses: Sequence[float]) -> bool:
    """Whether the losses need a logarithmic axis."""
    return min(losses) > 0 and max(losses) > _LOG_RATIO * min(losses)


# --- Pages.


def is_experiment(folder: Path) -> bool:
    """Whether the folder looks like one of `fedhist compare` or `fedhist paper`."""
    marked, has_run = (folder / NOT_PRIVATE_FILE).is_file(), (folder / "result.json").exists()
    return marked and not has_run and any(folder.glob("*.csv"))


def experiment_page(folder: Path) -> str:
    """The folder's tables and figures as one self-contained HTML document. InvalidFile if a table is damaged."""
    name = folder.resolve().name
    comparison = (folder / TABLE_FILE).is_file() and (folder / TRIALS_FILE).is_file()
    parts = _comparison(name, comparison_table(folder)) if comparison else _paper(name, folder)
    return fill(name, *parts)


def comparison_table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a comparison's folder, with numbers where they are needed; an empty cell is None.

    InvalidFile if they are damaged, or if it is no comparison.
    """
    path = folder / TABLE_FILE
    cells = _cells(path)
    if not cells or not {"data", "selector", "loss_mean"} <= set(cells[0]):
        raise damaged(path)
    try:
        rows: list[dict[str, Any]] = [
            {
                name: (float(value) if name in _NUMBERS else value) if value else None
                for name, value in row.items()
            }
            | {"private": bool(row.get("epsilon_total"))}
            for row in cells
        ]
    except ValueError:
        raise damaged(path) from None
    if not all(math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float)):
        raise damaged(path)
    names = method_names(rows)
    return [row | {"method": row.get("method") or name} for row, name in zip(rows, names, strict=True)]


def _cells(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise damaged(path) from None
    if any(None in row or None in row.values() for row in rows):
        raise damaged(path)
    return rows


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
        same = f"; not different from it: {answer.same_words}" if answer.same else ""
        said = "; a single trial proves nothing" if answer.unclear else same
        loss = f"a {_measure(answer.best)} of {number(_loss(answer.best))}"
        return f"{answer.best['method']} is the best private method on {answer.where}, with {loss}{said}."
    wins = Counter(str(row["method"]) for answer in answers for row in (answer.best, *answer.same))
    most = max(wins.values())
    *others, last = [method for method, count in wins.items() if count == most]
    who = f"{', '.join(others)} and {last} are each" if others else f"{last} is"
    if len(others) >= _NAMED - 1:
        who = f"{len(others) + 1} methods are each"
    said = f"{methods} compared in {counted(len(answers), 'setting')} of users and budget"
    return f"{said}: {who} the best, or not different from it, in {most} of them."


def _cards(rows: Sequence[Row], answers: Sequence[Answer]) -> Iterator[str]:
    sets = list(dict.fromkeys(str(row["data"]) for row in rows))
    where = f"On {counted(len(sets), 'data set')}: {', '.join(sets[:4])}{' ...' if len(sets) > 4 else ''}."
    methods = counted(len({row["method"] for row in rows}), "method")
    yield card("What was compared", methods, [where, f"{counted(len(rows), 'combination')} with settings."])
    losses = sorted(_loss(answer.best) for answer in answers)
    goodness = " to ".join(dict.fromkeys(number(loss) for loss in (*losses[:1], *losses[-1:])))
    said = f"The loss of the best private method. {_LOSS}"
    yield card("How good they are", goodness or "no loss", [said])
    trials = sorted({int(row["trials"]) for row in rows if row.get("trials") is not None}) or [1]
    several = f"{trials[0]:,} to {trials[-1]:,} trials" if len(trials) > 1 else counted(trials[0], "trial")
    said = "Methods share users and noise in each trial, and are compared trial by trial."
    if any(answer.unclear for answer in answers):
        said = "A single trial tells nothing apart: use more --trials."
    uneven = cost_words(answers)
    yield card("How far to trust it", several, [said, *([f"{sentence(uneven)}."] if uneven else [])])


def _best(answers: Sequence[Answer]) -> str:
    heads = ["data", "at", "best private method", "not different from it", _measure(answers[0].best)]
    rows = [
        [
            answer.data,
            answer.setting,
            answer.best["method"],
            "a single trial tells nothing apart" if answer.unclear else answer.same_words or "none",
            number(_loss(answer.best)),
            _interval(answer.best, _stem(answer.best)),
        ]
        for answer in answers[:ROWS_SHOWN]
    ]
    heads.append("95 % interval")
    if not any(answer.setting for answer in answers):
        heads, *rows = ([data, *rest] for data, _, *rest in (heads, *rows))
    return section("best", "The best method", panel(table(heads, rows, numeric=len(heads) - 2)), lead=_BEST)


def _measured(rows: Sequence[Row]) -> str:
    """The table that matters, sorted by loss for each set of users and budget."""
    # A total is one by tight composition.
    cost = "epsilon_total" if all(row.get("total_epsilon") is None for row in rows) else "epsilon_tight"
    columns = {name: AXES[name] for name in ("items", *BUDGETS) if name in varied_numbers(rows)} | {
        "loss_mean": "loss", "interval": "95 % interval", "estimate_loss_mean": "estimate loss",
        "threshold_mean": "threshold C", "released_mean": "released", "significant_mean": "above 0",
        cost: "total epsilon",
    }  # fmt: skip

    def order(row: Row) -> tuple[float, float, str]:
        return row.get("group") or 0, math.inf if _loss(row) is None else _loss(row), str(row["data"])

    def cell(row: Row, name: str) -> str:
        if name == "interval":
            return _interval(row, "loss")
        return "" if row.get(name) is None else number(row[name])

    shown = [
        [row["data"], row["method"], row.get("result") or "", *(cell(row, name) for name in columns)]
        for row in sorted(rows, key=order)[:ROWS_SHOWN]
    ]
    listed = table(["data", "method", "result", *columns.values()], shown, numeric=3)
    return section(
        "measured", "What was measured", panel(listed, _more(rows), kind="panel long"), lead=_MEASURED
    )


def _interval(row: Row, stem: str) -> str:
    low, high = row.get(f"{stem}_low"), row.get(f"{stem}_high")
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"


def _more(rows: Sequence[Row]) -> str:
    more = len(rows) - ROWS_SHOWN
    return f"<p>{counted(more, 'more row')} in the file.</p>" if more > 0 else ""


def _paper(name: str, folder: Path) -> Iterator[str]:
    """How many claims hold, the claims, the figures drawn again, and all other tables."""
    tables = {path.stem: _cells(path) for path in sorted(folder.glob("*.csv"))}
    claims = {stem.removesuffix(_CLAIMS): tables.pop(stem) for stem in list(tables) if stem.endswith(_CLAIMS)}
    yield head("fedhist paper", name, _verdicts(claims, tables), _WARNING)
    yield f'<p class="lead">{_LOSS}</p>'
    judged = [f"<h3>{text(stem)}</h3>{_rows(rows)}" for stem, rows in claims.items() if rows]
    lead = "What the paper says of its figures, and whether it is so in ours."
    yield section("claims", "Claims", panel(*judged), lead=lead) if judged else ""
    drawn = found = 0
    for path in sorted(folder.glob(f"*{CHARTS_SUFFIX}")):
        stem, (charts, heading) = path.name.removesuffix(CHARTS_SUFFIX), read_charts(path)
        figures = [
            figure(replace(chart, name=f"{stem}-{place}"))
            for place, chart in enumerate(charts[: MOST_PAPER_CHARTS - drawn], 1)
        ]
        drawn, found = drawn + len(figures), found + len(charts)
        shown = paragraphs(heading), grid(*figures)
        yield section(f"figure-{stem}", f"Figure: {stem}", *shown) if figures else ""
    yield f"<p>{counted(found - drawn, 'more chart')} in the folder's figures.</p>" if found > drawn else ""
    for stem, rows in tables.items():
        listed = panel(_rows(rows), _more(rows), kind="panel long")
        yield section(f"table-{stem}", f"Table: {stem}", listed)


def _verdicts(claims: Mapping[str, Sequence[Row]], tables: Mapping[str, Sequence[Row]]) -> str:
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
    return f"{sentence(words)}."


def _rows(rows: Sequence[Row]) -> str:
    columns = [name for name in (rows[0] if rows else ()) if any(row.get(name) for row in rows)]
    shown = [[_shown(row.get(name) or "") for name in columns] for row in rows[:ROWS_SHOWN]]
    return table(columns, shown, numeric=len(columns)) if columns else "<p>No rows.</p>"


def _shown(value: str) -> str:
    """A number with its significant digits; any other text unchanged."""
    try:
        return number(float(value)) if "." in value or "e" in value else value
    except ValueError:
        return value
