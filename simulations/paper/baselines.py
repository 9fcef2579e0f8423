"""The paper's methods and its baselines, as plug-ins: what every comparison is made with, and nobody else needs.

They come in through the entry points of this package (pyproject.toml), as methods of any other package would: a name
that fedhist does not know itself is looked for there. Nothing else imports them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.key_totals import SHARE_BITS, OpenTail
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.measurements.tails import Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.bars import OpenNoise, bars_for
from fedhist.protocol.privacy.calibration import classic_multiplier
from fedhist.protocol.privacy.ledger import Charge, PureLoss
from fedhist.protocol.privacy.neighbours import (
    WEIGHT_BITS,
    Neighbours,
    Norm,
    Sensitivity,
    tail_count,
    tail_weight,
)
from fedhist.protocol.privacy.noise import Noise, gaussian_noise, laplace_noise
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.releases.central_noise import CentralNoise
from fedhist.server.releases.keys_above_bar import KeysAboveBar
from fedhist.server.selection.contract import (
    ANY_NORM,
    Baseline,
    NoisySelector,
    ScoringSelector,
    Selection,
    Statistic,
    WeightedChoice,
    check_drawable,
    check_gaussian,
    exponential_charge,
    gaussian_charge,
    middle_threshold,
    reading_as,
    whole_multiplier,
)
from fedhist.server.selection.crossing import falling, first_inside
from fedhist.server.selection.exponential_v import ExponentialV, choice_by_range, shares_of, users_in_range

STEPS = 400
"""T: enough for the mean of the last half to settle; the noise of T steps composes to that of one."""

_DIGITS = 60

# The sampler takes standard deviations up to 2^26; weights are cut coarser when theirs would pass half of it.
_MAX_DEVIATION = 2.0**25


class DpSgd(NoisySelector):
    """Full-batch noisy gradient descent with exact Gaussian accounting.

    Deviation from the paper: Algorithm 1 of Bassily et al. takes n^2 single-user steps. The gradient M - W(C) is one
    number, so T full-batch steps of noise multiplier z, which cost exactly as much as one of z/sqrt(T), are the
    feasible form: step D/sqrt(t) for a gradient measured in its own range, the mean of the last half of the iterates.
    W(C) is read at the nearest candidate at or below C.

    Privacy: every step releases W at one point, sensitivity sqrt(s) for either neighbours, plus Gaussian noise; the
    points depend on earlier noisy answers only. Under masks W is known modulo 2^width, and without its low bits modulo
    2^(width - bits); it is read as a number only with the noise in it, so this holds for whatever the others send.
    """

    name = "dpsgd"
    reads = (("weights", frozenset({Norm.L2})),)
    counts_all_items = True

    def check(self, plan: Plan) -> None:
        """Gaussian noise needs a delta."""
        check_gaussian(plan, lambda: _step_noise(plan), self.name)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """T Gaussian steps as the one that they compose to."""
        sensitivity = tail_weight(plan.tail_cap, neighbours=plan.neighbours).value / (1 << WEIGHT_BITS)
        return (gaussian_charge(plan, sensitivity, steps=STEPS),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Descend from C_min."""
        tail = reading_as(Tail, statistic)
        noise, shift = _step_noise(plan)
        drawn, coarse = noise.draw(STEPS, source=source), tail.weights >> shift

        def answer(step: int, index: int) -> float:
            exact = coarse[index : index + 1]
            noisy = signed(exact + drawn[step], tail.width - shift).item()  # audited: dpsgd noised
            return math.ldexp(noisy, shift - WEIGHT_BITS)

        deviation = math.ldexp(noise.standard_deviation, shift - WEIGHT_BITS)
        return Selection(threshold=plan.at_steps(descend(plan, answer, deviation)))

    def from_noisy(self, plan: Plan, tail: NoisyTail) -> Threshold:
        """The same descent, whose gradients are noisy already."""
        weights, deviation = falling(tail), float(tail.deviations.max())
        return plan.at_steps(descend(plan, lambda step, index: float(weights[index]), deviation))


def _step_noise(plan: Plan) -> tuple[Noise, int]:
    """The noise of one step, and how many low bits of the weights to drop so that it stays in the sampler's range.

    Dropping bits of two whole numbers that differ by cap leaves them at most ceil(cap / 2^shift) apart.
    """
    multiplier = whole_multiplier(plan) * math.sqrt(STEPS)  # audited: dpsgd steps
    shift = max(0, math.ceil(math.log2(multiplier * (plan.tail_cap + 1) / _MAX_DEVIATION)))
    return gaussian_noise(
        tail_weight(-(-plan.tail_cap >> shift), neighbours=plan.neighbours), multiplier
    ), shift


