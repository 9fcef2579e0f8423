"""Methods of one's own in a session: what is taken, what is refused, and what a plan says of them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import fedhist
from fedhist import InvalidInput, Ledger, run_rounds
from fedhist.server import charged
from tests.extending.conftest import SAMPLES
from tests.support.api import (
    ANY_NORM,
    MEASUREMENTS,
    SELECTORS,
    ApproximateLoss,
    Bound,
    CentralNoise,
    ClippedSum,
    Fixed,
    InvalidPlan,
    OtherPlugin,
    Replay,
    Request,
    Round,
    Selection,
    Selector,
    TailMeasurement,
    UnexpectedMessage,
    check_runnable,
    exponential_charge,
    fitting,
    measurements_of,
    registered,
    select_request,
    tail_count,
)
from tests.support.refusals import refused

USERS = fedhist.HeavyTailedPopulation(users=200, items=8, seed=1)
Small = partial(fedhist.Plan, users=200, items=8)


class Middle(Selector):
    name = "middle"
    reads = (("counts", ANY_NORM),)

    def charges(self, plan):
        return (exponential_charge(plan, tail_count(neighbours=plan.neighbours).value),)

    def select(self, plan, statistic, *, source):
        return Selection(plan.at_steps(int(plan.candidate_steps[len(plan.candidate_steps) // 2])))


def middle(**changes):
    """A selector like Middle with something changed."""
    return type("Odd", (Middle,), {"name": "odd"} | changes)


def choosing(change):
    """A choice like Middle's with something changed."""

    def select(self, plan, statistic, *, source):
        return change(Middle.select(self, plan, statistic, source=source), plan)

    return {"select": select}


def rule(name, **changes):
    """Registers central noise with something changed."""
    fedhist.register(type("Odd", (CentralNoise,), {"name": name} | changes))


def building(change):
    """A release like that of central noise with something changed."""

    def build(self, plan, selection, reading, *, ledger, source):
        return change(
            CentralNoise.build(self, plan, selection, reading, ledger=ledger, source=source), ledger
        )

    return {"build": build}


def test_it_runs_by_its_name_and_its_charge_is_in_the_ledger():
    fedhist.register(Middle)
    plan = Small(selector="middle")
    result = fedhist.simulate(USERS, plan, seed=1)
    assert [charge.name for charge in result.release.charges] == [
        "exponential-mechanism",
        "discrete-gaussian",
    ]
    assert fedhist.simulate(USERS, plan, evaluate=False).release.private
    assert result.total.epsilon == pytest.approx(1.1)
    assert result.to_json()["plan"]["plugins"] == list(plan.plugins)
    same = fedhist.histogram(USERS, selector="middle", seed=1)
    assert np.array_equal(same.release.histogram, result.release.histogram)


def test_a_plan_names_it_and_comes_back_from_json_and_one_of_built_in_methods_does_not():
    before = Small()
    named = fedhist.load_plugin(SAMPLES / "mine.py")
    assert (Small(), Small().digest, before.plugins) == (before, before.digest, ())
    assert "plugins" not in before.to_json()
    plan = Small(selector="mine")
    assert plan.plugins == named == ("selector mine@1.0",)
    again = fedhist.Plan.from_json(plan.to_json())
    assert (again, again.digest) == (plan, plan.digest)
    assert replace(plan, selector="oracle").plugins == ()
    assert Small(release="holders", selector="mine").digest != plan.digest


def test_a_release_rule_brings_its_measurement():
    fedhist.load_plugin(SAMPLES / "holders.py")
    plan = Small(release="holders", epsilon=50.0, max_threshold=8.0)
    assert [text.split()[0] for text in plan.plugins] == ["release", "measurement"]
    result = fedhist.simulate(USERS, plan, seed=1)
    assert result.release.histogram.max() <= 205


@pytest.mark.parametrize(
    "named",
    [
        ["selector mine@2.0"],
        ["selector mine"],
        ["selector yours@1.0"],
        ["selector mine@1.0", "selector mine@1.0"],
        [],
    ],
)
def test_a_plan_of_other_methods_or_versions_is_refused(named):
    fedhist.load_plugin(SAMPLES / "mine.py")
    document = Small(selector="mine").to_json()
    assert document["plugins"] == ["selector mine@1.0"]
    with refused(OtherPlugin, "other-plugin"):
        fedhist.Plan.from_json(document | {"plugins": named})


