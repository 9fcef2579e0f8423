"""What the experiments of the paper share: setup, data files, reports, and verdicts on what the paper says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

from fedhist.client.populations import SparsePopulation
from fedhist.display.tables import interval_text
from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.protocol.item_lists import read_items
from fedhist.simulations.datasets.loading import Wanted, load
from fedhist.simulations.datasets.synthetic import materialise
from fedhist.simulations.experiments.choices import PAPER_DELTA, Counting
from fedhist.simulations.experiments.comparison import check_different, names_of
from fedhist.simulations.experiments.running import Experiment, Group, Results, run_experiment
from fedhist.simulations.experiments.tables import Row, Summary
from fedhist.simulations.experiments.trials import FILE, SYNTHETIC, UserSet, digest_of
from fedhist.simulations.population_checks import check_not_empty

PAPER_RUNS = 3
"""The paper averages its open-domain curves over three runs; it does not say how many runs its tables have."""


class Verdict(StrEnum):
    """All verdicts."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    HOLDS = "holds"
    FAILS = "does not hold"
    IMPOSSIBLE = "can't be reproduced"


def rounding_ends(printed: str) -> tuple[float, float]:
    """The smallest and the largest number that round to a printed one, half a unit of the last digit away."""
    number = Decimal(printed)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - finite numbers only
    half = Decimal(5).scaleb(exponent - 1)
    return float(number - half), float(number + half)


def judge(printed: str, ours: Summary) -> Verdict:
    """Inside if some number that rounds to the printed one is in the 95 % interval of the mean of three new runs.

    The paper's number is a mean of few runs and varies as ours do. The interval of our mean alone would shrink with our
    trials until it excludes every such number. A single trial has no interval and must itself round to the number.
    """
    return _overlap(printed, *(ours.of_runs(PAPER_RUNS) or (ours.mean, ours.mean)))


def judge_mean(printed: str, ours: Summary) -> Verdict:
    """The same against the 95 % interval of our mean: whether the printed number could be the exact mean."""
    low, high = ours.low, ours.high
    return _overlap(printed, ours.mean if low is None else low, ours.mean if high is None else high)


def _overlap(printed: str, low: float, high: float) -> Verdict:
    least, most = rounding_ends(printed)
    return Verdict.INSIDE if least <= high and low <= most else Verdict.OUTSIDE


def number_row(where: Row, printed: str, ours: Summary | None, *, why: str = "") -> Row:
    """One row of a table: the paper's number beside ours, and the verdict.

    Args:
        where: the columns that identify the number.
        printed: the paper's number, which stands for all that round to it.
        ours: our trials, or None if there is nothing to run.
        why: what is missing, or a caveat about our number.
    """
    row = where | {
        "paper": printed, "ours": None, "interval": "", "low": None, "high": None, "runs_interval": "",
        "runs_low": None, "runs_high": None, "std": None, "trials": 0, "ratio": None, "away": None,
        "verdict": str(Verdict.IMPOSSIBLE), "of_mean": "", "why": why,
    }  # fmt: skip
    if ours is None:
        return row
    low, high = ours.of_runs(PAPER_RUNS) or (None, None)
    row |= ours.columns("ours") | {
        "runs_interval": interval_text(low, high), "runs_low": low, "runs_high": high,
        "std": ours.std, "trials": ours.trials, "ratio": ours.mean / float(printed),
        "away": None if not ours.std else (float(printed) - ours.mean) / ours.std,
    }  # fmt: skip
    if not why:
        row |= {"verdict": str(judge(printed, ours)), "of_mean": str(judge_mean(printed, ours))}
    return row


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and what we find.

    Args:
        text: what the paper says, with the number by which we judge it.
        data: the users on which we tested it.
        found: what we measured.
        holds: None when the claim can't be tested; then `found` says why.
    """

    text: str
    data: str
    found: str
    holds: bool | None

    def row(self) -> Row:
        """The claim as a row of a table."""
        verdict = Verdict.IMPOSSIBLE if self.holds is None else Verdict.HOLDS if self.holds else Verdict.FAILS
        return {"claim": self.text, "data": self.data, "found": self.found, "verdict": str(verdict)}


SENTIMENT140_AUTHORS = 659_775
"""The number of authors in Sentiment140; a part of it can't reproduce the paper's numbers."""

NO_DATA = "needs Sentiment140 by author, see the note"
OTHER_DATA = "not the paper's data: another number of users"
WHERE_TO_GET = (
    "the rows of Sentiment140 need the whole set by author (training.1600000.processed.noemoticon.csv, about 660,000 "
    "authors; help.sentiment140.com/for-students): read it with 'fedhist paper sentiment140', and name the result "
    "with --data"
)
NO_NUMBERS = "the paper prints no numbers for its figures: its claims are compared"
BUDGET = {"epsilon": 1.0, "delta": PAPER_DELTA, "epsilon_select": 0.1, "delta_select": PAPER_DELTA}
"""The paper's: epsilon 1 for the histogram, 0.1 for the choice, delta 1/(2n) each."""
OPEN = BUDGET | {"domain": "open", "release": "laplace-threshold-paper", "max_threshold": 1500.0}
"""The paper's release. Its threshold t is used with noise on clipped counts only, without which it is not private."""

READINGS = {
    "numbers": ("paper-iid", "paper-non-iid", 50_000),
    "text": ("paper-iid", "paper-non-iid-text", 500_000),
}
"""The paper's numbers need 50,000 users and Gamma(1/2) rates; its text says 500,000 users and Gamma(2) rates."""


