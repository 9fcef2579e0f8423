"""The questions before a run: which epsilon gives this error, and how to split a budget between the rounds.

All answers are predictions (`prediction`) from public data; nothing is charged and nothing here is private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Floats
from fedhist.protocol.plan import Plan
from fedhist.server.declared import is_private
from fedhist.server.selection import selector_for
from fedhist.server.totals import plan_for_total
from fedhist.simulations.prediction.prediction import Prediction, Predictor

CURVE_SHARES = np.geomspace(0.01, 0.5, 10)
"""Shares of round 1 that are tried for each total of a curve."""

SPLIT_SHARES = np.geomspace(0.005, 0.8, 25)
"""Shares of round 1 that are tried to split one total."""

"""Fixed shares that are tried for finding items, where a plan leaves that to the run."""

FLATNESS = 0.05
"""A split whose error is at most this share above the best is as good in practice."""

_CLOSER_SPLITS = 6

# The search for an epsilon ends at this ratio; the answer has three digits.
_SEARCH_RATIO = 1.005


@dataclass(frozen=True)
class Outlook:
    """A population to predict from and the settings that all plans share.

    Args:
        predictor: reads the public population.
        settings: fields of `Plan`, with the users and items of the population.
        total_delta: a delta for all rounds together; None leaves the deltas to the settings.
        choice: the epsilon of the choice in a plan for a total; None is the default split.
    """

    predictor: Predictor
    settings: Mapping[str, Any] = field(repr=False)
    total_delta: float | None = None
    choice: float | None = None

    def plan(self, epsilon: float, epsilon_select: float | None = None) -> Plan:
        """The plan with this budget of the histogram, and that of the choice if it is not the settings' own.

        A total delta is the histogram's; a selector that spends delta too gets a share in proportion to the epsilons.
        """
        choice = {} if epsilon_select is None else {"epsilon_select": epsilon_select}
        plan = Plan(**dict(self.settings) | {"epsilon": epsilon} | choice)
        if self.total_delta is None or not plan.delta:
            return plan
        if not any(charge.delta > 0 for charge in selector_for(plan.releasing).charges(plan.releasing)):
            return replace(plan, delta=self.total_delta)
        share = plan.epsilon_select / (plan.epsilon + plan.epsilon_select)
        return replace(plan, delta=self.total_delta * (1 - share), delta_select=self.total_delta * share)

    def split(self, total: float, share: float | None = None) -> Plan:
        """The plan for a total epsilon that spends this share of it on round 1; None is the split of a run."""
        choice = self.choice if share is None else round_digits(total * share, 3)
        fields = {name: value for name, value in self.settings.items() if name != "epsilon_select"}
        after = Plan(**fields).releasing
        selector = selector_for(after)
        if not selector.reads or not is_private(selector, after):
            raise InvalidInput(
                f"a budget can't be split with the selector {selector.name}, which spends none on round 1",
                allowed="selectors that choose the threshold privately",
                advice="leave out --total-epsilon and --best-split, or choose another --selector",
            )
        return plan_for_total(
            total_epsilon=total, total_delta=self.total_delta, epsilon_select=choice, **fields
        )

    def rough_split(self, total: float, share: float) -> Plan:
        """The same, to compare shares by.

        Where items are discovered, a tight solution takes seconds. There one of them stands for all: what the choice
        takes from epsilon grows like its square, and is never more than by addition.
        """
        if not Plan(**self.settings).discovers:
            return self.split(total, share)
        choice, solved = round_digits(total * share, 3), self.split(total)
        taken = max(total - solved.epsilon, 0.0) * (choice / solved.epsilon_select) ** 2
        return self.plan(total - min(choice, taken), choice)


@dataclass(frozen=True)
class Target:
    """The least epsilon of a range that is predicted to reach an error.

    Args:
        error: the largest error allowed.
        epsilon: of the histogram, or the total where the curve is over totals.
        prediction: at that epsilon.
        at_start: whether the smallest epsilon of the range reaches it already.
    """

    error: float
    epsilon: float
    prediction: Prediction
    at_start: bool


@dataclass(frozen=True)
class OutOfReach:
    """An error that no epsilon of a range is predicted to reach.

    Args:
        error: the largest error allowed.
        epsilon: where the range has its least error; of the histogram, or the total where the curve is over totals.
        prediction: at that epsilon.
        advice: what would help.
    """

    error: float
    epsilon: float
    prediction: Prediction
    advice: str


@dataclass(frozen=True)
class Split:
    """How the error depends on the share of a total epsilon that round 1 gets.

    Args:
        total: epsilon of all rounds together, by tight composition.
        shares, losses: the splits that were tried and their predicted errors.
        best: the prediction of the best of them.
        best_share: its share.
        usual: the prediction of the split of a run that is given the total.
        flat_low, flat_high: all splits between them have an error of at most 1 + FLATNESS times the best, and twice
            the sampling error if the selector was drawn.
    """

    total: float
    shares: Floats = field(repr=False)
    losses: Floats = field(repr=False)
    best: Prediction
    best_share: float
    usual: Prediction
    flat_low: float
    flat_high: float


def curve(outlook: Outlook, epsilons: Sequence[float], *, totals: bool) -> list[Prediction]:
    """A prediction for each epsilon: of the histogram, or with `totals` of all rounds at the best of CURVE_SHARES."""

    def plan(epsilon: float) -> Plan:
        if not totals:
            return outlook.plan(epsilon)

        def loss(share: float) -> float:
            return outlook.predictor.relative_loss(outlook.rough_split(epsilon, share))

        return outlook.split(epsilon, min(CURVE_SHARES.tolist(), key=loss))

    return [outlook.predictor.predict(plan(epsilon)) for epsilon in epsilons]


def split_total(outlook: Outlook, total: float) -> Split:
    """Try the splits of SPLIT_SHARES, and some more between the neighbours of the best of them."""
    tried = {
        share: outlook.predictor.relative_loss(outlook.split(total, share)) for share in SPLIT_SHARES.tolist()
    }
    near = int(np.argmin(list(tried.values()))) + np.array([-1, 1])
    low, high = SPLIT_SHARES[np.clip(near, 0, len(SPLIT_SHARES) - 1)]
    for share in np.geomspace(low, high, _CLOSER_SPLITS + 2)[1:-1].tolist():
        tried[share] = outlook.predictor.relative_loss(outlook.split(total, share))
    plans = [outlook.split(total, share) for share in sorted(tried)]
    losses = np.array([tried[share] for share in sorted(tried)])
    best = int(losses.argmin())
    # The run of good splits around the best one: beyond a bad one others might be good by chance.
    best_row = outlook.predictor.predict(plans[best])
    bad = np.flatnonzero(losses > losses[best] * (1 + FLATNESS) + 2 * best_row.sampling_error)
    first = int(bad[bad < best].max(initial=-1)) + 1
    last = int(bad[bad > best].min(initial=len(losses))) - 1
    shares = np.array([plan.epsilon_select / total for plan in plans])
    return Split(
        total=total,
        shares=shares,
        losses=losses,
        best=best_row,
        best_share=float(shares[best]),
        usual=outlook.predictor.predict(outlook.split(total)),
        flat_low=float(shares[first]),
        flat_high=float(shares[last]),
    )


def epsilon_for(
    outlook: Outlook, error: float, epsilons: Sequence[float], rows: Sequence[Prediction], *, totals: bool
) -> Target | OutOfReach:
    """The least epsilon whose predicted error is at most `error`, by halves between the rows of the curve."""
    reached = [place for place, row in enumerate(rows) if row.relative_loss <= error]
    if not reached:
        return _out_of_reach(outlook, error, epsilons, rows, totals=totals)
    place = reached[0]
    if place == 0:
        return Target(error=error, epsilon=epsilons[0], prediction=rows[0], at_start=True)
    low, high, found = epsilons[place - 1], epsilons[place], rows[place]
    while high / low > _SEARCH_RATIO:
        middle = math.sqrt(low * high)
        (tried,) = curve(outlook, [middle], totals=totals)
        if tried.relative_loss <= error:
            high, found = middle, tried
        else:
            low = middle
    answer = min(round_digits(high, 3, up=True), epsilons[place])
    (prediction,) = curve(outlook, [answer], totals=totals)
    # Rounding up may pass a bend of the curve, where what was found is the safer answer.
    if prediction.relative_loss > error:
        answer, prediction = high, found
    return Target(error=error, epsilon=answer, prediction=prediction, at_start=False)


_PLENTY = 1e6
"""An epsilon at which a histogram has next to no noise."""


def _out_of_reach(
    outlook: Outlook, error: float, epsilons: Sequence[float], rows: Sequence[Prediction], *, totals: bool
) -> OutOfReach:
    best = int(np.argmin([row.relative_loss for row in rows]))
    plan = outlook.plan(epsilons[-1])
    flag, largest = "--threshold", plan.threshold
    if largest is None:
        flag, largest = "--max-threshold", math.ldexp(plan.step_range[1], -plan.grid_bits)
    floor = outlook.predictor.predict(replace(plan, selector="fixed", threshold=largest)).clipping_error
    chosen = 0.0
    if plan.threshold is None and not totals:
        chosen = outlook.predictor.relative_loss(replace(plan, epsilon=_PLENTY))
    if floor > error:
        advice = f"clipping at the threshold {largest:g} alone costs {floor:.4f}: raise {flag}"
    elif chosen > error:
        advice = (
            f"no epsilon will do: choosing the threshold with epsilon' = {plan.epsilon_select:g} alone costs "
            f"{chosen:.4f}; raise --epsilon-select, or let --best-split choose it"
        )
    else:
        advice = "raise the end of --epsilon, or plan for more users or fewer items"
    return OutOfReach(error=error, epsilon=epsilons[best], prediction=rows[best], advice=advice)


def round_digits(value: float, digits: int, *, up: bool = False) -> float:
    """Rounded to this number of significant digits, to the nearest or up."""
    rounded = float(f"{value:.{digits}g}")
    if up and rounded < value:
        step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
        rounded = float(f"{rounded + step:.{digits}g}")
    return rounded
