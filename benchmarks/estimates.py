"""What estimates gain, and what intervals and limits cover: `python benchmarks/estimates.py [--data FOLDER]`.

Whole runs at epsilon 1, epsilon' 0.1 and delta 1/n on synthetic sets and on the real ones in the folder, if it is
there. Losses are l1 errors against the true counts over their total, means over trials.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedhist.client.files.records import read_population
from fedhist.protocol.clips.clipping import user_squares, user_totals
from fedhist.protocol.histograms import Floats, Integers, Population
from fedhist.protocol.plan import Plan
from fedhist.simulations.datasets.registry import make_population
from fedhist.simulations.simulation import simulate, true_histogram

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
REAL = {
    "author": "sentiment140_by_author_subset.npz",
    "addressee": "sentiment140_by_addressee.npz",
    "gowalla": "gowalla_counts_19k.npz",
    "brightkite": "brightkite_counts_10core.npz",
}
TOP_ITEMS = (100, 1_000, 5_000)
SYNTHETIC = (
    "heavy-tailed?users=20000&items=1000",
    "heavy-tailed?users=20000&items=20",
    "heavy-tailed?users=300&items=3",
    "zipf?users=20000&items=5000",
    "zipf?users=20000&items=1",
    "zipf?users=300&items=1000",
    "paper-iid?users=20000&items=100",
    "paper-non-iid?users=20000&items=200",
    "poisson?users=2000&items=5",
)
MOST_HARM, LEAST_GAIN = 1.01, 0.9
LARGEST = 20


def populations(folder: Path) -> Iterator[tuple[str, Population]]:
    for text in SYNTHETIC:
        yield text.replace("users=", "").replace("items=", ""), make_population(f"synthetic:{text}", seed=5)
    for name, file in REAL.items():
        for items in TOP_ITEMS if (folder / file).is_file() else ():
            yield f"{name} {items:,}", read_population(folder / file, top_items=items)


def plan_for(population: Population, mechanism: str, **settings: object) -> Plan:
    return Plan(
        users=population.users, items=population.domain_size, mechanism=mechanism, epsilon=1.0,
        delta=0.0 if mechanism == "laplace" else 1 / population.users, epsilon_select=0.1, **settings,
    )  # fmt: skip


def losses(folder: Path, seeds: range) -> None:
    print(f"\nloss of values and estimates, {len(seeds)} trials from seed {seeds[0]}")
    print(
        "  !  more than 1.01 of the loss of values; *  noise is over half of it, and less than 10 % was gained"
    )
    print(
        f"{'set':<28}{'mechanism':<10}{'threshold':<18}{'values':>8}{'noise':>7}{'estimates':>11}{'rescaled':>10}"
    )
    worst, harmed, short = 0.0, 0, 0
    for name, population in populations(folder):
        for mechanism in ("gaussian", "laplace"):
            for selector in ("oracle", "weighted-quantile"):
                plain = plan_for(population, mechanism, selector=selector)
                scaled = plan_for(population, mechanism, selector=selector, rescale="proportional")
                known = [simulate(population, plain, seed=seed).diagnostics for seed in seeds]
                found = [simulate(population, scaled, seed=seed).diagnostics for seed in seeds]
                raw, estimated, noise = (
                    math.fsum(getattr(one, field) for one in known if one) / len(seeds)
                    for field in ("relative_loss", "estimate_loss", "noise_error")
                )
                rescaled = math.fsum(one.estimate_loss for one in found if one) / len(seeds)
                ratio = estimated / raw
                worst = max(worst, ratio)
                mark = "!" if ratio > MOST_HARM else "*" if noise > raw / 2 and ratio > LEAST_GAIN else ""
                harmed, short = harmed + (mark == "!"), short + (mark == "*")
                print(
                    f"{name:<28}{mechanism:<10}{selector:<18}{raw:>8.4f}{noise / raw:>7.2f}{ratio:>10.3f}{mark:1}"
                    f"{rescaled / raw:>9.3f}",
                    flush=True,
                )
    print(f"the largest ratio of estimates to values is {worst:.4f}; cells with ! {harmed}, with * {short}")


def largest_norm(population: Population, mechanism: str) -> float:
    sizes = (
        user_totals(s) if mechanism == "laplace" else np.sqrt(user_squares(s)) for s in population.shards()
    )
    return float(math.ceil(max(size.max(initial=1.0) for size in sizes)))


def coverage(folder: Path, seeds: range) -> None:
    print(
        f"\ncoverage at the level 0.95 in percent, {len(seeds)} trials from seed {seeds[0]}: upper limits with R ="
    )
    print(
        "the largest norm in the data; by size of items: the 20 largest, the larger and the smaller half of the rest"
    )
    print(
        f"{'set':<28}{'mechanism':<10}{'R/C':>6}{'clipped':>9}  {'true, +-1.96 se':^16}{'true, limit':^16}"
        f"{'limit - value, noises':^24}{'limit/true':>11}"
    )
    for name, population in populations(folder):
        true = true_histogram(population)
        order = np.argsort(-true, kind="stable")
        rest = np.array_split(order[LARGEST:], 2)
        groups = [group for group in (order[:LARGEST], *rest) if len(group)]
        for mechanism in ("gaussian", "laplace"):
            reach = largest_norm(population, mechanism)
            plan = plan_for(population, mechanism, upper_limits=reach)
            plain, covered, wide, over, taken, ratios = [], [], [], [], [], []
            for seed in seeds:
                result = simulate(population, plan, seed=seed)
                release, noise = result.release, result.release.standard_error
                limit: Floats = np.asarray(release.upper_limit)
                plain.append(np.abs(release.histogram - true) <= 1.96 * noise)
                covered.append(true <= limit)
                wide.append((limit - release.histogram) / noise)
                over.append(limit / np.maximum(true, 1))
                taken.append(0.0 if result.diagnostics is None else result.diagnostics.clipped_mass)
                ratios.append(reach / release.threshold)

            def by_group(values: list[Floats], form: str, groups: list[Integers] = groups) -> str:
                means = np.mean(values, axis=0)
                return " ".join(format(float(np.mean(means[group])), form) for group in groups)

            print(
                f"{name:<28}{mechanism:<10}{np.mean(ratios):>6.0f}{np.mean(taken):>9.1%}  "
                f"{by_group([100 * one for one in plain], '4.0f'):^16}"
                f"{by_group([100 * one for one in covered], '4.0f'):^16}{by_group(wide, '.0f'):^24}"
                f"{float(np.median(np.mean(over, axis=0)[groups[0]])):>11.2f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="the folder of the real sets")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.trials)
    losses(arguments.data, seeds)
    coverage(arguments.data, seeds)


if __name__ == "__main__":
    main()
