"""The expected error and threshold of a run, computed from public data before any budget is spent.

The expected relative loss of a release is the mean, over the thresholds that its selector may choose, of

    sum over items of E|clipped sum + noise - true count|  /  all counts,

where a key of an open domain that does not pass the bar counts as shown with 0.

Exact, up to doubles:

- the chances of the thresholds, for selectors that draw by score (`WeightedChoice.probabilities`, from round 1's own
  sums) and for those that always choose the same (`fixed`, `oracle`, `median`, `p90`);
- the noise's scale and the bar, which are the release's own, and the mean error under Laplace noise;
- the cost: the charges of the ledger's own code, by basic and by tight composition.

Approximate:

- What a discovery finds, and which share of its budget it takes (`finding`). For each share that is likely enough, the
  threshold is chosen for a typical list: as many items as are expected, those of the largest weights. Every item that
  may be found is priced by its own chance (`clipped_sums`). Where users have more items than the discovery reads, one
  draw of them stands for all.
- `dpsgd`, `output-perturbation` and `m-quantile` have no closed form: the selector alone is drawn DRAWS times, from
  a seed. Where they choose between two candidates, the loss is interpolated between the two.
- The clipped sum of an item is taken at its mean (`clipped_sums`). How it varies with the draws of rounding (a step of
  the grid or so) and of random clipping (little beside the noise) is left out.
- Gaussian noise is taken as continuous: a relative 1/(12 s^2) for a deviation of s steps of the grid.
- Thresholds whose chances sum to 10^-6 are left out.

So two things make the mean of runs differ from a prediction: these, which are small, and a population that is not the
one that was predicted from, which may not be.

NOT private: a prediction is a function of the exact data it is given. Give it public data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import cast

import numpy as np

from fedhist.client.device import answer_population
from fedhist.client.populations import item_totals
from fedhist.protocol.errors import InvalidInput, InvalidPopulation
from fedhist.protocol.histograms import Floats, Integers, Population, labels_of
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements.expected_counts import BinnedCounts, OpenTail, UnpackedCounts
from fedhist.protocol.measurements.kept_items import keyed_part
from fedhist.protocol.measurements.key_weights import KeyWeights
from fedhist.protocol.measurements.norm_tails import norm_pairs
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.masking_terms import UNMASKED
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.protocol.privacy.ledger import Charge, Cost
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Request, Total
from fedhist.server.declared import is_private
from fedhist.server.selection import selector_for
from fedhist.server.selection.contract import ScoringSelector, Selector, Statistic
from fedhist.server.steps import planned_charges, read_statistic, select_request
from fedhist.simulations.population_checks import check_fits
from fedhist.simulations.prediction.clipped_sums import ClippedSums, clipped_sums
from fedhist.simulations.prediction.finding import Finding, findings, narrowed
from fedhist.simulations.prediction.release_errors import (
    ReleaseErrors,
    clipping_errors,
    is_predicted,
    release_errors,
)

DRAWS = 64
"""Draws of a selector whose chances have no closed form."""

# Thresholds that are chosen less often than this, all together, are left out.
_UNLIKELY = 1e-6
_UNPACKED_CELLS = 1 << 27
# Lists of items that were found, whose sums are kept: other budgets find others.
_KEPT_LISTS = 8


@dataclass(frozen=True)
class Prediction:
    """What to expect of a run of this plan on this population. Errors are l1 norms over the true total.

    Args:
        plan: what would be run.
        relative_loss: expected, of the release.
        clipping_error: expected, of the clipped sum before noise, with all items that are not found.
        noise_error: expected, of the noise alone; over an open domain, with the keys that it withholds.
        threshold: the mean of the thresholds that may be chosen, in counts.
        threshold_low, threshold_high: nine choices out of ten lie between them, one in twenty below and one above.
        clipped_users: expected share of users above the threshold.
        released_items: expected number of released items.
        recall: over an open domain, the expected share of all keys in the data that are released.
        draws: of the selector; None when its chances were computed.
        sampling_error: standard error of `relative_loss` from drawing the selector; 0 when nothing was drawn.
    """

    plan: Plan
    relative_loss: float
    clipping_error: float
    noise_error: float
    threshold: float
    threshold_low: float
    threshold_high: float
    clipped_users: float
    released_items: float
    recall: float | None
    draws: int | None
    sampling_error: float

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What a run would charge."""
        return planned_charges(self.plan)

    @property
    def total(self) -> Cost:
        """By basic composition."""
        return basic_total(self.charges)

    @property
    def tight(self) -> Cost:
        """By tight composition."""
        return tight_total(self.charges)


