"""`debiased-items`: noise on items that were clipped one by one; then what clipping took away is put back.

Undoing the bias of clipping when counts are Poisson is Liu et al., Algorithm 5 and its appendix.

If every user's count of an item is Poisson with one common rate, the mean of the clipped counts is
h(rate) = E[min(X, C)], and n h^-1(released sum / n) restores the total that clipping hid. This uses only what
was released already, so it costs no privacy. It holds for one count, or for each item by itself if each
item was clipped by itself; it does not hold for a histogram that was clipped by its norm as a whole (the
appendix's second extension, which has no such formula).

When it helps, and when it does not. The paper promises a gain if users' rates are alike or C is well above
their mean. Outside of that:

| users                                    | clipped | debiased                                            |
|------------------------------------------|---------|-----------------------------------------------------|
| Poisson, rates alike                     | too low | right                                               |
| Poisson, rates differ                    | too low | too low still: h is concave, so h^-1 of the mean of |
|                                          |         | h(rate) lies between the clipped and the true mean  |
| counts vary less than Poisson (at most   | right,  | too high, up to `largest_rate`: it adds mass that   |
| one a user, say)                         | or low  | clipping never took                                 |
| any, when nearly all of them are clipped | too low | noise times 1/h'(rate), on average upwards          |

Examples: a mean of 2 at C = 2 gives 1.46 clipped and 2.00 debiased if rates are alike, but 0.72 and 0.77 if
they are Gamma with shape 1/4: hardly a gain. If 90 % of the users have the item once and nobody twice, C = 1
loses nothing and debiasing turns 0.9 into 2.3. `debiased_standard_error` detects the last row of the table; no
post-processing can detect the second and the third, because the released sum does not show how users differ.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.base import ItemBounds
from fedhist.protocol.measurements.sums import ClippedItems, ItemSums
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.neighbours import Norm, Sensitivity
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.estimates import estimates_and_limits, law_of_noise
from fedhist.server.releases.central_noise import noise_for, noise_warnings, vector_charge
from fedhist.server.releases.contract import Inference, ItemRelease, Release, ReleaseRule, RuleWords
from fedhist.server.selection.contract import Selection

# A mean is met when h comes within a few roundings of it; closer than that h itself is not known.
_RELATIVE_TOLERANCE = 4 * np.finfo(np.float64).eps
# Newton alone takes about 40 steps at worst (a mean one rounding below C). The rest is room for bisection.
_MOST_STEPS = 120


def clipped_mean(rates: Floats, threshold: float) -> Floats:
    """The mean of a clipped Poisson count: h(rate) = E[min(X, C)] for X ~ Poisson(rate).

    Liu et al., Algorithm 5. With k = floor(C), h(rate) = rate P(X <= k - 1) + C P(X >= k + 1): two terms that
    are not negative, each an incomplete gamma function, so that nothing cancels anywhere.

    Deviation: C may be any number from 0, not just a whole one, because thresholds lie on a finer grid.

    | rate           | threshold | result                    |
    |----------------|-----------|---------------------------|
    | 0              | any       | 0                         |
    | any            | 0         | 0                         |
    | any            | below 1   | C (1 - exp(-rate))        |
    | far below C    | any       | the rate                  |
    | far above C    | any       | C                         |

    Args:
        rates: finite, not negative, of any shape.
        threshold: C, in counts.
    """
    from scipy.special import gammainc

    whole = math.floor(threshold)
    return np.asarray(rates * _at_most(whole - 1, rates) + threshold * gammainc(whole + 1, rates))


def clipped_mean_slope(rates: Floats, threshold: float) -> Floats:
    """How fast the clipped mean grows with the rate: h'(rate), from 1 (nothing is clipped) down to 0.

    As h is the sum of P(X >= j) over j = 1..k plus (C - k) P(X >= k + 1), and P(X >= j) has the derivative
    P(X = j - 1), the slope is P(X <= k - 1) + (C - k) P(X = k), k = floor(C). For a whole C that is P(X < C),
    as in the appendix of Liu et al.; between whole numbers it is linear in C.

    Args:
        rates: finite, not negative, of any shape.
        threshold: C, in counts. Below 1 the slope begins at C; at 0 it is 0.
    """
    whole = math.floor(threshold)
    part = threshold - whole
    # (1 - part) P(X <= k - 1) + part P(X <= k): a mean of two probabilities, so again nothing cancels.
    return np.asarray((1 - part) * _at_most(whole - 1, rates) + part * _at_most(whole, rates))


def inverse_clipped_mean(means: Floats, threshold: float, *, largest_rate: float) -> Floats:
    """The rate with this clipped mean: h^-1, also for noisy means that no rate has.

    Deviation: h^-1 exists on [0, C) only, so means are clamped to [0, h(largest_rate)] and rates lie in
    [0, largest_rate]. The paper clamps the rate to [0, 1], which is right only if the true mean is at most 1.

    | mean                          | rate                                                       |
    |-------------------------------|------------------------------------------------------------|
    | 0 or below                    | 0                                                          |
    | h(largest_rate) or above      | largest_rate                                               |
    | within rounding of C          | the least rate found that explains it up to rounding       |
    | any, with a threshold of 0    | 0: the sum carries no information                          |
    | nan                           | refused                                                    |

    Args:
        means: means per user of clipped counts, of any shape; infinite ones are clamped like others.
        threshold: C, in counts.
        largest_rate: the largest rate that a user may have; public, not taken from the data.
    """
    if not (math.isfinite(threshold) and threshold >= 0):
        raise InvalidInput(
            f"the threshold is {threshold!r}", allowed="a finite number from 0", code="bad-threshold"
        )
    if not (math.isfinite(largest_rate) and largest_rate > 0):
        raise InvalidInput(
            f"the largest rate is {largest_rate!r}",
            allowed="a finite number above 0",
            advice="give the largest count of one item that a user may have on average",
            code="bad-largest-rate",
        )
    given = np.asarray(means, dtype=np.float64)
    if np.isnan(given).any():
        raise InvalidInput(
            "a mean to be debiased is nan",
            allowed="numbers, infinite ones included",
            code="mean-not-a-number",
        )
    ceiling = float(clipped_mean(np.asarray(largest_rate, dtype=np.float64), threshold))
    targets = np.clip(given, 0.0, ceiling).ravel()
    rates = np.where(targets > 0, float(largest_rate), 0.0)
    inside = (targets > 0) & (targets < ceiling)
    rates[inside] = _solve(targets[inside], threshold, largest_rate)
    return rates.reshape(given.shape)


def debias_poisson(values: Floats, *, users: int, threshold: float, largest_rate: float) -> Floats:
    """Released sums of clipped counts, with the bias of clipping undone: g(y) = n h^-1(y / n), item by item.

    Liu et al., Algorithm 5, line 4. Results lie between 0 and users * largest_rate and are never below the
    released value unless that was beyond one of these ends. The top of this module says when not to use it.

    Deviation: a clamped h^-1 and any C from 0, see `inverse_clipped_mean` and `clipped_mean`.

    Args:
        values: noised sums over users of min(count, C), in counts, one for each item.
        users: n, which is public.
        threshold: C, in counts: what each user's count of each item was clipped to.
        largest_rate: the largest rate that a user may have for one item.
    """
    return np.asarray(users * _rates(values, users=users, threshold=threshold, largest_rate=largest_rate))


def debiased_standard_error(
    values: Floats, *, users: int, threshold: float, standard_error: float, largest_rate: float
) -> Floats:
    """The standard error of debiased values: standard_error / h'(rate), item by item.

    The delta method: g(y) = n h^-1(y / n) has the slope 1 / h'. Where this exceeds what debiasing adds to a
    value, the correction is mostly noise and the clipped value is likely the nearer one; g is convex, so on
    average the noise pushes upwards, too. It grows without bound as users reach the threshold, and is
    infinite where h is flat. A clamped value is judged at the rate it was clamped to.

    It does not cover rates that differ between users, nor counts that are not Poisson (see the module).

    Args:
        values: the released values, as in `debias_poisson`.
        users: n, which is public.
        threshold: C, in counts.
        standard_error: of a released value, in counts. Laplace noise of scale b has sqrt(2) b, not the b that
            stands in the paper's theorems; add the spread of users' own counts if the rate is what is wanted.
        largest_rate: the largest rate that a user may have for one item.
    """
    if not (math.isfinite(standard_error) and standard_error >= 0):
        raise InvalidInput(
            f"the standard error is {standard_error!r}",
            allowed="a finite number from 0",
            code="bad-standard-error",
        )
    rates = _rates(values, users=users, threshold=threshold, largest_rate=largest_rate)
    slopes = clipped_mean_slope(rates, threshold)
    errors = np.full(slopes.shape, math.inf)
    with np.errstate(over="ignore"):  # an error beyond the largest number is as good as infinite
        np.divide(standard_error, slopes, out=errors, where=slopes > 0)
    return errors


def _rates(values: Floats, *, users: int, threshold: float, largest_rate: float) -> Floats:
    if users < 1:
        raise InvalidInput(f"the number of users is {users!r}", allowed="1 or more", code="bad-users")
    means = np.asarray(values, dtype=np.float64) / users
    return inverse_clipped_mean(means, threshold, largest_rate=largest_rate)


def _solve(targets: Floats, threshold: float, largest_rate: float) -> Floats:
    """The roots of h(rate) = target for 0 < target < h(largest_rate), by Newton inside a bracket.

    h is concave and below the rate itself, so Newton from rate = target climbs to the root and never passes
    it: in exact arithmetic the bracket is not needed. It is there for what rounding does where h is flat.
    """
    rates = targets.copy()
    low, high = targets.copy(), np.full(targets.shape, float(largest_rate))
    active = np.arange(targets.size)
    for _ in range(_MOST_STEPS):
        here = rates[active]
        gap = targets[active] - clipped_mean(here, threshold)
        low[active] = np.where(gap > 0, here, low[active])
        high[active] = np.where(gap < 0, here, high[active])
        slope = clipped_mean_slope(here, threshold)
        # Without a slope there is no Newton step, and a step of infinity leaves the bracket.
        step = np.divide(
            gap, slope, out=np.full(gap.shape, math.inf), where=slope > np.finfo(np.float64).tiny
        )
        following = here + step
        middle = low[active] + (high[active] - low[active]) / 2
        bracketed = (following > low[active]) & (following < high[active])
        following = np.where(bracketed, following, middle)
        unsolved = (np.abs(gap) > _RELATIVE_TOLERANCE * targets[active]) & (following != here)
        active = active[unsolved]
        if not active.size:
            break
        rates[active] = following[unsolved]
    return rates


def _at_most(count: int, rates: Floats) -> Floats:
    """P(X <= count) for X ~ Poisson(rate)."""
    from scipy.special import gammaincc

    return np.asarray(gammaincc(count + 1, rates)) if count >= 0 else np.zeros_like(rates)


class DebiasedItems(ReleaseRule):
    """Noise every item for its own bound, then invert the clipping of Poisson counts, which is post-processing."""

    name = "debiased-items"
    measures = ClippedItems.name

    def words(self, plan: Plan) -> RuleWords:
        """Noise, then debiasing."""
        detail = "The server adds discrete noise to every item and puts back what clipping took from Poisson counts."
        return RuleWords("adds noise, debiases", detail, plan.mechanism, bias="")

    def warnings(self, plan: Plan) -> dict[str, str]:
        """Noise above an item of users who all have its threshold."""
        return noise_warnings(plan, 1)

    def given(self, plan: Plan, selection: Selection, *, source: Source) -> ItemBounds:
        """Each item's own threshold."""
        return ItemBounds(item_bounds(plan, selection))

    def charges(self, plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
        """All items together, as one vector whose moves are measured in each item's own bound."""
        parameters: dict[str, float | int | str] = {"items": plan.closed.items, "clipped": "item by item"}
        if threshold is not None:
            parameters["largest_threshold"] = threshold.value
        return (vector_charge(plan, parameters, plan.item_share),)

    def build(
        self, plan: Plan, selection: Selection, reading: ItemSums, *, ledger: Ledger, source: Source
    ) -> Release:
        """One draw for all items of the same bound."""
        bounds = item_bounds(plan, selection)
        thresholds = np.ldexp(bounds.astype(np.float64), -plan.grid_bits)
        clipped, errors = np.empty(len(thresholds)), np.empty(len(thresholds))
        debiased, debiased_errors = np.empty(len(thresholds)), np.empty(len(thresholds))
        sums = np.empty(len(thresholds), dtype=np.int64)
        for steps in np.unique(bounds).tolist():
            chosen = np.flatnonzero(bounds == steps)
            noise = noise_for(plan, item_sensitivity(plan, steps))
            drawn = noise.draw(len(chosen), source=source.fork(steps))
            noised = signed(reading.values[chosen] + drawn, reading.width)  # audited: items noised
            error = math.ldexp(noise.standard_deviation, -plan.grid_bits)
            sums[chosen] = noised
            clipped[chosen], errors[chosen] = np.ldexp(noised.astype(np.float64), -plan.grid_bits), error
            bound = math.ldexp(steps, -plan.grid_bits)
            debiased[chosen] = debias_poisson(
                clipped[chosen], users=plan.users, threshold=bound, largest_rate=plan.max_threshold
            )
            debiased_errors[chosen] = debiased_standard_error(
                clipped[chosen],
                users=plan.users,
                threshold=bound,
                standard_error=error,
                largest_rate=plan.max_threshold,
            )
        return Release(
            plan=plan,
            threshold=selection.threshold.value,
            histogram=debiased,
            standard_error=float(errors.max()),
            charges=ledger.entries,
            private=ledger.private,
            seeded=source.seeded,
            item_release=ItemRelease(
                clipped=clipped, thresholds=thresholds, clipped_errors=errors, errors=debiased_errors
            ),
            infer=partial(_inferred, plan, bounds, sums, debiased),
        )


def _inferred(plan: Plan, bounds: Integers, sums: Integers, debiased: Floats) -> Inference:
    """Limits from the sums before debiasing: these hold whatever the counts are, and debiasing assumes Poisson ones."""
    limits = np.empty(len(sums))
    for steps in np.unique(bounds).tolist():
        chosen = bounds == steps
        law = law_of_noise(noise_for(plan, item_sensitivity(plan, steps)))
        limits[chosen] = np.ldexp(estimates_and_limits(sums[chosen], law)[1], -plan.grid_bits)
    return Inference(at_least=np.minimum(limits, np.maximum(debiased, 0.0)))


def item_bounds(plan: Plan, selection: Selection) -> Integers:
    """Each item's bound, in steps: its own, or the one of all items."""
    if selection.item_thresholds is not None:
        return selection.item_thresholds
    return np.full(plan.closed.items, selection.threshold.steps)


def item_sensitivity(plan: Plan, steps: int) -> Sensitivity:
    """What an item's noise is calibrated to: d C_j in l1 or sqrt(d) C_j in l2, see `Plan.item_share`."""
    items = plan.closed.items
    square = items * steps**2 if plan.norm is Norm.L2 else (items * steps) ** 2  # audited: items at once
    return Sensitivity(square=square, norm=plan.norm, neighbours=plan.neighbours)
