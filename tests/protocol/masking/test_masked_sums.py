"""Whole masked sums through both sessions: exact at any drop-out, and never a sum over too few."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import InvalidInput, RoundFailed, SeededSource
from tests.support.api import (
    Integers,
    MaskedSum,
    MaskingStage,
    MaskingTerms,
    identities,
    run_cohort,
)
from tests.support.refusals import refused

LENGTH = 7


def terms(*, signed: bool = False, width: int = 32, minimum: int = 2, session: int = 1) -> MaskingTerms:
    return MaskingTerms(
        session=bytes([session]) * 32, length=LENGTH, width=width, minimum_survivors=minimum, signed=signed
    )


def vector_of(device: int) -> Integers:
    """Numbers of both signs that differ between devices and places."""
    return (np.arange(LENGTH, dtype=np.int64) - 3) * (device * device + 1)


def total_of(devices: Collection[int]) -> Integers:
    return sum((vector_of(device) for device in devices), np.zeros(LENGTH, dtype=np.int64))


def run(
    devices: int,
    dropouts: Mapping[str, Collection[int]] | None = None,
    *,
    signed: bool = False,
    width: int = 32,
    minimum: int = 2,
    **options: Any,
) -> MaskedSum:
    return run_cohort(
        terms(signed=signed, width=width, minimum=minimum),
        devices,
        vector_of,
        source=SeededSource(devices),
        dropouts=dropouts,
        identities=identities(devices, source=SeededSource(7)) if signed else None,
        **options,
    )


def senders(devices: int, dropouts: Mapping[str, Collection[int]]) -> set[int]:
    """The devices that sent a masked input."""
    gone = {d for stage in list(MaskingStage)[:4] for d in dropouts.get(stage, ())}
    return set(range(devices)) - gone


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("devices", [3, 12])
def test_the_sum_is_exact(devices: int, width: int, signed: bool) -> None:
    outcome = run(devices, width=width, signed=signed)
    assert outcome.included == tuple(range(devices))
    assert np.array_equal(outcome.values, total_of(range(devices)))
    assert outcome.rejected == {}


def falling_silent(devices: int) -> st.SearchStrategy[list[str | None]]:
    """For each device the stage at which it falls silent, or None."""
    return st.lists(st.sampled_from([None] * 6 + list(MaskingStage)), min_size=devices, max_size=devices)


@given(st.one_of(falling_silent(14), falling_silent(9)))
@settings(max_examples=33, deadline=None)
def test_any_mix_of_dropouts_gives_the_exact_sum_of_the_included_or_nothing(
    stages: list[str | None],
) -> None:
    """Fourteen devices without signatures, where nobody falls silent while confirming, and nine with them."""
    dropouts = {stage: [d for d, gone in enumerate(stages) if gone == stage] for stage in MaskingStage}
    signed = len(stages) == 9
    try:
        outcome = run(len(stages), dropouts, signed=signed)
    except RoundFailed:
        # A majority of each device's neighbours must answer.
        answering = stages.count(None) + (0 if signed else stages.count(MaskingStage.CONFIRMING))
        assert answering <= (6 if signed else 8)
        return
    assert set(outcome.included) == senders(len(stages), dropouts)
    assert np.array_equal(outcome.values, total_of(outcome.included))


def test_a_sparse_graph_with_dropouts_at_every_stage() -> None:
    dropouts = {
        "advertising": [0, 1],
        "sharing": [10, 11],
        "checking": [12],
        "masking": [20, 21, 22, 23],
        "unmasking": [30, 31, 32],
    }
    outcome = run(112, dropouts)
    assert set(outcome.included) == senders(112, dropouts)
    assert np.array_equal(outcome.values, total_of(outcome.included))


def test_a_worker_that_fails_fails_the_round() -> None:
    def broken(device: int, vector: Integers) -> Integers:
        raise SystemExit(1)

    with refused(RoundFailed, "worker-ended"):
        run_cohort(terms(), 6, vector_of, noised=broken, source=SeededSource(1), cores=2)


def test_what_is_wrong_with_a_vector_is_told_as_it_is() -> None:
    def broken(device: int) -> Integers:
        raise InvalidInput("a broken vector", allowed="a whole one")

    with refused(InvalidInput, "invalid-input"):
        run_cohort(terms(), 6, broken, source=SeededSource(1), cores=2)
