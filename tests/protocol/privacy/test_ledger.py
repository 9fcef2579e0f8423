"""Entries say what they must, survive JSON, and count only after they were journalled."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhist import Charge, Cost, Ledger
from tests.support.api import (
    ApproximateLoss,
    BoundedRangeLoss,
    GaussianLoss,
    InvalidFile,
    InvalidPlan,
    PureLoss,
)
from tests.support.refusals import refused

SELECT = Charge(
    round="select",
    name="exponential-mechanism",
    parameters={"candidates": 64, "base_measure_power": -2},
    sensitivity=10.0,
    norm="score",
    neighbours="zero-out",
    epsilon=0.1,
    delta=0.0,
    loss=BoundedRangeLoss(),
)
RELEASE = Charge(
    round="release",
    name="discrete-gaussian",
    parameters={"threshold": 7.5, "unit": "count"},
    sensitivity=7.5,
    norm="l2",
    neighbours="zero-out",
    epsilon=1.0,
    delta=1e-6,
    loss=GaussianLoss(4.2243),
)
ORACLE = dataclasses.replace(
    SELECT, name="oracle", sensitivity=math.inf, epsilon=math.inf, loss=ApproximateLoss(), private=False
)

finite = st.floats(0, 1e6)
private_charges = st.one_of(
    st.builds(dataclasses.replace, st.just(SELECT), epsilon=finite, sensitivity=finite),
    st.builds(dataclasses.replace, st.just(SELECT), epsilon=finite, loss=st.just(PureLoss())),
    st.builds(
        dataclasses.replace,
        st.just(SELECT),
        epsilon=finite,
        delta=st.floats(0, 0.99),
        loss=st.just(ApproximateLoss()),
        neighbours=st.sampled_from(["zero-out", "replace-one"]),
    ),
    st.builds(
        dataclasses.replace,
        st.just(RELEASE),
        epsilon=st.floats(1e-9, 1e6),
        delta=st.floats(1e-300, 0.99),
        loss=st.builds(GaussianLoss, st.floats(1e-9, 1e9)),
        parameters=st.dictionaries(st.text(), st.one_of(st.integers(), st.floats(-1e9, 1e9), st.text())),
    ),
)


@given(private_charges)
def test_an_entry_survives_json(charge: Charge) -> None:
    assert Charge.from_json(json.loads(json.dumps(charge.to_json(), allow_nan=False))) == charge


def test_a_step_without_a_guarantee_says_so_in_json_and_comes_back() -> None:
    written = json.loads(json.dumps(ORACLE.to_json(), allow_nan=False))
    assert written["private"] is False
    assert written["epsilon"] is None
    assert Charge.from_json(written) == ORACLE


def test_numpy_numbers_are_written_like_any_other() -> None:
    charge = dataclasses.replace(SELECT, parameters={"candidates": np.int64(64), "scale": np.float32(0.5)})
    assert json.loads(json.dumps(charge.to_json()))["parameters"] == {"candidates": 64, "scale": 0.5}


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": "1"},
        {"epsilon": -1.0},
        {"epsilon": None},  # infinite, but private
        {"delta": None},
        {"delta": 1e-6},  # a bounded range has none
        {"loss": {"kind": "renyi"}},
        {"loss": {"kind": "gaussian"}},
        {"loss": {"kind": ["pure"]}},
        {"loss": None},
        {"private": "no"},
        {"parameters": 3},
        {"parameters": {"scale": [1]}},
        {"neighbours": "swap"},
        {"name": 7},
    ],
)
def test_json_that_is_no_entry_is_refused(change: dict[str, object]) -> None:
    with refused(InvalidFile, "damaged-entry"):
        Charge.from_json({**SELECT.to_json(), **change})


def test_json_with_a_part_missing_is_refused() -> None:
    for name in SELECT.to_json():
        with pytest.raises(InvalidFile):
            Charge.from_json({key: value for key, value in SELECT.to_json().items() if key != name})


@pytest.mark.parametrize(
    ("charge", "change"),
    [
        (SELECT, {"epsilon": -0.1}),
        (SELECT, {"epsilon": math.nan}),
        (SELECT, {"epsilon": math.inf}),
        (SELECT, {"delta": 1e-6}),
        (SELECT, {"sensitivity": math.nan}),
        (SELECT, {"sensitivity": math.inf}),
        (SELECT, {"neighbours": "neighbors"}),
        (SELECT, {"parameters": {"scale": math.inf}}),
        (RELEASE, {"delta": 0.0}),
        (RELEASE, {"delta": 1.0}),
        (RELEASE, {"epsilon": 0.0}),
        (ORACLE, {"epsilon": 1.0}),
        (ORACLE, {"delta": 0.1}),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(charge: Charge, change: dict[str, object]) -> None:
    with pytest.raises(InvalidPlan):
        dataclasses.replace(charge, **change)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
def test_a_gaussian_without_noise_is_refused(multiplier: float) -> None:
    with refused(InvalidPlan, "bad-noise-multiplier"):
        GaussianLoss(multiplier)


def test_an_entry_can_t_be_changed_through_the_mapping_it_was_made_from() -> None:
    parameters: dict[str, float | int | str] = {"candidates": 64}
    charge = dataclasses.replace(SELECT, parameters=parameters)
    parameters["candidates"] = 1
    assert charge.parameters == {"candidates": 64}


def test_entries_can_be_hashed_and_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(RELEASE)) == RELEASE  # noqa: S301 - our own bytes
    assert len({SELECT, RELEASE, dataclasses.replace(SELECT)}) == 2


def test_costs_add_up_and_write_infinity_as_null() -> None:
    assert Cost(0.5, 1e-6) + Cost(0.25, 0.0) == Cost(0.75, 1e-6)
    assert Cost(math.inf, 0.0).to_json() == {"epsilon": None, "delta": 0.0}
    assert Cost(0.5, 1e-6).to_json() == {"epsilon": 0.5, "delta": 1e-6}


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.0), (math.nan, 0.0), (0.0, -1e-9), (0.0, math.inf)])
def test_a_cost_below_nothing_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidPlan):
        Cost(epsilon, delta)


def test_a_ledger_keeps_its_entries_in_order_and_adds_them_up() -> None:
    """The journal hears of an entry before it counts."""
    heard: list[tuple[Charge, int]] = []
    ledger = Ledger(journal=lambda charge: heard.append((charge, len(ledger.entries))))
    assert ledger.private
    assert ledger.basic() == ledger.tight() == Cost(0.0, 0.0)
    for charge in (SELECT, RELEASE):
        ledger.charge(charge)
    assert (ledger.entries, heard) == ((SELECT, RELEASE), [(SELECT, 0), (RELEASE, 1)])
    assert ledger.private
    assert ledger.basic() == Cost(1.1, 1e-6)
    assert 1.0 < ledger.tight().epsilon < 1.05
    assert ledger.tight().delta == 1e-6
    ledger.charge(ORACLE)
    assert not ledger.private
    assert ledger.basic().epsilon == ledger.tight().epsilon == math.inf


def test_nothing_is_charged_when_the_journal_can_t_write() -> None:
    def full_disk(charge: Charge) -> None:
        raise OSError("no space left")

    ledger = Ledger(journal=full_disk)
    with pytest.raises(OSError, match="no space left"):
        ledger.charge(SELECT)
    assert ledger.entries == ()
    assert ledger.basic() == Cost(0.0, 0.0)


def test_costs_for_different_neighbours_are_not_added_up() -> None:
    heard: list[Charge] = []
    ledger = Ledger(journal=heard.append)
    ledger.charge(SELECT)
    with refused(InvalidPlan, "other-neighbours"):
        ledger.charge(dataclasses.replace(RELEASE, neighbours="replace-one"))
    assert ledger.entries == (SELECT,)
    assert heard == [SELECT]
