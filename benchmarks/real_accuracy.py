"""The README's table of accuracy on real data: `python benchmarks/real_accuracy.py --rivals ENVIRONMENTS --out FOLDER`.

Everybody spends epsilon 1.1 in all and delta 1/n (closed domains) or 1/(2n) (open ones), neighbours zero-out, over
the 1,000 most frequent items. A bound that is not chosen privately is a public guess, 1, 10, 100 or 1,000 counts of one
user, and costs nothing: that release spends the whole total. The table has the best and the worst guess, known only
afterwards. Libraries that bound items and counts of an item guess every product of both up to 1,000.

With --rivals, other libraries run over the closed domains, each in a virtual environment of its own in that folder. It
is made and filled from PyPI when it is not there. --out keeps what is done: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.clipping import entry_counts, entry_items
from fedhist.protocol.errors import InvalidFile
from fedhist.simulations.experiments.choices import ALL_DELTA, PAPER_DELTA
from fedhist.simulations.experiments.running import Group
from fedhist.simulations.experiments.tables import Summary, summarise
from fedhist.simulations.experiments.trials import Cell, UserSet
from fedhist.simulations.paper.beyond import (
    CLOSED,
    DEFAULT,
    OPEN,
    PAPER,
    TOTAL,
    closed_cells,
    open_cells,
)
from fedhist.simulations.paper.setup import Setup, read_file

ITEMS = 1_000
GUESSES = (1, 10, 100, 1_000)
MAX_THRESHOLD = 1_500.0
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SETS = {
    "gowalla_counts_19k": "Gowalla, places",
    "brightkite_counts_10core": "Brightkite, places",
    "sentiment140_by_author_subset": "Sentiment140 by author, words",
    "sentiment140_by_addressee": "Sentiment140 by addressee, words",
}
BOUNDS = [[g] for g in GUESSES] + [[a, b] for a in GUESSES for b in GUESSES if a * b <= max(GUESSES)]
"""A user's counts in all, with Laplace noise; or items and counts of an item, with Gaussian noise."""


@dataclass(frozen=True)
class Rival:
    """A library that releases the same histogram.

    Args:
        name: in the table.
        script: in benchmarks/rivals; answers bounds with losses.
        package: what pip installs.
    """

    name: str
    script: str
    package: str


RIVALS = (
    Rival("PipelineDP", "by_pipeline_dp.py", "pipeline-dp==0.3.1"),
    Rival("OpenDP", "by_opendp.py", "opendp[polars]==0.16.0"),
)
TUMULT = Rival("Tumult Analytics", "by_tumult.py", "tmlt.analytics==0.21.0")


@dataclass(frozen=True)
class Extremes:
    """The best and the worst of several guesses."""

    best: Summary
    worst: Summary

    def __str__(self) -> str:
        return f"{digits(self.best.mean)} to {digits(self.worst.mean)}"


Line = tuple[str, int, list[Summary | Extremes | None]]
"""The name of a row, its users, and its cells."""


def digits(loss: float) -> str:
    """Three significant digits without a leading zero, as .0417 or 1.23."""
    text = f"{loss:.4f}" if loss < 1 else f"{loss:.2f}" if loss < 10 else f"{loss:.0f}"
    return text.removeprefix("0")


def guessed_cells(users: UserSet, *, closed: bool) -> dict[str, Cell]:
    """Our release at every public guess, with either noise; nothing is spent on the choice."""
    domain, delta = ("closed", ALL_DELTA) if closed else ("open", PAPER_DELTA)
    deltas = {"gaussian": delta, "laplace": 0.0 if closed else delta}
    shared = {
        "domain": domain, "selector": "fixed", "total_epsilon": TOTAL, "max_threshold": MAX_THRESHOLD,
    }  # fmt: skip
    return {
        f"{mechanism} {guess}": Cell(
            users=users,
            settings=shared | {"mechanism": mechanism, "total_delta": delta, "threshold": float(guess)},
        )
        for mechanism, delta in deltas.items()
        for guess in GUESSES
    }


def extremes(summaries: Iterable[Summary]) -> Extremes:
    by_mean = sorted(summaries, key=lambda one: one.mean)
    return Extremes(by_mean[0], by_mean[-1])


def python_of(rival: Rival, environments: Path) -> Path:
    """The Python of the rival's environment, which is made when it is not there."""
    folder = environments / Path(rival.script).stem
    program, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        print(f"installing {rival.package} in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", rival.package], check=True)
        complete.touch()
    return program


