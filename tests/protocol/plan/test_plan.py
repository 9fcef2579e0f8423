from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Neighbours, Plan
from tests.support.api import Closed, InvalidPlan, Masks, Norm, geometric_candidates
from tests.support.refusals import refused

BAD = {
    "epsilon zero": {"epsilon": 0.0},
    "epsilon tiny": {"epsilon": 1e-310},
    "epsilon huge": {"epsilon": 1e308, "mechanism": "laplace"},
    "epsilon-select tiny": {"epsilon_select": 1e-20},
    "delta tiny": {"delta": 1e-320},
    "epsilon nan": {"epsilon": math.nan},
    "epsilon-select zero": {"epsilon_select": 0.0},
    "delta zero for gaussian": {"delta": 0.0},
    "delta-select half": {"delta_select": 0.5},
    "delta for laplace too large": {"mechanism": "laplace", "delta": 0.7},
    "no users": {"users": 0},
    "no items": {"items": 0},
    "fractional items": {"items": 2.5},
    "too many candidates": {"candidates": 100_000},
    "one candidate": {"candidates": 1},
    "sparsity above the domain": {"sparsity": 11},
    "sparsity zero": {"sparsity": 0},
    "cohort above users": {"minimum_cohort": 101},
    "unknown mechanism": {"mechanism": "cauchy"},
    "unknown domain": {"domain": "half-open"},
    "unknown neighbours": {"neighbours": "swap"},
    "classic above one": {"release": "classic-gaussian", "epsilon": 1.5},
    "fixed without threshold": {"selector": "fixed"},
    "threshold above the largest": {"selector": "fixed", "threshold": 1501.0},
    "threshold nan": {"selector": "fixed", "threshold": math.nan},
    "threshold without fixed": {"threshold": 10.0},
    "min above max": {"min_threshold": 20.0, "max_threshold": 10.0},
    "max threshold nan": {"max_threshold": math.nan},
    "max threshold too large": {"max_threshold": 1e12},
    "noise too large": {"epsilon": 1e-9},
}


@pytest.mark.parametrize("settings_", BAD.values(), ids=BAD.keys())
def test_a_bad_setting_is_refused_with_what_is_allowed(settings_):
    with pytest.raises(InvalidPlan):
        Plan(**({"users": 100, "items": 10} | settings_))


def test_defaults_follow_the_mechanism():
    gaussian, laplace = (Plan(users=10, items=4, mechanism=m) for m in ("gaussian", "laplace"))
    assert (gaussian.selector, gaussian.delta, gaussian.norm) == ("weighted-quantile", 1e-6, Norm.L2)
    assert (laplace.selector, laplace.delta, laplace.norm) == ("weighted-quantile", 0.0, Norm.L1)
    assert gaussian.sparsity == 4
    assert gaussian.neighbours is not Neighbours.REPLACE_ONE


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_the_usual_sparsity_lets_the_choice_tell_nothing_from_the_price(neighbours):
    plan = Plan(users=50_000, items=100, delta=1 / 50_000, neighbours=neighbours)
    resolved = plan.epsilon_select * plan.noise_price / (2 * math.ldexp(plan.tail_cap, -10))
    assert 3 <= resolved < 4
    few, many = (Plan(users=50_000, items=items, delta=1 / 50_000) for items in (20, 5000))
    assert (few.sparsity, many.sparsity) == (9, 64)


def test_a_plan_survives_json_and_keeps_its_name():
    plan = Plan(users=10, items=4, neighbours="replace-one", epsilon=0.3, sparsity=2)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest


def test_any_change_changes_the_name():
    plan = Plan(users=10, items=4)
    changed = [{"users": 11}, {"items": 5}, {"epsilon": 1.5}, {"delta": 1e-7}, {"neighbours": "replace-one"},
               {"max_threshold": 99.0}, {"candidates": 64}, {"sparsity": 3}, {"minimum_cohort": 2},
               {"masking": "secagg", "participants": 5}, {"masking": "secagg-signed", "participants": 5}]  # fmt: skip
    names = {Plan.from_json(plan.to_json() | change).digest for change in changed}
    assert len(names | {plan.digest}) == len(changed) + 1


@given(
    max_threshold=st.floats(1, 2**30),
    epsilon=st.floats(0.01, 100),
    mechanism=st.sampled_from(["gaussian", "laplace"]),
)
@settings(max_examples=200, deadline=None)
def test_every_accepted_plan_fits_the_integer_grid(max_threshold, epsilon, mechanism):
    try:
        plan = Plan(users=10, items=3, max_threshold=max_threshold, epsilon=epsilon, mechanism=mechanism)
    except InvalidPlan as refused:
        assert "wider than the samplers" in str(refused)
        return
    assert 0 <= plan.grid_bits <= 10
    steps = plan.candidate_steps
    assert steps[-1] < 2**31
    assert (steps[1:] > steps[:-1]).all()
    assert plan.at_steps(1e30).value <= max_threshold + 2.0**-plan.grid_bits


