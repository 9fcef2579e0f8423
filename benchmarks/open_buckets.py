"""How far V(C) by buckets is from V(C) by items: `python benchmarks/open_buckets.py`.

For each number of buckets: the largest relative error of V over the candidates and the one at the best candidate by
items; the best candidate by buckets, and what V by items loses there; a lower bound of how often exponential-v chooses
another candidate than it would by items (the total variation between the two choices); and the bytes that a user sends
in round 1. epsilon = 1, epsilon' = 0.1, delta = 1/(2n). Real sets are left out if their folder does not have them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from open_selectors import found_in

from fedhist.client.files.records import read_population
from fedhist.protocol.histograms import Floats, Population
from fedhist.protocol.measurements.expected_counts import SHARE_BITS, OpenTail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Round
from fedhist.server.selection.exponential_v import error_bound, score_range
from fedhist.server.steps import read_statistic, select_request
from fedhist.simulations.datasets.paper_sets import ZipfPopulation
from fedhist.simulations.datasets.synthetic import materialise
from fedhist.simulations.engines.in_process import InProcess

BUCKETS = (256, 1024, 4096, 16384)
REAL = ("gowalla_counts_19k", "sentiment140_by_author_subset", "sentiment140_by_addressee")


def sets(data: Path, *, quick: bool) -> Iterator[tuple[str, Population]]:
    yield "zipf, 20,000 items", materialise(ZipfPopulation(50_000, 20_000, seed=1))
    for name, path in found_in(data, REAL[:-1] if quick else REAL):
        yield name, read_population(path)


def read(population: Population, plan: Plan) -> tuple[OpenTail, int]:
    """Round 1 over all users, and the bytes that one of them sends."""
    transport = InProcess(population, SeededSource(1))
    total = transport.total(select_request(plan))
    return read_statistic(plan, total), transport.bytes_per_user[Round.SELECT]


def choice(plan: Plan, bound: Floats) -> Floats:
    """The chance of each candidate under exponential-v."""
    exponents = -plan.epsilon_select * (bound - bound.min()) / score_range(plan)
    weights = np.exp(exponents)
    return np.asarray(weights / weights.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real sets")
    parser.add_argument("--quick", action="store_true", help="the small sets only")
    arguments = parser.parse_args()
    print(
        f"{'set':<31}{'buckets':>8}{'error of V':>12}{'at best C':>11}{'best C':>8}{'V lost':>9}{'variation':>11}"
        f"{'bytes a user':>14}"
    )
    for name, population in sets(arguments.data, quick=arguments.quick):
        plan = Plan(users=population.users, domain="open", delta=1 / (2 * population.users))
        tail, sent = read(population, plan)
        exact = np.ldexp(error_bound(plan, tail).astype(np.float64), -SHARE_BITS)
        best = int(exact.argmin())
        steps = plan.candidate_steps
        print(
            f"{name:<31}{'by item':>8}{'':>12}{'':>11}{steps[best]:>8,}{'':>9}{'':>11}{sent:>14,}", flush=True
        )
        for buckets in BUCKETS:
            hashed = replace(plan, statistic="bucketed", buckets=buckets)
            tail, sent = read(population, hashed)
            bound = np.ldexp(error_bound(hashed, tail).astype(np.float64), -SHARE_BITS)
            errors = np.abs(bound / exact - 1)
            found = int(bound.argmin())
            variation = np.abs(choice(plan, exact) - choice(hashed, bound)).sum() / 2
            print(
                f"{'':<31}{buckets:>8,}{errors.max():>12.2%}{errors[best]:>11.2%}{steps[found]:>8,}"
                f"{exact[found] / exact[best] - 1:>9.2%}{variation:>11.3f}{sent:>14,}",
                flush=True,
            )


if __name__ == "__main__":
    main()
