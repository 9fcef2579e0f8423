"""Every measurement in the registry, and what the contract makes of wrong ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pytest

from fedhist import Plan
from fedhist.testing import MEASUREMENT, PLANS, check_measurement
from tests.support.api import (
    MEASUREMENTS,
    Bound,
    ClippedSum,
    DecodeError,
    Envelope,
    InvalidPlan,
    Request,
    Summed,
    measurements_of,
    rule_for,
    usual_givens,
    variant,
)
from tests.support.api import AskedMeasurement as Asked
from tests.support.refusals import refused

ONE_ITEM = variant(PLANS["gaussian"], items=1, sparsity=1)
ALONE = variant(PLANS["debiased"], items=1, sparsity=1)


@pytest.mark.parametrize("check", MEASUREMENT.checks)
@pytest.mark.parametrize("kind", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_each_keeps_the_contract(kind, check):
    MEASUREMENT.run(check, Asked(kind, tuple(PLANS.values()), usual_givens(kind)))


@pytest.mark.parametrize(
    "kind", [kind for kind in MEASUREMENTS.values() if kind.fits(ONE_ITEM) or kind.fits(ALONE)]
)
def test_so_does_one_of_a_single_item(kind):
    """Two counts of one item are no further apart than the larger: replacing a user costs no more than adding one."""
    check_measurement(kind, plans=[ONE_ITEM, ALONE])


def test_the_plans_ask_for_every_measurement():
    asked = {kind for plan in PLANS.values() for kind in measurements_of(plan).values()}
    assert asked == set(MEASUREMENTS.values())


class HalfTheSensitivity(ClippedSum):
    sensitivities = property(
        lambda self: {"values": self.plan.release_sensitivity(self.threshold.steps // 2)}
    )


class TwiceTheSensitivity(ClippedSum):
    sensitivities = property(lambda self: {"values": self.plan.release_sensitivity(self.threshold.steps * 2)})


class OneRelationOnly(ClippedSum):
    @property
    def sensitivities(self):
        return {"values": replace(super().sensitivities["values"], neighbours="zero-out")}


class BoundThatHonestUsersExceed(ClippedSum):
    def check(self, summed, users):
        super().check(summed, max(users - 1, 1))


class AnySumPasses(ClippedSum):
    def check(self, summed, users):
        pass


class DependsOnTheShard(ClippedSum):
    def of(self, users, *, source):
        return Summed(super().of(users, source=source).values + (users.users > 1))


class UnderstatedLargest(ClippedSum):
    @cached_property
    def shape(self):
        shape = super().shape
        return replace(shape, largest=shape.largest // 2)


class LossyBound(Bound):
    def to_fields(self):
        return {"threshold-steps": self.threshold.steps // 2 + 512}


class LosesItsBoundOnTheWay(ClippedSum):
    takes = LossyBound


class MasksSomethingElse(ClippedSum):
    def to_masked(self, summed, labels):
        return summed.values[::-1]


class NoRoomForNoise(ClippedSum):
    @cached_property
    def shape(self):
        return replace(super().shape, noise=1)


class NoNoiseFromDevices(ClippedSum):
    share = None


class WrongWords(ClippedSum):
    @classmethod
    def words(cls, plan):
        return replace(super().words(plan), sends="7 whole numbers")


class ShowsNothing(ClippedSum):
    def shown(self, summed, labels, most):
        return []


class KeyWithoutTheNorm(ClippedSum):
    key = property(lambda self: (self.name, self.given))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (DependsOnTheShard, "sums_do_not_depend_on_the_sharding"),
        (UnderstatedLargest, "the_shape_is_what_is_sent"),
        (BoundThatHonestUsersExceed, "honest_users_pass"),
        (AnySumPasses, "claims_of_too_few_users_are_refused"),
        (HalfTheSensitivity, "one_user_moves_the_reading_by_the_sensitivity"),
        (TwiceTheSensitivity, "one_user_moves_the_reading_by_the_sensitivity"),
        (OneRelationOnly, "one_user_moves_the_reading_by_the_sensitivity"),
        (LosesItsBoundOnTheWay, "bytes_and_fields_hold_all_of_it"),
        (MasksSomethingElse, "masked_sums_are_the_plain_ones"),
        (NoRoomForNoise, "shares_of_noise_stay_inside_their_reach"),
        (NoNoiseFromDevices, "shares_of_noise_stay_inside_their_reach"),
        (WrongWords, "words_say_what_is_sent"),
        (ShowsNothing, "a_devices_answer_can_be_shown"),
        (KeyWithoutTheNorm, "equal_keys_have_equal_sums"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_wrong_one_is_caught(caught_by, kind, name):
    kind.name = "toy"
    plans = [PLANS[each] for each in ("gaussian", "laplace", "masked", "device noise, weights")]
    givens = {plan: [kind.takes(one.threshold) for one in usual_givens(ClippedSum)(plan)] for plan in plans}
    caught_by(name, check_measurement, kind, plans=plans, givens=lambda plan: givens.get(plan) or [])
    assert "toy" not in MEASUREMENTS


def asked(plan: Plan) -> Request:
    """The request of round 1, whatever the plan's release."""
    (kind,) = [kind for kind in MEASUREMENTS.values() if kind.offers and kind.fits(plan)]
    return Request(plan=plan, asks=kind.name, given=usual_givens(kind)(plan)[0])


def test_each_round_of_a_plan_has_one_measurement_and_an_unknown_release_has_none() -> None:
    for plan in PLANS.values():
        fitting = [kind.round for kind in MEASUREMENTS.values() if kind.fits(plan)]
        if plan.discovers:
            assert fitting == ["discover"]
            after = [kind.round for kind in MEASUREMENTS.values() if kind.fits(plan.discovered(2, 0.4))]
            assert sorted(after) == ["release", "select"]
            continue
        assert sorted(fitting) == ["release", "select"]
        if plan.is_open:
            with refused(InvalidPlan, "unknown-release"):
                replace(plan, release="of-somebody-else")
            continue
        other = replace(plan, release="of-somebody-else")
        assert [kind.round for kind in MEASUREMENTS.values() if kind.fits(other)] == ["select"]
        with refused(InvalidPlan, "unknown-release"):
            rule_for(other)
        with refused(DecodeError, "unknown-release"):
            Envelope.from_fields(Envelope(run="r", request=asked(other)).to_fields())
