"""The open domain's quantities against their definitions, and the paper's bounds on the error, by enumeration.

Random clipping keeps N_ij C/m_i of an item of a user, rounded down or up without bias, so what is kept of an item over
all users is a sum of independent numbers, whose distribution is formed here exactly; the noise is summed over all its
values that matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate, stats

from fedhist import Histograms, Plan
from tests.asking import reading_of
from tests.oracles import laplace_chances
from tests.support.api import SHARE_BITS, error_bound, expected_loss

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Make = Callable[..., Histograms]

USERS, ITEMS, LARGEST = 12, 4, 60
EPSILON, DELTA = 2.0, 0.1


def plan_for(release: str = "laplace-threshold-paper", **more: object) -> Plan:
    settings = {"users": USERS, "domain": "open", "epsilon": EPSILON, "delta": DELTA, "candidates": 8}
    settings |= {"min_threshold": 1.0, "max_threshold": float(LARGEST), "release": release}
    return Plan(**(settings | more))


def populations(number: int, *, seed: int = 5) -> Iterator[Counts]:
    """Tables with light and heavy users, none above LARGEST in all."""
    generator = np.random.Generator(np.random.Philox(seed))
    for _ in range(number):
        totals = np.minimum(generator.geometric(generator.uniform(0.03, 0.5), USERS) - 1, LARGEST)
        favourites = generator.dirichlet(np.full(ITEMS, 10 ** generator.uniform(-1, 1)), USERS)
        yield np.array([generator.multinomial(m, p) for m, p in zip(totals, favourites, strict=True)])


def expected_counts(table: Counts, threshold: int) -> Floats:
    """A_j(C), user by user."""
    return sum(
        (row * min(1.0, threshold / max(row.sum(), 1)) for row in table), start=np.zeros(table.shape[1])
    )


def overflow(table: Counts, threshold: int) -> int:
    return int(sum(max(int(row.sum()) - threshold, 0) for row in table))


def bound_of(table: Counts, threshold: int, bar: int) -> float:
    """V(C), from its definition."""
    return float(2 * overflow(table, threshold) + np.minimum(expected_counts(table, threshold), bar).sum())


def kept_distribution(column: Counts, totals: Counts, threshold: int) -> Floats:
    """The chance of each number of an item that is kept over all users."""
    chances = np.ones(1)
    for has, total in zip(column.tolist(), totals.tolist(), strict=True):
        whole, rest = divmod(has * min(total, threshold), max(total, 1))
        kept = np.zeros(has + 1)
        kept[whole] = 1 - rest / max(total, 1)
        kept[whole + (rest > 0)] += rest / max(total, 1)
        chances = np.convolve(chances, kept)
    return chances


def noise_chances(scale: float) -> tuple[Counts, Floats]:
    """Discrete Laplace noise, up to a chance of 10^-13."""
    reach = math.ceil(30 * scale)
    return np.arange(-reach, reach + 1), laplace_chances(scale, reach)


def errors_and_minima(table: Counts, threshold: int, bar: int, scale: float) -> tuple[float, float]:
    """E |release - sum|_1, and the sum over items of E min(kept, bar)."""
    values, chances = noise_chances(scale)
    totals, error, minima = table.sum(axis=1), 0.0, 0.0
    for column in table.T:
        kept = kept_distribution(column, totals, threshold)
        counts = np.arange(len(kept))
        noisy = counts[:, np.newaxis] + values
        # What is not kept at all is not noised, so it is never shown.
        shown = np.where((noisy > bar) & (counts[:, np.newaxis] > 0), noisy, 0)
        error += float(kept @ (np.abs(shown - column.sum()) @ chances))
        minima += float(kept @ np.minimum(counts, bar))
    return error, minima


@pytest.mark.parametrize("release", ["truncated-laplace", "laplace-threshold", "laplace-threshold-paper"])
def test_the_error_bound_is_the_definition_s(make_histograms: Make, release: str) -> None:
    plan = plan_for(release)
    bars = [noise.bar for noise in plan.open_noises(plan.candidate_steps)]
    for table in populations(80):
        found = np.ldexp(
            error_bound(plan, reading_of(plan, make_histograms(table))).astype(float), -SHARE_BITS
        )
        exact = [bound_of(table, int(c), bar) for c, bar in zip(plan.candidate_steps, bars, strict=True)]
        # A share is off by less than 2^-16, and counts up to C times.
        assert found == pytest.approx(exact, abs=USERS * ITEMS * LARGEST * 2.0**-SHARE_BITS)


def test_the_oracle_s_expected_loss_is_the_integral_over_the_noise(make_histograms: Make) -> None:
    plan = plan_for("laplace-threshold")
    noises = plan.open_noises(plan.candidate_steps)
    for table in populations(6, seed=7):
        found = expected_loss(plan, reading_of(plan, make_histograms(table)))
        for place, (threshold, noise) in enumerate(zip(plan.candidate_steps.tolist(), noises, strict=True)):
            scale, exact = float(noise.scale), 0.0
            for kept, true in zip(expected_counts(table, threshold), table.sum(axis=0), strict=True):
                if true == 0:
                    # Nobody has it, so it is not noised.
                    continue
                hidden = stats.laplace.cdf(noise.bar - kept, scale=scale)
                ends = (noise.bar - kept, max(noise.bar, true) - kept + 40 * scale)
                shown, _ = integrate.quad(
                    lambda z, gap=true - kept, scale=scale: (
                        abs(z - gap) * math.exp(-abs(z) / scale) / (2 * scale)
                    ),
                    *ends,
                    points=sorted({min(max(place, ends[0]), ends[1]) for place in (0.0, true - kept)}),
                    limit=200,
                )
                exact += true * hidden + shown
            # Shares are rounded to 2^-16 and count up to 60 times, for 48 entries.
            assert found[place] == pytest.approx(exact, abs=0.05)


def excess(bar: int, scale: float) -> float:
    """By how much an item that is not clipped can err more than if it were never shown, over its count, at most.

    Noise that passes the bar shows a value above it, which for a rare item is further off than 0 is. The paper's proof
    has this term and bounds it by a factor of 2, and its theorem leaves it out.
    """
    ratio, counts = math.exp(-1 / scale), np.arange(1, bar + 1)
    passes = ratio ** (bar - counts + 1) / (1 + ratio)
    further = bar + 1 + ratio / (1 - ratio) - 2 * counts
    return max(0.0, float((passes * further / counts).max()))


def test_the_printed_upper_bound_is_passed_by_rare_items_that_noise_shows() -> None:
    """One user with one item, nothing clipped: the theorem says that the error is at most 1."""
    noise = plan_for().open_noises(np.array([1]))[0]
    error, minima = errors_and_minima(np.array([[1]]), 1, noise.bar, float(noise.scale))
    assert minima == 1
    assert 1 < error <= 1 + excess(noise.bar, float(noise.scale)) + 1e-12
    # With deltas that are used it is a matter of a few thousandths.
    usual = plan_for(delta=1e-6, epsilon=1.0).open_noises(np.array([1, 10, 60]))
    assert all(0 < excess(one.bar, float(one.scale)) < 0.004 for one in usual)


def test_the_expected_error_lies_between_the_bounds_of_the_theorem(make_histograms: Make) -> None:
    """Liu et al., the theorem on the error over unbounded domains, for the release as it is drawn, its gap closed."""
    plan = plan_for()
    noises = plan.open_noises(plan.candidate_steps)
    factor = 12 * math.log(LARGEST / (2 * DELTA))
    tightest, shown = math.inf, 0
    for table in populations(40, seed=9):
        bounds = np.ldexp(
            error_bound(plan, reading_of(plan, make_histograms(table))).astype(float), -SHARE_BITS
        )
        losses = []
        for bound, threshold, noise in zip(bounds, plan.candidate_steps.tolist(), noises, strict=True):
            error, minima = errors_and_minima(table, threshold, noise.bar, float(noise.scale))
            lost = overflow(table, threshold)
            assert lost / 2 + minima / factor <= error + 1e-9
            more = excess(noise.bar, float(noise.scale))
            assert error <= (2 + more) * lost + (1 + more) * minima + 1e-9
            # V takes the expectation inside the minimum, so it is no less (Jensen), but for the rounding of shares.
            assert error <= (1 + more) * bound + 0.05
            losses.append(error)
            tightest = min(tightest, (2 * lost + minima) / max(error, 1e-9))
            shown += error < table.sum() - 1
        # The corollary: what minimises V is within a logarithmic factor of the best.
        assert losses[int(bounds.argmin())] <= factor * min(losses) + 0.05
    # The upper bound is reached somewhere, and releases that show something were among them.
    assert tightest < 1.05
    assert shown > 40
