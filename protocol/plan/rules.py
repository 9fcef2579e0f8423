"""The checks of a plan's sizes, domain, budgets and thresholds, apart from what the plan means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan.fields import RELEASE_NAMES
from fedhist.protocol.plugins import measured_by
from fedhist.protocol.privacy.calibration import check_delta, check_epsilon

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


MAX_CANDIDATES = 4096
MAX_DOMAIN_SIZE = 2**27
MAX_USERS = 2**31
MAX_ITEMS_ALONE = 4096
LARGEST_THRESHOLD = 2.0**30
# Beyond these, doubles overflow somewhere on the way and nothing is private or nothing is useful.
_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-15, 1e15
_SMALLEST_DELTA = 1e-100
# Sums of expected counts in 2^-16 of a count stay below 2^61.
_MAX_OPEN_MASS = 2.0**45
_ABOVE_A_BAR = "kept-items"
"""The measurement that rules from outside may release over an open domain."""


def usual_delta(users: float) -> float:
    """The delta of a round that names none: one over ten times the users, and at most 1e-6.

    Above one over the users, a round that shows all data of some user at random would keep its promise.
    """
    return min(1e-6, 1 / (10 * users))


def check_sizes(plan: Plan) -> None:
    """Refuse numbers of users, items and candidates that are out of range."""
    check_whole("users", plan.users, 1, MAX_USERS)
    check_whole("candidates", plan.candidates, 2, MAX_CANDIDATES)
    check_whole("minimum cohort", plan.minimum_cohort, 1, plan.users)
    if plan.is_open:
        return
    if plan.items is None:
        raise InvalidPlan(
            "a closed domain without a number of items",
            allowed="the public number of items",
            advice="give items, or the domain open",
        )
    check_whole("items", plan.items, 1, MAX_DOMAIN_SIZE)
    if plan.sparsity is not None:
        check_whole("sparsity", plan.sparsity, 1, plan.items)
    if plan.per_item and plan.items > MAX_ITEMS_ALONE:
        raise InvalidPlan(
            f"{plan.items} items debiased one by one",
            allowed=f"up to {MAX_ITEMS_ALONE}",
            advice="each gets a share of the budget: choose few with --items-file or --top-items",
            code="too-many-items-alone",
        )


def check_relation(plan: Plan) -> None:
    """Refuse to hide the number of users where somebody else counts them."""
    counting = {
        f"masking {plan.masking}": plan.is_masked,
        "a minimum cohort above 1": plan.minimum_cohort > 1,
    }
    for name, given in counting.items():
        if plan.hides_users and given:
            raise InvalidPlan(
                f"the relation add-or-remove-one with {name}, which depends on how many users there are",
                allowed="add-or-remove-one without masking or minimum cohort",
                advice="leave it out, or use --neighbours zero-out, under which the number of users is public",
                code="shows-users",
            )


def check_mechanism(plan: Plan) -> None:
    """Refuse to leave the mechanism to a run that does not choose a bound by the norms of its users."""
    if not plan.chooses_mechanism:
        return
    problem = None
    if plan.per_item:
        problem = "debiasing"
    elif plan.noise_by_devices:
        problem = "noise from devices"
    elif plan.threshold is not None:
        problem = "a fixed threshold"
    if problem is not None:
        raise InvalidPlan(
            f"the mechanism auto with {problem}",
            allowed="auto where the server adds the noise and chooses the bound of whole histograms",
            advice="name one with --mechanism gaussian or --mechanism laplace",
            code="auto-mechanism",
        )


def check_domain(plan: Plan) -> None:
    """Refuse settings that the plan's domain does not have."""
    if plan.is_open:
        if plan.release not in RELEASE_NAMES and measured_by(plan.release) != _ABOVE_A_BAR:
            raise InvalidPlan(
                f"the release {plan.release!r} over an open domain",
                allowed=", ".join(RELEASE_NAMES),
                advice="leave --release out, or list the items with --items-file: rules from outside for open domains "
                f"release {_ABOVE_A_BAR}",
                code="unknown-release",
            )
        if plan.mechanism != "laplace" and not plan.discovers:
            raise InvalidPlan(
                f"the release {plan.release} with the {plan.mechanism} mechanism",
                allowed="one release above a bar with laplace",
                advice="leave --mechanism out, or use --release discover",
                code="auto-mechanism",
            )
        if plan.per_item:
            raise InvalidPlan(
                "debiasing over an open domain",
                allowed="debiasing of a closed domain's counts",
                advice="leave --debias out, or list the items with --items-file",
            )
        if plan.items is not None:
            raise InvalidPlan(
                "an open domain with a number of items",
                allowed="a number of items for a closed domain only",
                advice="leave items out",
            )
        if plan.discovers:
            return
        if plan.sparsity is not None:
            raise InvalidPlan(
                f"a sparsity for the release {plan.release}",
                allowed="a sparsity for a closed domain, or after a discovery",
                advice="leave --sparsity out, or use --release discover",
            )
        if plan.most_users * plan.max_threshold > _MAX_OPEN_MASS:
            raise InvalidPlan(
                f"{plan.most_users:,} users times max threshold is above 2^45",
                allowed="up to 2^45",
                advice="lower --max-threshold, or split the users over several runs",
                code="sum-too-large",
            )
        if plan.threshold is not None and plan.threshold % 1:
            raise InvalidPlan(
                f"the threshold {plan.threshold:g} over an open domain",
                allowed="a whole number of items",
                advice="round --threshold",
            )


