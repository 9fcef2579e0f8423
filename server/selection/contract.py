"""What a selector is: it says what it reads and what that costs, and returns a threshold."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fedhist.protocol.circle import nearness
from fedhist.protocol.errors import InvalidInput, InvalidPlan, UnexpectedMessage
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.key_totals import OpenTail
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.measurements.tails import ItemTail, NormTails, Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.ledger import ApproximateLoss, BoundedRangeLoss, Charge, GaussianLoss
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Norm
from fedhist.protocol.privacy.noise import exponential_mechanism, exponential_probabilities
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import NOTHING_SETTLED, Settled
from fedhist.server.selection.crossing import first_crossing, first_inside

Statistic = Tail | NormTails | OpenTail | ItemTail | NoisyTail
Kind = TypeVar("Kind", Tail, NormTails, OpenTail, ItemTail, NoisyTail)
Reads = tuple[tuple[str, frozenset[Norm]], ...]
ANY_NORM = frozenset({Norm.L1, Norm.L2})


@dataclass(frozen=True)
class Selection:
    """A chosen threshold, and the scores it was chosen by where the selector scored candidates (not private).

    `settled` is what earlier rounds made public, which the release needs too; `mechanism` is the one that was chosen
    with the threshold, if the plan left it open. `candidates` are in steps those that `scores` are of; None means the
    plan's. `base` and `chances` are the base measure and the probability of each, where one was drawn by its score.

    Where each item has a bound of its own, `item_thresholds` holds them in steps and `threshold` the largest.
    """

    threshold: Threshold
    item_thresholds: Integers | None = field(default=None, repr=False, compare=False)
    scores: Integers | None = field(default=None, repr=False, compare=False)
    candidates: Integers | None = field(default=None, repr=False, compare=False)
    base: Floats | None = field(default=None, repr=False, compare=False)
    chances: Floats | None = field(default=None, repr=False, compare=False)
    settled: Settled = NOTHING_SETTLED
    mechanism: str | None = None


@dataclass(frozen=True, eq=False)
class WeightedChoice:
    """An exponential mechanism over the plan's candidates that waits to be drawn.

    Args:
        plan: whose candidates they are.
        scores: one a candidate, from the exact statistic: not private.
        sensitivity, epsilon, log_base_measure: as `exponential_mechanism` takes them.
    """

    plan: Plan
    scores: Integers = field(repr=False)
    sensitivity: int
    epsilon: float
    log_base_measure: Floats | None = field(default=None, repr=False)

    def draw(self, *, source: Source) -> Selection:
        """The private choice."""
        chosen = exponential_mechanism(
            self.scores.tolist(),
            sensitivity=self.sensitivity,
            epsilon=self.epsilon,
            log_base_measure=None if self.log_base_measure is None else self.log_base_measure.tolist(),
            source=source,
        )
        return self.selection(chosen)

    def selection(self, index: int) -> Selection:
        """What it means that this candidate is chosen."""
        threshold = self.plan.at_steps(int(self.plan.candidate_steps[index]))
        return Selection(threshold, scores=self.scores, base=self.base(), chances=self.probabilities())

    def base(self) -> Floats:
        """The base measure of each candidate, relative to the largest: its weight before any data. Public."""
        if self.log_base_measure is None:
            return np.ones(len(self.scores))
        measure: Floats = np.exp(self.log_base_measure - self.log_base_measure.max())
        return measure

    def probabilities(self) -> Floats:
        """The chance of each candidate. Not private: for public data only."""
        return exponential_probabilities(
            self.scores,
            sensitivity=self.sensitivity,
            epsilon=self.epsilon,
            log_base_measure=self.log_base_measure,
        )


class Selector(ABC):
    """One way to choose the threshold. One file here, one line in the registry, and the contract suite runs it."""

    name: str
    """The name on the command line."""

    reads: Reads = ()
    """What it can choose from, as measurements offer it (`Measurement.offers`), and for which norms of the clip.

    Empty for one that needs no round of its own.
    """

    version: str = ""
    """Of one from outside, as its author counts."""

    private: bool = True
    """False for a baseline that looks at the exact statistic: simulations only."""

    counts_all_items: bool = False
    """Whether a user counts with all items where a plan names no sparsity, as in the paper."""

    def check(self, plan: Plan) -> None:  # noqa: B027 - most selectors need nothing more of a plan
        """Raise InvalidPlan if the plan lacks something this selector needs."""

    range_costs: bool = False
    """Whether the choice gets worse in proportion to the largest threshold."""

    def resolution(self, plan: Plan) -> float:
        """How many users the choice can't tell from none, from the plan alone; 0 where nothing is known of it."""
        return 0.0

    def share_of_total(self, plan: Plan) -> float | None:
        """What part of a total is best spent on the choice; None where nothing is known of it.

        Args:
            plan: one whose epsilon is the total.
        """
        return None

    @abstractmethod
    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """What the choice costs. Charged before `select` is called."""

    @abstractmethod
    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Choose. The only step that touches the exact statistic; None when none is needed."""


class ScoringSelector(Selector):
    """A selector that draws one candidate by score, so that the chances of its outputs can be computed."""

    @abstractmethod
    def choice(self, plan: Plan, statistic: Statistic | None) -> WeightedChoice:
        """What `select` draws from."""

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Draw a candidate."""
        return self.choice(plan, statistic).draw(source=source)


