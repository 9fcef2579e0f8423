"""`fedhist compare`: selectors side by side, over data sets, settings and trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from fedhist.client.files.columns import Columns
from fedhist.client.files.new_files import why_refused
from fedhist.client.files.records import read_population
from fedhist.client.populations import SparsePopulation
from fedhist.commands.cli import EXIT_INTERRUPTED
from fedhist.commands.data_options import column_options, columns_of
from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH, meant_budget, mechanism_for, plan_options, total_options
from fedhist.commands.progress import progress_on
from fedhist.commands.terminal import echo
from fedhist.protocol.errors import InvalidInput, NotWritten
from fedhist.protocol.plan.fields import FIELDS
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_USERS
from fedhist.simulations.datasets.registry import is_synthetic
from fedhist.simulations.experiments.comparison import (
    cells_of,
    check_different,
    check_selectors,
    checked_plans,
    drawn_digest,
    drawn_once,
    fitting_any,
    kinds_of_plan,
    names_of,
    rows_of,
)
from fedhist.simulations.experiments.journal import JOURNAL
from fedhist.simulations.experiments.running import (
    NOT_PRIVATE,
    Experiment,
    Group,
    run_experiment,
    working_folder,
)
from fedhist.simulations.experiments.tables import Row, interval_text, print_rows, write_csv, write_parquet
from fedhist.simulations.experiments.trials import PAPER_DELTA
from fedhist.simulations.experiments.user_sets import FILE, SYNTHETIC, UserSet, file_digest
from fedhist.simulations.experiments.workers import check_workers
from fedhist.simulations.simulation import check_not_empty
from fedhist.simulations.workbench.checks import check_count, check_trials, shaped_file

SHOWN = {
    "data": "data", "items": "items", "selector": "selector", "release": "release", "epsilon": "epsilon",
    "delta": "delta", "epsilon_select": "eps'", "delta_select": "delta'", "max_threshold": "C_m",
    "loss_mean": "loss", "interval": "95 % interval", "threshold_mean": "C", "epsilon_total": "total eps",
    "epsilon_tight": "tight eps", "seconds_mean": "seconds",
}  # fmt: skip
"""Headings of the printed table. Of those that are settings, the ones that vary are shown."""


def _list_of(convert: Callable[[str], Any], what: str) -> Callable[[Any], tuple[Any, ...]]:
    """The type of an option: values with commas between them, repeats left out."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, str):
            return tuple(value)
        try:
            return tuple(dict.fromkeys(convert(part.strip()) for part in value.split(",")))
        except ValueError:
            raise click.BadParameter(f"{value!r} is not {what} with commas between them.") from None

    return read


def _delta(text: str) -> float | str:
    if text.replace(" ", "").replace("(", "").replace(")", "") == PAPER_DELTA:
        return PAPER_DELTA
    return float(text)


def _name(text: str) -> str:
    if not text:
        raise ValueError("empty")
    return text


NUMBERS = _list_of(float, "numbers")
WHOLE = _list_of(int, "whole numbers")
NAMES = _list_of(_name, "names")
DELTAS = _list_of(_delta, f"numbers or {PAPER_DELTA}")

_SEVERAL = {
    "release": NAMES, "epsilon": NUMBERS, "delta": DELTAS, "epsilon_select": NUMBERS, "delta_select": DELTAS,
    "max_threshold": NUMBERS, "threshold": NUMBERS,
}  # fmt: skip
"""The fields of a plan that may have several values."""


