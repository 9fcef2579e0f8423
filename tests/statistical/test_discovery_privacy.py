"""What a discovery shows of worst-case neighbours, exactly, from the chances of the discrete Gaussian.

The oracle knows the noise's variances and the bars, and nothing of how these were found. Settings are small: coarse
weights, a large delta and few keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from fedhist import Neighbours, Plan, SeededSource
from tests.oracles import gaussian_chances, gaussian_deltas
from tests.support.api import (
    WIDEST,
    Discovery,
    Floats,
    KeySums,
    _look,
    clipped_sum_l2,
    epsilon_beside,
    found_items,
    looks,
    user_weights,
)

BITS = 4
ONE = 1 << BITS
EPSILONS = (0.1, 1.0)
SHARES, SMALL_SHARES = (0.1, 0.6), (0.02, 0.4)


def terms_of(
    shares: tuple[float, ...],
    neighbours: Neighbours = Neighbours.ZERO_OUT,
    *,
    user_items: int = 4,
    multiplier: float = 1.5,
    delta: float = 0.4,
) -> Discovery:
    """A discovery with coarse weights, for which every chance can be added up."""
    return Discovery(
        user_items=user_items,
        bits=BITS,
        sensitivity=clipped_sum_l2(ONE, domain_size=None, neighbours=neighbours),
        multiplier=multiplier,
        shares=shares,
        delta=delta,
        laplace_delta=0.0,
        epsilon=1.0,
    )


def passing(variance: float, bar: int, weight: int) -> float:
    """The chance that a key of this weight passes the bar."""
    reach = math.ceil(12 * math.sqrt(variance)) + bar
    return float(gaussian_chances(variance, reach)[reach + bar - weight + 1 :].sum())


# --- Keys of one user alone.


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("shares", [SHARES, SMALL_SHARES])
@pytest.mark.parametrize("user_items", [1, 2, 30])
def test_no_number_of_own_keys_passes_more_often_than_the_bars_cost(
    shares: tuple[float, ...], neighbours: Neighbours, user_items: int
) -> None:
    """The worst user's chance, also if the second look is always taken; and the bars are not far too high."""
    terms = terms_of(shares, neighbours, user_items=user_items)
    worst = 0.0
    for count in range(1, user_items + 1):
        weight = math.isqrt((ONE * ONE) // count)
        none = [
            (1 - passing(float(variance), bar, weight)) ** count
            for variance, bar in zip(terms.variances, terms.bars, strict=True)
        ]
        worst = max(worst, sum(1 - chance for chance in none))
    assert worst / (1 - worst) <= terms.bar_delta <= 0.2 * terms.delta
    assert worst >= 0.7 * terms.bar_delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.02, 1e-3), (1.0, 1e-100), (1e9, 1e-6)])
def test_bars_hold_for_real_plans_at_the_ends_of_their_ranges(epsilon: float, delta: float) -> None:
    """Up to D keys of a user: a union over them, of tails that sums over whole numbers tend to."""
    terms = Plan(users=10, domain="open", epsilon=epsilon, delta=delta).discovery
    counts = np.arange(1, terms.user_items + 1)
    weights = user_weights(terms.user_items, terms.bits)[1:]
    assert (counts * weights**2 <= 4**terms.bits).all()
    for variance, bar in zip(terms.variances, terms.bars, strict=True):
        tails = stats.norm.logsf(bar + 0.5 - weights, scale=math.sqrt(variance))
        assert (np.log(counts) + tails).max() <= math.log(0.2 * delta)


# --- The whole discovery, then a release.


@dataclass(frozen=True)
class World:
    """What one population has: the weight of a key that both have, and own keys with their chances to stay hidden.

    Args:
        weight: of the common key.
        hidden: that no own key passes after one look, and after two.
    """

    weight: int
    hidden: tuple[float, ...]


