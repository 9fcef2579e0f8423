"""Predictions against real data, given only its users' sizes: `python benchmarks/planned_errors.py FILE ...`.

For each file cut to its most frequent items, each mechanism and each epsilon: the predicted error of users of the model
whose percentiles of totals and mean number of items are the file's, against the prediction from the file itself (which
`plan_ahead.py` compares with runs), and their ratio. Then the geometric mean of the ratios of each file, and of all.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np

from fedhist.client.files.read import read_population
from fedhist.protocol.clipping import user_totals
from fedhist.protocol.histograms import Population
from fedhist.protocol.plan import Plan
from fedhist.simulations.datasets.guessed import GuessedPopulation
from fedhist.simulations.predict import Predictor

PERCENTS = (50, 90, 99, 99.9, 99.99)
SAMPLE = 20_000


def model_of(population: Population) -> GuessedPopulation:
    """Users with these sizes."""
    totals = np.concatenate([user_totals(shard) for shard in population.shards()])
    items = sum(int(shard.offsets[-1] - shard.offsets[0]) for shard in population.shards())
    return GuessedPopulation(
        users=min(population.users, SAMPLE),
        items=population.domain_size,
        seed=0,
        distinct_items=items / population.users,
        sizes=tuple((percent, float(np.percentile(totals, percent))) for percent in PERCENTS),
    )


def main() -> None:
    """Print a row for each file, number of items, mechanism and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="+", help="any files that 'fedhist run' reads")
    parser.add_argument("--top-items", type=int, nargs="*", default=[100, 1_000])
    parser.add_argument("--epsilon", type=float, nargs="*", default=[0.3, 1.0, 3.0])
    options = parser.parse_args()
    print(f"{'data':30}{'items':>7} {'mechanism':10}{'epsilon':>8}{'planned':>9}{'error':>9}{'ratio':>7}")
    means: dict[str, float] = {}
    for path in options.data:
        logs: list[float] = []
        for items in options.top_items:
            population = read_population(path, top_items=items)
            exact, model = Predictor(population), Predictor(model_of(population), population.users)
            for mechanism in ("gaussian", "laplace"):
                for epsilon in options.epsilon:
                    fields = {"users": population.users, "items": items, "mechanism": mechanism}
                    plan = Plan(**fields, epsilon=epsilon)
                    planned, error = (one.predict(plan).relative_loss for one in (model, exact))
                    logs.append(float(np.log(planned / error)))
                    print(
                        f"{path.stem[:29]:30}{items:>7,} {mechanism:10}{epsilon:>8g}{planned:>9.4f}{error:>9.4f}"
                        f"{planned / error:>7.3f}",
                        flush=True,
                    )
        means[path.stem] = statistics.mean(logs)
    for name, mean in means.items():
        print(f"{name}: {np.exp(mean):.3f}")
    print(f"all: {np.exp(statistics.mean(means.values())):.3f}")


if __name__ == "__main__":
    main()