@pytest.mark.parametrize(
    "document",
    [
        None, 1.5, "open", [], [["version", 1]], {}, {"version": 2}, {"version": 1, "items": 3},
        {"version": 1, "users": 1, "items": 1, "speed": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_document_that_is_no_plan_is_refused(document):
    with pytest.raises(InvalidPlan):
        Plan.from_json(document)


@pytest.mark.parametrize("name", Plan(users=10, items=3).to_json())
@pytest.mark.parametrize("value", [None, [], {}, ["a"], True, "", 10**40], ids=str)
def test_a_field_of_another_type_is_not_a_python_error(name, value):
    document = Plan(users=10, items=3, masking="secagg", participants=5).to_json() | {name: value}
    try:
        assert Plan.from_json(document).digest
    except InvalidPlan:
        return
    assert not isinstance(value, list | dict)


CLOSED = Plan(users=100, items=10)
OPEN = Plan(users=100, domain="open", release="truncated-laplace")


def test_a_plan_has_the_parts_that_its_fields_ask_for():
    assert Plan(users=100, items=10, sparsity=4).closed == Closed(items=10, sparsity=4)
    assert CLOSED.closed == Closed(items=10, sparsity=9)
    assert Plan(users=100, domain="open", release="laplace-threshold").cutoff_release == "laplace-threshold"
    masked = Plan(
        users=100, items=10, masking="secagg", participants=20, dropout_share=0.3, corrupt_share=0.2
    )
    assert masked.masks == Masks(participants=20, minimum_survivors=14, noise_shares=10)
    fixed = Plan(users=100, items=10, selector="fixed", threshold=12.3)
    assert fixed.fixed_threshold.value == pytest.approx(12.3, abs=2.0**-fixed.grid_bits)


@pytest.mark.parametrize(
    ("plan", "part"),
    [(OPEN, "closed"), (CLOSED, "cutoff_release"), (CLOSED, "masks"), (CLOSED, "fixed_threshold")],
)
def test_a_part_that_a_plan_does_not_have_is_a_mistake_in_the_program(plan: Plan, part: str):
    with pytest.raises(LookupError):
        getattr(plan, part)


def test_candidates_span_the_range_and_rise():
    candidates = geometric_candidates(1 << 10, 1500 << 10, 128)
    assert candidates[0] == 1024 and candidates[-1] == 1500 * 1024
    assert (np.diff(candidates) > 0).all() and len(candidates) == 128
    ratios = candidates[1:] / candidates[:-1]
    assert ratios.max() / ratios.min() < 1.002


def test_candidates_of_a_narrow_range_fall_together():
    assert geometric_candidates(1024, 1028, 128).tolist() == [1024, 1025, 1026, 1027, 1028]
    assert geometric_candidates(7, 7, 10).tolist() == [7]


# --- What a plan may say about masking.


def masked(**settings: Any) -> Plan:
    return Plan(**({"users": 5000, "items": 10, "masking": "secagg", "participants": 100} | settings))


def test_masks_over_an_open_domain_mean_discovery():
    assert masked(domain="open", items=None).release == "discover"


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"participants": None}, ("no-participants",)),
        ({"participants": 2}, ("bad-number-of-participants",)),
        ({"participants": 5001}, ("bad-number-of-participants", "5001")),
        ({"participants": 513, "masking": "secagg-signed"}, ("bad-number-of-participants", "513")),
        ({"corrupt_share": 0.4}, ("bad-share", "0.4")),
        ({"participants": 4, "dropout_share": 0.3, "masking": "secagg-signed"}, ("too-few-shares",)),
        ({"dropout_share": -0.1}, ("bad-share", "-0.1")),
        ({"dropout_share": float("nan")}, ("bad-share",)),
        ({"masking": "none"}, ("masking-settings-unused",)),
        (
            {"masking": "none", "participants": None, "noise_from": "devices"},
            ("masking-settings-unused",),
        ),
        ({"masking": "pgp"}, ("bad-value", "'pgp'")),
        ({"noise_from": "above"}, ("bad-value", "'above'")),
        ({"domain": "open", "items": None, "release": "truncated-laplace"}, ("masked-open-release",)),
        ({"domain": "open", "items": None, "selector": "exponential-v"}, ("masked-open-release",)),
        ({"domain": "open", "items": None, "max_items": 0}, ("out-of-range",)),
        ({"domain": "open", "items": None, "max_item_bytes": 5000}, ("out-of-range", "5000")),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], refusal: tuple[str, ...]):
    with refused(InvalidPlan, *refusal):
        masked(**settings)