@pytest.mark.parametrize("named", ["selector mine@1.0", ["mine"], ["engine mine"], [3], [["selector mine"]]])
def test_what_is_no_list_of_names_is_no_plan(named):
    with refused(InvalidPlan, "not-a-list-of-plugins"):
        fedhist.Plan.from_json(Small().to_json() | {"plugins": named})


def test_a_plan_that_was_made_before_its_method_was_loaded_or_of_another_version_does_not_run():
    early = Small(selector="middle")
    fedhist.register(Middle)
    plan = Small(selector="middle")
    check_runnable(plan, simulated=True)
    fedhist.register(type("Newer", (Middle,), {"version": "2"}))
    for old in (early, plan):
        with refused(OtherPlugin, "other-plugin"):
            check_runnable(old, simulated=True)


@pytest.mark.parametrize("selector", [middle(charges=lambda self, plan: ()), middle(private=False)])
def test_without_a_charge_it_is_not_private_anywhere(selector, tmp_path):
    fedhist.register(selector)
    plan = Small(selector=selector.name)
    result = fedhist.simulate(USERS, plan, seed=1)
    assert not result.release.private
    assert math.isinf(result.total.epsilon)
    assert f"not private: the selector {selector.name} read the exact statistic" in result.notes
    document = result.to_json()
    assert (document["private"], document["simulation_only"]) == (False, True)
    with refused(InvalidPlan, "not-private", selector.name):
        check_runnable(plan, simulated=False)
    with (
        refused(InvalidInput, "not-private"),
        charged(tmp_path / "ledger.db", plan, label="x"),
    ):
        pass
    assert not (tmp_path / "ledger.db").exists()
    with refused(InvalidInput, "not-private"):
        fedhist.plan_for_total(users=200, items=8, selector=selector.name, total_epsilon=1.0)


@pytest.mark.parametrize("mechanism", ["gaussian", "auto"])
def test_a_release_rule_without_a_charge_is_not_private_whatever_it_says(mechanism):
    says = building(lambda release, _: replace(release, private=True, charges=()))
    rule("free", charges=lambda self, plan, threshold: (), **says)
    plan = Small(release="free", mechanism=mechanism)
    result = fedhist.simulate(USERS, plan, seed=1)
    assert (result.release.private, len(result.release.charges)) == (False, 2)
    assert "not private: the release rule free read the exact sum" in result.notes
    # Neither seeded nor evaluated, which would make it not private whatever it is charged.
    assert not fedhist.simulate(USERS, plan, evaluate=False).release.private
    with refused(InvalidPlan, "not-private"):
        check_runnable(plan, simulated=False)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"charges": lambda self, plan: Middle.charges(self, replace(plan, epsilon_select=0.3))},
            ("charge-too-large", "0.3", "epsilon-select", "delta-select"),
        ),
        (
            {"charges": lambda self, plan: (replace(Middle.charges(self, plan)[0], round="release"),)},
            ("wrong-charge",),
        ),
        ({"charges": lambda self, plan: 0.1}, ("charges-not-a-tuple", "float")),
        (choosing(lambda chosen, plan: Selection(4.0)), ("no-selection",)),
        (choosing(lambda chosen, plan: replace(chosen, mechanism="laplace")), ("wrong-mechanism",)),
        (
            choosing(lambda chosen, plan: Selection(replace(plan.at_steps(0), steps=plan.step_range[1] + 1))),
            ("threshold-out-of-range",),
        ),
        *(
            (choosing(lambda chosen, plan, fields=fields: replace(chosen, **fields)), (code, "selector odd"))
            for fields, code in (
                ({"scores": np.arange(3)}, "bad-scores"),
                ({"scores": ["a"] * 128}, "bad-scores"),
                ({"scores": np.full(128, np.nan)}, "bad-scores"),
                ({"scores": np.arange(3), "candidates": np.arange(4)}, "bad-scores"),
                ({"item_thresholds": [1, 2, 3]}, "threshold-out-of-range"),
            )
        ),
    ],
)
def test_a_selector_that_charges_or_chooses_what_it_may_not_releases_nothing(changes, told):
    """What devices count is an upper limit of what is charged, and a selection can be shown."""
    fedhist.register(middle(**changes))
    with refused(InvalidPlan, *told):
        fedhist.simulate(USERS, Small(selector="odd"), seed=1)


