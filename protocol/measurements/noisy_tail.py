"""`noisy-tail`: one column of the tail, to which the devices add the noise. Round 1 of closed domains.

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
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.errors import InvalidInput, InvalidPlan
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels
from fedhist.protocol.measurements.base import (
    Column,
    Measurement,
    Round,
    Shape,
    Summed,
    Total,
    Words,
    at_most,
)
from fedhist.protocol.measurements.tails import BY_SPARSITY, binned_users
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Neighbours, Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.privacy.shares import Share, gaussian_share, laplace_share

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

# Gaussian deviations stay below 2^27 steps, and sensitivities below three times the largest value times 2^p.
_ROOM = 2.0**27 / 3
_WEIGHT_ROOM_BITS = 12
_COEFFICIENT_BITS = (8, 16)


@dataclass(frozen=True, eq=False)
class NoisyTail:
    """The column above each candidate, with noise: unbiased, possibly negative and not monotone.

    Args:
        values: the number or the weight of the users above candidate k, for each k.
        deviations: the standard deviation of the noise on each.
        users: the number of users in the sum.
    """

    values: Floats
    deviations: Floats
    users: int


@dataclass(frozen=True, eq=False)
class Design:
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
class NoisyTailMeasurement(Measurement[Column]):
    """One value a candidate, noised in shares. `toeplitz_sensitivity` has the proof."""

    name = "noisy-tail"
    round = Round.SELECT
    takes = Column
    offers = frozenset({"weights", "counts"})
    where = "with noise from devices"

    @classmethod
    def fits(cls, plan: Plan) -> bool:
        """Whole histograms of a closed domain, noised by the devices."""
        return plan.noise_by_devices and not plan.is_open

    @classmethod
    def words(cls, plan: Plan) -> Words:
        """Noisy sums."""
        candidates = len(plan.candidate_steps)
        return Words(
            asks=f"how users' {plan.norm.value} norms are spread over {candidates:,} candidate thresholds, with noise",
            work="norms into bins, noise",
            sends=f"{candidates:,} noisy whole numbers",
            detail=f"Each user's {plan.norm.value} norm falls into a bin between candidates. The participant adds up "
            f"its bins and puts a share of the noise on each of the {candidates:,} values.",
            **BY_SPARSITY if plan.norm is Norm.L2 else {},
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.given.name not in self.offers:
            raise InvalidInput(
                "a column of the tail is unknown", allowed="weights, counts", code="unknown-column"
            )

    @property
    def design(self) -> Design:
        """How this column is measured."""
        return tail_design(self.plan, self.given.name)

    @cached_property
    def shape(self) -> Shape:
        """One value a candidate: the bin below all of them is not sent."""
        length, design = len(self.plan.candidate_steps), self.design
        return Shape(
            length=length,
            largest=design.largest * int(design.coefficients[0]),
            noise=design.share.reach(length, self.plan.masks.participants),
        )

    @property
    def sensitivities(self) -> Mapping[str, Sensitivity]:
        """Of the sum that is noised, before it is read."""
        return {"sum": self.design.sensitivity}

    @property
    def share(self) -> Share:
        """The participant's noise."""
        return self.design.share

    def of(self, users: Histograms, *, source: Source) -> Summed:
        """R x summed over these users, without noise: that is added once for all users of a participant."""
        plan, design = self.plan, self.design
        candidates = plan.candidate_steps
        bins, weights = binned_users(
            users, candidates, bits=plan.grid_bits, norm=plan.norm, sparsity=plan.closed.sparsity
        )
        length = len(candidates) + 1
        if design.counted:
            column = np.bincount(bins, minlength=length)
        else:
            rounded = round_weights(weights, design.shift)
            column = np.bincount(bins, weights=rounded, minlength=length).astype(np.int64)
        # One user adds at most c_0 to a row, so nothing here exceeds 2^31 users times 2^27.
        return Summed(np.convolve(design.coefficients, column[:0:-1])[: len(candidates)])

    def check(self, summed: Summed, users: int) -> None:
        """No more than the largest value of each user."""
        at_most(summed.values, users * self.shape.largest, "a measured sum")

    def read(self, total: Total) -> NoisyTail:
        """The noisy sums above each candidate, from the noisy R x."""
        design = self.design
        reading = reading_coefficients(design.coefficients)
        sums = np.convolve(reading, total.values.astype(np.float64))[: len(total.values)]
        spreads = np.sqrt(np.cumsum(reading * reading)) * design.share.deviation(total.shares)
        return NoisyTail(
            values=sums[::-1] / design.unit, deviations=spreads[::-1] / design.unit, users=total.users
        )

    def shown(self, summed: Summed, labels: Labels, most: int) -> list[tuple[str, float]]:
        """The running sums, from the largest candidate down, in users or weight."""
        unit = self.design.unit * int(self.design.coefficients[0])
        places = np.flatnonzero(summed.values)[:most].tolist()
        return [(f"sum {place}", summed.values[place] / unit) for place in places]


