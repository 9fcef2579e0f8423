"""Predicted against measured error, and seconds of a prediction: `python benchmarks/plan_ahead.py`.

For each kind of release and each epsilon: the error that `fedhist plan` predicts, the mean over seeded runs on the same
population with its standard error, and their ratio; at the end the ratio that is furthest from 1, and the largest
number of standard errors between the two. Many runs are needed: now and then one chooses a threshold that is far too
high. A few dozen runs may miss these, and then both their mean and their standard error are too small.

Then, for a population of its own, the seconds of one prediction after the first, and of a whole curve with the best of
ten splits at each of twenty totals, against those of one simulated run.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from fedhist.client.device import answer_population
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.histograms import Population
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Request, Total
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise
from fedhist.simulations.engines.in_process import InProcess
from fedhist.simulations.predict import CURVE_SHARES, Outlook, Predictor, curve
from fedhist.simulations.simulation import simulate

OPEN: dict[str, Any] = {"domain": "open", "max_threshold": 500}
KINDS: dict[str, dict[str, Any]] = {
    "closed, gaussian": {"mechanism": "gaussian"},
    "closed, gaussian, replace-one": {"mechanism": "gaussian", "neighbours": "replace-one"},
    "closed, laplace": {"mechanism": "laplace"},
    "open, truncated-laplace": OPEN | {"release": "truncated-laplace"},
    "discovered, gaussian": OPEN | {"release": "discover", "mechanism": "gaussian"},
    "discovered, laplace": OPEN | {"release": "discover", "mechanism": "laplace"},
    "discovered, auto": OPEN | {"release": "discover", "mechanism": "auto"},
    "open, laplace-threshold": OPEN | {"release": "laplace-threshold"},
}
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


class Unweighed(InProcess):
    """The usual transport without measuring how long messages are, which takes most of the time of small runs."""

    def total(self, request: Request) -> Total:
        """The sum over all users."""
        sent = answer_population(request, self.population, source=self.source)
        self.totals[request.round] = Total(sent.users, sent.values, sent.keyed)
        return self.totals[request.round]


@contextmanager
def unweighed(population: Population, *, seed: int | None, observe: Observer = ignore) -> Iterator[Unweighed]:
    yield Unweighed(population, SeededSource(seed or 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=5_000, help="of the table of errors")
    parser.add_argument("--items", type=int, default=100, help="of the table of errors")
    parser.add_argument("--trials", type=int, default=200, help="runs for each row")
    parser.add_argument("--speed-users", type=int, default=50_000, help="of the table of seconds")
    parser.add_argument("--speed-items", type=int, default=1_000, help="of the table of seconds")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="kinds of release whose name has this text"
    )
    options = parser.parse_args()
    kinds = {kind: settings for kind, settings in KINDS.items() if options.only in kind}
    errors = materialise(HeavyTailedPopulation(options.users, options.items, seed=1))
    compare_errors(errors, kinds, options.trials)
    compare_seconds(
        materialise(HeavyTailedPopulation(options.speed_users, options.speed_items, seed=1)), kinds
    )


def compare_errors(population: SparsePopulation, kinds: dict[str, dict[str, Any]], trials: int) -> None:
    print(
        f"{population.users:,} users, {population.domain_size:,} items, {trials} runs a row, epsilon' = 0.1"
    )
    print(f"{'release':<26}{'epsilon':>8}{'predicted':>11}{'measured':>10}{'± s.e.':>9}{'ratio':>8}")
    worst, furthest = 1.0, 0.0
    for kind, settings in kinds.items():
        predictor = Predictor(population)
        for epsilon in EPSILONS:
            plan = Plan(**fields_of(population, settings), epsilon=epsilon)
            predicted = predictor.predict(plan).relative_loss
            results = (
                simulate(population, plan, seed=seed, evaluate=True, engine=unweighed)
                for seed in range(trials)
            )
            runs = [result.relative_loss or 0.0 for result in results]
            mean, error = statistics.mean(runs), statistics.stdev(runs) / len(runs) ** 0.5
            worst = max(worst, predicted / mean, key=lambda ratio: abs(np.log(ratio)))
            # Where no run shows any key, all have an error of exactly 1.
            furthest = max(furthest, abs(predicted - mean) / error if error else 0.0)
            numbers = f"{predicted:>11.4f}{mean:>10.4f}{error:>9.4f}{predicted / mean:>8.3f}"
            print(f"{kind:<26}{epsilon:>8g}{numbers}", flush=True)
    print(f"worst ratio {worst:.3f}; furthest {furthest:.1f} standard errors\n")


def compare_seconds(population: SparsePopulation, kinds: dict[str, dict[str, Any]]) -> None:
    print(f"{population.users:,} users, {population.domain_size:,} items")
    print(f"{'seconds':<26}{'one run':>9}{'first':>8}{'next':>8}{'run/next':>10}{'20 x 10':>9}")
    for kind, settings in kinds.items():
        fields = fields_of(population, settings)
        plan, other = Plan(**fields), Plan(**fields, epsilon=1.1)
        # The first use loads libraries, which is not measured.
        simulate(population, plan, seed=0, evaluate=True)
        predictor, outlook = Predictor(population), Outlook(Predictor(population), fields)
        run = seconds(partial(simulate, population, plan, seed=1, evaluate=True))
        first = seconds(partial(predictor.predict, plan))
        following = seconds(partial(predictor.predict, other))
        whole = seconds(partial(curve, outlook, np.geomspace(0.1, 10, 20).tolist(), totals=True))
        numbers = f"{run:>9.3f}{first:>8.3f}{following:>8.4f}{run / following:>10.1f}{whole:>9.2f}"
        print(f"{kind:<26}{numbers}", flush=True)
    print(f"20 x 10: 20 totals, the best of {len(CURVE_SHARES)} splits each, population read and all")


def fields_of(population: SparsePopulation, settings: dict[str, Any]) -> dict[str, Any]:
    items = None if "domain" in settings else population.domain_size
    return {"users": population.users, "items": items} | settings


def seconds(call: Callable[[], object]) -> float:
    """CPU seconds of this process, which other programs on the machine hardly change."""
    start = process_time()
    call()
    return process_time() - start


if __name__ == "__main__":
    main()
