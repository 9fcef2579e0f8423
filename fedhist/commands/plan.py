"""`fedhist plan`: what a run will be like, before any budget is spent."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fedhist.commands.options import COLUMNS, Command, columns_of, options, plan_settings
from fedhist.commands.terminal import line
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.fields import FIELDS
from fedhist.simulations.datasets import DEFAULT_POINTS

if TYPE_CHECKING:
    from rich.console import Console

NOT_PLANNED = (
    "users", "items", "participants", "window", "minimum_cohort", "masking", "noise_from", "corrupt_share",
    "dropout_share", "max_items", "max_item_bytes",
)  # fmt: skip
"""Fields of the plan that a prediction does not depend on, or that the population says."""

_ASKED = ("best_split", "target_error", "total_epsilon", "total_delta", "seed")
_CURVE_WIDTH, _LEAST_CURVE = 32, 10
# A narrower terminal gets no columns of _LEFT_OUT.
_WIDE = 112
_LEFT_OUT = ("clipping", "noise", "9 of 10", "basic")


@click.command(
    cls=Command,
    examples=(
        "# which epsilon brings the relative error down to 5 %?",
        "fedhist plan --users 20000 --items 500 --mean-total 30 --target-error 0.05",
        "# the same from a public data set like yours, with a chart",
        "fedhist plan --data public.parquet --epsilon 0.1:10 --figure plan.svg",
    ),
)
@options(
    *(
        "data",
        *COLUMNS,
        "strict",
        "items_file",
        "users",
        "items",
        "top_items",
        "normalise",
        "memory",
        "mean_total",
    ),
    *("distinct_items", "tail_index", "sizes", "best_split", "target_error", "total_epsilon", "total_delta"),
    *(name for name in FIELDS if name not in NOT_PLANNED),
    *("set", "plan_file", "plugin", "seed", "figure", "csv", "force", "as_json"),
    epsilon={
        "type": str,
        "metavar": "RANGE",
        "default": "0.1:10",
        "help": f"Budgets of the histogram: LOW:HIGH, LOW:HIGH:POINTS ({DEFAULT_POINTS} points if left out, evenly on "
        "a logarithmic scale) or values with commas. With --best-split, of both rounds together.",
    },
    total_epsilon={
        "help": "Find the best split of this budget, as 'fedhist run' takes it, between the rounds."
    },
    total_delta={
        "help": "Delta of all rounds together, for all answers; the histogram gets all of it unless others spend delta "
        "too."
    },
    items_file={
        "help": "The public list of the items to count, one per line, for data with names. Without it the items are "
        "inferred from the data."
    },
    top_items={"help": "Count the D most frequent items only."},
    seed={"default": 0, "help": "The seed of synthetic and model populations."},
    force={"help": "Replace a figure or CSV file that exists."},
)
@click.pass_context
def plan(context: click.Context, /, **flags: Any) -> None:
    """Predict error and threshold of a run over a range of epsilon, before any budget is spent.

    Computed from a public population (--data), a synthetic one, or one made from your guesses (--users, --items,
    --sizes, --mean-total, --distinct-items, --tail-index). Nothing is charged. Predictions are not private: the data
    must be public, or a past release.
    """
    from dataclasses import fields

    from fedhist.commands.progress import progress_on
    from fedhist.server.disk import check_new_file
    from fedhist.simulations.datasets.loading import Wanted
    from fedhist.simulations.experiments.tables import write_csv
    from fedhist.simulations.report.plot import FORMATS, painted, plan_ahead_charts, write_figure
    from fedhist.simulations.workbench.predict import GUESSES, plan_ahead, population_for

    settings, given = plan_settings(context, flags, totals=False)
    figure, csv, force, as_json = (settings.pop(name) for name in ("figure", "csv", "force", "as_json"))
    wanted = Wanted(
        columns=columns_of(settings),
        open_domain=settings["domain"] == "open",
        **{one.name: settings.pop(one.name) for one in fields(Wanted) if one.name in settings},
    )
    epsilons = _epsilons(settings.pop("epsilon"))
    # Before anything is computed: files that can't be written, or that would take the place of the data.
    for flag, path, suffixes in (("--figure", figure, FORMATS), ("--csv", csv, ())):
        if path is not None:
            check_new_file(path, suffixes=suffixes, force=force)
            if path.resolve() in [read.resolve() for read in (wanted.path, wanted.items_file) if read]:
                raise InvalidInput(f"{flag} names a file that is read", allowed="another file")
    guesses = {name: value for name in GUESSES if (value := settings.pop(name)) is not None}
    if "sizes" in guesses:
        guesses["sizes"] = _sizes(guesses["sizes"])
    asked = {name: settings.pop(name) for name in _ASKED}
    # --delta 0 alone asks for the mechanism that needs none.
    if settings["mechanism"] is None and settings["domain"] == "closed" and settings["delta"] == 0:
        settings["mechanism"] = "laplace"
    with progress_on(sys.stderr) as progress:
        progress.phase("population")
        population = population_for(wanted, guesses, asked["seed"])
        progress.phase("predict")
        found = plan_ahead(population, settings, epsilons, given=given, **asked)
        if csv is not None:
            write_csv(csv, found["rows"])
        if figure is not None:
            progress.phase("write")
            answers = {name: found[name] for name in ("target", "split")}
            drawn = plan_ahead_charts(epsilons, found["rows"], totals=asked["best_split"], **answers)
            write_figure(painted(drawn), figure, force=True)
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
    else:
        _print(found, asked, [str(path) for path in (figure, csv) if path is not None])


def _sizes(text: str) -> tuple[tuple[float, float], ...]:
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return tuple((float(percent), float(total)) for percent, total in pairs)
    except ValueError:
        raise InvalidInput(
            f"--sizes is {text!r}", allowed="pairs PERCENT:TOTAL with commas", advice="such as 50:8,99:106"
        ) from None


def _epsilons(text: str) -> list[float]:
    """The values that a range stands for, rising."""
    from fedhist.simulations.workbench.predict import MAX_POINTS, spread

    wrong = InvalidInput(
        f"--epsilon is {text!r}",
        allowed="LOW:HIGH or LOW:HIGH:POINTS with 0 < LOW < HIGH and 2 points or more, or values above 0 with commas",
        advice="for example 0.1:10, 0.5:4:8 or 0.5,1,2",
    )
    count = 0
    try:
        if ":" not in text:
            values = sorted({float(part) for part in text.split(",")})
        else:
            low, high, *points = text.split(":")
            (count,) = map(int, points or [str(DEFAULT_POINTS)])
            if not (0 < float(low) < float(high) < math.inf and count >= 2):
                raise wrong
            values = spread(float(low), float(high), min(count, MAX_POINTS + 1))
    except ValueError:
        raise wrong from None
    if not all(0 < value < math.inf for value in values):
        raise wrong
    if max(count, len(values)) > MAX_POINTS:
        raise InvalidInput(
            f"--epsilon asks for {max(count, len(values))} points", allowed=f"up to {MAX_POINTS}"
        )
    return values


def _print(found: dict[str, Any], asked: dict[str, Any], written: list[str]) -> None:
    from fedhist.commands.summary import print_notes, stdout_console
    from fedhist.protocol.plan import Plan
    from fedhist.server.words import users_words

    console, plan, population = stdout_console(), Plan.from_json(found["plan"]), found["population"]
    items = f"{population['items']:,} items{' of an open domain' if plan.items is None else ''}"
    facts = f"population  {users_words(plan)} x {items} ({line(population['name'])})"
    console.print(f"{facts}\nmechanism   {found['mechanism']}", markup=False, soft_wrap=True)
    totals, target = asked["best_split"], asked["target_error"]
    print_curve(console, found["epsilons"], found["rows"], totals=totals, target=target)
    for name, question in (
        ("target", "Which epsilon gives an error of {target_error:g}?"),
        ("split", "How should epsilon {total_epsilon:g} be split between the rounds?"),
    ):
        if found[name] is not None:
            console.print(question.format(**asked), style="bold", markup=False)
            console.print(found[name]["words"], markup=False)
    print_notes(console, found["notes"])
    if written:
        console.print(line(f"written: {', '.join(written)}"), markup=False, soft_wrap=True)


def print_curve(
    console: Console,
    epsilons: Sequence[float],
    rows: Sequence[Mapping[str, Any]],
    *,
    totals: bool,
    target: float | None,
) -> None:
    """A row for each epsilon, with the curve at the right; a narrow terminal gets fewer columns."""
    from rich.table import Table

    narrow = console.width < _WIDE
    columns = [_columns(row, narrow=narrow) for row in rows]
    budgets = [f"{epsilon:.4g}" for epsilon in epsilons]
    heading = "total" if totals else "epsilon"
    taken = max(map(len, [heading, *budgets])) + 3
    taken += sum(max(len(name), *(len(row[name]) for row in columns)) + 3 for name in columns[0])
    width = min(_CURVE_WIDTH, console.width - taken - 4)
    table = Table(
        title="predicted relative error of a run, its parts, and its threshold", title_justify="left"
    )
    for name in (heading, *columns[0]):
        table.add_column(name, justify="right", no_wrap=True)
    losses = [max(row["relative_loss"], 1e-6) for row in rows]
    low, high = _nice(min(losses), up=False), _nice(max(losses), up=True)
    high = high if high > low else 2 * low
    if width >= _LEAST_CURVE:
        table.add_column(f"{low:g}" + f"{high:g}".rjust(width - len(f"{low:g}")), no_wrap=True)

    def place(value: float) -> int:
        share = math.log(max(value, 1e-6) / low) / math.log(high / low)
        return min(max(round(share * (width - 1)), 0), width - 1)

    for epsilon, loss, cells in zip(budgets, losses, columns, strict=True):
        if width < _LEAST_CURVE:
            table.add_row(epsilon, *cells.values())
            continue
        curve = [" "] * width
        if target is not None and low <= target <= high:
            curve[place(target)] = "┊"
        curve[place(loss)] = "●"
        table.add_row(epsilon, *cells.values(), "".join(curve))
    console.print(table)


def _columns(row: Mapping[str, Any], *, narrow: bool) -> dict[str, str]:
    from fedhist.commands.summary import epsilon_text
    from fedhist.simulations.predict import counts_text

    cells = {
        "choice": f"{row['epsilon_select']:.3g}",
        "error": f"{row['relative_loss']:.4f}",
        "clipping": f"{row['clipping_error']:.4f}",
        "noise": f"{row['noise_error']:.4f}",
        "threshold": counts_text(row["threshold"], 4),
        "9 of 10": f"{counts_text(row['threshold_low'], 3)}-{counts_text(row['threshold_high'], 3)}",
    }
    if row["recall"] is not None:
        cells["keys"] = f"{row['released_items']:,.0f}"
    for name in ("total", "tight"):
        epsilon = row[f"{name}_epsilon"]
        cells["basic" if name == "total" else name] = epsilon_text(math.inf if epsilon is None else epsilon)
    return {name: cell for name, cell in cells.items() if not (narrow and name in _LEFT_OUT)}


def _nice(value: float, *, up: bool) -> float:
    """A round number beside this one."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = [power * step for step in (1, 2, 5, 10)]
    return float(f"{min(s for s in steps if s >= value) if up else max(s for s in steps if s <= value):.3g}")
