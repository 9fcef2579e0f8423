"""Every mechanism that draws, and what the contract makes of wrong ones."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fedhist import Neighbours, SeededSource
from tests.support.api import (
    Norm,
    Sensitivity,
    discrete_gaussian,
    discrete_laplace,
    exponential_mechanism,
    gaussian_noise,
    gaussian_share,
    laplace_noise,
    laplace_share,
    noise_multiplier,
)
from tests.support.mechanisms import MECHANISM, Mechanism, additive, check_mechanism

SHARES = 4
PURE = {"sensitivity": 20, "epsilon": 0.5}
APPROXIMATE = {"sensitivity": 300, "epsilon": 0.7, "delta": 1e-3}


def laplace(draw, scale):
    return additive(draw, lambda x: -np.abs(x) / float(scale), reach=int(22 * scale), **PURE)


def gaussian(draw, variance):
    reach = int(8 * float(variance) ** 0.5)
    return additive(draw, lambda x: -(x**2) / (2 * float(variance)), reach=reach, **APPROXIMATE)


def alone(noise):
    return lambda size, source: noise.draw(size, source=source)


def in_shares(share):
    """The noise in a sum of as many shares as are charged for."""
    parts = range(share.shares)
    return lambda size, source: sum(share.draw(size, source=source.fork(number)) for number in parts)


def chosen(scores):
    def draw(size, source):
        settings = {"sensitivity": 2, "epsilon": 0.8, "source": source}
        return np.array([exponential_mechanism(scores, **settings) for _ in range(size)])

    return draw


def mechanisms():
    l1 = Sensitivity(square=PURE["sensitivity"] ** 2, norm=Norm.L1, neighbours=Neighbours.ZERO_OUT)
    l2 = Sensitivity(square=APPROXIMATE["sensitivity"] ** 2, norm=Norm.L2, neighbours=Neighbours.ZERO_OUT)
    multiplier = noise_multiplier(APPROXIMATE["epsilon"], APPROXIMATE["delta"])
    one, shared = laplace_noise(l1, PURE["epsilon"]), laplace_share(l1, PURE["epsilon"], shares=SHARES)
    wide, widely_shared = gaussian_noise(l2, multiplier), gaussian_share(l2, multiplier, shares=SHARES)
    scores, moved = np.array([0, 15, 19, 20, 14]), np.array([2, 13, 17, 18, 12])
    return {
        "laplace": laplace(alone(one), one.spread),
        "laplace in shares": laplace(in_shares(shared), shared.spread),
        "gaussian": gaussian(alone(wide), wide.spread),
        "gaussian in shares": gaussian(in_shares(widely_shared), widely_shared.spread * SHARES),
        "exponential": Mechanism(chosen(scores.tolist()), np.arange(5), 0.2 * scores, 0.2 * moved, 0.8),
    }


MECHANISMS = mechanisms()
RIGHT = MECHANISMS["laplace"]


@pytest.mark.parametrize("check", MECHANISM.checks)
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_each_keeps_the_contract(mechanism, check):
    MECHANISM.run(check, mechanism)


@pytest.mark.parametrize("factor", [Fraction(95, 100), Fraction(105, 100)])
@pytest.mark.parametrize(
    ("stated", "sampler", "spread"),
    [(laplace, discrete_laplace, 40), (gaussian, discrete_gaussian, 10**6)],
    ids=["laplace", "gaussian"],
)
def test_a_scale_that_is_five_percent_off_is_caught(caught_by, stated, sampler, spread, factor):
    wrong = spread * (factor if sampler is discrete_laplace else factor**2)
    mechanism = stated(lambda size, source: sampler(size, Fraction(wrong), source=source), spread)
    caught_by("outputs_have_the_stated_chances", check_mechanism, mechanism)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"draw": lambda n, source: RIGHT.draw(n, source) + 0.5}, "outputs_are_whole_numbers_that_it_names"),
        ({"draw": lambda n, source: RIGHT.draw(n, source) + 5000}, "outputs_are_whole_numbers_that_it_names"),
        ({"draw": lambda n, source: RIGHT.draw(n, SeededSource(1))}, "the_source_alone_decides_the_outputs"),
        ({"draw": lambda n, source: np.abs(RIGHT.draw(n, source))}, "outputs_have_the_stated_chances"),
        ({"epsilon": 0.49}, "neighbours_are_as_hard_to_tell_apart_as_charged"),
        ({"epsilon": 0.6}, "the_charge_is_not_much_too_large"),
    ],
    ids=["halves", "unnamed outputs", "own source", "one side", "small charge", "large charge"],
)
def test_a_wrong_one_is_caught(caught_by, change, name):
    caught_by(name, check_mechanism, replace(RIGHT, **change))
