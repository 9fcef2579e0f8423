"""What every mechanism must do: draw what it says, from the source that it is given, and be as private as it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from fedhist import SeededSource
from fedhist.testing import Contract
from tests.support.api import Floats, Integers, Source, WatchedSource, require

DRAWS = 40_000
CHANCE = 1e-6
"""Draws from the stated distribution are refused with this probability, once for each seed and mechanism."""

MECHANISM: Contract[Mechanism] = Contract("mechanism")


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A mechanism with a whole number as its output, and what is claimed of it.

    Args:
        draw: this many outputs, each on its own, from a source.
        outputs: all that may come out but with probability 10^-9, rising.
        logarithms: of their probabilities, up to a common constant.
        moved: the same for a neighbour.
        epsilon, delta: the guarantee that is charged.
    """

    draw: Callable[[int, Source], Integers] = field(repr=False)
    outputs: Integers = field(repr=False)
    logarithms: Floats = field(repr=False)
    moved: Floats = field(repr=False)
    epsilon: float
    delta: float = 0.0


def check_mechanism(mechanism: Mechanism, *, skip: Collection[str] = ()) -> None:
    """Run all checks on a mechanism."""
    MECHANISM.run_all(mechanism, skip)


def additive(
    draw: Callable[[int, Source], Integers],
    logarithm: Callable[[Integers], Floats],
    *,
    reach: int,
    sensitivity: int,
    epsilon: float,
    delta: float = 0.0,
) -> Mechanism:
    """Noise on a count that a neighbour moves by the sensitivity.

    Args:
        draw: this many draws of the noise.
        logarithm: of the probability of a whole number, up to a constant.
        reach: what the noise exceeds with probability 10^-9 at most.
        sensitivity: how far a neighbour moves the count.
        epsilon: the guarantee that is charged.
        delta: the same.
    """
    outputs = np.arange(-reach, reach + 1)
    return Mechanism(draw, outputs, logarithm(outputs), logarithm(outputs - sensitivity), epsilon, delta)


@MECHANISM.check
def outputs_are_whole_numbers_that_it_names(mechanism: Mechanism) -> None:
    """As many as are asked for."""
    drawn = mechanism.draw(DRAWS, SeededSource(1))
    right = drawn.dtype == np.int64 and drawn.shape == (DRAWS,)
    require(right, f"{drawn.shape} outputs of type {drawn.dtype}")
    require(np.isin(drawn, mechanism.outputs).all(), "an output is none of those that it names")


@MECHANISM.check
def the_source_alone_decides_the_outputs(mechanism: Mechanism) -> None:
    """The same seed draws the same, another one something else."""
    source = WatchedSource(1)
    one, again, other = (mechanism.draw(200, each) for each in (source, SeededSource(1), SeededSource(2)))
    require(source.drawn, "nothing is drawn from the source")
    require(np.array_equal(one, again), "the same seed draws something else")
    require(not np.array_equal(one, other), "another seed draws the same")


@MECHANISM.check
def outputs_have_the_stated_chances(mechanism: Mechanism) -> None:
    """By a chi-square test over cells of about equal chance: it sees a scale that is wrong by 5 %."""
    chances = np.cumsum(_chances(mechanism.logarithms))
    drawn = np.searchsorted(mechanism.outputs, mechanism.draw(DRAWS, SeededSource(3)))
    cells = np.minimum((chances * 40).astype(np.int64), 39)
    used, place = np.unique(cells, return_inverse=True)
    expected = np.bincount(place, weights=np.diff(chances, prepend=0.0))
    seen = np.bincount(place[np.minimum(drawn, len(place) - 1)], minlength=len(used))
    common = expected > 5 / DRAWS
    require(not seen[~common].sum() > 50, "an output that should be rare is not")
    statistic = (((seen - DRAWS * expected) ** 2) / (DRAWS * expected))[common].sum()
    chance = float(stats.chi2.sf(statistic, max(int(common.sum()) - 1, 1)))
    require(chance > CHANCE, f"under the stated distribution such draws have probability {chance:.1e}")


@MECHANISM.check
def neighbours_are_as_hard_to_tell_apart_as_charged(mechanism: Mechanism) -> None:
    """Exactly: the sum of max(P - e^epsilon Q, 0) over the outputs is at most delta, in both orders."""
    one, other = _chances(mechanism.logarithms), _chances(mechanism.moved)
    for p, q in ((one, other), (other, one)):
        apart = float(np.maximum(p - math.exp(mechanism.epsilon) * q, 0.0).sum())
        # Doubles, and what lies beyond the outputs.
        require(apart <= mechanism.delta + 1e-8, f"delta is {apart:.3g}; charged is {mechanism.delta:.3g}")


@MECHANISM.check
def the_charge_is_not_much_too_large(mechanism: Mechanism) -> None:
    """At nine tenths of epsilon the guarantee does not hold: noise beyond need is error for nothing."""
    one, other = _chances(mechanism.logarithms), _chances(mechanism.moved)
    less = math.exp(0.9 * mechanism.epsilon)
    apart = max(float(np.maximum(p - less * q, 0.0).sum()) for p, q in ((one, other), (other, one)))
    require(apart > mechanism.delta, f"nine tenths of epsilon, {0.9 * mechanism.epsilon:.3g}, would do")


def _chances(logarithms: Floats) -> Floats:
    weights = np.exp(logarithms - logarithms.max())
    chances: Floats = weights / weights.sum()
    return chances