@dataclass(frozen=True)
class DataFile:
    """A population that the user gave with --data, read or drawn once.

    Args:
        path: the file, or `synthetic:NAME?key=value`.
        digest: stands for the content in seeds.
        population: the users.
        name: the name in tables; a Setup gives its files different names.
    """

    path: Path
    digest: str
    population: SparsePopulation
    name: str

    @property
    def is_sentiment140(self) -> bool:
        """True if the file has about as many users as Sentiment140 has authors, so that it can be the paper's."""
        return abs(self.population.users / SENTIMENT140_AUTHORS - 1) < 0.01


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How an experiment of the paper is run.

    Args:
        quick: a short version with fewer trials and users.
        seed: determines all trials.
        workers: the number of processes.
        out: the folder of trials, tables and figures.
        data: the user's files. Two with the same content are refused.
        counting: follows the progress.
        alone: True if the user named this experiment. Files that it can't use are then refused; among all experiments
            they only get a note.
    """

    quick: bool
    seed: int
    workers: int
    out: Path
    data: tuple[DataFile, ...] = ()
    counting: Counting = field(default_factory=Counting)
    alone: bool = False

    def __post_init__(self) -> None:
        by_path, contents = {file.path: file for file in self.data}, dict[str, str]()
        for path, file in by_path.items():
            check_different(contents, file.digest, str(path))
        names = names_of(list(by_path), taken=SYNTHETIC)
        data = tuple(replace(file, name=names[path]) for path, file in by_path.items())
        object.__setattr__(self, "data", data)

    def pick(self, quick: int, full: int) -> int:
        """One of two numbers."""
        return quick if self.quick else full

    def run(
        self, groups: Sequence[Group], populations: dict[UserSet, SparsePopulation] | None = None
    ) -> Results:
        """Run the cells. All experiments share a file, so that what two of them need is run once."""
        return run_experiment(
            Experiment(seed=self.seed, groups=tuple(groups), alone=False),
            self.out / "trials",
            populations or {},
            workers=self.workers,
            counting=self.counting,
        )

    def tops(self, sizes: Sequence[int]) -> dict[UserSet, SparsePopulation]:
        """Every file over its most frequent items, for each of these numbers of items that the file has."""
        found = {}
        for file in self.data:
            for size in sizes:
                if file.population.domain_size >= size:
                    users = UserSet(kind=FILE, name=file.name, content=file.digest, top_items=size)
                    found[users] = file.population.keep_top_items(size)
        return found

    def needed_tops(self, sizes: Sequence[int]) -> dict[UserSet, SparsePopulation]:
        """The same for an experiment that uses nothing else of the files; `left_out` notes what is missing.

        Refused if the user named the experiment and no file has enough items for any of the sizes.
        """
        if self.alone and self.data and all(file.population.domain_size < min(sizes) for file in self.data):
            having = ", ".join(f"{file.path} has {file.population.domain_size:,}" for file in self.data)
            raise InvalidInput(
                f"no file has the {min(sizes):,} items that are needed ({having})",
                allowed=f"--data with at least {min(sizes):,} items",
                advice="leave out --data to run without it",
            )
        return self.tops(sizes)

    def left_out(self, sizes: Sequence[int]) -> list[str]:
        """A note for every file and number of items that `tops` leaves out."""
        return [
            f"{file.path} has {file.population.domain_size:,} items, and {size:,} are needed: left out"
            for file in self.data
            for size in sizes
            if file.population.domain_size < size
        ]

    def whole(self) -> dict[UserSet, SparsePopulation]:
        """Every file as it is."""
        return {
            UserSet(kind=FILE, name=file.name, content=file.digest): file.population for file in self.data
        }


@dataclass(frozen=True)
class Report:
    """The results of an experiment of the paper.

    Args:
        name: the name of the command.
        title: above the table.
        rows: the paper's numbers beside ours, or only ours where the paper prints none.
        columns: headings of the columns to print.
        claims: the paper's statements in words.
        figures: the files that were drawn.
        notes: what the reader should know.
    """

    name: str
    title: str
    rows: list[Row]
    columns: dict[str, str]
    claims: Sequence[Claim] = ()
    figures: Sequence[Path] = ()
    notes: Sequence[str] = ()


def read_file(path: Path, vocabulary: Path | None, seed: int) -> DataFile:
    """The users of a file, or of a synthetic population of this seed; a matrix's columns may have names beside it."""
    wanted = Wanted(data=path)
    population = materialise(load(wanted, seed if wanted.synthetic else 0).population)
    check_not_empty(population)
    if vocabulary is not None:
        population = _named(population, path, vocabulary)
    return DataFile(path, digest_of(population), population, path.stem)


def _named(population: SparsePopulation, path: Path, vocabulary: Path) -> SparsePopulation:
    """The population with the names of the vocabulary for its columns."""
    if path.suffix != ".npz" or population.labels is not None:
        raise InvalidInput(
            f"--vocabulary is for a .npz file without names, and {path} is not one",
            allowed="--vocabulary with a .npz of scipy.sparse.save_npz",
            advice="leave out --vocabulary",
        )
    names = read_items(vocabulary)
    if len(names) != population.domain_size:
        raise InvalidFile(
            f"{vocabulary} has {len(names):,} names and {path.name} {population.domain_size:,} columns",
            allowed="one name for each column, in their order",
        )
    return SparsePopulation(population.histograms, labels=names)


NUMBER_COLUMNS = {
    "paper": "paper", "ours": "ours", "runs_interval": "95 % of 3 runs", "verdict": "verdict", "away": "away",
    "ratio": "ours/paper", "interval": "95 % of the mean", "of_mean": "of the mean", "why": "why",
}  # fmt: skip
