from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Neighbours, Norm

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
    "unknown calibration": {"calibration": "loose"},
    "classic above one": {"calibration": "classic", "epsilon": 1.5},
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
    with pytest.raises(InvalidPlan, match="allowed: "):
        Plan(**({"users": 100, "items": 10} | settings_))


def test_defaults_follow_the_mechanism():
    gaussian, laplace = (Plan(users=10, items=4, mechanism=m) for m in ("gaussian", "laplace"))
    assert (gaussian.selector, gaussian.delta, gaussian.norm) == ("weighted-quantile", 1e-6, Norm.L2)
    assert (laplace.selector, laplace.delta, laplace.norm) == ("weighted-quantile", 0.0, Norm.L1)
    assert gaussian.sparsity == 4
    assert gaussian.neighbours is Neighbours.ADD_REMOVE


def test_a_plan_survives_json_and_keeps_its_name():
    plan = Plan(users=10, items=4, neighbours="replace", epsilon=0.3, sparsity=2)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest


def test_any_change_changes_the_name():
    plan = Plan(users=10, items=4)
    changed = [{"users": 11}, {"items": 5}, {"epsilon": 1.5}, {"delta": 1e-7}, {"neighbours": "replace"},
               {"max_threshold": 99.0}, {"candidates": 64}, {"sparsity": 3}, {"minimum_cohort": 2}]  # fmt: skip
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
