"""Noise from devices against noise from the server: `python benchmarks/device_noise.py [--users N] [--trials T]`.

First, the time to draw one participant's share, as a multiple of the server's own draw. Then the loss by the choice of
the threshold: the expected l1 error of the release (clipping and noise) at the chosen candidate, over that at the best
one, less 1. "server" chooses from the exact tail, "devices" from the noisy one at the same budget; "isotonic" is what
devices would lose if the noisy tail were read by isotonic regression instead. Each is measured with its own noise in
the release, so the last column is about the choice alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from two_rounds import best_of

from fedhist.protocol.clipping import user_squares, user_totals
from fedhist.protocol.histograms import Floats, Histograms, Integers
from fedhist.protocol.measurements.noisy_tail import (
    NoisyTail,
    reading_coefficients,
    running_sum_root,
    toeplitz_sensitivity,
)
from fedhist.protocol.measurements.tails import tail_vector
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Neighbours, Norm
from fedhist.protocol.privacy.noise import Noise, gaussian_variance, laplace_scale
from fedhist.protocol.privacy.randomness import SeededSource, SystemSource
from fedhist.protocol.privacy.shares import Share
from fedhist.protocol.rounds import Total
from fedhist.server.selection import selector_for
from fedhist.server.steps import read_statistic, select_request
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, PoissonPopulation

WIDTHS = (1e3, 1e6)
SHARES = (10, 100, 10_000)
PARTICIPANTS = 100
# The rules of selection were developed on users of seeds 1 and 2.
DEFAULT_SEED = 7
OF_NOISY_TAILS = ("dpsgd", "m-quantile", "output-perturbation", "quantile", "weighted-quantile")
"""Those that can do with a noisy tail."""
POPULATIONS = {"heavy-tailed": HeavyTailedPopulation, "poisson": PoissonPopulation}
SELECTORS = (
    ("gaussian", "weighted-quantile"),
    ("gaussian", "dpsgd"),
    ("gaussian", "output-perturbation"),
    ("gaussian", "m-quantile"),
    ("laplace", "weighted-quantile"),
    ("laplace", "quantile"),
)


def microseconds(draw: Callable[[], object], size: int, repeats: int) -> float:
    """Microseconds per value."""
    return 1e6 * best_of(draw, repeats) / size


def speeds(size: int, repeats: int) -> None:
    print(
        f"microseconds a draw from the operating system's source, best of {repeats}, and the ratio to the server's"
    )
    print(f"{'noise':<10}{'width':>9}{'shares':>8}{'server':>9}{'share':>9}{'ratio':>8}")
    source = SystemSource()
    for kind in ("gaussian", "laplace"):
        for width in WIDTHS:
            whole = (
                gaussian_variance(Fraction(width) ** 2)
                if kind == "gaussian"
                else laplace_scale(Fraction(width))
            )
            central = Noise(f"discrete-{kind}", whole)  # type: ignore[arg-type]  # one of its two names
            at_server = microseconds(lambda c=central: c.draw(size, source=source), size, repeats)  # type: ignore[misc]  # bound now
            for shares in SHARES:
                spread = gaussian_variance(whole / shares) if kind == "gaussian" else whole
                share = Share(f"discrete-{kind}-shares", spread, shares)  # type: ignore[arg-type]  # one of its two names
                took = microseconds(lambda s=share: s.draw(size, source=source), size, repeats)  # type: ignore[misc]  # bound now
                print(
                    f"{kind:<10}{width:>9g}{shares:>8}{at_server:>9.3f}{took:>9.3f}{took / at_server:>8.1f}",
                    flush=True,
                )


def measurements() -> None:
    """The standard deviation on the sum over the top bins, for noise of deviation 1 at sensitivity 1."""
    bins = (1, 10, 30, 128)
    print("\nnoise on the sum over the top bins, times the sensitivity of a bin, 128 candidates")
    print(f"{'norm':<6}{'neighbours':<12}{'measured':<10}", *(f"{count:>7}" for count in bins), sep="")
    for norm in (Norm.L2, Norm.L1):
        for neighbours in Neighbours:
            for name, bits in (("root", 16), ("bins", None)):
                coefficients = running_sum_root(bins[-1], bits)
                worst = toeplitz_sensitivity(coefficients, 1, norm=norm, neighbours=neighbours).value
                spreads = worst * np.sqrt(np.cumsum(reading_coefficients(coefficients) ** 2))
                cells = (f"{spreads[count - 1]:>7.2f}" for count in bins)
                print(f"{norm.value:<6}{neighbours.value:<12}{name:<10}", *cells, sep="")


def errors_by_candidate(plan: Plan, shards: list[Histograms]) -> Floats:
    """The expected l1 error at each candidate: the mass lost to clipping, and M C."""
    bounds = np.ldexp(plan.candidate_steps.astype(np.float64), -plan.grid_bits)
    lost = np.zeros(len(bounds))
    for shard in shards:
        totals = user_totals(shard).astype(np.float64)
        norms = totals if plan.norm is Norm.L1 else np.sqrt(user_squares(shard).astype(np.float64))
        totals, norms = totals[norms > 0], norms[norms > 0]
        for place, bound in enumerate(bounds):
            lost[place] += (totals * np.maximum(1 - bound / norms, 0)).sum()
    return lost + plan.noise_price * bounds


def isotonic(tail: NoisyTail) -> Floats:
    """The falling curve nearest to the noisy tail, each value weighted by its precision: pool adjacent violators."""
    pools: list[tuple[float, float, int]] = []
    for value, deviation in zip(tail.values, tail.deviations, strict=True):
        pools.append((value, deviation**-2, 1))
        while len(pools) > 1 and pools[-1][0] > pools[-2][0]:
            (a, u, m), (b, v, n) = pools[-2:]
            pools[-2:] = [((a * u + b * v) / (u + v), u + v, m + n)]
    return np.repeat([value for value, _, _ in pools], [count for _, _, count in pools])


def chosen_place(plan: Plan, steps: int) -> int:
    return int(np.searchsorted(plan.candidate_steps, steps, side="right")) - 1


def excesses(
    noisy: Plan, central: Plan, shards: list[Histograms], trials: int, seed: int
) -> tuple[float, float, float]:
    """The mean excess of the server's choice, the devices', and that by isotonic regression."""
    at_server, errors = errors_by_candidate(central, shards), errors_by_candidate(noisy, shards)
    sums: Integers = sum(
        tail_vector(
            shard,
            central.candidate_steps,
            bits=central.grid_bits,
            norm=central.norm,
            sparsity=central.closed.sparsity,
        )
        for shard in shards
    )
    measurement = select_request(noisy).measurement
    measured: Integers = sum(measurement.of(shard, source=SeededSource(seed)).values for shard in shards)
    exact = read_statistic(central, Total(users=central.users, values=sums))
    share = measurement.share
    drawn = (
        share.draw(trials * len(measured), source=SeededSource(seed).fork("participant", one))
        for one in range(PARTICIPANTS)
    )
    noises: Integers = sum(drawn).reshape(trials, -1)
    found: dict[str, list[float]] = {"server": [], "devices": [], "isotonic": []}
    for trial in range(trials):
        source = SeededSource(seed).fork(trial)
        steps = selector_for(central).select(central, exact, source=source.fork("server")).threshold.steps
        found["server"].append(at_server[chosen_place(central, steps)] / at_server.min())
        total = Total(users=noisy.users, values=measured + noises[trial], shares=PARTICIPANTS)
        tail = measurement.read(total)
        steps = selector_for(noisy).select(noisy, tail, source=source).threshold.steps
        found["devices"].append(errors[chosen_place(noisy, steps)] / errors.min())
        inside = isotonic(tail) <= noisy.noise_price
        found["isotonic"].append(errors[int(inside.argmax()) if inside.any() else -1] / errors.min())
    server, devices, regressed = (float(np.mean(of)) - 1 for of in found.values())
    return server, devices, regressed


def losses(users: int, trials: int, seed: int, selectors: tuple[str, ...]) -> None:
    print(
        f"\nmean excess error over the best candidate, seed {seed}, {trials} trials; {users:,} users, "
        f"{PARTICIPANTS} participants, "
        "epsilon 1, delta 1e-6, C_m 1500"
    )
    print(
        f"{'population':<14}{'items':>7}{'s':>7}{'eps_sel':>9}  {'mechanism':<10}{'selector':<21}"
        f"{'server':>9}{'devices':>9}{'isotonic':>10}{'error ratio':>13}"
    )
    for name, make in POPULATIONS.items():
        for items, sparsity in ((100, 100), (1000, 1000), (1000, 100), (10_000, 10_000)):
            shards = list(make(users=users, items=items, seed=seed).shards())
            for epsilon_select in (0.1, 0.5):
                for mechanism, selector in SELECTORS:
                    if selector not in selectors or (mechanism == "laplace" and sparsity != items):
                        continue
                    settings = {
                        "users": users, "items": items, "sparsity": sparsity, "mechanism": mechanism,
                        "selector": selector, "epsilon_select": epsilon_select,
                    }  # fmt: skip
                    central = Plan(**settings)  # type: ignore[arg-type]  # mixed values
                    noisy = Plan(
                        **settings,  # type: ignore[arg-type]  # mixed values
                        masking="secagg", participants=PARTICIPANTS, noise_from="devices",
                    )  # fmt: skip
                    server, devices, regressed = excesses(noisy, central, shards, trials, seed)
                    print(
                        f"{name:<14}{items:>7}{sparsity:>7}{epsilon_select:>9g}  {mechanism:<10}{selector:<21}"
                        f"{server:>9.3f}{devices:>9.3f}{regressed:>10.3f}{(1 + devices) / (1 + server):>13.3f}",
                        flush=True,
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of users and noise")
    parser.add_argument("--selector", choices=OF_NOISY_TAILS, help="this one only")
    arguments = parser.parse_args()
    speeds(arguments.draws, arguments.repeats)
    measurements()
    selectors = OF_NOISY_TAILS if arguments.selector is None else (arguments.selector,)
    losses(arguments.users, arguments.trials, arguments.seed, selectors)


if __name__ == "__main__":
    main()