@dataclass(frozen=True)
class _Chances:
    """Thresholds in steps, rising, with the chance of each."""

    steps: Integers
    chances: Floats
    draws: int | None = None


@dataclass(frozen=True, eq=False)
class _Case:
    """A way that a run may take: the thresholds that it may choose, and what it loses at the likely ones.

    Args:
        plan: of the release.
        chosen: the thresholds and their chances.
        table: what clipping leaves, at thresholds of its own.
        errors: of the release.
        places, chances: the thresholds of the table that matter.
        chance: that a run takes this way.
    """

    plan: Plan
    chosen: _Chances
    table: ClippedSums
    errors: ReleaseErrors
    places: Integers
    chances: Floats
    chance: float = 1.0

    def losses(self) -> Floats:
        """Relative, at each threshold."""
        return self.errors.loss() / self.table.total

    def mean(self, values: Floats) -> float:
        """The part of this case in a mean over all runs."""
        return self.chance * float(values @ self.chances)


@dataclass
class Predictor:
    """Predicts runs of any plan over one public population.

    What is read off the population once and kept: round 1's sums, by all that they depend on (the candidates, the grid,
    the norm and the cap on weights), and the clipped sums, by the thresholds, the grid and
    the norm. So a whole curve of budgets usually reads the population twice.

    Args:
        population: public users.
        seed: for the draws of a selector whose chances have no closed form.
    """

    population: Population
    seed: int = 0
    _statistics: dict[tuple[object, ...], Statistic] = field(default_factory=dict, repr=False)
    _sums: dict[tuple[object, ...], ClippedSums] = field(default_factory=dict, repr=False)
    _weights: dict[tuple[object, ...], Keyed] = field(default_factory=dict, repr=False)
    _narrowed: dict[tuple[object, bytes], Predictor] = field(default_factory=dict, repr=False)

    def predict(self, plan: Plan) -> Prediction:
        """What to expect of a run; raises what the run would raise for its plan."""
        cases = self._cases(plan)

        def mean(of: Callable[[_Case], Floats]) -> float:
            return math.fsum(case.mean(of(case)) for case in cases)

        shown, loss = mean(lambda case: case.errors.shown()), mean(_Case.losses)
        draws = cases[0].chosen.draws
        variance = math.fsum(case.mean((case.losses() - loss) ** 2) for case in cases)
        thresholds, chances = _together(cases)
        return Prediction(
            plan=plan,
            relative_loss=loss,
            clipping_error=mean(lambda case: clipping_errors(case.table, case.places) / case.table.total),
            noise_error=mean(lambda case: case.errors.noise_alone() / case.table.total),
            threshold=float(thresholds @ chances),
            threshold_low=_quantile(thresholds, chances, 0.05),
            threshold_high=_quantile(thresholds, chances, 0.95),
            clipped_users=mean(lambda case: case.table.users_above[case.places] / self.population.users),
            released_items=shown,
            recall=min(shown / np.count_nonzero(self._truth), 1.0) if plan.is_open else None,
            draws=draws,
            sampling_error=0.0 if draws is None else math.sqrt(variance / draws),
        )

    def relative_loss(self, plan: Plan) -> float:
        """The same number as in `predict` without the others: for a search over many plans."""
        return math.fsum(case.mean(case.losses()) for case in self._cases(plan))

    def _cases(self, plan: Plan) -> list[_Case]:
        """The ways that a run may take, which differ in the plan of the release and in its items."""
        check_fits(self.population, plan)
        if not plan.discovers:
            return self._ways(plan)
        terms = plan.discovery
        key = ("weights", terms.bits, plan.known)
        if key not in self._weights:
            clear = Plan.from_json(plan.to_json() | UNMASKED)
            request = Request(plan=clear, asks=KeyWeights.name)
            sent = answer_population(request, self.population, source=SeededSource(self.seed))
            self._weights[key] = keyed_part(sent.summed)
        weights = self._weights[key]
        if not weights.length and not plan.known:
            raise _nothing()
        return [case for finding in findings(terms, weights) for case in self._found_cases(plan, finding)]

    def _found_cases(self, plan: Plan, finding: Finding) -> list[_Case]:
        """What follows a discovery: a closed domain of a typical list, and the chances of all that may be on it."""
        known, listed = len(plan.known), finding.keys[: finding.listed]
        after = plan.discovered(known + len(listed), finding.share)
        if (key := (plan.known, listed.tobytes())) not in self._narrowed:
            if len(self._narrowed) >= _KEPT_LISTS:
                self._narrowed.clear()
            self._narrowed[key] = Predictor(narrowed(self.population, plan, listed), self.seed)
        wide = narrowed(self.population, plan, finding.keys)
        missed = float(self._truth[wide.items.numbers < 0].sum())
        found = np.concatenate([np.ones(known), finding.found])
        made = partial(clipped_sums, wide, listed=after.items, found=found, missed=missed)
        return self._narrowed[key]._ways(after, made, chance=finding.chance)

    def _ways(
        self, plan: Plan, made: Callable[..., ClippedSums] | None = None, *, chance: float = 1.0
    ) -> list[_Case]:
        """One case, or one for each mechanism where the run itself chooses it."""
        if not plan.chooses_mechanism:
            return [replace(self._case(plan, made), chance=chance)]
        choice = cast(ScoringSelector, selector_for(plan)).choice(plan, self._statistic(plan))
        halves, pairs = np.split(choice.probabilities(), 2), norm_pairs(plan)
        return [
            replace(
                self._case(way, made, _Chances(steps, half / half.sum())), chance=chance * float(half.sum())
            )
            for way, half, steps in zip(plan.ways.values(), halves, (pairs.l2, pairs.l1), strict=True)
            if half.sum() > _UNLIKELY
        ]

    def _case(
        self,
        plan: Plan,
        made: Callable[..., ClippedSums] | None = None,
        given: _Chances | None = None,
    ) -> _Case:
        """What a run under this plan chooses and loses.

        Args:
            plan: of the release.
            made: makes a table of clipped sums; None for the population's own.
            given: the thresholds that were chosen with the mechanism; None to ask the plan's selector.
        """
        if not is_predicted(plan):
            raise InvalidInput(
                f"the release {plan.release} can't be predicted"
                if plan.release
                else "debiased counts can't be predicted",
                allowed="the project's releases, without debiasing",
                advice="try them with fedhist run --trials on public data",
                code="not-predicted",
            )
        chosen = given or self._chances(plan, selector_for(plan))
        as_it_is = given is not None or plan.selector == "fixed"
        on_table = chosen if as_it_is else _on_candidates(plan, chosen)
        if made is None:
            table = self._table(plan, on_table.steps)
        else:
            table = made(on_table.steps, bits=plan.grid_bits, norm=plan.norm)
        places = _likely(on_table.chances)
        errors = release_errors(plan, table, on_table.steps, places)
        chances = on_table.chances[places]
        return _Case(plan, chosen, table, errors, places, chances / chances.sum())

    @cached_property
    def _truth(self) -> Integers:
        return item_totals(self.population)

    def _chances(self, plan: Plan, selector: Selector) -> _Chances:
        statistic = self._statistic(plan) if selector.reads else None
        source = SeededSource(self.seed)
        if isinstance(selector, ScoringSelector):
            return _Chances(plan.candidate_steps, selector.choice(plan, statistic).probabilities())
        if not selector.reads or not is_private(selector, plan):
            only = selector.select(plan, statistic, source=source).threshold.steps
            return _Chances(np.array([only]), np.ones(1))
        drawn = [
            selector.select(plan, statistic, source=source.fork(number)).threshold.steps
            for number in range(DRAWS)
        ]
        steps, counts = np.unique(np.array(drawn, dtype=np.int64), return_counts=True)
        return _Chances(steps, counts / DRAWS, DRAWS)

    def _statistic(self, plan: Plan) -> Statistic:
        """Round 1's sums, kept for other plans that share them."""
        request = select_request(plan)
        key = request.key
        if key not in self._statistics:
            sent = answer_population(request, self.population, source=SeededSource(self.seed))
            total = Total(sent.users, sent.values, sent.keyed, labels_of(self.population))
            if plan in key:
                # No other plan has these sums.
                return _unpacked(read_statistic(plan, total))
            self._statistics[key] = _unpacked(read_statistic(plan, total))
        return self._statistics[key]

    def _table(self, plan: Plan, steps: Integers) -> ClippedSums:
        key = (steps.tobytes(), plan.grid_bits, plan.norm)
        if key not in self._sums:
            table = clipped_sums(self.population, steps, bits=plan.grid_bits, norm=plan.norm)
            if table.total == 0:
                raise _nothing()
            self._sums[key] = table
        return self._sums[key]