def test_a_rule_can_t_charge_while_it_draws():
    rule("late", **building(lambda release, ledger: ledger.charge(ledger.entries[-1]) or release))
    with refused(InvalidPlan, "charged-while-drawing"):
        fedhist.simulate(USERS, Small(release="late"), seed=1)


def test_an_engine_that_opens_nothing_is_a_sentence():
    with refused(InvalidInput, "bad-engine"):
        fedhist.simulate(USERS, Small(), engine=lambda population, *, seed, observe: None)


@pytest.mark.parametrize(
    ("field", "change", "code"),
    [
        ("histogram", lambda release: release.histogram[1:], "bad-release"),
        ("histogram", lambda release: release.histogram * np.nan, "bad-release"),
        ("histogram", lambda release: list(release.histogram), "bad-release"),
        ("histogram", lambda release: release.histogram.astype(str), "bad-release"),
        ("threshold", lambda release: None, "bad-release-numbers"),
        ("standard_error", lambda release: math.inf, "bad-release-numbers"),
        ("labels", lambda release: ["what", "users", "typed"], "items-of-its-own"),
        ("keys", lambda release: np.arange(3), "items-of-its-own"),
    ],
)
def test_a_rule_that_builds_what_can_t_be_written_releases_nothing(field, change, code):
    rule("odd", **building(lambda release, _: replace(release, **{field: change(release)})))
    with refused(InvalidPlan, code, "rule odd"):
        fedhist.simulate(USERS, Small(release="odd"), seed=1)


def test_a_rule_can_t_hide_that_its_noise_has_a_seed():
    rule("unseeded", **building(lambda release, _: replace(release, seeded=False)))
    assert fedhist.simulate(USERS, Small(release="unseeded"), seed=1).release.seeded


def test_where_devices_add_the_noise_nothing_from_outside_is_sent():
    """A node that insists on noise from devices would send the exact sum under its masks."""
    fedhist.load_plugin(SAMPLES / "holders.py")
    devices = {"masking": "secagg", "participants": 5, "noise_from": "devices"}
    plan = Small(release="holders", **devices)
    assert not any(kind.round == "release" and kind.admitted(plan) for kind in MEASUREMENTS.values())
    with refused(InvalidPlan, "unknown-release", "holders"):
        check_runnable(plan, simulated=True)


@pytest.mark.parametrize("of", [Round.DISCOVER, Round.SELECT])
def test_a_measurement_is_of_the_round_that_devices_count_for_it(of):
    """Else a device would take the release for a choice, or for nothing at all."""

    says = {"name": "elsewhere", "releases": ("elsewhere",), "round": of}
    with refused(InvalidInput, "wrong-round", of.value):
        fedhist.register(type("Elsewhere", (ClippedSum,), says))


def test_a_rule_can_t_release_what_devices_count_as_a_choice():
    rule("tails", measures="tail")
    with refused(InvalidPlan, "wrong-measurement", "tail"):
        check_runnable(Small(release="tails"), simulated=True)


def test_where_the_run_chooses_the_mechanism_a_rule_is_charged_for_what_it_says_and_no_noise_of_ours():
    """Of its noise nothing is known but (epsilon, delta): a tight total can't take it for Gaussian."""

    def charges(self, plan, threshold):
        (charge,) = CentralNoise.charges(self, plan, threshold)
        return (replace(charge, epsilon=plan.epsilon / 2, delta=plan.delta / 2, loss=ApproximateLoss()),) * 2

    rule("halves", charges=charges)
    release = fedhist.simulate(USERS, Small(release="halves", mechanism="auto"), seed=1).release
    charge = release.charges[-1]
    assert (len(release.charges), charge.epsilon, charge.delta) == (2, 1.0, release.plan.delta)
    assert isinstance(charge.loss, ApproximateLoss)