@click.command(
    cls=Command,
    context_settings={"show_default": True},
    examples=(
        "# all selectors at three budgets, over synthetic users",
        "fedhist compare --epsilon 0.1,0.5,1 --trials 10 --out compared",
        "# two of them on a data set of yours",
        "fedhist compare --data visits.parquet --selectors weighted-quantile,dpsgd",
    ),
)
@click.option(
    "--data",
    "data",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Population as for 'fedhist run', the same in every trial; may be given several times.",
)
@column_options
@click.option(
    "--synthetic",
    multiple=True,
    type=click.Choice(list(SYNTHETIC)),
    help="Population made from the seed, anew for each trial; may be given several times. "
    "[default: heavy-tailed, without --data]",
)
@click.option(
    "--users", type=int, metavar="N", help=f"The number of synthetic users. [default: {DEFAULT_USERS}]"
)
@click.option(
    "--items",
    type=WHOLE,
    metavar="D,...",
    help=f"The numbers of items of synthetic users. [default: {DEFAULT_ITEMS}]",
)
@click.option(
    "--top-items",
    type=WHOLE,
    metavar="D,...",
    help="Count the D most frequent items of each population only, or all if it has no more. [default: all]",
)
@click.option(
    "--selectors",
    type=NAMES,
    metavar="NAME,...",
    help="The ways to choose the threshold, as --selector of 'fedhist run'. "
    "[default: all of the domain and mechanism but fixed]",
)
@plan_options(
    "domain",
    "mechanism",
    *_SEVERAL,
    *("min_threshold", "candidates", "sparsity", "neighbours", "calibration"),
    *("discovery_share", "user_items", "known_items", "statistic", "buckets", "score_sensitivity"),
    several=_SEVERAL,
    delta={"help": f"{FIELDS['delta'].meaning} {PAPER_DELTA} is one over twice the users."},
    statistic={"default": "plain", "show_default": True},
)
@total_options(total_epsilon=NUMBERS, total_delta=DELTAS)
@click.option("--trials", type=int, default=20, metavar="T", help="The number of runs of each combination.")
@click.option("--seed", type=int, default=0, metavar="S", help="The seed that all trials follow from.")
@click.option(
    "--workers", type=int, metavar="N", help="The number of processes. [default: one for each core]"
)
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="Folder of the journal, table.csv, table.parquet and the figure; the same command with the same folder goes "
    "on where it was stopped. [default: fedhist-compare-TIME; none with --json]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the rows as a JSON array on stdout and nothing else."
)
@click.pass_context
def compare(context: click.Context, /, **flags: Any) -> None:
    """Compare selectors over data sets, settings and trials, with intervals and a figure.

    An experiment on data that you may look at: it reads the truth, charges no ledger, and is NOT private. Every
    combination of the lists is a row. Trial i of a row depends on --seed, the row and i alone.
    """  # fmt: skip
    flags = meant_budget(context, flags)
    workers = check_workers(flags.pop("workers"))
    trials, seed, as_json = flags.pop("trials"), flags.pop("seed"), flags.pop("as_json")
    check_trials(trials)
    out: Path | None = flags.pop("out")
    if out is None and not as_json:
        out = Path(f"fedhist-compare-{datetime.now():%Y%m%d-%H%M%S}")
    columns = columns_of(flags)
    sources = {name: flags.pop(name) for name in ("data", "synthetic", "users", "items", "top_items")}
    varied, fixed = _varied_and_fixed(flags)
    loaded = _load(sources, seed, columns)
    cells = cells_of(varied, fixed, loaded.sets)
    plans = checked_plans(cells, loaded.sizes)
    experiment = Experiment(seed=seed, groups=(Group(cells, trials),))
    for note in loaded.notes:
        echo(f"note: {note}", err=True)
    with working_folder(out) as folder, resumable(out):
        with progress_on(sys.stderr) as progress:
            progress.phase("trials")
            results = run_experiment(
                experiment, folder, loaded.populations, workers=workers, counting=progress
            )
        rows = rows_of(cells, plans, results, loaded.sizes)
        if out is not None:
            from fedhist.simulations.figures.painting import draw_comparison

            write_csv(folder / "table.csv", rows)
            write_parquet(folder / "table.parquet", rows)
            draw_comparison(rows, folder / "figure")
    if as_json:
        click.echo(json.dumps(rows, allow_nan=False))
    else:
        _print(rows, trials, out, for_total="total_epsilon" in varied)


@contextmanager
def resumable(out: Path | None) -> Iterator[None]:
    """After Ctrl-C or a full disk inside, the journal stays as it is and the message says how to go on.

    Without a folder of the user's, `working_folder` reports what the disk refused.
    """
    try:
        yield
    except (OSError, NotWritten) as error:
        if out is None:
            raise
        if isinstance(error, NotWritten):
            raise NotWritten(f"{error}; finished trials are kept, and the same command goes on") from None
        raise NotWritten(
            f"{out} can't be written ({why_refused(error)}); finished trials are kept: make room and give the same "
            "command again, or name another folder with --out"
        ) from None
    except KeyboardInterrupt:
        kept = f"finished trials are kept: to go on, give the same command with --out {out}"
        echo(f"interrupted; {'nothing is kept without --out' if out is None else kept}", err=True)
        click.get_current_context().exit(EXIT_INTERRUPTED)


@dataclass(frozen=True)
class _Loaded:
    """The sets of users, those that are the same in every trial with their users, sizes by key, and notes."""

    sets: list[UserSet] = field(default_factory=list)
    populations: dict[UserSet, SparsePopulation] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, users: UserSet, size: tuple[int, int], whole: SparsePopulation | None = None) -> None:
        """Add a set with its numbers of users and items, once."""
        if users.key in self.sizes:
            return
        self.sets.append(users)
        self.sizes[users.key] = size
        if whole is not None:
            self.populations[users] = (
                whole if users.top_items is None else whole.keep_top_items(users.top_items)
            )

    def tops(self, name: str, items: int, wanted: Sequence[int] | None) -> list[int | None]:
        """The numbers of items to keep, each at most all of them; a larger one is noted. None keeps all."""
        for top in wanted or ():
            if top > items:
                self.notes.append(f"{name} has {items:,} items: --top-items {top:,} keeps them all")
        return list(dict.fromkeys(min(top, items) for top in wanted)) if wanted else [None]