def world(terms: Discovery, weight: int, own: int, held: int) -> World:
    """A population whose user holds `held` keys, `own` of which nobody else has."""
    each = 0 if held == 0 else math.isqrt((ONE * ONE) // held)
    hidden, chance = [], 1.0
    for variance, bar in zip(terms.variances, terms.bars, strict=True):
        chance -= 1 - (1 - passing(float(variance), bar, each)) ** own
        hidden.append(chance)
    return World(weight, tuple(hidden))


def shown_delta(terms: Discovery, one: World, other: World, epsilon: float) -> float:
    """Delta of the looks' noisy values of the common key, whether own keys pass, and a Gaussian release.

    More than a run shows. A second look is taken if the first value is small, as it would be by its coverage.
    """
    release = [terms.release_multiplier(share) for share in terms.shares]
    coarse, fine = float(terms.variances[0]), float(terms.variances[-1])
    reach = math.ceil(6.5 * math.sqrt(coarse)) + 2 * ONE
    first = np.arange(-reach, reach + 1)

    def first_chances(of: World) -> Floats:
        return np.asarray(np.roll(gaussian_chances(coarse, reach), of.weight))

    both = [(first_chances(of), of) for of in (one, other)]
    second = first < ONE if len(terms.shares) > 1 else np.zeros(len(first), dtype=bool)
    total = 0.0
    # Own keys that pass give the user away.
    for stop, place in ((~second, 0), (second, -1)):
        p, q = (law[stop] * of.hidden[place] for law, of in both)
        total += float(both[0][0][stop].sum()) * (1 - one.hidden[place])
        if place == 0:
            total += _rest(p, q, release[0], epsilon)
            continue
        # Given the first value y, the second is around x + r (y - x), of variance v (1 - r).
        ratio = fine / coarse
        spread = np.arange(-reach, reach + 1)[:, np.newaxis]
        for law_p, law_q, y in zip(p, q, first[stop], strict=True):
            rows = [
                np.exp(
                    -((spread - of.weight - ratio * (y - of.weight)) ** 2) / (2 * fine * (1 - ratio))
                ).ravel()
                for of in (one, other)
            ]
            rows = [row / row.sum() for row in rows]
            total += _rest(law_p * rows[0], law_q * rows[1], release[-1], epsilon)
    return total


def _rest(p: Floats, q: Floats, multiplier: float, epsilon: float) -> float:
    """What a Gaussian mechanism adds after results of these chances in both worlds."""
    seen = p > 1e-18
    losses = np.log(p[seen]) - np.log(np.maximum(q[seen], 1e-300))
    return float((p[seen] * gaussian_deltas(multiplier, epsilon - losses)).sum())


PAIRS = {
    "added, own keys": ((0, 0, 0), (0, 4, 4)),
    "removed, own keys": ((0, 4, 4), (0, 0, 0)),
    "added, to a common key": ((ONE, 0, 0), (2 * ONE, 0, 1)),
    "added, both": ((ONE, 0, 0), (ONE + ONE // 2, 3, 4)),
    "removed, both": ((ONE + ONE // 2, 3, 4), (ONE, 0, 0)),
}
"""Of each world: the common key's weight, the user's own keys, the user's keys."""


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("shares", [SHARES, SMALL_SHARES])
def test_neighbours_are_as_near_as_the_ledger_says(shares: tuple[float, ...], pair: str) -> None:
    terms = terms_of(shares)
    one, other = (world(terms, *described) for described in PAIRS[pair])
    for epsilon in EPSILONS:
        charged = float(gaussian_deltas(terms.multiplier, epsilon)) + terms.bar_delta
        assert shown_delta(terms, one, other, epsilon) <= charged


@pytest.mark.parametrize("shares", [SHARES, SMALL_SHARES])
def test_replaced_users_with_own_keys_on_both_sides_are_as_near(shares: tuple[float, ...]) -> None:
    terms = terms_of(shares, Neighbours.REPLACE_ONE)
    one, other = world(terms, 2 * ONE, 0, 1), world(terms, ONE, 4, 4)
    both = world(terms, ONE + ONE // 2, 3, 4)
    for first, second in ((one, other), (other, both), (both, other)):
        charged = float(gaussian_deltas(terms.multiplier, 0.3)) + terms.bar_delta
        assert shown_delta(terms, first, second, 0.3) <= charged


def test_the_oracle_comes_near_the_charge_of_the_noise() -> None:
    """Else a pass would prove nothing: one user on a key that both have, without a bar in the way."""
    terms = terms_of(SHARES, multiplier=1.5, delta=1e-9)
    one, other = world(terms, 2 * ONE, 0, 1), world(terms, ONE, 0, 0)
    charged = float(gaussian_deltas(terms.multiplier, 0.3))
    assert 0.85 * charged < shown_delta(terms, one, other, 0.3) <= charged


# --- The draws.


def test_the_first_look_is_the_second_and_more_on_top() -> None:
    terms = terms_of(SHARES)
    values = np.full(100_000, 3 * ONE, dtype=np.int64)
    first, second = looks(values, terms.variances, source=SeededSource(1))
    coarse, fine = map(float, terms.variances)
    for drawn, variance in ((first, coarse), (second, fine), (first - second + 3 * ONE, coarse - fine)):
        scaled = ((drawn - 3 * ONE) ** 2).sum() / variance
        assert abs(scaled - len(values)) < 5 * math.sqrt(2 * len(values))
    # Two looks at the same sums must not average the noise away: what is on top is independent of what is below.
    product = (first - second).astype(float) @ (second - 3 * ONE)
    assert abs(product) < 5 * math.sqrt(len(values) * (coarse - fine) * fine)


def test_keys_pass_as_often_as_the_chances_say() -> None:
    """The server's own look, at many keys at once, against the oracle. All are alike, so a second look follows."""
    terms = terms_of(SHARES)
    keys, weight = 40_000, ONE // 2
    passed, _, share = _look(terms, np.full(keys, weight, dtype=np.int64), WIDEST, SeededSource(2))
    assert share == SHARES[1]
    either = [passing(float(v), bar, weight) for v, bar in zip(terms.variances, terms.bars, strict=True)]
    assert max(either) * keys - 5 * math.sqrt(keys * max(either)) < passed.sum()
    assert passed.sum() < sum(either) * keys + 5 * math.sqrt(keys * sum(either))


def test_a_sum_that_others_brought_to_the_wrap_is_noised_before_it_is_read() -> None:
    """Participants under masks may send any residue: one user's weight then turns the largest number negative."""
    plan = Plan(users=3, domain="open", epsilon=1.0, delta=0.1, masking="secagg", participants=3)
    keys, edge, unit = 4_000, 2**63 - 1, 1 << plan.discovery.bits
    labels = [f"key {number}" for number in range(keys)]
    shares = []
    for value in (edge, edge + unit - 2**64):
        reading = KeySums(np.arange(keys), np.full(keys, value, dtype=np.int64), labels)
        shares.append(len(found_items(plan, reading, source=SeededSource(3))[0]) / keys)
    deviation = math.sqrt(plan.discovery.variances[0]) / unit
    expected = (0.5, stats.norm.cdf(-1 / deviation))
    assert np.abs(np.subtract(shares, expected)).max() < 5 * math.sqrt(0.25 / keys)


# --- What discovery leaves to Laplace noise.


@pytest.mark.parametrize(
    ("multiplier", "epsilon", "delta"), [(2.0, 1.0, 0.1), (30.0, 0.5, 1e-6), (5.0, 3.0, 1e-9)]
)
def test_a_pure_mechanism_fits_beside_the_noise(multiplier: float, epsilon: float, delta: float) -> None:
    """Randomised response beside a Gaussian, with the loss of both on a fine lattice."""
    pure = epsilon_beside(multiplier, epsilon=epsilon, delta=delta)
    assert 0 < pure < epsilon
    deviation = 1 / multiplier
    edges = np.linspace(-12, 12, 200_001)
    losses = deviation**2 / 2 + deviation * (edges[1:] + edges[:-1]) / 2
    masses = np.diff(stats.norm.cdf(edges))
    masses[edges[1:] > 0] = -np.diff(stats.norm.sf(edges))[edges[1:] > 0]
    up = 1 / (1 + math.exp(-pure))
    spent = sum(
        share * float((masses * np.maximum(-np.expm1(epsilon - losses - more), 0)).sum())
        for share, more in ((up, pure), (1 - up, -pure))
    )
    assert spent == pytest.approx(delta, rel=1e-3)
