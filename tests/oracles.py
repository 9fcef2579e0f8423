"""Laws of noise written from their definitions, for tests that hold the product against them."""

from __future__ import annotations

import math

import mpmath
import numpy as np
from scipy import special, stats

from tests.support.api import Floats, OpenNoise


def gaussian_delta(multiplier: float | mpmath.mpf, epsilon: float | mpmath.mpf) -> mpmath.mpf:
    """delta(epsilon) of Gaussian noise, for an epsilon of either sign (Balle & Wang 2018, theorem 8), in 80 digits."""
    with mpmath.workdps(80):
        z, e = mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        near, far = ((e * z + sign / (2 * z)) / mpmath.sqrt(2) for sign in (-1, 1))
        return (mpmath.erfc(near) - mpmath.exp(e) * mpmath.erfc(far)) / 2


def gaussian_deltas(multiplier: float, epsilons: Floats | float) -> Floats:
    """`gaussian_delta` of many epsilons at once, in doubles."""
    near, far = (sign / (2 * multiplier) - np.asarray(epsilons) * multiplier for sign in (1, -1))
    return np.asarray(special.ndtr(near) - np.exp(epsilons + special.log_ndtr(far)))


def gaussian_chances(variance: float, reach: int) -> Floats:
    """P(z) of the discrete Gaussian cut at +-reach, for z from -reach to reach: weights over their sum."""
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    return np.asarray(weights / weights.sum())


def laplace_chances(scale: float, reach: int) -> Floats:
    """P(z) of discrete Laplace noise cut at +-reach, for z from -reach to reach: weights over their sum."""
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return np.asarray(weights / weights.sum())


def passing_chance(noise: OpenNoise, count: int) -> float:
    """That a key with this clipped sum is shown: P(count + Z > bar), by adding up the chances of Z."""
    reach = noise.bar if noise.kind == "truncated-laplace" else noise.bar + math.ceil(60 * float(noise.scale))
    return float(laplace_chances(float(noise.scale), reach)[reach + noise.bar + 1 - count :].sum())


def chi_square_p(observed: Floats, expected: Floats) -> float:
    """Of the chi-square test; cells too rare for the approximation are taken together."""
    rare = expected < 25
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    keep = expected > 1
    statistic = float(((observed - expected)[keep] ** 2 / expected[keep]).sum())
    return float(stats.chi2.sf(statistic, int(keep.sum()) - 1))
