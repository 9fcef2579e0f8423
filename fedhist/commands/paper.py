"""`fedhist paper`: the paper's tables and figures beside ours, and our methods beyond them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from fedhist.commands.compare import resumable
from fedhist.commands.options import PATH, Group, options
from fedhist.commands.progress import progress_on
from fedhist.commands.terminal import echo
from fedhist.display.tables import print_rows
from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.engines.contract import check_workers
from fedhist.simulations.experiments.running import NOT_PRIVATE, make_folder, mark_not_private
from fedhist.simulations.experiments.tables import write_csv
from fedhist.simulations.paper.beyond import beyond
from fedhist.simulations.paper.figures import figure_bounded, figure_debias, figure_open, figure_sparsity
from fedhist.simulations.paper.sentiment140 import By
from fedhist.simulations.paper.setup import Report, Setup, read_file
from fedhist.simulations.paper.tables import check_words, table_open, table_words

EXPERIMENTS: dict[str, Callable[[Setup], Report]] = {
    "table-open": table_open,
    "figure-open": figure_open,
    "figure-bounded": figure_bounded,
    "figure-sparsity": figure_sparsity,
    "figure-debias": figure_debias,
    "table-words": table_words,
    "beyond": beyond,
}
"""The experiments by the names of their commands, whose help is the docstring."""

OUT = Path("fedhist-paper")
OPTIONS = options(
    *("quick", "data", "vocabulary", "seed", "workers", "out", "as_json"),
    data={"multiple": True, "help": "A population to use, as for 'fedhist run'; may be given several times."},
    seed={"default": 0, "help": "Determines all trials."},
    workers={"help": "Number of processes. [default: one per core]"},
    out={
        "default": OUT,
        "help": "Folder of tables, figures and trials; the same command resumes where it was stopped.",
    },
    as_json={"help": "Print reports as a JSON array and nothing else."},
)


@click.group(cls=Group, examples=("fedhist paper all --quick", "fedhist paper table-open --out open"))
def paper() -> None:
    """Rerun the paper's tables and figures and put its numbers beside ours, with verdicts.

    Each command prints the paper's numbers beside our means with their 95 % intervals, and draws SVG and PNG figures.
    The data is read in full, and nothing here is private.
    """


def _register(name: str, text: str | None, names: tuple[str, ...]) -> None:
    def command(**flags: Any) -> None:
        run_reports(names, **flags)

    data = " --data sentiment140.npz" if names == ("table-words",) else ""
    examples = (f"fedhist paper {name} --quick{data}", f"fedhist report {OUT} --out paper.html")
    paper.command(name, help=text, examples=examples)(OPTIONS(command))


for _name, _experiment in EXPERIMENTS.items():
    _register(_name, _experiment.__doc__, (_name,))
_register(
    "all",
    "All of them.\n\nThe full version took eight minutes on two cores, and thirteen with four files.",
    tuple(EXPERIMENTS),
)


@paper.command("sentiment140", examples=("fedhist paper sentiment140 tweets.csv --out sentiment140.npz",))
@click.argument("source", type=PATH)
@options(
    *("out", "by", "force"),
    out={"metavar": "FILE", "required": True, "help": "The .npz file to write."},
    force={"help": "Replace a file that exists."},
)
def sentiment140(*, source: Path, out: Path, by: By, force: bool) -> None:
    """Read the words of Sentiment140's tweets into a matrix of users by words, for --data.

    SOURCE is training.1600000.processed.noemoticon.csv. Users' names are not kept; words are.
    """
    from fedhist.client.files.matrix_files import MATRIX_SUFFIXES
    from fedhist.server.disk import check_new_file
    from fedhist.simulations.paper.sentiment140 import read_sentiment140, write_matrix

    check_new_file(out, suffixes=MATRIX_SUFFIXES, force=force)
    population = read_sentiment140(source, by=by)
    write_matrix(population, out, force=force)
    echo(f"written: {out}, {population.users:,} users x {population.domain_size:,} words")


def run_reports(
    names: tuple[str, ...],
    *,
    quick: bool,
    data: tuple[Path, ...],
    vocabulary: Path | None,
    seed: int,
    workers: int | None,
    out: Path,
    as_json: bool,
) -> None:
    """Read the data, then run, write and print one experiment after the other."""
    if vocabulary is not None and not data:
        raise InvalidInput("--vocabulary needs --data", allowed="--vocabulary with a .npz")
    count = check_workers(workers)
    files = tuple(read_file(path, vocabulary, seed) for path in data)
    if names == ("table-words",):
        check_words(files)
    alone = len(names) == 1
    setup = Setup(quick=quick, seed=seed, workers=count, out=out, data=files, alone=alone)
    make_folder(out)
    documents = []
    begun, used = perf_counter(), cpu_seconds()
    for name in names:
        start, before = perf_counter(), cpu_seconds()
        with resumable(out), progress_on(sys.stderr) as progress:
            progress.phase(name)
            report = EXPERIMENTS[name](replace(setup, counting=progress))
            mark_not_private(out)
            write_csv(out / f"{name}.csv", report.rows)
            if report.claims:
                write_csv(out / f"{name}-claims.csv", [claim.row() for claim in report.claims])
        spent = {"seconds": perf_counter() - start, "cpu_seconds": cpu_seconds() - before}
        if as_json:
            documents.append(_document(report, spent))
        else:
            _print(report, spent, out)
    if as_json:
        click.echo(json.dumps(documents, allow_nan=False))
    elif len(names) > 1:
        click.echo(f"all: {perf_counter() - begun:.0f} s, {cpu_seconds() - used:.0f} s of one core")


def cpu_seconds() -> float:
    """The processor time of this process and its finished workers."""
    return sum(os.times()[:4])


def _document(report: Report, spent: dict[str, float]) -> dict[str, Any]:
    return {
        "name": report.name,
        "title": report.title,
        "rows": report.rows,
        "claims": [claim.row() for claim in report.claims],
        "figures": [str(path) for path in report.figures],
        "notes": [*report.notes, NOT_PRIVATE],
        **spent,
    }


def _print(report: Report, spent: dict[str, float], out: Path) -> None:
    text = ("data", "reading", "column", "verdict", "of_mean", "why", "method", "word", "bound", "result", "domain",
            "best_of_paper")  # fmt: skip
    print_rows(f"{report.name}: {report.title}", report.rows, report.columns, text=text)
    if report.claims:
        headings = {"claim": "the paper says", "data": "data", "found": "we find", "verdict": "verdict"}
        rows = [claim.row() for claim in report.claims]
        print_rows(f"{report.name}: claims", rows, headings, text=tuple(headings))
    for note in report.notes:
        echo(f"note: {note}")
    click.echo(NOT_PRIVATE)
    files = [f"{report.name}.csv", *(path.name for path in report.figures)]
    took = f"{spent['seconds']:.0f} s, {spent['cpu_seconds']:.0f} s of one core"
    echo(f"written: {', '.join(shlex.quote(str(out / name)) for name in files)} ({took})")
    click.echo("")
