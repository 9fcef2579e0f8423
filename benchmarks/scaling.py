"""Both rounds for more and more users: the time per non-zero should not grow. `python benchmarks/scaling.py`."""

from __future__ import annotations

import argparse

from two_rounds import build

from fedhist.protocol.plan import Plan
from fedhist.simulations.simulation import simulate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=5_000_000, help="users; 5,000,000 take about 4 GB")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"Poisson(100) over {arguments.items} items, in memory; both rounds, best of {arguments.repeats}")
    print(f"{'users':>10}{'non-zeros':>14}", end="")
    for mechanism in ("gaussian", "laplace"):
        print(f"{mechanism + ' s':>12}{'ns/non-zero':>13}", end="")
    print()
    for users in (5_000, 50_000, 500_000, 5_000_000):
        if users > arguments.largest:
            break
        population = build(users, arguments.items)
        print(f"{users:>10,}{population.nonzeros:>14,}", end="", flush=True)
        for mechanism in ("gaussian", "laplace"):
            plan = Plan(users=users, items=arguments.items, mechanism=mechanism)
            simulate(population, plan, seed=0, evaluate=False)
            runs = [
                simulate(population, plan, seed=s, evaluate=False).seconds for s in range(arguments.repeats)
            ]
            best = min(seconds["select"] + seconds["release"] for seconds in runs)
            print(f"{best:>12.3f}{1e9 * best / population.nonzeros:>13.1f}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
