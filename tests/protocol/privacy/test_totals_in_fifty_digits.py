"""Two hundred random ledgers: no total is below the truth, which 50 digits know, and hardly above it."""

from __future__ import annotations

import itertools
import random

import mpmath
import pytest

from fedhist import Charge
from tests.builders import charge_of
from tests.oracles import gaussian_delta
from tests.support.api import (
    Alternative,
    AlternativesLoss,
    ApproximateLoss,
    BoundedRangeLoss,
    GaussianLoss,
    PureLoss,
    basic_total,
    noise_multiplier,
    tight_total,
)

LEDGERS, KINDS = 200, ("pure", "gaussian", "gaussian", "approximate", "alternatives", "range")


def drawn_entry(kind: str, rng: random.Random) -> Charge:
    epsilon, delta = 10 ** rng.uniform(-3, 0.5), 10 ** rng.uniform(-12, -3)
    match kind:
        case "pure":
            return charge_of(epsilon, 0.0, PureLoss())
        case "range":
            return charge_of(epsilon, 0.0, BoundedRangeLoss())
        case "approximate":
            return charge_of(epsilon, delta, ApproximateLoss())
        case "gaussian":
            return charge_of(epsilon, delta, GaussianLoss(noise_multiplier(epsilon, delta)))
    failure = delta / 5
    multiplier = noise_multiplier(epsilon, delta / 2)
    ways = (
        Alternative(multiplier),
        Alternative(epsilon=epsilon),
        Alternative(multiplier * 8, epsilon * 0.85),
    )
    return charge_of(epsilon, delta, AlternativesLoss(tuple(rng.sample(ways, rng.randint(1, 3))), failure))


def drawn_ledger(seed: int) -> list[Charge]:
    """At most one choice comes later than the first entry: its worst pair has a closed form beside the others."""
    rng = random.Random(seed)
    kinds = rng.choices(KINDS[:-1], k=rng.choice([1, 1, 2, 3, 4]))
    if rng.random() < 0.5:
        kinds.insert(rng.randrange(1, len(kinds) + 1), "range")
    if rng.random() < 0.5:
        kinds.insert(0, "range")
    return [drawn_entry(kind, rng) for kind in kinds]


def after_a_range(epsilon: mpmath.mpf, multiplier: mpmath.mpf, length: mpmath.mpf) -> mpmath.mpf:
    """Delta of Gaussian noise after losses of density e^(x/2) / (4 sinh(length/2)) on +-length, integrated by parts."""
    shift = 1 / multiplier

    def antiderivative(loss: mpmath.mpf) -> mpmath.mpf:
        place = (loss - epsilon) / shift
        outer = mpmath.exp(loss / 2) * mpmath.ncdf(place + shift / 2)
        outer += mpmath.exp(epsilon - loss / 2) * mpmath.ncdf(place - shift / 2)
        return 2 * outer - 4 * mpmath.exp(epsilon / 2 - shift**2 / 8) * mpmath.ncdf(place)

    return (antiderivative(length) - antiderivative(-length)) / (4 * mpmath.sinh(length / 2))


def range_alone(epsilon: mpmath.mpf, length: mpmath.mpf) -> mpmath.mpf:
    """Delta of those losses with nothing beside them, at an epsilon of either sign."""
    if epsilon >= length:
        return mpmath.mpf(0)
    if epsilon <= -length:
        return 1 - mpmath.exp(epsilon)
    return mpmath.expm1((epsilon - length) / 2) ** 2 / -mpmath.expm1(-length)


def way_delta(
    epsilon: mpmath.mpf, precision: mpmath.mpf, flips: list[mpmath.mpf], ranges: list[mpmath.mpf]
) -> mpmath.mpf:
    """Of Gaussians, coin flips of pure mechanisms and at most one later choice."""
    total = mpmath.mpf(0)
    for signs in itertools.product((1, -1), repeat=len(flips)):
        losses = [sign * flip for sign, flip in zip(signs, flips, strict=True)]
        chance = mpmath.fprod(1 / (1 + mpmath.exp(-loss)) for loss in losses)
        left = epsilon - mpmath.fsum(losses)
        if ranges:
            (length,) = ranges
            total += chance * (
                after_a_range(left, 1 / mpmath.sqrt(precision), length)
                if precision
                else range_alone(left, length)
            )
        else:
            total += chance * (
                gaussian_delta(1 / mpmath.sqrt(precision), left)
                if precision
                else max(mpmath.mpf(0), -mpmath.expm1(left))
            )
    return total


def true_delta(entries: list[Charge], epsilon: float) -> mpmath.mpf:
    """Delta at epsilon of the worst mechanisms with these losses: of a first choice, the worst of seven."""
    first, rest = (
        (entries[0], entries[1:]) if isinstance(entries[0].loss, BoundedRangeLoss) else (None, entries)
    )
    fixed, choices, kept, flips, ranges = mpmath.mpf(0), [], mpmath.mpf(1), [], []
    failures = mpmath.mpf(0)
    for entry in rest:
        length = mpmath.mpf(entry.epsilon)
        match entry.loss:
            case GaussianLoss(multiplier):
                fixed += 1 / mpmath.mpf(multiplier) ** 2
            case AlternativesLoss(ways, failure):
                choices.append(ways)
                failures += mpmath.mpf(failure)
            case BoundedRangeLoss():
                ranges.append(length)
            case _:
                flips.append(length)
                kept *= 1 - mpmath.mpf(entry.delta)

    def after(left: mpmath.mpf) -> mpmath.mpf:
        total = failures
        for ways in itertools.product(*choices):
            precision = fixed + mpmath.fsum(
                1 / mpmath.mpf(way.multiplier) ** 2 for way in ways if way.multiplier
            )
            pure = [mpmath.mpf(way.epsilon) for way in ways if way.epsilon]
            total += way_delta(left, precision, flips + pure, ranges)
        return (1 - kept) + kept * total

    at = mpmath.mpf(epsilon)
    if first is None:
        return after(at)
    length = mpmath.mpf(first.epsilon)
    worst = mpmath.mpf(0)
    for part in range(1, 8):
        high, low = length * part / 8, length * (part - 8) / 8
        chance = mpmath.expm1(-low) / (mpmath.expm1(-low) - mpmath.expm1(-high))
        worst = max(worst, chance * after(at - high) + (1 - chance) * after(at - low))
    return worst


@pytest.mark.parametrize("tenth", range(10))
def test_no_total_of_two_hundred_random_ledgers_is_below_the_truth(tenth: int) -> None:
    with mpmath.workdps(50):
        for seed in range(tenth, LEDGERS, 10):
            ledger = drawn_ledger(seed)
            basic, tight = basic_total(ledger), tight_total(ledger)
            assert tight.epsilon <= basic.epsilon and tight.delta == basic.delta
            if basic.delta > 0:
                # Sums of epsilons and of deltas are rounded to the nearest double.
                delta = mpmath.fsum(mpmath.mpf(entry.delta) for entry in ledger) * (1 + 2.0**-50)
                assert true_delta(ledger, tight.epsilon * (1 + 2.0**-50)) <= delta, seed
                if tight.epsilon < basic.epsilon and not isinstance(ledger[0].loss, BoundedRangeLoss):
                    assert true_delta(ledger, tight.epsilon * 0.998) > delta, seed
