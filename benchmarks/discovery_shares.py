"""Predicted loss by the share of the budget that finds items: `python benchmarks/discovery_shares.py`.

epsilon = 1, epsilon' = 0.1, delta = 1/(2n), C_m = 1500. Each row is a set; the columns are fixed shares,
then the default, which looks once or twice, and how many items it is expected to find. Predictions are computed
(`simulations/prediction`), not drawn. The real sets are read from a folder and left out if it does not have them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from fedhist.client.files.records import read_population
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.plan import Plan
from fedhist.simulations.datasets.paper_sets import PaperPopulation, ZipfPopulation
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise
from fedhist.simulations.experiments.user_sets import UserSet, draw_users
from fedhist.simulations.prediction.prediction import Predictor

SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6)
REAL = ("gowalla_counts_19k", "brightkite_counts_10core", "sentiment140_by_author_subset")
TOP = 1_000


def sets(data: Path) -> Iterator[tuple[str, SparsePopulation]]:
    for kind in ("paper-iid", "paper-non-iid"):
        users = UserSet(kind=kind, name=kind, users=50_000, items=200)
        yield f"{kind}, 200 items", draw_users(users, seed=1, trial=0)
    yield "non-iid, 5,000 users", materialise(PaperPopulation(5_000, 50, seed=1))
    yield "heavy-tailed, 1,000 items", materialise(HeavyTailedPopulation(50_000, 1_000, seed=1))
    yield "heavy-tailed, 10,000 users", materialise(HeavyTailedPopulation(10_000, 1_000, seed=1))
    yield "zipf, 20,000 items", materialise(ZipfPopulation(50_000, 20_000, seed=1))
    for name in REAL:
        if (path := data / f"{name}.npz").exists():
            population = read_population(path)
            yield f"{name.split('_')[0]}, top {TOP:,}", population.keep_top_items(TOP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real sets")
    parser.add_argument("--mechanism", choices=("gaussian", "laplace"), default="gaussian")
    arguments = parser.parse_args()
    print(f"{'set':<30}" + "".join(f"{share:>8g}" for share in SHARES) + f"{'default':>9}{'items':>8}")
    for name, population in sets(arguments.data):
        predictor = Predictor(population)
        plans = [
            Plan(
                users=population.users,
                domain="open",
                release="discover",
                mechanism=arguments.mechanism,
                delta=1 / (2 * population.users),
                discovery_share=share,
            )
            for share in (*SHARES, None)
        ]
        *fixed, default = (predictor.predict(plan) for plan in plans)
        losses = "".join(f"{one.relative_loss:>8.4f}" for one in fixed)
        print(f"{name:<30}{losses}{default.relative_loss:>9.4f}{default.released_items:>8,.0f}", flush=True)


if __name__ == "__main__":
    main()