def descend(plan: Plan, answer: Callable[[int, int], float], deviation: float) -> float:
    """The mean of the last half of the iterates, in steps of the grid.

    Args:
        plan: whose candidates and noise price they are.
        answer: the noisy W at a candidate, by the number of the step and the index of the candidate.
        deviation: of the noise on an answer.
    """
    places = plan.candidate_steps
    lowest, highest = float(places[0]), float(places[-1])
    reach = plan.noise_price + deviation
    place, later = lowest, []
    for t in range(STEPS):
        index = int(np.searchsorted(places, place, side="right")) - 1
        gradient = plan.noise_price - answer(t, index)
        direction = min(max(gradient / reach, -1.0), 1.0)
        place = min(max(place - (highest - lowest) / math.sqrt(t + 1) * direction, lowest), highest)
        if t >= STEPS // 2:
            later.append(place)
    return math.fsum(later) / len(later)


def regularisation(plan: Plan) -> float:
    """Lambda n = 2 sqrt(2 s n / eps') / C_m, with eps' (the corollary) where the printed algorithm has eps."""
    root_sparsity = plan.tail_cap / (1 << WEIGHT_BITS)
    return 2 * root_sparsity * math.sqrt(2 * plan.users / plan.epsilon_select) / plan.max_threshold


def minimiser_sensitivity(plan: Plan) -> Sensitivity:
    """How far one user moves the minimiser, in steps of the grid.

    n F(C) = G(C) + lambda n C^2/2 is lambda-n-strongly convex and one user changes its slope by at most sqrt(s)
    anywhere, so the minimiser moves by at most sqrt(s)/(lambda n) (the paper charges four times that); clamping to
    [C_min, C_m] moves no two points apart. Rounding both to the grid can add one step. Same for both neighbours.
    """
    root_sparsity = plan.tail_cap / (1 << WEIGHT_BITS)
    steps = math.floor(root_sparsity / regularisation(plan) * 2**plan.grid_bits * (1 + 1e-9)) + 1
    return Sensitivity(square=steps**2, norm=Norm.L1, neighbours=plan.neighbours)  # audited: minimiser


class OutputPerturbation(NoisySelector):
    """C' + Lap(sqrt(s)/(lambda n eps')), clamped to [C_min, C_m]. Pure epsilon'.

    The proof of `minimiser_sensitivity` needs a W(C) that falls, as any sum of users' tails does. Without masks the
    server sees to that (`TailMeasurement.check`). Under masks it can't, so there this selector needs noise
    from devices.
    """

    name = "output-perturbation"
    reads = (("weights", frozenset({Norm.L2})),)
    counts_all_items = True

    range_costs = True

    def resolution(self, plan: Plan) -> float:
        """Where the scale of the noise, C_m/sqrt(8 n eps'), is the middle of the range."""
        return (plan.max_threshold / middle_threshold(plan)) ** 2 / (8 * plan.epsilon_select)

    def check(self, plan: Plan) -> None:
        """The noise must be one that can be drawn, and what is minimised a sum of what users have."""
        if plan.is_masked:
            raise InvalidPlan(
                "the selector output-perturbation reads exact sums before it draws noise, and under masks one "
                "participant that lies about its own could make its result hang on another's data",
                allowed="output-perturbation without masking, or with noise from devices",
                advice="use --selector weighted-quantile, or --noise-from devices",
                code="not-under-masks",
            )
        check_drawable(lambda: laplace_noise(minimiser_sensitivity(plan), plan.epsilon_select), self.name)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One discrete Laplace draw."""
        sensitivity = minimiser_sensitivity(plan)
        return (
            Charge(
                round="select",
                name="discrete-laplace",
                parameters={"regularisation": regularisation(plan)},
                sensitivity=sensitivity.value / 2**plan.grid_bits,
                norm=sensitivity.norm.value,
                neighbours=plan.neighbours.value,
                epsilon=plan.epsilon_select,
                delta=0.0,
                loss=PureLoss(),
            ),
        )

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Minimise over the tail's step function, add the noise, clamp."""
        tail = reading_as(Tail, statistic)
        weights = np.ldexp(tail.weights.astype(np.float64), -WEIGHT_BITS)
        exact = plan.at_steps(math.ldexp(minimiser(plan, weights), plan.grid_bits)).steps
        noise = laplace_noise(minimiser_sensitivity(plan), plan.epsilon_select).draw(1, source=source)
        return Selection(threshold=plan.at_steps(exact + int(noise[0])))

    def from_noisy(self, plan: Plan, tail: NoisyTail) -> Threshold:
        """The minimiser of the regularised objective, which needs no noise of its own."""
        return plan.at_steps(math.ldexp(minimiser(plan, falling(tail)), plan.grid_bits))


