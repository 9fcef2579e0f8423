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


def wrong(base=CentralNoise, **changes):
    """A rule like the base with something changed."""
    return type("Wrong", (base,), changes)


def charging(change):
    def charges(self, plan, threshold):
        share = 1 if threshold is None else threshold.value / plan.max_threshold
        return change(CentralNoise.charges(self, plan, threshold), share)

    return wrong(charges=charges)


def building(change, base=CentralNoise):
    def build(self, *arguments, **settings):
        return change(base.build(self, *arguments, **settings))

    return wrong(base, build=build)


class DrawsBeforeTheCharge(CentralNoise):
    def given(self, plan, selection, *, source):
        source.fork("release").words(1)
        return super().given(plan, selection, source=source)


class ChargesAgain(CentralNoise):
    def build(self, plan, selection, reading, *, ledger, source):
        for charge in self.charges(plan, selection.threshold):
            ledger.charge(charge)
        return super().build(plan, selection, reading, ledger=ledger, source=source)


class OneNoiseForAll(CentralNoise):
    def build(self, plan, selection, reading, **settings):
        release = super().build(plan, selection, reading, **settings)
        exact = reading.values[: plan.items] * 2.0**-plan.grid_bits
        return replace(release, histogram=exact + (release.histogram - exact)[0])


def half_the_noise(self, plan, *arguments, **settings):
    louder = variant(plan, epsilon=2 * plan.epsilon)
    return replace(CentralNoise.build(self, louder, *arguments, **settings), plan=plan)


def own_source(self, *arguments, source, **settings):
    return CentralNoise.build(self, *arguments, source=SeededSource(0), **settings)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (charging(lambda charges, share: ()), "planned_charges_bound_the_real_ones"),
        (
            charging(lambda charges, share: charges if share == 1 else charges * 2),
            "planned_charges_bound_the_real_ones",
        ),
        (
            charging(lambda charges, share: (replace(charges[0], epsilon=share * charges[0].epsilon),)),
            "planned_charges_bound_the_real_ones",
        ),
        (DrawsBeforeTheCharge, "nothing_is_drawn_before_all_is_charged"),
        (ChargesAgain, "the_release_tells_its_own_story"),
        (wrong(build=own_source), "the_source_alone_decides_the_noise"),
        (
            building(
                lambda release: replace(release, labels=["nobody's", *release.labels[1:]]), KeysAboveBar
            ),
            "keys_and_labels_name_the_values",
        ),
        (
            building(lambda release: replace(release, standard_error=1.5 * release.standard_error)),
            "the_noise_has_the_stated_standard_error",
        ),
        (OneNoiseForAll, "the_noise_has_the_stated_standard_error"),
        (wrong(build=half_the_noise), "the_noise_hides_one_user_as_charged"),
    ],
    ids=[
        *("charges nothing", "charges more than planned", "costs what was chosen", "draws before the charge"),
        *(
            "charges again",
            "own source",
            "a name of nobody's",
            "a larger error",
            "one noise",
            "half the noise",
        ),
    ],
)
def test_a_wrong_one_is_caught(caught_by, rule, name):
    caught_by(name, check_release_rule, rule())