def _varied_and_fixed(flags: dict[str, Any]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """The lists of values to compare, and the single values, by name of a field of Plan."""
    domain = flags["domain"]
    named = mechanism_for(flags.pop("mechanism"), domain=domain, no_delta=flags["delta"] == (0.0,))
    kinds = kinds_of_plan(domain, named, flags["release"] or ())
    selectors = flags.pop("selectors") or tuple(name for name in fitting_any(kinds) if name != "fixed")
    check_selectors(selectors, kinds)
    if "fixed" in selectors and not flags["threshold"]:
        raise InvalidInput("the selector fixed has no threshold", allowed="--threshold with numbers")
    if flags["threshold"] and "fixed" not in selectors:
        raise InvalidInput(
            "--threshold needs the selector fixed", allowed="--threshold with --selectors fixed,..."
        )
    varied = {name: value for name, value in flags.items() if isinstance(value, tuple)}
    fixed = {name: value for name, value in flags.items() if name not in varied and value is not None}
    return {"selector": selectors} | varied, fixed | ({} if named is None else {"mechanism": named})


def _load(sources: Mapping[str, Any], seed: int, columns: Columns) -> _Loaded:
    """All sets; a file is read once, also where several numbers of its items are kept."""
    paths = list(dict.fromkeys(sources["data"]))
    files = [path for path in paths if not is_synthetic(str(path))]
    kinds: Sequence[str] = list(dict.fromkeys(sources["synthetic"])) or ([] if paths else ["heavy-tailed"])
    if columns.given and not files:
        raise InvalidInput(f"{columns.in_words()} without a file", allowed="--data with a table")
    given = sources["users"] is not None or sources["items"] is not None
    if given and not kinds and len(files) == len(paths):
        raise shaped_file()
    for flag in ("items", "top_items"):
        for value in sources[flag] or ():
            check_count(f"--{flag.replace('_', '-')}", value)
    digests = {path: file_digest(path, columns) for path in files}
    check_different(digests)
    names = names_of(paths, taken=kinds)
    loaded = _Loaded()
    sizes, wanted = sources["items"] or (None,), sources["top_items"]
    for path, name in names.items():
        for items in (None,) if path in digests else sizes:
            if path in digests:
                population, content, called = read_population(path, columns=columns), digests[path], name
            else:
                size = {"users": sources["users"], "items": items}
                population = drawn_once(str(path), seed, **size)
                content = drawn_digest(str(path), seed, **size)
                called = _with_items(name, items, sources)
            check_not_empty(population)
            for top in loaded.tops(called, population.domain_size, wanted):
                users = UserSet(kind=FILE, name=called, content=content, top_items=top)
                loaded.add(users, (population.users, top or population.domain_size), population)
    count = DEFAULT_USERS if sources["users"] is None else sources["users"]
    for kind in kinds:
        for items in sources["items"] or (DEFAULT_ITEMS,):
            called = _with_items(kind, items, sources)
            for top in loaded.tops(called, items, wanted):
                users = UserSet(kind=kind, name=called, users=count, items=items, top_items=top)
                loaded.add(users, (count, top or items))
    return loaded


def _with_items(name: str, items: int | None, sources: Mapping[str, Any]) -> str:
    """The name, with the number of items where several sizes keep the same number of top items."""
    several = sources["top_items"] and len(sources["items"] or ()) > 1
    return f"{name}, {items:,} items" if several else name


def _print(rows: Sequence[Row], trials: int, out: Path | None, *, for_total: bool) -> None:
    shown = {
        name: heading
        for name, heading in SHOWN.items()
        if (name not in _SEVERAL or len({row[name] for row in rows}) > 1)
        and (for_total or name != "epsilon_tight")
    }
    title = f"mean relative loss over {trials} trials with its 95 % interval"
    printed = [row | {"interval": interval_text(row["loss_low"], row["loss_high"])} for row in rows]
    print_rows(title, printed, shown, text=("data", "selector", "release"))
    click.echo("a row without total eps reads the exact data")
    click.echo(NOT_PRIVATE)
    if out is not None:
        echo(f"written: {out}/table.csv, table.parquet, figure.svg, figure.png, {JOURNAL}")
