"""What the choice of the bound costs: `python benchmarks/selector_losses.py [--data FILE ...] [--selectors]`.

For synthetic users, and for each FILE cut to its most frequent items, the expected loss of a run whose bound and, under
`auto`, mechanism are chosen privately, against the best bound, chosen with the truth. Expectations over the choice and
the noise are computed, not sampled: no trials. With --selectors the other selectors follow, which are sampled.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedhist.client.files.read import read_population
from fedhist.protocol.histograms import Population
from fedhist.protocol.plan import Plan
from fedhist.simulations.clipped_sums import Binning, release_errors
from fedhist.simulations.datasets.registry import make_population
from fedhist.simulations.predict import Predictor

TOP_ITEMS = (100, 1_000, 5_000)
SYNTHETIC = ("heavy-tailed", "poisson?mean=20", "paper-iid", "paper-non-iid")
SIZES = ((20_000, 100), (20_000, 1_000), (4_000, 100), (4_000, 1_000))
OTHERS = {
    "gaussian": ("dpsgd", "output-perturbation", "m-quantile", "oracle"),
    "laplace": ("quantile", "oracle"),
}


def populations(files: list[Path], seed: int) -> Iterator[tuple[str, Population]]:
    for name in SYNTHETIC:
        for users, items in SIZES:
            joint = "&" if "?" in name else "?"
            source = f"synthetic:{name}{joint}users={users}&items={items}"
            yield f"{name.partition('?')[0]}, n = {users:,}", make_population(source, seed=seed)
    for path in files:
        sizes = [d for d in TOP_ITEMS if d <= read_population(path).domain_size]
        for items in sizes:
            yield path.stem[:24], read_population(path, top_items=items)


def plan_for(population: Population, mechanism: str, **settings: object) -> Plan:
    """Epsilon 1, epsilon' 0.1, delta 1/n, C_m 1500."""
    users = population.users
    delta = 0.0 if mechanism == "laplace" else 1 / users
    fields = {"mechanism": mechanism, "delta": delta, "delta_select": 1 / users, **settings}
    return Plan(users=users, items=population.domain_size, **fields)  # type: ignore[arg-type]  # mixed values


def best_loss(population: Population, plan: Plan) -> float:
    """The expected loss at the best candidate."""
    steps = plan.candidate_steps
    binning = Binning(steps, bits=plan.grid_bits, norm=plan.norm, items=population.domain_size)
    for shard in population.shards():
        binning.add(shard)
    table = binning.result().table(steps, bits=plan.grid_bits)
    return float(release_errors(plan, table, steps, np.arange(len(steps))).loss.min())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="any files that 'fedhist run' reads")
    parser.add_argument("--selectors", action="store_true", help="the other selectors, too")
    parser.add_argument("--seed", type=int, default=0, help="of the synthetic users")
    arguments = parser.parse_args()
    print("epsilon 1, epsilon' 0.1, delta 1/n, C_m 1500; expected l1 error over the true total")
    print(
        f"{'':<26}{'items':>7}  {'Gaussian: best, chosen':<26}{'Laplace: best, chosen':<26}auto, over the better one"
    )
    for name, population in populations(arguments.data, arguments.seed):
        predictor, cells, chosen = Predictor(population), [], []
        for mechanism in ("gaussian", "laplace"):
            plan = plan_for(population, mechanism)
            best, loss = best_loss(population, plan), predictor.predict(plan).relative_loss
            chosen.append(loss)
            cells.append(f"{best:.4f} {loss:.4f} {loss / best:5.3f}")
        auto = predictor.predict(plan_for(population, "auto")).relative_loss
        row = f"{cells[0]:<26}{cells[1]:<26}{auto:.4f} {auto / min(chosen):5.3f}"
        print(f"{name:<26}{population.domain_size:>7}  {row}", flush=True)
        if arguments.selectors:
            for mechanism, names in OTHERS.items():
                losses = (
                    predictor.predict(plan_for(population, mechanism, selector=one)).relative_loss
                    for one in names
                )
                pairs = ", ".join(f"{one} {loss:.4f}" for one, loss in zip(names, losses, strict=True))
                print(f"{'':<35}{mechanism}: {pairs}", flush=True)


if __name__ == "__main__":
    main()
