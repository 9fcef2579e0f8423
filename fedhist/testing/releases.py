"""What every release rule must do: charge before it draws, draw from its source alone, and state its error."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhist.protocol.errors import BudgetExceeded
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements import MEASUREMENTS
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import as_built_in
from fedhist.protocol.privacy.composition import basic_total
from fedhist.protocol.privacy.ledger import Charge, GaussianLoss, Ledger
from fedhist.protocol.privacy.neighbours import COUNTED, Neighbours
from fedhist.protocol.privacy.randomness import SeededSource, Source
from fedhist.protocol.rounds import Request
from fedhist.server.coordinator import Asking, Released, State, advance
from fedhist.server.releases import Release, ReleaseRule
from fedhist.server.selection.contract import Selection
from fedhist.server.steps import Handed, Publish
from fedhist.testing.contract import (
    PLANS,
    Contract,
    WatchedSource,
    labels_for,
    part_of_reading,
    require,
    telling_rows,
    total_of,
    variant,
)

REPEATS = 60
WITHIN = 0.25
"""The noise of REPEATS releases has the stated standard error up to this, relatively."""

ALIKE = 0.6
"""Independent noises of two values are correlated by less, over REPEATS releases."""

HELD = 0.85
"""The share of clipped counts that are not below a lower limit of the level 0.95, over a third of REPEATS releases."""

SLACK = 1.1
"""Discrete noise that is cut off has a little less deviation than its scale says."""

RELEASE_RULE: Contract[Ruled] = Contract("release rule", lambda ruled: as_built_in())


@dataclass(frozen=True)
class Ruled:
    """A release rule with the plans that it is checked under."""

    rule: ReleaseRule
    plans: Collection[Plan]

    def __iter__(self) -> Iterator[Plan]:
        fitting = [plan for plan in self.plans if self.rule.fits(plan) and not plan.chooses_mechanism]
        require(fitting, f"no plan fits {self.rule.name}; pass some that do as plans=")
        return iter(fitting)


def check_release_rule(
    rule: ReleaseRule, *, plans: Collection[Plan] = tuple(PLANS.values()), skip: Collection[str] = ()
) -> None:
    """Run all checks on a release rule, in the registry or not. What it measures must be in MEASUREMENTS.

    Args:
        rule: the rule.
        plans: small plans, some of which it fits.
        skip: names of checks that it can't pass.
    """
    RELEASE_RULE.run_all(Ruled(rule, plans), skip)


@RELEASE_RULE.check
def planned_charges_bound_the_real_ones(ruled: Ruled) -> None:
    """At every threshold that may be chosen. They cost the same at each, or the cost would tell of the choice."""
    for plan in ruled:
        planned = basic_total(ruled.rule.charges(plan, None))
        costs = set()
        for steps in plan.candidate_steps.tolist():
            charges = ruled.rule.charges(plan, plan.at_steps(steps))
            real = basic_total(charges)
            require(charges and real.epsilon > 0, "a release of users' data costs nothing")
            for charge in charges:
                require(charge.round == "release", f"a charge of round {charge.round}")
                relation = charge.neighbours == plan.neighbours.value
                require(relation, f"a charge for {charge.neighbours} neighbours")
            slack = 1 + 1e-12
            within = real.epsilon <= planned.epsilon * slack and real.delta <= planned.delta * slack
            require(within, f"{real} is charged at {steps} steps, and {planned} was planned")
            costs.add((real.epsilon, real.delta))
        require(len(costs) == 1, f"the cost depends on the threshold that is chosen: {sorted(costs)}")


@RELEASE_RULE.check
def nothing_is_drawn_before_all_is_charged(ruled: Ruled) -> None:
    """Nor asked, where answers are results already: noisy, or a table that may not decode. Any charge may fail."""
    for plan in ruled:
        ahead = MEASUREMENTS[ruled.rule.measures].charged_ahead(plan)
        for place in range(len(ruled.rule.charges(plan, _chosen(plan).threshold))):
            run = _Run(ruled.rule, plan, ledger=Ledger(_Refusal(place)))
            try:
                run.release()
            except BudgetExceeded:
                require(not (run.asked and ahead), "devices were asked before a charge")
                drawn = [purpose for purpose in run.source.drawn if purpose[:2] == ("server", "release")]
                require(not drawn, "noise was drawn before a charge")
            else:
                raise AssertionError(f"charge {place + 1} of the rule is never made")


@RELEASE_RULE.check
def the_release_tells_its_own_story(ruled: Ruled) -> None:
    """The plan, the threshold, the charges, and whether it is private."""
    for plan in ruled:
        run = _Run(ruled.rule, plan)
        release, threshold = run.release(), _chosen(plan).threshold
        require(release.plan == plan, "the release is of another plan")
        require(release.threshold == threshold.value, "the release names another threshold")
        charged = run.ledger.entries == ruled.rule.charges(plan, threshold)
        require(charged, "the ledger holds other charges than the rule's")
        require(release.charges == run.ledger.entries, "the release holds other charges than the ledger")
        private = run.ledger.private and not release.seeded
        require(release.private == private, "the release and the ledger differ on what is private")


@RELEASE_RULE.check
def the_source_alone_decides_the_noise(ruled: Ruled) -> None:
    """The same seed gives the same release, and another one another."""
    for plan in ruled:
        one, again, other = (_Run(ruled.rule, plan, seed=seed).release().histogram for seed in (3, 3, 4))
        require(np.array_equal(one, again), "the same seed gives another release")
        require(not np.array_equal(one, other), "another seed gives the same release")


@RELEASE_RULE.check
def estimates_and_limits_follow_from_the_release(ruled: Ruled) -> None:
    """One for each value, finite and not negative, from the release alone; limits are seldom above clipped counts."""
    for plan in ruled:
        releases = [
            _Run(ruled.rule, plan, seed=seed).release() for seed in (3, 3, *range(4, 4 + REPEATS // 3))
        ]
        for release in releases:
            estimate, least = release.estimate, release.at_least
            require(
                estimate.shape == least.shape == release.histogram.shape,
                "there is not one estimate and one lower limit for each value",
            )
            require(
                bool((np.isfinite(estimate) & (estimate >= 0)).all()), "an estimate is below 0 or no number"
            )
            require(
                bool(((least >= 0) & (least <= estimate)).all()),
                "a lower limit is below 0, above the estimate or no number",
            )
        require(
            np.array_equal(releases[0].estimate, releases[1].estimate), "an estimate is not deterministic"
        )
        if releases[0].inference.at_least is None:
            continue
        given = ruled.rule.given(plan, _chosen(plan), source=SeededSource(1))
        measurement = Request(plan, ruled.rule.measures, given).measurement
        total = total_of(measurement, _rows(plan), noise_seed=None)
        sums = part_of_reading(measurement, total, "values") * 2.0**-plan.grid_bits
        sums = (
            sums[sums > min(sums.max(), releases[0].bar or -1)] if plan.items is None else sums[: plan.items]
        )
        held = [
            np.mean(release.at_least <= sums)
            for release in releases[1:]
            if len(release.at_least) == len(sums)
        ]
        require(
            held and np.mean(held) > HELD, f"limits are not above {np.mean(held):.0%} of the clipped counts"
        )


@RELEASE_RULE.check
def keys_and_labels_name_the_values(ruled: Ruled) -> None:
    """One of each for each value over an open domain, none over a closed one; what somebody holds and nobody else."""
    for plan in ruled:
        release = _Run(ruled.rule, plan).release()
        if plan.items is not None:
            require(len(release.histogram) == plan.closed.items, "a closed domain's release has other items")
            require(release.labels is None and release.keys is None, "a closed domain's release names keys")
            continue
        labels, keys = release.labels or (), release.keys
        require(len(labels) == len(release.histogram), "there is not one label for each value")
        require(keys is not None and len(keys) == len(labels), "there is not one key for each value")
        held = {label for label, sums in zip(labels_for(plan), _rows(plan).sum(axis=0), strict=True) if sums}
        require(labels and set(labels) <= held, "the release names items that nobody holds, or none")
        shown = release.bar is not None and (release.histogram > release.bar).all()
        require(shown, "a value is below the bar")


@RELEASE_RULE.check
def the_noise_has_the_stated_standard_error(ruled: Ruled) -> None:
    """Over REPEATS releases of the same sum, for all values together. Each has noise of its own."""
    for plan in ruled:
        releases = [_Run(ruled.rule, plan, seed=seed).release() for seed in range(REPEATS)]
        lengths = {len(release.histogram) for release in releases}
        require(len(lengths) == 1, "items far above the bar are missing from some releases")
        items = [release.item_release for release in releases]
        values = np.array(
            [one.histogram if own is None else own.clipped for one, own in zip(releases, items, strict=True)]
        )
        spread = float(np.sqrt(np.mean((values.std(axis=0, ddof=1) / _errors(releases[0])) ** 2)))
        require(abs(spread - 1) < WITHIN, f"the noise is {spread:.3f} times as wide as the release says")
        alike = float(np.abs(np.tril(np.corrcoef(values.T), -1)).max()) if values.shape[1] > 1 else 0.0
        require(alike < ALIKE, f"the noises of two values have a correlation of {alike:.3f}")


@RELEASE_RULE.check
def the_noise_hides_one_user_as_charged(ruled: Ruled) -> None:
    """In standard errors no user moves the sum further than the charge allows, for both relations.

    By 1/multiplier in l2 norm where a Gaussian is charged, else by sqrt(2) epsilon in l1 norm, as for Laplace noise.
    """
    for neighbours in Neighbours:
        changed = [variant(plan, neighbours=neighbours.value) for plan in ruled]
        plans = [plan for plan in changed if plan and ruled.rule.fits(plan)]
        for plan in Ruled(ruled.rule, plans) if plans or neighbours in COUNTED else ():
            release = _Run(ruled.rule, plan).release()
            given = ruled.rule.given(plan, _chosen(plan), source=SeededSource(1))
            measurement = Request(plan, ruled.rule.measures, given).measurement
            rows = [np.vstack([_rows(plan), row]) for row in telling_rows(plan)]
            totals = [total_of(measurement, each, noise_seed=None) for each in (_rows(plan), *rows)]
            sums = np.array([part_of_reading(measurement, total, "values") for total in totals])
            firsts = sums[1:] if neighbours is Neighbours.REPLACE_ONE else sums[:1]
            moves = (firsts[:, np.newaxis] - sums[1:]) * 2.0**-plan.grid_bits / _errors(release)
            losses = [charge.loss for charge in release.charges]
            gaussian = [loss.multiplier for loss in losses if isinstance(loss, GaussianLoss)]
            moved = np.linalg.norm(moves, ord=2 if gaussian else 1, axis=2).max()
            laplace = math.sqrt(2) * basic_total(release.charges).epsilon * SLACK
            most = 1 / min(gaussian) if gaussian else laplace
            told = f"one user moves the sum by {moved:.4g} standard errors; charged are {most:.4g} ({neighbours})"
            require(moved <= most, told)


class _Chosen:
    """A step before the release that hands on its threshold."""

    def charges(self, plan: Plan, handed: Handed) -> tuple[Charge, ...]:
        return ()

    def request(self, plan: Plan, handed: Handed, *, source: Source) -> Request | None:
        return None

    def conclude(self, plan: Plan, reading: Any, handed: Handed, *, ledger: Ledger, source: Source) -> Handed:
        return _chosen(plan)


@dataclass
class _Run:
    """The last steps of a run: the coordinator is handed a threshold, asks for the sum and releases it."""

    rule: ReleaseRule
    plan: Plan
    seed: int = 2
    ledger: Ledger = field(default_factory=Ledger)
    asked: bool = False

    def __post_init__(self) -> None:
        self.source = WatchedSource(self.seed)

    def release(self) -> Release:
        """What comes out. Only the noise depends on the seed."""
        given = self.rule.given(self.plan, _chosen(self.plan), source=SeededSource(1))
        before = Request(self.plan, self.rule.measures, given)
        state: State = Asking(before, _Chosen(), (Publish(self.rule),), None)
        total = total_of(before.measurement, _rows(self.plan), noise_seed=None)
        state = advance(state, total, ledger=self.ledger, source=self.source)
        require(isinstance(state, Asking), f"the coordinator is {state} where it should ask for the sum")
        if isinstance(state, Asking):
            self.asked = True
            total = total_of(state.request.measurement, _rows(self.plan), noise_seed=self.seed)
            state = advance(state, total, ledger=self.ledger, source=self.source)
        if isinstance(state, Released):
            return state.release
        raise AssertionError(f"the coordinator is {state} where it should have released")


@dataclass
class _Refusal:
    """A ledger's journal that takes this many charges and refuses the next."""

    left: int

    def __call__(self, charge: Charge) -> None:
        if self.left == 0:
            raise BudgetExceeded
        self.left -= 1


def _errors(release: Release) -> Floats:
    """The standard error of each value, before debiasing."""
    own = release.item_release
    return np.asarray(release.standard_error if own is None else own.clipped_errors)


def _chosen(plan: Plan) -> Selection:
    """A threshold in the middle of the plan's range."""
    return Selection(plan.at_steps(sum(plan.step_range) / 2))


def _rows(plan: Plan) -> Integers:
    """Users of a few items, of whom nobody has the last one.

    Over an open domain one more is far below the bar, and the others are far above it.
    """
    generator = np.random.Generator(np.random.Philox(7))
    rows = generator.poisson(4.0, size=(plan.users, len(labels_for(plan))))
    rows[:, -1] = 0
    if plan.items is None:
        rows[:, -2] = np.arange(plan.users) == 0
    return rows
