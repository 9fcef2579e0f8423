"""What a selector is: it says what it reads and what that costs, and returns a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from fedhist.protocol.circle import nearness
from fedhist.protocol.errors import InvalidInput, InvalidPlan, UnexpectedMessage
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.expected_counts import OpenTail
from fedhist.protocol.measurements.item_tail import ItemTail
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.measurements.tail import Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.choice import exponential_mechanism, exponential_probabilities
from fedhist.protocol.privacy.ledger import ApproximateLoss, Charge
from fedhist.protocol.privacy.neighbours import WEIGHT_BITS, Norm
from fedhist.protocol.privacy.randomness import Source

Statistic = Tail | OpenTail | ItemTail | NoisyTail
Reads = tuple[tuple[str, frozenset[Norm]], ...]
ANY_NORM = frozenset({Norm.L1, Norm.L2})


@dataclass(frozen=True)
class Selection:
    """A chosen threshold, and the scores it was chosen by where the selector scored candidates (not private).

    Where each item has a bound of its own, `item_thresholds` holds them in steps and `threshold` the largest.
    """

    threshold: Threshold
    item_thresholds: Integers | None = field(default=None, repr=False, compare=False)
    scores: Integers | None = field(default=None, repr=False, compare=False)


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
        steps = int(self.plan.candidate_steps[chosen])
        return Selection(threshold=Threshold(steps=steps, bits=self.plan.grid_bits), scores=self.scores)

    def probabilities(self) -> Floats:
        """The chance of each candidate. Not private: for public data only."""
        return exponential_probabilities(
            self.scores,
            sensitivity=self.sensitivity,
            epsilon=self.epsilon,
            log_base_measure=self.log_base_measure,
        )


class Selector(Protocol):
    """One way to choose the threshold. One file here, one line in the registry, and the contract suite runs it."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def reads(self) -> Reads:
        """What it can choose from, as measurements offer it (`Measurement.offers`), and for which norms of the clip.

        Empty for one that needs no round of its own.
        """

    @property
    def reads_noise(self) -> bool:
        """Whether what it reads is noisy already, and so is charged before it is asked for."""

    @property
    def private(self) -> bool:
        """False for a baseline that looks at the exact statistic: simulations only."""

    def check(self, plan: Plan) -> None:
        """Raise InvalidPlan if the plan lacks something this selector needs."""

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """What the choice costs. Charged before `select` is called."""

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Choose. The only step that touches the exact statistic; None when none is needed."""


@runtime_checkable
class NoisySelector(Protocol):
    """A selector that can also do with a tail that the devices noised. The others are refused with such noise."""

    def from_noisy(self, plan: Plan, tail: NoisyTail) -> Threshold:
        """The threshold, read off a noisy tail: a post-processing, which costs nothing more."""


@runtime_checkable
class ScoringSelector(Protocol):
    """A selector that draws one candidate by score, so that the chances of its outputs can be computed."""

    def choice(self, plan: Plan, statistic: Statistic | None) -> WeightedChoice:
        """What `select` draws from."""


def closed_tail(statistic: Statistic | None) -> Tail:
    """The statistic of a closed domain; anything else is a mistake of ours."""
    if not isinstance(statistic, Tail):
        raise UnexpectedMessage(state="a selector of the closed domain", message=statistic)
    return statistic


def open_tail(statistic: Statistic | None) -> OpenTail:
    """The statistic of an open domain; anything else is a mistake of ours."""
    if not isinstance(statistic, OpenTail):
        raise UnexpectedMessage(state="a selector of an open domain", message=statistic)
    return statistic


def item_tail(statistic: Statistic | None) -> ItemTail:
    """The statistic of items clipped one by one; anything else is a mistake of ours."""
    if not isinstance(statistic, ItemTail):
        raise UnexpectedMessage(state="a selector of single items", message=statistic)
    return statistic


def at_steps(plan: Plan, steps: Integers) -> Selection:
    """A bound for each item, in steps."""
    return Selection(threshold=Threshold(steps=int(steps.max()), bits=plan.grid_bits), item_thresholds=steps)


def price_in_weights(plan: Plan) -> int:
    """M in the units of the tail's weights."""
    return round(plan.noise_price * (1 << WEIGHT_BITS))


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
    return nearness(sums, min(target, most), width)


def best_candidate(plan: Plan, tail: Tail) -> Threshold:
    """C* on the candidates: the smallest C with W(C) <= M, or the largest candidate if there is none.

    Liu et al., theorem 4.2 and lemma 4.1 (under l1 the weights are 1 and M is d/eps). Not private.
    """
    inside = tail.weights <= price_in_weights(plan)
    index = int(inside.argmax()) if inside.any() else len(inside) - 1
    return Threshold(steps=int(plan.candidate_steps[index]), bits=plan.grid_bits)


def check_delta_select(plan: Plan, name: str) -> None:
    """For selectors whose noise is Gaussian."""
    if not plan.delta_select:
        raise InvalidPlan(
            f"the selector {name} adds Gaussian noise and delta-select is 0",
            allowed="0 < delta-select < 1/2",
            advice="set --delta-select, or use weighted-quantile, which needs none",
        )


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


def not_private_charge(name: str, plan: Plan) -> Charge:
    """The entry of a baseline that looked at the exact statistic: it says that the run is not private."""
    return Charge(
        round="select",
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
