"""Every measurement in the registry, and what the contract makes of wrong ones."""

from __future__ import annotations

from dataclasses import replace

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


def moved_by(factor):
    """A clipped sum that says that a user moves it by this times its threshold."""
    return property(
        lambda self: {"values": self.plan.release_sensitivity(int(factor * self.threshold.steps))}
    )


def of_one_relation(self):
    return {"values": replace(ClippedSum.sensitivities.fget(self)["values"], neighbours="zero-out")}


def shaped(change):
    def shape(self):
        usual = ClippedSum.shape.func(self)
        return replace(usual, **change(usual))

    return property(shape)


def by_the_shard(self, users, *, source):
    return Summed(ClippedSum.of(self, users, source=source).values + (users.users > 1))


class LossyBound(Bound):
    def to_fields(self):
        return {"threshold-steps": self.threshold.steps // 2 + 512}


WRONG = {
    "it depends on the shard": ({"of": by_the_shard}, "sums_do_not_depend_on_the_sharding"),
    "the largest is understated": (
        {"shape": shaped(lambda shape: {"largest": shape.largest // 2})},
        "the_shape_is_what_is_sent",
    ),
    "honest users exceed the bound": (
        {"check": lambda self, summed, users: ClippedSum.check(self, summed, max(users - 1, 1))},
        "honest_users_pass",
    ),
    "any sum passes": ({"check": lambda self, summed, users: None}, "claims_of_too_few_users_are_refused"),
    "half the sensitivity": (
        {"sensitivities": moved_by(0.5)},
        "one_user_moves_the_reading_by_the_sensitivity",
    ),
    "twice the sensitivity": (
        {"sensitivities": moved_by(2)},
        "one_user_moves_the_reading_by_the_sensitivity",
    ),
    "one relation only": (
        {"sensitivities": property(of_one_relation)},
        "one_user_moves_the_reading_by_the_sensitivity",
    ),
    "it loses its bound on the way": ({"takes": LossyBound}, "bytes_and_fields_hold_all_of_it"),
    "it masks something else": (
        {"to_masked": lambda self, summed, labels: summed.values[::-1]},
        "masked_sums_are_the_plain_ones",
    ),
    "no room for noise": (
        {"shape": shaped(lambda shape: {"noise": 1})},
        "shares_of_noise_stay_inside_their_reach",
    ),
    "no noise from devices": ({"share": None}, "shares_of_noise_stay_inside_their_reach"),
    "wrong words": (
        {"words": classmethod(lambda cls, plan: replace(ClippedSum.words(plan), sends="7 whole numbers"))},
        "words_say_what_is_sent",
    ),
    "it shows nothing": (
        {"shown": lambda self, summed, labels, most: []},
        "a_devices_answer_can_be_shown",
    ),
    "a key without the norm": (
        {"key": property(lambda self: (self.name, self.given))},
        "equal_keys_have_equal_sums",
    ),
}


@pytest.mark.parametrize(("changes", "name"), WRONG.values(), ids=WRONG)
def test_a_wrong_one_is_caught(caught_by, changes, name):
    kind = type("Wrong", (ClippedSum,), {"name": "toy"} | changes)
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