class NoisySelector(Selector):
    """A selector that can also do with a tail that the devices noised. The others are refused with such noise."""

    def from_noisy(self, plan: Plan, tail: NoisyTail) -> Threshold:
        """The threshold, read off a noisy tail: a post-processing, which costs nothing more."""
        return first_crossing(plan, tail)


class Baseline(Selector):
    """A selector that looks at the exact statistic, and so is not private."""

    private = False

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """An entry that says that the run is not private."""
        return (not_private(plan, "select", self.name),)


def not_private(plan: Plan, round_: str, name: str) -> Charge:
    """An entry that says that a step is not private."""
    return Charge(
        round=round_,
        name=name,
        parameters={},
        sensitivity=math.inf,
        norm="score",
        neighbours=plan.neighbours.value,
        epsilon=math.inf,
        delta=0.0,
        loss=ApproximateLoss(),
        private=False,
    )


def middle_threshold(plan: Plan) -> float:
    """The middle of the range of thresholds on the scale of their logarithms, in counts."""
    return math.ldexp(math.sqrt(math.prod(plan.step_range)), -plan.grid_bits)


def reading_as(kind: type[Kind], statistic: Statistic | None) -> Kind:
    """The statistic, which must be of this kind; anything else is a mistake of ours."""
    if not isinstance(statistic, kind):
        raise UnexpectedMessage(state=f"a selector that reads a {kind.__name__}", message=statistic)
    return statistic


def item_selection(plan: Plan, steps: Integers) -> Selection:
    """A bound for each item, in steps."""
    return Selection(threshold=Threshold(steps=int(steps.max()), bits=plan.grid_bits), item_thresholds=steps)


def in_weights(value: float) -> int:
    """A weight in the units of the tail's."""
    return round(value * (1 << WEIGHT_BITS))


def nearness_scores(sums: Integers, target: int, *, most: int, width: int) -> Integers:
    """The score -|sum - target| of each candidate, as a distance on the circle of the residues.

    One user moves each sum by at most the sensitivity, and so each score, whatever the other participants hold and,
    under masks, send: see `protocol/circle.py`.

    Args:
        sums: one a candidate, exact, known modulo 2^width.
        target: where they are best.
        most: what honest users can add up to. A target beyond it is lowered to it, which moves all scores alike.
        width: of the sums.
    """
    return nearness(sums, min(target, most), width)  # audited: nearness


def best_candidate(plan: Plan, tail: Tail) -> Threshold:
    """C* on the candidates: the smallest C with W(C) <= M, or the largest candidate if there is none.

    Liu et al., theorem 4.2 and lemma 4.1 (under l1 the weights are 1 and M is d/eps). Not private.
    """
    return first_inside(plan, tail.weights <= in_weights(plan.noise_price))


def check_gaussian(plan: Plan, make_noise: Callable[[], object], name: str) -> None:
    """Gaussian noise needs a delta, and must be one that can be drawn."""
    if not plan.delta_select:
        raise InvalidPlan(
            f"the selector {name} adds Gaussian noise and delta-select is 0",
            allowed="0 < delta-select < 1/2",
            advice="set --delta-select, or use --selector weighted-quantile, which needs none",
            code="no-delta-select",
        )
    check_drawable(make_noise, name)


def check_drawable(make_noise: Callable[[], object], name: str) -> None:
    """Refuse a budget whose noise is beyond the samplers, before anything is charged."""
    try:
        make_noise()
    except (InvalidInput, OverflowError):
        raise InvalidPlan(
            f"the noise of the selector {name} would be too large to draw",
            allowed="a larger epsilon-select",
            advice="raise --epsilon-select",
        ) from None


def exponential_charge(plan: Plan, sensitivity: float, **parameters: float | str) -> Charge:
    """What an exponential mechanism over the candidates costs: eps', or its share where each item has a bound."""
    return Charge(
        round="select",
        name="exponential-mechanism",
        parameters={"candidates": len(plan.candidate_steps), **parameters},
        sensitivity=sensitivity,
        norm="score",
        neighbours=plan.neighbours.value,
        epsilon=plan.epsilon_select / plan.thresholds,
        delta=0.0,
        loss=BoundedRangeLoss(),
    )


def gaussian_charge(plan: Plan, sensitivity: float, *, steps: int) -> Charge:
    """What adaptive steps of Gaussian noise cost: as much as the one that they compose to."""
    whole = whole_multiplier(plan)
    return Charge(
        round="select",
        name="discrete-gaussian",
        parameters={"steps": steps, "step_multiplier": whole * math.sqrt(steps)},
        sensitivity=sensitivity,
        norm="l2",
        neighbours=plan.neighbours.value,
        epsilon=plan.epsilon_select,
        delta=plan.delta_select,
        loss=GaussianLoss(multiplier=whole),
    )


def whole_multiplier(plan: Plan) -> float:
    """The noise multiplier of a single Gaussian mechanism that costs (eps', delta')."""
    return noise_multiplier(plan.epsilon_select, plan.delta_select)