@pytest.mark.parametrize("multiplier", [0.0, 1.0, math.inf, math.nan])
def test_a_rule_can_t_have_less_gaussian_noise_than_epsilon_and_delta_need(multiplier):
    rule("quiet", multiplier=lambda self, epsilon, delta: multiplier)
    with refused(InvalidPlan, "too-little-noise"):
        Small(release="quiet")
    assert Small(release="quiet", mechanism="laplace").plugins == ("release quiet",)


def test_a_measurement_answers_under_plans_that_name_it_and_no_others():
    fedhist.load_plugin(SAMPLES / "holders.py")
    plan = Small(max_threshold=4.0)
    bound = Bound(plan.at_steps(plan.step_range[1]))
    with pytest.raises(UnexpectedMessage):
        Request(plan, "holders", bound).measurement  # noqa: B018 - made when it is asked for
    named = Small(max_threshold=4.0, release="holders")
    assert Request(named, "holders", bound).measurement.name == "holders"


def test_a_selector_reads_a_measurement_of_its_own():
    fedhist.load_plugin(SAMPLES / "distinct.py")
    settings = {"selector": "by-distinct", "epsilon_select": 50.0, "max_threshold": 20.0}
    plan = Small(**settings)
    assert [text.split()[1] for text in plan.plugins] == ["by-distinct", "distinct-tail"]
    asked = select_request(plan)
    assert asked.asks == "distinct-tail"
    assert measurements_of(plan)["select"] is type(asked.measurement)
    # Sums are shared among plans by this key.
    assert asked.key != select_request(replace(plan, selector="weighted-quantile")).key
    result = fedhist.simulate(USERS, plan, seed=1)
    masked = fedhist.simulate(USERS, Small(**settings, masking="secagg", participants=8), seed=1)
    # Nobody has more than eight different items.
    assert result.threshold == masked.threshold < 3
    assert "by-distinct" in fitting(Small())
    assert "by-distinct" not in fitting(Small(masking="secagg", participants=8, noise_from="devices"))


class TakesArguments(Middle):
    name = "takes-arguments"

    def __init__(self, size):
        self.size = size


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (middle(name=""), ("no-name",)),
        (type("Unfinished", (Selector,), {"name": "unfinished"}), ("unfinished-plugin",)),
        (TakesArguments, ("needs-arguments",)),
        (Fixed, ("built-in-name", "fixed")),
        (middle(name="Odd Name"), ("bad-name", "Odd Name")),
        (middle(reads=("counts",)), ("bad-reads", "counts")),
        (type("Rule", (CentralNoise,), {"name": "discover"}), ("built-in-name",)),
        (type("Offers", (TailMeasurement,), {"name": "offers"}), ("offers-taken",)),
        (type("ForAll", (ClippedSum,), {"name": "for-all"}), ("not-your-release",)),
        (object(), ("not-a-plugin", "object")),
    ],
)
def test_a_bad_one_is_refused_at_once(thing, told):
    with refused(InvalidInput, *told):
        fedhist.register(thing)
    assert registered() == ()


def test_a_cell_that_is_run_again_replaces_and_another_source_is_refused():
    assert fedhist.register(TakesArguments(3)).size == 3
    fedhist.register(TakesArguments(4))
    assert SELECTORS["takes-arguments"].size == 4
    fedhist.load_plugin(SAMPLES / "mine.py")
    with refused(InvalidInput, "registered-already", "mine.py"):
        fedhist.register(middle(name="mine"))
    assert SELECTORS["mine"].version == "1.0"


def test_a_deployment_charges_what_it_declares(tmp_path):
    """On a transport that is not simulated, through the ledger."""
    fedhist.register(Middle)
    ledger = Ledger()
    transport = Replay(USERS, fedhist.SeededSource(1))
    release = run_rounds(Small(selector="middle"), transport, ledger=ledger, source=fedhist.SeededSource(2))
    assert release.charges == ledger.entries
    assert ledger.basic().epsilon == pytest.approx(1.1)