@functools.lru_cache(maxsize=64)
def tail_design(plan: Plan, column: str) -> Design:
    """How this plan measures a column. InvalidPlan if its noise can't be drawn in shares."""
    candidates = len(plan.candidate_steps)
    shares = plan.noise_shares
    # Under l1 every weight is one: the weights are the counts.
    counted = plan.norm is Norm.L1 or column == "counts"
    if plan.norm is Norm.L1:
        coefficients = running_sum_root(candidates, None)
        sensitivity = toeplitz_sensitivity(coefficients, 1, norm=Norm.L1, neighbours=plan.neighbours)
        share = laplace_share(sensitivity, plan.epsilon_select, shares=shares)
        return Design(counted, 0, 1, coefficients, sensitivity, share)
    multiplier = select_multiplier(plan)
    room = math.floor(math.log2(_ROOM / multiplier))
    least, most = _COEFFICIENT_BITS
    if room < least + WEIGHT_BITS // 2:
        raise InvalidPlan(
            "the noise of round 1 would be too large to draw in shares",
            allowed="a larger epsilon-select",
            advice="raise --epsilon-select",
            code="noise-too-wide",
        )
    cap = 1 if counted else plan.tail_cap
    bits = min(room if counted else max(least, room - _WEIGHT_ROOM_BITS), most)
    shift = max(0, cap.bit_length() - (room - bits))
    largest = round_weights(np.array([cap]), shift).item()
    coefficients = running_sum_root(candidates, bits)
    sensitivity = toeplitz_sensitivity(coefficients, largest, norm=Norm.L2, neighbours=plan.neighbours)
    share = gaussian_share(sensitivity, multiplier, shares=shares)
    return Design(counted, shift, largest, coefficients, sensitivity, share)


def select_multiplier(plan: Plan) -> float:
    """The Gaussian's standard deviation in round 1 for each unit of l2 sensitivity."""
    if not plan.delta_select:
        raise InvalidPlan(
            "devices add Gaussian noise in round 1 and delta-select is 0",
            allowed="0 < delta-select < 1/2",
            advice="set --delta-select, or use --mechanism laplace, which needs none",
            code="no-delta-select",
        )
    return noise_multiplier(plan.epsilon_select, plan.delta_select)


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
    w R_i, R_i the columns, so by at most largest |R_i|, and the first column is the longest. Replace one: by w R_i - w'
    R_j, whose norm is convex in (w, w') and so largest in a corner of [0, largest]^2: it is at most largest times the
    largest of all |R_i| and |R_i - R_j|.

    Column i begins at row i, so with l = j - i > 0 and n = K - j rows left: <R_i, R_j> = sum of c_m c_(m+l) over m < n,
    and |R_i - R_j|_1 = c_0 + ... + c_(l-1) + sum of |c_m - c_(m+l)| over m < n.
    """
    exact = coefficients.astype(np.int64)
    powers = exact * exact if norm is Norm.L2 else exact
    sizes = np.cumsum(powers)
    worst = int(sizes[-1])
    if neighbours is Neighbours.REPLACE_ONE:
        for lag in range(1, len(exact)):
            early, late = exact[: len(exact) - lag], exact[lag:]
            if norm is Norm.L2:
                apart = sizes[lag:] + sizes[: len(exact) - lag] - 2 * np.cumsum(early * late)
            else:
                apart = sizes[lag - 1] + np.cumsum(np.abs(early - late))
            worst = max(worst, int(apart.max()))
    square = largest**2 * worst if norm is Norm.L2 else (largest * worst) ** 2
    return Sensitivity(square=square, norm=norm, neighbours=neighbours)


def reading_coefficients(coefficients: Integers) -> Floats:
    """The first column of L: the running sums of 1/(c_0 + c_1 z + ...) as a power series."""
    scaled = coefficients.astype(np.float64)
    inverse = np.zeros(len(scaled))
    inverse[0] = 1 / scaled[0]
    for m in range(1, len(scaled)):
        inverse[m] = -(scaled[1 : m + 1] @ inverse[m - 1 :: -1]) / scaled[0]
    return np.cumsum(inverse)
