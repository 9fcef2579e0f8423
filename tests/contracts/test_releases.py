"""Every release rule in the registry, and what the contract makes of wrong ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedhist import SeededSource
from fedhist.testing import PLANS, RELEASE_RULE, check_release_rule
from tests.support.api import RULES, CentralNoise, KeysAboveBar, Ruled, variant

KNOWN = RULES.with_installed()


@pytest.mark.parametrize("check", RELEASE_RULE.checks)
@pytest.mark.parametrize("rule", KNOWN.values(), ids=KNOWN)
def test_each_keeps_the_contract(rule, check):
    RELEASE_RULE.run(check, Ruled(rule, tuple(PLANS.values())))


class ChargesNothing(CentralNoise):
    def charges(self, plan, threshold):
        return ()


class ChargesMoreThanPlanned(CentralNoise):
    def charges(self, plan, threshold):
        (charge,) = super().charges(plan, threshold)
        return (charge,) if threshold is None else (charge, charge)


class CostsWhatWasChosen(CentralNoise):
    def charges(self, plan, threshold):
        (charge,) = super().charges(plan, threshold)
        share = 1 if threshold is None else threshold.value / plan.max_threshold
        return (replace(charge, epsilon=share * charge.epsilon),)


class DrawsBeforeTheCharge(CentralNoise):
    def given(self, plan, selection, *, source):
        source.fork("release").words(1)
        return super().given(plan, selection, source=source)


class ChargesAgain(CentralNoise):
    def build(self, plan, selection, reading, *, ledger, source):
        for charge in self.charges(plan, selection.threshold):
            ledger.charge(charge)
        return super().build(plan, selection, reading, ledger=ledger, source=source)


class DrawsFromASourceOfItsOwn(CentralNoise):
    def build(self, *arguments, source, **settings):
        return super().build(*arguments, source=SeededSource(0), **settings)


class NamesWhatNobodyHolds(KeysAboveBar):
    def build(self, *arguments, **settings):
        release = super().build(*arguments, **settings)
        return replace(release, labels=["nobody's", *release.labels[1:]])


class OverstatesItsError(CentralNoise):
    def build(self, *arguments, **settings):
        release = super().build(*arguments, **settings)
        return replace(release, standard_error=1.5 * release.standard_error)


class OneNoiseForAll(CentralNoise):
    def build(self, plan, selection, reading, **settings):
        release = super().build(plan, selection, reading, **settings)
        exact = reading.values[: plan.items] * 2.0**-plan.grid_bits
        return replace(release, histogram=exact + (release.histogram - exact)[0])


class DrawsHalfTheNoise(CentralNoise):
    def build(self, plan, *arguments, **settings):
        return replace(
            super().build(variant(plan, epsilon=2 * plan.epsilon), *arguments, **settings), plan=plan
        )


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (ChargesNothing, "planned_charges_bound_the_real_ones"),
        (ChargesMoreThanPlanned, "planned_charges_bound_the_real_ones"),
        (CostsWhatWasChosen, "planned_charges_bound_the_real_ones"),
        (DrawsBeforeTheCharge, "nothing_is_drawn_before_all_is_charged"),
        (ChargesAgain, "the_release_tells_its_own_story"),
        (DrawsFromASourceOfItsOwn, "the_source_alone_decides_the_noise"),
        (NamesWhatNobodyHolds, "keys_and_labels_name_the_values"),
        (OverstatesItsError, "the_noise_has_the_stated_standard_error"),
        (OneNoiseForAll, "the_noise_has_the_stated_standard_error"),
        (DrawsHalfTheNoise, "the_noise_hides_one_user_as_charged"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_wrong_one_is_caught(caught_by, rule, name):
    caught_by(name, check_release_rule, rule())