def check_budgets(plan: Plan) -> None:
    """Refuse an epsilon or a delta that is out of range, or noise that can't be calibrated to them."""
    for name, value in (("epsilon", plan.epsilon), ("epsilon-select", plan.epsilon_select)):
        check_epsilon(value, name)
        if not _SMALLEST_EPSILON <= value <= _LARGEST_EPSILON:
            raise InvalidPlan(
                f"{name} is {value!r}", allowed="a number from 1e-15 to 1e15", code="out-of-range"
            )
    for name, delta, needed in (
        ("delta", plan.delta, not plan.is_pure),
        ("delta-select", plan.delta_select, False),
    ):
        if needed or delta != 0:
            check_delta(delta, name)
        if 0 < delta < _SMALLEST_DELTA:
            raise InvalidPlan(
                f"{name} is {delta!r}", allowed="a number from 1e-100 to below 1/2", code="out-of-range"
            )
    if plan.mechanism != "laplace" or plan.discovers:
        plan.multiplier  # noqa: B018 - raises


def check_thresholds(plan: Plan) -> None:
    """Refuse a public range of thresholds that is empty or off the grid, and a fixed threshold outside of it."""
    for name, value in (("min threshold", plan.min_threshold), ("max threshold", plan.max_threshold)):
        if not (math.isfinite(value) and 1 <= value <= LARGEST_THRESHOLD):
            raise InvalidPlan(f"{name} is {value}", allowed="a number from 1 to 2^30", code="out-of-range")
    if plan.min_threshold > plan.max_threshold:
        raise InvalidPlan(
            f"the smallest threshold {plan.min_threshold} is above the largest, {plan.max_threshold}",
            allowed="min threshold <= max threshold",
            advice="lower --min-threshold or raise --max-threshold",
            code="thresholds-crossed",
        )
    if plan.selector == "fixed":
        if plan.threshold is None:
            raise InvalidPlan(
                "the selector fixed has no threshold",
                allowed=f"a threshold from {plan.min_threshold:g} to {plan.max_threshold:g}",
                advice="give one with --threshold",
                code="no-threshold",
            )
        if not (plan.min_threshold <= plan.threshold <= plan.max_threshold):
            raise InvalidPlan(
                f"the threshold {plan.threshold:g} is outside the public range",
                allowed=f"{plan.min_threshold:g} to {plan.max_threshold:g}",
                advice="choose another --threshold, or raise --max-threshold",
                code="threshold-out-of-range",
            )
    elif plan.threshold is not None:
        raise InvalidPlan(
            f"a threshold was given, but the selector {plan.selector} chooses its own",
            allowed="a threshold with the selector fixed only",
            advice="add --selector fixed or leave --threshold out",
            code="unused-threshold",
        )
    if plan.grid_bits < 0:
        raise InvalidPlan(
            "the noise would be wider than the samplers can draw",
            allowed="a standard deviation of up to 2^27 counts an item (gaussian), a scale of up to 2^50 (laplace)",
            advice="raise --epsilon or lower --max-threshold",
            code="noise-too-wide",
        )
    if plan.step_range[0] > plan.step_range[1]:
        raise InvalidPlan(
            f"no threshold between {plan.min_threshold:g} and {plan.max_threshold:g} is on the grid",
            allowed="a range with a whole number in it, for an open domain",
            advice="raise --max-threshold",
        )


def check_whole(name: str, value: int, lowest: int, highest: int) -> None:
    """Refuse a number that is out of its range."""
    if not lowest <= value <= highest:
        raise InvalidPlan(
            f"{name} is {value}", allowed=f"a whole number from {lowest} to {highest}", code="out-of-range"
        )
