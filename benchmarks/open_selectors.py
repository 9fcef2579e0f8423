"""Mean relative loss of every selector of the open domain: `python benchmarks/open_selectors.py`.

This table decided the default selector. epsilon = 1, epsilon' = 0.1, delta = 1/(2n), release truncated-laplace. The
synthetic sets are drawn anew in every trial and stand beside an independent run of the paper's table (best, private,
median, 90 %), which used the paper's sensitivity and bar. The real sets are read from a folder and left out if it does
not have them. oracle, median and p90 read the exact data: they are not private.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhist.client.files.read import read_population
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import Integers, names_of
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.coordinator import run_rounds
from fedhist.simulations.datasets.registry import make_population
from fedhist.simulations.datasets.synthetic import materialise
from fedhist.simulations.experiments.trials import RoundOnes, SharedRoundOne, relative_loss

USERS = 50_000
PRIVATE = {
    "exponential-v": {"selector": "exponential-v"},
    "v, paper's": {"selector": "exponential-v-paper"},
    "sharp": {"selector": "exponential-sharp"},
}
COLUMNS = {"oracle": {"selector": "oracle"}} | PRIVATE | {n: {"selector": n} for n in ("median", "p90")}
INDEPENDENT: dict[tuple[str, int], tuple[float, ...]] = {
    ("iid", 50): (0.0013, 0.0023, 0.0398, 0.0049),
    ("iid", 100): (0.0026, 0.0037, 0.0400, 0.0052),
    ("iid", 200): (0.0049, 0.0063, 0.0399, 0.0066),
    ("non-iid", 50): (0.0105, 0.0195, 0.7021, 0.1691),
    ("non-iid", 100): (0.0187, 0.0362, 0.7019, 0.1680),
    ("non-iid", 200): (0.0436, 0.0690, 0.7028, 0.1694),
}
REAL = (
    ("gowalla_counts_19k", None),
    ("brightkite_counts_10core", None),
    ("sentiment140_by_addressee", 100),
    ("sentiment140_by_addressee", 1000),
)


@dataclass(frozen=True)
class Outcome:
    """The results of one run."""

    threshold: float
    bar: int
    keys: int
    loss: float


def outcome(plan: Plan, transport: SharedRoundOne, truth: Integers) -> Outcome:
    """One run, and its l1 error over the true total."""
    release = run_rounds(plan, transport, ledger=Ledger(), source=transport.source)
    assert release.bar is not None and release.keys is not None  # noqa: S101 - an open domain has both
    loss = relative_loss(release, release.histogram, truth, names_of(transport.population))
    return Outcome(release.threshold, release.bar, len(release.keys), loss)


def outcomes(
    draw: Callable[[int], SparsePopulation], settings: dict[str, dict[str, str]], trials: int
) -> Iterator[dict[str, Outcome]]:
    """The results of every setting, trial by trial; all of them see the same users and the same clipping."""
    known: tuple[SparsePopulation, Integers] | None = None
    first: RoundOnes = {}
    for trial in range(trials):
        population = draw(trial)
        if known is None or known[0] is not population:
            known, first = (population, population.totals()), {}
        transport = SharedRoundOne(population, SeededSource(trial), first)
        yield {name: outcome(plan_of(population, one), transport, known[1]) for name, one in settings.items()}


def plan_of(population: SparsePopulation, settings: dict[str, Any]) -> Plan:
    users = population.users
    budget = {"epsilon": 1.0, "epsilon_select": 0.1, "delta": 1 / (2 * users)}
    fixed: dict[str, Any] = {"users": users, "domain": "open", "release": "truncated-laplace"}
    return Plan(**fixed | budget | settings)


def synthetic(kind: str, items: int) -> Callable[[int], SparsePopulation]:
    name = f"synthetic:paper-{kind}"
    return lambda trial: materialise(make_population(name, seed=trial, users=USERS, items=items))


def found_in(data: Path, names: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The real sets that the folder has; the others are named."""
    for name in names:
        path = data / f"{name}.npz"
        if path.exists():
            yield name, path
        else:
            print(f"{name}: not here: {path}")


def real(path: Path, top_items: int | None) -> Callable[[int], SparsePopulation]:
    population = read_population(path, top_items=top_items)
    return lambda trial: population


def print_row(name: str, found: list[dict[str, Outcome]], beside: tuple[float, ...] = ()) -> None:
    means = {column: statistics.fmean(one[column].loss for one in found) for column in COLUMNS}
    best = min(PRIVATE, key=lambda column: means[column])
    # The others may differ by chance only; differences paired by trial show more than the means.
    gaps = {column: [one[column].loss - one[best].loss for one in found] for column in PRIVATE}
    tied = [
        column
        for column, gap in gaps.items()
        if statistics.fmean(gap) <= 2 * statistics.stdev(gap) / math.sqrt(len(gap))
    ]
    cells = "".join(f"{means[column]:>15.4f}" for column in COLUMNS)
    known = "/".join(f"{value:.4f}".lstrip("0") for value in beside)
    print(f"{name:<22}{cells}  {', '.join(tied):<36}{known}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real sets")
    parser.add_argument("--quick", action="store_true", help="4 trials, and the small sets only")
    arguments = parser.parse_args()
    trials = 4 if arguments.quick else arguments.trials
    print(
        f"mean relative loss over {trials} trials; selectors within two standard errors of the best one share it"
    )
    headings = "".join(f"{column:>15}" for column in COLUMNS)
    print(f"{'set':<22}{headings}  {'best private':<36}{'independent run'}")
    for (kind, items), beside in INDEPENDENT.items():
        if arguments.quick and items == 200:
            continue
        print_row(f"{kind} {items}", list(outcomes(synthetic(kind, items), COLUMNS, trials)), beside)
    for name, top_items in REAL:
        path = arguments.data / f"{name}.npz"
        title = name.split("_")[0] + ("" if top_items is None else f" top {top_items:,}")
        if not path.exists():
            print(f"{title:<22}not here: {path}")
        elif not (arguments.quick and top_items == 1000):
            print_row(title, list(outcomes(real(path, top_items), COLUMNS, trials)))


if __name__ == "__main__":
    main()
