"""How much each selector loses against the oracle on real text: `python benchmarks/selector_losses.py [--data FILE]`.

Mean over trials of relative_loss(selector) - relative_loss(oracle), same seeds for both, so the noise of the release
is shared as far as the thresholds agree.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from fedhist.client.files.records import read_population
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.plan import Plan
from fedhist.simulations.simulation import simulate

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "sentiment140_by_addressee.npz"
TOP_ITEMS = (100, 1_000, 5_000)
GAUSSIAN = ("weighted-quantile", "dpsgd", "output-perturbation", "m-quantile")
LAPLACE = ("quantile", "weighted-quantile")
TOLERANCE = 0.002


def losses(
    population: SparsePopulation, trials: int, *, mechanism: str, selector: str, max_threshold: float
) -> list[float]:
    delta = 0.0 if mechanism == "laplace" else 1 / (2 * population.users)
    plan = Plan(
        users=population.users, items=population.domain_size, mechanism=mechanism, selector=selector,
        epsilon=1.0, delta=delta, epsilon_select=0.1, delta_select=1 / (2 * population.users),
        max_threshold=max_threshold,
    )  # fmt: skip
    found = (simulate(population, plan, seed=seed).relative_loss for seed in range(trials))
    return [loss for loss in found if loss is not None]


def excess(mine: list[float], best: list[float]) -> tuple[float, float]:
    """The mean of the paired differences, and its standard error."""
    gaps = [a - b for a, b in zip(mine, best, strict=True)]
    mean = math.fsum(gaps) / len(gaps)
    variance = math.fsum((gap - mean) ** 2 for gap in gaps) / max(len(gaps) - 1, 1)
    return mean, math.sqrt(variance / len(gaps))


def table(
    populations: dict[int, SparsePopulation],
    trials: int,
    *,
    mechanism: str,
    selectors: tuple[str, ...],
    bounds: tuple[float, ...],
) -> None:
    print(f"\n{mechanism}: mean excess relative loss over the oracle +- its standard error, {trials} trials")
    print(
        f"{'C_m':>6}{'items':>7}{'oracle':>9}", *(f"{name:>20}" for name in selectors), " weighted-quantile"
    )
    for bound in bounds:
        for items, population in populations.items():
            settings = {"mechanism": mechanism, "max_threshold": bound}
            best = losses(population, trials, selector="oracle", **settings)  # type: ignore[arg-type]  # mixed values
            cells = {
                name: excess(losses(population, trials, selector=name, **settings), best)  # type: ignore[arg-type]  # mixed values
                for name in selectors
            }
            gap = cells["weighted-quantile"][0] - min(mean for mean, _ in cells.values())
            verdict = "best" if gap == 0 else f"{'within' if gap <= TOLERANCE else 'NOT within'} {TOLERANCE}"
            texts = (f"{f'{mean:.4f} +- {error:.4f}':>20}" for mean, error in cells.values())
            print(f"{bound:>6g}{items:>7}{math.fsum(best) / trials:>9.4f}", *texts, f" {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="any file that 'fedhist run' reads")
    parser.add_argument("--trials", type=int, default=20)
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        sys.exit(f"there is no file {arguments.data}; name a population with --data FILE")
    populations = {items: read_population(arguments.data, top_items=items) for items in TOP_ITEMS}
    users = next(iter(populations.values())).users
    print(
        f"{arguments.data.name}: {users:,} users; epsilon 1, epsilon' 0.1, delta 1/(2 users), sparsity = items"
    )
    table(populations, arguments.trials, mechanism="gaussian", selectors=GAUSSIAN, bounds=(150.0, 1500.0))
    table(populations, arguments.trials, mechanism="laplace", selectors=LAPLACE, bounds=(1500.0,))


if __name__ == "__main__":
    main()