def _nothing() -> InvalidPopulation:
    return InvalidPopulation(
        "no user has any item",
        allowed="a population with at least one count",
        advice="check the data",
        code="no-items",
    )


def _together(cases: list[_Case]) -> tuple[Floats, Floats]:
    """The thresholds of all cases in counts, rising, and their chances."""
    counts = [np.ldexp(case.chosen.steps.astype(np.float64), -case.plan.grid_bits) for case in cases]
    thresholds, chances = np.concatenate(counts), np.concatenate([c.chance * c.chosen.chances for c in cases])
    order = np.argsort(thresholds, kind="stable")
    return thresholds[order], chances[order] / chances.sum()


def _quantile(values: Floats, chances: Floats, share: float) -> float:
    return float(values[min(int(np.searchsorted(np.cumsum(chances), share)), len(values) - 1)])


def _unpacked(statistic: Statistic) -> Statistic:
    """The same with an open domain's expected counts as one table, where that is small, instead of made each time."""
    if not isinstance(statistic, OpenTail) or not isinstance(statistic.expected, BinnedCounts):
        return statistic
    if statistic.expected.keyed.length * len(statistic.users_above) > _UNPACKED_CELLS:
        return statistic
    pieces = list(statistic.expected.pieces())
    return replace(statistic, expected=UnpackedCounts(table=np.concatenate(pieces))) if pieces else statistic


def _on_candidates(plan: Plan, chosen: _Chances) -> _Chances:
    """The chance of a threshold between two candidates, shared out so that linear functions keep their mean."""
    places = plan.candidate_steps
    if chosen.steps is places:
        return chosen
    above = np.clip(np.searchsorted(places, chosen.steps), 1, max(len(places) - 1, 1))
    if len(places) == 1:
        return _Chances(places, np.ones(1), chosen.draws)
    low, high = places[above - 1], places[above]
    share = (chosen.steps - low) / (high - low)
    chances = np.zeros(len(places))
    np.add.at(chances, above - 1, chosen.chances * (1 - share))
    np.add.at(chances, above, chosen.chances * share)
    return _Chances(places, chances, chosen.draws)


def _likely(chances: Floats) -> Integers:
    """The places that matter; the others together have a chance of at most _UNLIKELY."""
    order = np.argsort(chances)
    left_out = np.cumsum(chances[order]) <= _UNLIKELY
    return np.sort(order[~left_out])
