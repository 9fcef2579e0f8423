"""A device counts the participants that it can see, and gives up below what was agreed and below its own floor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist import InvalidInput, SeededSource
from tests.support.api import (
    MAX_DEVICES,
    Aborted,
    AbortReason,
    Checked,
    Confirmed,
    Finished,
    Masked,
    Shared,
    save,
    start,
)
from tests.support.api import MaskingKind as Kind
from tests.support.api import restore_state as restore
from tests.support.api import wire_module as wire
from tests.support.refusals import refused

ME = 10


def first_boxes(cohort: Any, count: int) -> bytes:
    boxes = wire.decode_boxes(cohort.inbox[ME], Kind.BOXES, cohort.terms)
    return wire.encode_boxes(Kind.BOXES, boxes[:count], cohort.terms)


def peers(cohort: Any, count: int) -> bytes:
    return wire.encode_ids(Kind.PEERS, cohort.ids[1 : 1 + count], cohort.terms)


def survivors(cohort: Any, count: int) -> bytes:
    return wire.encode_ids(Kind.SURVIVORS, cohort.ids[: 1 + count], cohort.terms)


def unmask(cohort: Any, count: int) -> bytes:
    return wire.encode_unmask(cohort.ids[1 + count :], b"", cohort.terms)


@pytest.mark.parametrize("limit", ["minimum", "fewest"])
class TestACompleteGraph:
    """Nine devices, five shares rebuild a secret, and eight must be there: by the terms, or by the device's floor.

    With noise from devices fewer survivors have less noise together than was charged for.
    """

    @pytest.mark.parametrize(
        ("stage", "signed", "message", "following"),
        [
            ("boxes", False, first_boxes, Checked),
            ("boxes", True, first_boxes, Checked),
            ("peers", False, peers, Masked),
            ("peers", True, peers, Masked),
            ("survivors", True, survivors, Confirmed),
            ("unmask", False, unmask, Finished),
        ],
    )
    def test_one_neighbour_too_few(
        self, play: Any, limit: str, stage: str, *, signed: bool, message: Any, following: type
    ) -> None:
        cohort = play(9, signed=signed, **{limit: 8}).until(stage)
        assert isinstance(cohort.peek(ME, message(cohort, 7))[0], following)
        assert cohort.reason(message(cohort, 6)) is AbortReason.TOO_FEW


class TestASparseGraph:
    def test_the_number_of_devices_is_what_it_sees(self, play: Any) -> None:
        assert isinstance(play(100, fewest=100).until("boxes").states[ME], Shared)
        cohort = play(100, fewest=101).advertise()
        assert cohort.reason(cohort.inbox[ME]) is AbortReason.TOO_FEW

    def test_who_else_survives_it_does_not_see(self, play: Any) -> None:
        """A device has 16 neighbours of 99, and no way to tell whether the other 83 are there."""
        cohort = play(100, minimum=90, fewest=90).until("unmask")
        neighbours = list(cohort.states[ME].shares)
        message = wire.encode_unmask(neighbours[:10], b"", cohort.terms)
        assert isinstance(cohort.peek(ME, message)[0], Finished)


class TestALyingServer:
    @pytest.mark.parametrize(
        ("fewest", "expected"), [(0, Shared), (3, Shared), (4, Aborted), (50, Aborted)], ids=str
    )
    def test_a_cohort_of_three_out_of_a_directory_of_a_hundred(
        self, play: Any, fewest: int, expected: type
    ) -> None:
        cohort = play(100, signed=True, fewest=fewest)
        cohort.advertise(without=cohort.ids[3:])
        for device, roster in cohort.inbox.items():
            state, answer = cohort.peek(device, roster)
            assert isinstance(state, expected)
            assert bool(answer) == (expected is Shared)


@pytest.mark.parametrize("signed", [False, True])
def test_the_floor_is_in_every_state_and_changes_no_sum(play: Any, signed: bool) -> None:
    cohort = play(9, signed=signed, fewest=8).advertise()
    while cohort.inbox:
        for state in cohort.states.values():
            assert state.fewest == 8
            assert restore(save(state)) == state
        cohort.answer()
    assert np.array_equal(cohort.result.values, cohort.total(cohort.ids))


@pytest.mark.parametrize("fewest", [-1, MAX_DEVICES + 1])
def test_floors_that_are_none(play: Any, fewest: int) -> None:
    with refused(InvalidInput, "bad-floor"):
        start(play().terms, ME, source=SeededSource(1), fewest=fewest)
