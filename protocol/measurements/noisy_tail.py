"""Round 1 when the devices add the noise: one column of the tail, measured so that its running sums come out well.

A selector reads sums over all bins above a candidate. Independent noise on each of K bins would pile up like sqrt(K) in
them. Instead the bins x, from the top one down, are sent as R x, and the server reads the running sums off as L (R x +
noise), where L R is the matrix of running sums. R is Toeplitz and lower triangular, so a few whole numbers c_0, c_1,
... say all: row i of R x is the sum of c_(i-j) x_j.

- **Gaussian**: c_m = binom(2m, m)/4^m, the square root of the running sums (Fichtenberger, Henzinger & Upadhyay 2023),
  rounded to multiples of 2^-p. For K = 128 the noise on the worst running sum is a quarter of that with R = 1.
- **Laplace**: R = 1. In l1 the columns of the square root grow like sqrt(K), which costs more than it gains at every K.
  A tree of two levels doubles the sensitivity too, and would gain only where dozens of bins lie above the threshold.

Rounding the c_m costs no privacy, because the sensitivity is that of the rounded ones, and nothing in the mean, because
L is made from them, too. Only the column that the plan's selector reads is sent, and not the bin below all candidates.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.histograms import Floats, Histograms, Integers
from fedhist.protocol.measurements.tail import binned_users
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Neighbours, Norm, Sensitivity
from fedhist.protocol.privacy.shares import Share, gaussian_share, laplace_share

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

COLUMNS = {
    "weighted-quantile": "weights",
    "dpsgd": "weights",
    "output-perturbation": "weights",
    "m-quantile": "counts",
    "quantile": "counts",
}
"""What each selector reads that can do with a noisy tail. A selector that is not here is refused with such noise."""

# Gaussian deviations stay below 2^27 steps, and sensitivities below three times the largest value times 2^p.
_ROOM = 2.0**27 / 3
_WEIGHT_ROOM_BITS = 12
_COEFFICIENT_BITS = (8, 16)


@dataclass(frozen=True, eq=False)
class TailMeasurement:
    """How a plan's noisy tail is measured; the same on devices and server.

    Args:
        counted: whether it is the number of users in each bin, not their weight.
        shift: how many low bits of a user's weight are rounded away.
        largest: the most that one user puts into a bin.
        coefficients: c_0, c_1, ..., one for each candidate, falling and not negative.
        sensitivity: of R x.
        share: what each participant adds to each value.
    """

    counted: bool
    shift: int
    largest: int
    coefficients: Integers = field(repr=False)
    sensitivity: Sensitivity
    share: Share

    @property
    def unit(self) -> float:
        """What one user of count or weight one is in a bin."""
        return 1.0 if self.counted else math.ldexp(1.0, WEIGHT_BITS - self.shift)


@dataclass(frozen=True, eq=False)
class NoisyTail:
    """The column above each candidate, with noise: unbiased, possibly negative and not monotone.

    Args:
        values: the number or the weight of the users above candidate k, for each k.
        deviations: the standard deviation of the noise on each.
        users: how many users the sum is over.
    """

    values: Floats
    deviations: Floats
    users: int


def noisy_tail_length(candidates: int) -> int:
    """The length of the round-1 vector: one value a candidate."""
    return candidates


@functools.lru_cache(maxsize=64)
def tail_measurement(plan: Plan) -> TailMeasurement:
    """The measurement that this plan asks for. InvalidPlan if its noise can't be drawn in shares."""
    candidates = len(plan.candidate_steps)
    counted = plan.norm is Norm.L1 or COLUMNS.get(str(plan.selector)) == "counts"
    if plan.mechanism == "laplace":
        # Under l1 every weight is one: the weights are the counts.
        coefficients = running_sum_root(candidates, None)
        sensitivity = toeplitz_sensitivity(coefficients, 1, norm=Norm.L1, neighbours=plan.neighbours)
        share = laplace_share(sensitivity, plan.epsilon_select, shares=plan.noise_shares)
        return TailMeasurement(True, 0, 1, coefficients, sensitivity, share)
    multiplier = select_multiplier(plan)
    room = math.floor(math.log2(_ROOM / multiplier))
    least, most = _COEFFICIENT_BITS
    if room < least + WEIGHT_BITS // 2:
        raise InvalidPlan(
            "the noise of round 1 would be too large to draw in shares",
            allowed="a larger epsilon-select",
            advice="raise --epsilon-select",
        )
    cap = 1 if counted else plan.tail_cap
    bits = min(room if counted else max(least, room - _WEIGHT_ROOM_BITS), most)
    shift = max(0, cap.bit_length() - (room - bits))
    largest = round_weights(np.array([cap]), shift).item()
    coefficients = running_sum_root(candidates, bits)
    sensitivity = toeplitz_sensitivity(coefficients, largest, norm=Norm.L2, neighbours=plan.neighbours)
    share = gaussian_share(sensitivity, multiplier, shares=plan.noise_shares)
    return TailMeasurement(counted, shift, largest, coefficients, sensitivity, share)