def minimiser(plan: Plan, weights: Floats) -> float:
    """Where the slope M - W(C) + lambda n C of n F changes sign, in counts, with W constant between candidates.

    W(C) is W(C_k) on [C_k, C_{k+1}). The slope rises with C, so the first interval in which it is not negative at
    the end holds the minimiser.
    """
    strength = regularisation(plan)
    places = np.ldexp(plan.candidate_steps.astype(np.float64), -plan.grid_bits)
    excess = weights - plan.noise_price
    ends = np.append(places[1:], places[-1])
    rising = strength * ends >= excess
    if not rising.any():
        return float(places[-1])
    index = int(rising.argmax())
    return float(np.clip(excess[index] / strength, places[index], ends[index]))


UPDATES = 100
LEARNING_RATE = 0.2


class MQuantile(NoisySelector):
    """C <- C exp(-eta (b - gamma)), b the noisy share of users at or below C, gamma = 1 - M/n.

    From C_min, eta = 0.2, 100 updates, as the paper runs it; to a far quantile it has not converged by then. It is
    kept as the baseline that it is.

    Privacy: each update releases a count of users, sensitivity 1 for either neighbours, plus Gaussian noise. Under
    masks the count is read as a number only with the noise in it, so this holds for whatever the other participants
    send.
    """

    name = "m-quantile"
    reads = (("counts", frozenset({Norm.L2})),)
    counts_all_items = True

    def check(self, plan: Plan) -> None:
        """Gaussian noise needs a delta."""
        check_gaussian(plan, lambda: _update_noise(plan), self.name)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """All updates as the one Gaussian that they compose to."""
        sensitivity = tail_count(neighbours=plan.neighbours).value
        return (gaussian_charge(plan, sensitivity, steps=UPDATES),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Update from C_min, inside [C_min, C_m]."""
        tail = reading_as(Tail, statistic)
        noise = _update_noise(plan).draw(UPDATES, source=source)
        share = 1 - min(plan.noise_price / plan.users, 1.0)
        places = plan.candidate_steps
        lowest, highest = math.log(places[0]), math.log(places[-1])
        place = lowest
        for step_noise in noise:
            index = int(np.searchsorted(places, math.exp(place) * (1 + 1e-12), side="right")) - 1
            exact = tail.counts[index : index + 1]
            above = signed(exact - step_noise, tail.width).item()  # audited: m-quantile noised
            below = tail.users - above
            place -= LEARNING_RATE * (below / plan.users - share)
            place = min(max(place, lowest), highest)
        return Selection(threshold=plan.at_steps(math.exp(place)))


def _update_noise(plan: Plan) -> Noise:
    multiplier = whole_multiplier(plan) * math.sqrt(UPDATES)  # audited: m-quantile updates
    return gaussian_noise(tail_count(neighbours=plan.neighbours), multiplier)


def sharp_error(plan: Plan, tail: OpenTail) -> Integers:
    """S(C) = sum_i max(m_i - C, 0) + sum_j p(A_j(C)) at each candidate, in multiples of 2^-SHARE_BITS.

    p(a) is what an item of clipped count a is expected to lose: all of it while a is below the bar t; beyond, it falls
    with slope one from t to the noise's scale, where V(C) stays at t for ever.
    """
    noises = plan.open_noises(plan.candidate_steps)
    bars = shares_of(noise.bar for noise in noises)
    floors = shares_of(math.ceil(noise.scale) for noise in noises)
    lost = np.zeros_like(bars)
    for piece in tail.expected.pieces():
        lost += np.minimum(piece, np.maximum(2 * bars - piece, floors)).sum(axis=0)
    return (tail.overflow << SHARE_BITS) + lost


def sharp_range(plan: Plan) -> float:
    """The largest range over C of one user's change of S, in counts.

    p has slope at most one either way, so a user of total m (cut to C_m) changes S(C) by at least -min(m, C) and at
    most max(m - C, 0) + min(m, C) = m: a range of at most 2 C_m. Replacing is removing and adding: 4 C_m.
    """
    times = 4 if plan.neighbours is Neighbours.REPLACE_ONE else 2
    return times * float(plan.candidate_steps[-1])


class ExponentialSharp(ScoringSelector):
    """P(C) proportional to exp(-eps' S(C) / R), R the range of one user's change of S. Pure epsilon'."""

    name = "exponential-sharp"
    reads = (("expected-counts", ANY_NORM),)

    range_costs = True

    def resolution(self, plan: Plan) -> float:
        """The same as for every score over an open domain."""
        return users_in_range(plan, sharp_range(plan))

    def check(self, plan: Plan) -> None:
        """The score is made for a release with a bar."""
        plan.open_noises(plan.candidate_steps[-1:])

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One exponential mechanism; its sensitivity is half of the range."""
        return (exponential_charge(plan, sharp_range(plan) / 2, score="S"),)

    def choice(self, plan: Plan, statistic: Statistic | None) -> WeightedChoice:
        """The scores and their range."""
        return choice_by_range(plan, -sharp_error(plan, reading_as(OpenTail, statistic)), sharp_range(plan))


@dataclass(frozen=True)
class TotalsQuantile(Baseline):
    """The smallest candidate with at most a share 1 - `share` of the users above it."""

    name: str
    share: float
    reads = (("expected-counts", ANY_NORM),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Read the quantile off the exact statistic."""
        tail = reading_as(OpenTail, statistic)
        return Selection(first_inside(plan, tail.users_above <= (1 - self.share) * tail.users))


MEDIAN, P90 = TotalsQuantile("median", 0.5), TotalsQuantile("p90", 0.9)


class PaperV(ExponentialV):
    """`exponential-v` with the paper's sensitivity 5 C_m/2, with the usual factor 2 for a range of 5 C_m."""

    name = "exponential-v-paper"

    def range_of(self, plan: Plan) -> float:
        """Never below `score_range`."""
        return 5 * float(plan.candidate_steps[-1])


class PaperThreshold(KeysAboveBar):
    """One release above the paper's bar C + (C/epsilon) ln(C/(2 delta)), for zero-out and noise on the real line.

    Deviation: here b = Delta/epsilon stands for C/epsilon, and the bar is rounded up. It is never below the tight one
    of `laplace-threshold`, and would be raised to it: with q = e^(-1/b), b ln(2/(1 + q)) <= 1/2, and
    1 - (1 - delta)^(1/C) >= delta/C.
    """

    name = "laplace-threshold-paper"

    def open_noises(self, plan: Plan, thresholds: Integers) -> list[OpenNoise]:
        """Discrete Laplace noise and the paper's bar."""
        return paper_bars(thresholds, epsilon=plan.epsilon, delta=plan.delta, neighbours=plan.neighbours)


def paper_bars(
    thresholds: Iterable[int], *, epsilon: float, delta: float, neighbours: Neighbours
) -> list[OpenNoise]:
    """The noise and the paper's bar at each threshold."""

    def printed(threshold: int, scale: Fraction) -> int:
        with localcontext(Context(prec=_DIGITS)):
            above = (Decimal(threshold) / (2 * Decimal(delta))).ln()
            return math.ceil(threshold + Decimal(scale.numerator) / Decimal(scale.denominator) * above)

    return bars_for(
        "laplace-threshold",
        thresholds,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        lowest=printed,
    )


class ClassicGaussian(CentralNoise):
    """The histogram of a closed domain with Gaussian noise of the paper's formula, which is proved up to epsilon 1."""

    name = "classic-gaussian"
    most_epsilon = 1.0

    def multiplier(self, epsilon: float, delta: float) -> float:
        """sqrt(2 ln(1.32 / delta)) / epsilon."""
        if epsilon > self.most_epsilon:
            raise InvalidPlan(
                f"the release {self.name} was asked for epsilon = {epsilon!r}",
                allowed="epsilon of at most 1, where its proof holds",
                advice="leave --release out: the usual noise holds for every epsilon",
                code="classic-above-1",
            )
        return classic_multiplier(epsilon, delta)
