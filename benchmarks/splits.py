"""The default split of a total against the best one: `python benchmarks/splits.py`.

For synthetic users of several kinds, or for files (--data), and totals of 0.55, 1.1 and 3.3 at delta = 1/(2n): the
predicted error (`fedhist plan`) at the best of 25 splits, its share, the share of the default split and how much more
that loses; and how much more the paper's split loses, 0.1 of 1.1. The last rows have the worst and the mean of both.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

from fedhist.client.files.read import read_population
from fedhist.protocol.histograms import Population
from fedhist.server.totals import CHOICE_SHARE
from fedhist.simulations.datasets.guessed import GuessedPopulation
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, PoissonPopulation
from fedhist.simulations.predict import SPLIT_SHARES, Outlook, Predictor

TOTALS = (0.55, 1.1, 3.3)


def synthetic() -> Iterator[tuple[str, Population]]:
    """Users of all sizes, with tails from very uneven to none."""
    for users, items in ((2_000, 50), (5_000, 100), (20_000, 100), (20_000, 1_000), (20_000, 5_000)):
        yield f"heavy-tailed {users:,} x {items:,}", HeavyTailedPopulation(users=users, items=items, seed=5)
        for tail in (1.2, 1.5, 2.5):
            yield (
                f"tail index {tail} {users:,} x {items:,}",
                GuessedPopulation(users=users, items=items, seed=3, mean_total=20, tail_index=tail),
            )
    for users in (2_000, 20_000):
        yield f"alike {users:,} x 50", PoissonPopulation(users=users, items=50, seed=5, mean=3.0)


def files(paths: list[Path], tops: list[int]) -> Iterator[tuple[str, Population]]:
    """Each file over its most frequent items."""
    for path in paths:
        whole = read_population(path)
        for top in tops:
            if top <= whole.domain_size:
                yield f"{path.stem} {whole.users:,} x {top:,}", whole.keep_top_items(top)


def main() -> None:
    """Print a row for each population, mechanism and total."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="*", default=[])
    parser.add_argument("--top-items", type=int, nargs="*", default=[100, 1_000, 5_000])
    options = parser.parse_args()
    print(f"{'population':38} {'noise':8} total   error   best default   more  paper")
    more: list[float] = []
    paper: list[float] = []
    for name, population in files(options.data, options.top_items) if options.data else synthetic():
        predictor = Predictor(population)
        for mechanism in ("gaussian", "laplace"):
            settings = {"users": population.users, "items": population.domain_size, "mechanism": mechanism}
            outlook = Outlook(predictor, settings, total_delta=1 / (2 * population.users))
            for total in TOTALS:
                tried = {
                    share: predictor.predict(outlook.split(total, share)).relative_loss
                    for share in SPLIT_SHARES.tolist()
                }
                best = min(tried, key=tried.__getitem__)
                usual = outlook.split(total)
                more.append(predictor.predict(usual).relative_loss / tried[best] - 1)
                paper.append(
                    predictor.predict(outlook.split(total, CHOICE_SHARE)).relative_loss / tried[best] - 1
                )
                print(
                    f"{name:38} {mechanism:8} {total:5}  {tried[best]:6.4f} {best:6.1%} "
                    f"{usual.epsilon_select / total:7.1%} {more[-1]:6.1%} {paper[-1]:6.1%}",
                    flush=True,
                )
    for what, losses in (("default", more), ("paper", paper)):
        print(
            f"{what}: loses at most {max(losses):.1%} more than the best, {statistics.mean(losses):.1%} on average"
        )


if __name__ == "__main__":
    main()