def select_multiplier(plan: Plan) -> float:
    """The Gaussian's standard deviation in round 1 for each unit of l2 sensitivity."""
    if not plan.delta_select:
        raise InvalidPlan(
            "devices add Gaussian noise in round 1 and delta-select is 0",
            allowed="0 < delta-select < 1/2",
            advice="set --delta-select, or use --mechanism laplace, which needs none",
        )
    return noise_multiplier(plan.epsilon_select, plan.delta_select, calibration="analytic")


def round_weights(weights: Integers, shift: int) -> Integers:
    """To the nearest multiple of 2^shift, in such multiples: monotone, so a cap stays a cap."""
    rounded: Integers = weights if shift == 0 else (weights + (1 << (shift - 1))) >> shift
    return rounded


def running_sum_root(length: int, bits: int | None) -> Integers:
    """binom(2m, m)/4^m for m = 0, 1, ... in multiples of 2^-bits, or 1, 0, 0, ... for None."""
    if bits is None:
        identity = np.zeros(length, dtype=np.int64)
        identity[0] = 1
        return identity
    steps = np.arange(1, length)
    root = np.concatenate([[1.0], np.cumprod((2 * steps - 1) / (2 * steps))])
    scaled: Integers = np.rint(np.ldexp(root, bits)).astype(np.int64)
    return scaled


def toeplitz_sensitivity(
    coefficients: Integers, largest: int, *, norm: Norm, neighbours: Neighbours
) -> Sensitivity:
    """How far one user moves R x, from the very whole numbers of R.

    A user puts one whole number w in [0, largest] into one bin i, or nothing into any. Add or remove: R x moves by
    w R_i, R_i the columns, so by at most largest |R_i|, and the first column is the longest. Replace: by w R_i - w'
    R_j, whose norm is convex in (w, w') and so largest in a corner of [0, largest]^2: it is at most largest times the
    largest of all |R_i| and |R_i - R_j|.

    Column i begins at row i, so with l = j - i > 0 and n = K - j rows left: <R_i, R_j> = sum of c_m c_(m+l) over m < n,
    and |R_i - R_j|_1 = c_0 + ... + c_(l-1) + sum of |c_m - c_(m+l)| over m < n.
    """
    exact = coefficients.astype(np.int64)
    powers = exact * exact if norm is Norm.L2 else exact
    sizes = np.cumsum(powers)
    worst = int(sizes[-1])
    if neighbours is Neighbours.REPLACE:
        for lag in range(1, len(exact)):
            early, late = exact[: len(exact) - lag], exact[lag:]
            if norm is Norm.L2:
                apart = sizes[lag:] + sizes[: len(exact) - lag] - 2 * np.cumsum(early * late)
            else:
                apart = sizes[lag - 1] + np.cumsum(np.abs(early - late))
            worst = max(worst, int(apart.max()))
    square = largest**2 * worst if norm is Norm.L2 else (largest * worst) ** 2
    return Sensitivity(square=square, norm=norm, neighbours=neighbours)


def noisy_tail_vector(histograms: Histograms, plan: Plan) -> Integers:
    """R x summed over these users, without noise: that is added once for all users of a participant."""
    measurement = tail_measurement(plan)
    candidates = plan.candidate_steps
    bins, weights = binned_users(
        histograms, candidates, bits=plan.grid_bits, norm=plan.norm, cap=plan.tail_cap
    )
    length = len(candidates) + 1
    if measurement.counted:
        column = np.bincount(bins, minlength=length)
    else:
        rounded = round_weights(weights, measurement.shift)
        column = np.bincount(bins, weights=rounded, minlength=length).astype(np.int64)
    # One user adds at most c_0 to a row, so nothing here exceeds 2^31 users times 2^27.
    return np.convolve(measurement.coefficients, column[:0:-1])[: len(candidates)]


def read_noisy_tail(vector: Integers, plan: Plan, *, users: int, shares: int) -> NoisyTail:
    """The noisy sums above each candidate, from the noisy R x that holds so many shares."""
    measurement = tail_measurement(plan)
    reading = reading_coefficients(measurement.coefficients)
    sums = np.convolve(reading, vector.astype(np.float64))[: len(vector)]
    spreads = np.sqrt(np.cumsum(reading * reading)) * measurement.share.deviation(shares)
    return NoisyTail(
        values=sums[::-1] / measurement.unit, deviations=spreads[::-1] / measurement.unit, users=users
    )


def reading_coefficients(coefficients: Integers) -> Floats:
    """The first column of L: the running sums of 1/(c_0 + c_1 z + ...) as a power series."""
    scaled = coefficients.astype(np.float64)
    inverse = np.zeros(len(scaled))
    inverse[0] = 1 / scaled[0]
    for m in range(1, len(scaled)):
        inverse[m] = -(scaled[1 : m + 1] @ inverse[m - 1 :: -1]) / scaled[0]
    return np.cumsum(inverse)
