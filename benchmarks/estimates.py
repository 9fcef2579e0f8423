"""What estimates gain, and what lower limits cover: `python benchmarks/estimates.py [--data FOLDER] [--only PART]`.

Whole runs at epsilon 1, epsilon' 0.1 and delta 1/n on synthetic sets and on the real ones in the folder, if it is
there. Losses are l1 errors against the true counts over their total, means over trials. Lower limits are measured on
counts that nobody clipped, too, of which equal ones are the worst.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from fedhist.client.files.read import read_population
from fedhist.protocol.histograms import Floats, Integers, Population
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.bars import bars_for
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.protocol.privacy.noise import Noise, gaussian_variance, laplace_scale
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.estimates import estimates_and_limits, law_above_bar, law_of_noise, limits_above_bar
from fedhist.server.estimates.limits import above
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
LEAST_HELD = 0.93
DEVIATION = 200
"""Of the noise on counts that nobody clipped, in steps; only ratios to it matter."""
MADE = {
    "5,000 zeros": np.zeros(5_000),
    **{f"1,000 equal, {size:g} s.e.": np.full(1_000, size) for size in (0.5, 1, 2, 3, 5)},
    **{
        f"{zeros:,} zeros, {others} of {size} s.e.": np.append(np.zeros(zeros), np.full(others, size))
        for zeros, others, size in ((4_950, 50, 3), (4_950, 50, 5), (49_800, 200, 4))
    },
    **{
        f"{items:,} Zipf, 1st {top:g} s.e.": top / np.arange(1, items + 1)
        for items in (100, 5_000)
        for top in (40, 400)
    },
}
MADE_ABOVE_BAR = {
    **{f"1,000 equal, {size:g} bars": np.full(1_000, size) for size in (0.8, 1, 1.2, 1.5)},
    "5,000 Zipf, 1st 200 bars": 200 / np.arange(1, 5_001),
}
MADE_TRIALS, LEAST_MADE = 10, 200
"""For each trial of a whole run, and in all: those of made-up counts take no time."""


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
    print(f"{'set':<28}{'mechanism':<10}{'threshold':<18}{'values':>8}{'noise':>7}{'estimates':>11}")
    worst, harmed, short = 0.0, 0, 0
    for name, population in populations(folder):
        for mechanism in ("gaussian", "laplace"):
            for selector in ("oracle", "weighted-quantile"):
                plain = plan_for(population, mechanism, selector=selector)
                known = [simulate(population, plain, seed=seed, evaluate=True).diagnostics for seed in seeds]
                raw, estimated, noise = (
                    math.fsum(getattr(one, field) for one in known if one) / len(seeds)
                    for field in ("relative_loss", "estimate_loss", "noise_error")
                )
                ratio = estimated / raw
                worst = max(worst, ratio)
                mark = "!" if ratio > MOST_HARM else "*" if noise > raw / 2 and ratio > LEAST_GAIN else ""
                harmed, short = harmed + (mark == "!"), short + (mark == "*")
                print(
                    f"{name:<28}{mechanism:<10}{selector:<18}{raw:>8.4f}{noise / raw:>7.2f}{ratio:>10.3f}{mark:1}",
                    flush=True,
                )
    print(f"the largest ratio of estimates to values is {worst:.4f}; cells with ! {harmed}, with * {short}")


Draw = Callable[[int], tuple[Integers, Floats, Floats, Floats]]
"""True counts, values, their `at_least`, and value - q alone, of a trial."""


def drawn(mechanism: str, counts: Floats) -> Draw:
    """Noise on these counts."""
    if mechanism == "gaussian":
        noise = Noise("discrete-gaussian", gaussian_variance(Fraction(DEVIATION**2)))
    else:
        noise = Noise("discrete-laplace", laplace_scale(Fraction(DEVIATION / 2**0.5)))
    law, true = law_of_noise(noise), np.rint(counts * DEVIATION).astype(np.int64)

    def draw(seed: int) -> tuple[Integers, Floats, Floats, Floats]:
        values = true + noise.draw(len(true), source=SeededSource(seed))
        return true, values, estimates_and_limits(values, law)[1], values - float(above(law, 0.05))

    return draw


def shown(release: str, counts: Floats) -> Draw:
    """Noise on these counts, in bars, of which those above the bar are shown."""
    (noise,) = bars_for(release, [20], epsilon=1.0, delta=1e-6, neighbours=Neighbours.ZERO_OUT)
    law, true = law_above_bar(noise), np.rint(counts * noise.bar).astype(np.int64)

    def draw(seed: int) -> tuple[Integers, Floats, Floats, Floats]:
        values = true + noise.draw(len(true), source=SeededSource(seed))
        above_it = values > noise.bar
        values = values[above_it]
        return (
            true[above_it],
            values,
            limits_above_bar(values, law, noise.bar),
            values - float(above(law, 0.05)),
        )

    return draw


def released(mechanism: str, population: Population) -> Draw:
    """Whole runs. Their noise is wide, so q of the continuous law will do."""
    true, plan = true_histogram(population), plan_for(population, mechanism)
    q = 1.6449 if mechanism == "gaussian" else math.log(10) / 2**0.5

    def draw(seed: int) -> tuple[Integers, Floats, Floats, Floats]:
        release = simulate(population, plan, seed=seed, evaluate=True).release
        return true, release.histogram, release.at_least, release.histogram - q * release.standard_error

    return draw


def shares_held(draw: Draw, seeds: range) -> Iterator[tuple[list[float], float]]:
    """How often limits hold, of all rows and of those picked by their values, and how many are above 0.

    First of `at_least`, then of value - q, cut at 0.
    """
    held, rows = np.zeros((2, 4)), np.zeros((2, 4))
    for seed in seeds:
        true, values, *both = draw(seed)
        largest = np.zeros(len(values), dtype=np.bool_)
        largest[np.argsort(-values, kind="stable")[:LARGEST]] = True
        for kind, limits in enumerate(both):
            right = np.maximum(limits, 0) <= true
            for place, group in enumerate((slice(None), largest, values > 0, limits > 0)):
                held[kind, place] += right[group].sum()
                rows[kind, place] += len(right[group])
    shares = np.divide(held, rows, out=np.full((2, 4), math.nan), where=rows > 0)
    return zip(shares.tolist(), (rows[:, 3] / len(seeds)).tolist(), strict=True)


def lower_limits(folder: Path, seeds: range) -> None:
    many = range(seeds.start, seeds.start + max(MADE_TRIALS * len(seeds), LEAST_MADE))
    about = (
        f"\ntrue counts that are at least their lower limit, in percent, {len(seeds)} trials from seed {seeds[0]},",
        f"{len(many)} of made-up counts: of all rows, the {LARGEST} with the largest values, those of",
        "values above 0, and of limits above 0, and how many these are; then the same of value - q alone",
    )
    print("\n".join(about))
    print("  !  one of the first three is below 93")
    below = 0

    def row(name: str, mechanism: str, draw: Draw, trials: range) -> bool:
        (fitted, clear), (plain, more) = shares_held(draw, trials)
        missed = min(fitted[:3]) < LEAST_HELD
        texts = [" ".join(f"{100 * one:5.1f}" for one in shares) for shares in (fitted, plain)]
        print(
            f"{name:<29}{mechanism:<18}{texts[0]} {clear:>6,.0f}{'!' if missed else '':3}{texts[1]} {more:>6,.0f}",
            flush=True,
        )
        return missed

    for name, counts in MADE.items():
        below += sum(row(name, one, drawn(one, counts), many) for one in ("gaussian", "laplace"))
    for name, counts in MADE_ABOVE_BAR.items():
        below += sum(
            row(name, one, shown(one, counts), many) for one in ("truncated-laplace", "laplace-threshold")
        )
    for name, file in REAL.items():
        if not (folder / file).is_file():
            print(f"{name} is left out: {file} is not in the folder of --data")
            continue
        for items in TOP_ITEMS:
            users = read_population(folder / file, top_items=items)
            for mechanism in ("gaussian", "laplace"):
                below += row(f"{name} {items:,}", mechanism, released(mechanism, users), seeds)
    print(f"cells with ! {below}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="the folder of the real sets")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parts = {"losses": losses, "lower-limits": lower_limits}
    parser.add_argument("--only", choices=parts, help="one of the parts")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.trials)
    for name, part in parts.items():
        if arguments.only in (None, name):
            part(arguments.data, seeds)


if __name__ == "__main__":
    main()