def ask(
    rival: Rival, program: Path, table: Path, delta: float, questions: Sequence[list[int]]
) -> Iterator[float]:
    """The rival's loss for every question, as they come."""
    script = Path(__file__).with_name("rivals") / rival.script
    command = [str(program), str(script), str(table), str(TOTAL), str(delta)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        for question in questions:
            print(json.dumps(question), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                raise RuntimeError(
                    f"{rival.name} ended without an answer to {question}: run {' '.join(command)}"
                )
            yield json.loads(answer)
        process.stdin.close()


def rival_losses(
    rival: Rival, program: Path, population: SparsePopulation, *, trials: int, kept: Path
) -> Extremes:
    """One trial of every guess, then all trials of the best and the worst one."""
    done: dict[str, list[float]] = json.loads(kept.read_text()) if kept.exists() else {}
    histograms = population.histograms
    with TemporaryDirectory() as folder:
        table = Path(folder) / "table.npz"
        users = np.repeat(np.arange(population.users), np.diff(histograms.offsets))
        counts, items = entry_counts(histograms), entry_items(histograms)
        np.savez(table, users=users, items=items, counts=counts, size=population.domain_size)

        def run(questions: list[list[int]]) -> None:
            answers = ask(rival, program, table, 1 / population.users, questions)
            for question, loss in zip(questions, answers, strict=True):
                done.setdefault(json.dumps(question), []).append(loss)
                kept.write_text(json.dumps(done, indent=1))

        if missing := [bounds for bounds in BOUNDS if json.dumps(bounds) not in done]:
            run(missing)
        by_first = sorted(BOUNDS, key=lambda bounds: done[json.dumps(bounds)][0])
        chosen = [by_first[0], by_first[-1]]
        # The trial that chooses them does not count: it is lucky, or unlucky.
        if more := [one for one in chosen for _ in range(trials + 1 - len(done[json.dumps(one)]))]:
            run(more)
    return extremes(summarise(done[json.dumps(one)][1 : trials + 1]) for one in chosen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=SHARED, help="the folder of the .npz files")
    parser.add_argument(
        "--domain", choices=("closed", "open"), default="closed", help="with or without a list of items"
    )
    parser.add_argument("--trials", type=int, default=10, help="of every method of ours and the paper's")
    parser.add_argument(
        "--rival-trials", type=int, default=5, help="of the best and the worst guess of a library"
    )
    parser.add_argument("--seed", type=int, default=0, help="of our trials; the libraries take no seed")
    parser.add_argument("--workers", type=int, default=1, help="processes of our trials")
    parser.add_argument("--rivals", type=Path, help="the folder of the other libraries' environments")
    parser.add_argument("--tumult", action="store_true", help="Tumult Analytics as well, which needs Java")
    parser.add_argument(
        "--rival-rows", type=int, default=1_000_000, help="rivals leave out sets with more rows"
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of finished trials")
    arguments = parser.parse_args()
    paths = {name: arguments.data / f"{name}.npz" for name in SETS}
    if missing := [path.name for path in paths.values() if not path.exists()]:
        sys.exit(
            f"{arguments.data} has no {', '.join(missing)}. The data can't be passed on: save matrices of SNAP's "
            "check-ins with scipy.sparse.save_npz, make those of Sentiment140 with 'fedhist paper sentiment140' "
            "(docs/data.md), and name their folder with --data."
        )
    data = tuple(read_file(path, None) for path in paths.values())
    setup = Setup(quick=False, seed=arguments.seed, workers=arguments.workers, out=arguments.out, data=data)
    tops = setup.tops((ITEMS,))
    closed = arguments.domain == "closed"
    groups = {
        users: closed_cells(users, ITEMS, MAX_THRESHOLD) if closed else open_cells(users, MAX_THRESHOLD)
        for users in tops
    }
    guessed = {users: guessed_cells(users, closed=closed) for users in tops}
    cells = tuple(cell for of in (groups, guessed) for each in of.values() for cell in each.values())
    try:
        results = setup.run([Group(cells, arguments.trials)], tops)
    except InvalidFile as error:
        sys.exit(str(error))
    rivals = [*RIVALS] if arguments.rivals and closed else []
    if rivals and arguments.tumult:
        rivals.append(TUMULT)
    lines: list[Line] = []
    for users, of in groups.items():
        population = tops[users]
        methods = CLOSED if closed else OPEN
        paper = [results.summary(of[name]) for name, method in methods.items() if method.whose == PAPER]
        row: list[Summary | Extremes | None] = [
            extremes(map(results.summary, guessed[users].values())),
            extremes(paper).best,
            results.summary(of[DEFAULT]),
            results.summary(of[DEFAULT], "estimate"),
        ]
        for rival in rivals:
            if population.totals().sum() > arguments.rival_rows:
                row.append(None)
                continue
            kept = arguments.out / f"{Path(rival.script).stem}-{users.content[:12]}.json"
            program = python_of(rival, arguments.rivals)
            row.append(rival_losses(rival, program, population, trials=arguments.rival_trials, kept=kept))
        lines.append((SETS[users.name], population.users, row))
    print_table(lines, rivals)
    print(f"means of {arguments.trials} trials, of libraries {arguments.rival_trials}")


def print_table(lines: list[Line], rivals: list[Rival]) -> None:
    """The table in Markdown, and below it how exact the means are."""
    columns = ["data", "users", "guessed", "the paper", "fedhist", "its estimates"]
    columns += [rival.name for rival in rivals]
    print("|", " | ".join(columns), "|")
    print("|---|" + "---:|" * (len(columns) - 1))
    for name, users, row in lines:
        print("|", " | ".join([name, f"{users:,}", *map(text_of, row)]), "|")
    print("\n95 % intervals of the means, at most: " + ", ".join(widths(columns[2:], lines)))


def widths(columns: list[str], lines: list[Line]) -> Iterator[str]:
    """How far the interval of a mean of each column reaches, as a share of the mean."""
    for place, column in enumerate(columns):
        cells = [row[place] for _, _, row in lines]
        means = [one for cell in cells if cell is not None for one in parts(cell) if one.high is not None]
        if means:
            yield f"{column} +-{max((one.high or 0) / one.mean - 1 for one in means):.1%}"


def text_of(cell: Summary | Extremes | None) -> str:
    match cell:
        case None:
            return "-"
        case Summary():
            return digits(cell.mean)
        case Extremes():
            return str(cell)


def parts(cell: Summary | Extremes) -> tuple[Summary, ...]:
    return (cell,) if isinstance(cell, Summary) else (cell.best, cell.worst)


if __name__ == "__main__":
    main()
