"""Predicted against measured error, and seconds of a prediction: `python benchmarks/plan_ahead.py`.

For each kind of release and each epsilon: the error that `fedhist plan` predicts, the mean over seeded runs on the same
population with its standard error, and their ratio; at the end the ratio that is furthest from 1, and the largest
number of standard errors between the two. Then the seconds of one prediction after the first, and of a whole curve with
the best of ten splits at each of twenty totals, against those of one simulated run.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from fedhist.protocol.plan import Plan
from fedhist.simulations.ahead import CURVE_SHARES, Outlook, curve
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise
from fedhist.simulations.prediction import Predictor
from fedhist.simulations.simulation import simulate

OPEN: dict[str, Any] = {"domain": "open", "max_threshold": 500}
KINDS: dict[str, dict[str, Any]] = {
    "closed, gaussian": {"mechanism": "gaussian"},
    "closed, gaussian, replace": {"mechanism": "gaussian", "neighbours": "replace"},
    "closed, laplace": {"mechanism": "laplace"},
    "open, truncated-laplace": OPEN | {"release": "truncated-laplace"},
    "open, laplace-threshold": OPEN | {"release": "laplace-threshold"},
}
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    population = materialise(HeavyTailedPopulation(options.users, options.items, seed=1))
    print(f"{options.users:,} users, {options.items:,} items, {options.trials} runs a row, epsilon' = 0.1")
    print(f"{'release':<26}{'epsilon':>8}{'predicted':>11}{'measured':>10}{'± s.e.':>9}{'ratio':>8}")
    worst, furthest = 1.0, 0.0
    for kind, settings in KINDS.items():
        items = None if "domain" in settings else options.items
        fields = {"users": options.users, "items": items} | settings
        predictor = Predictor(population)
        for epsilon in EPSILONS:
            plan = Plan(**fields, epsilon=epsilon)
            predicted = predictor.relative_loss(plan)
            runs = [
                simulate(population, plan, seed=seed).relative_loss or 0.0 for seed in range(options.trials)
            ]
            mean, error = statistics.mean(runs), statistics.stdev(runs) / len(runs) ** 0.5
            ratio = predicted / mean
            worst = max(worst, ratio, 1 / ratio, key=lambda value: abs(np.log(value)))
            furthest = max(furthest, abs(predicted - mean) / error)
            print(f"{kind:<26}{epsilon:>8g}{predicted:>11.4f}{mean:>10.4f}{error:>9.4f}{ratio:>8.3f}")
    print(f"worst ratio {worst:.3f}; furthest {furthest:.1f} standard errors\n")

    print(f"{'seconds':<26}{'one run':>9}{'first':>8}{'next':>8}{'run/next':>10}{'20 x 10':>9}")
    for kind, settings in KINDS.items():
        items = None if "domain" in settings else options.items
        fields = {"users": options.users, "items": items} | settings
        plan, other = Plan(**fields), Plan(**fields, epsilon=1.1)
        # What loads with the first use of a library is nobody's time here.
        simulate(population, plan, seed=0)
        predictor, outlook = Predictor(population), Outlook(Predictor(population), fields)
        run = seconds(partial(simulate, population, plan, seed=1))
        first = seconds(partial(predictor.predict, plan))
        following = seconds(partial(predictor.predict, other))
        whole = seconds(partial(curve, outlook, np.geomspace(0.1, 10, 20).tolist(), totals=True))
        print(f"{kind:<26}{run:>9.3f}{first:>8.3f}{following:>8.4f}{run / following:>10.0f}{whole:>9.2f}")
    print(f"20 x 10: 20 totals, the best of {len(CURVE_SHARES)} splits each, population read and all")


def seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


if __name__ == "__main__":
    main()
