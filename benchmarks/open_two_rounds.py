"""Both rounds over an open domain, as a ratio to one numpy.bincount pass: `python benchmarks/open_two_rounds.py`.

The non-iid users of `PaperPopulation`, two to three items each, are in memory, and the clock runs over the phases
select and release, noise and all. The rows differ in the number of users: seconds should grow with the non-zeros.
"""

from __future__ import annotations

import argparse

import numpy as np
from two_rounds import best_of

from fedhist.protocol.plan import Plan
from fedhist.simulations.datasets.paper_sets import PaperPopulation
from fedhist.simulations.datasets.synthetic import materialise
from fedhist.simulations.simulation import simulate

TARGET_RATIO = 25.0
TARGET_USERS = 500_000
SIZES = (5_000, 50_000, TARGET_USERS, 2_000_000)
QUICK_SIZES = SIZES[:3]


def measure(users: int, items: int, candidates: int, repeats: int) -> dict[str, float]:
    """The best of a few repeats of each, by turns: the others were disturbed."""
    population = materialise(PaperPopulation(users, items, seed=1))
    plan = Plan(users=users, domain="open", candidates=candidates, delta=1 / (2 * users))
    numbers, counts = population.histograms.items, population.histograms.counts
    wide_numbers, wide_counts = numbers.astype(np.int64), counts.astype(np.float64)
    result = simulate(population, plan, seed=0, truth=False)  # first use, which also loads libraries
    found = dict.fromkeys(("select", "release", "rounds", "bincount", "converted"), float("inf"))
    for seed in range(repeats):
        took = simulate(population, plan, seed=seed, truth=False).seconds
        now = {
            "select": took["select"],
            "release": took["release"],
            "rounds": took["select"] + took["release"],
            "bincount": best_of(lambda: np.bincount(numbers, weights=counts, minlength=items), 1),
            "converted": best_of(lambda: np.bincount(wide_numbers, weights=wide_counts, minlength=items), 1),
        }
        found = {name: min(now[name], found[name]) for name in found}
    return found | {
        "users": users,
        "nonzeros": population.nonzeros,
        "candidates": len(plan.candidate_steps),
        "threshold": result.threshold,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=150)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="no more than half a million users")
    arguments = parser.parse_args()
    print(
        f"non-iid users, {arguments.items} items, {arguments.candidates} candidates, best of {arguments.repeats}; "
        "ratios are to numpy.bincount(indices, weights=counts)"
    )
    print(
        f"{'users':>10}{'non-zeros':>11}{'C':>6}{'bincount s':>12}{'select s':>10}{'release s':>11}{'ns/non-zero':>13}"
        f"{'ratio':>7}"
    )
    for users in QUICK_SIZES if arguments.quick else SIZES:
        found = measure(users, arguments.items, arguments.candidates, arguments.repeats)
        ratio = found["rounds"] / found["bincount"]
        print(
            f"{users:>10,}{found['nonzeros']:>11,}{found['threshold']:>6,.0f}{found['bincount']:>12.4f}"
            f"{found['select']:>10.3f}{found['release']:>11.3f}{1e9 * found['rounds'] / found['nonzeros']:>13,.0f}"
            f"{ratio:>7.1f}",
            flush=True,
        )
        if users == TARGET_USERS:
            summary = (
                f"{users:,} users: ratio {ratio:.1f} (target: at most {TARGET_RATIO:g}); "
                f"{found['rounds'] / found['converted']:.1f} to a pass over int64 and float64 made before; "
                f"{found['candidates']} of the {arguments.candidates} candidates are different whole numbers"
            )
    print(summary)


if __name__ == "__main__":
    main()
