"""A bad box is its sender's drop-out: it is left out and named, and the sum of the others is exact."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.api import (
    BOX_BYTES,
    SHARE_BYTES,
    Checked,
    CorruptShares,
    LeftOut,
    MaskingTerms,
    Rejection,
    TooFewSurvivors,
    devices_to_leave_out,
)
from tests.support.api import MaskingKind as Kind
from tests.support.api import masking_client_module as masking_client
from tests.support.api import wire_module as wire
from tests.support.refusals import refused

BAD = 16
COHORTS = pytest.mark.parametrize(("devices", "signed"), [(10, False), (5, True)], ids=["plain", "signed"])


def garbled(message: bytes, terms: MaskingTerms, receivers: Collection[int] | None = None) -> bytes:
    """The same boxes, of which those for these receivers (None: all) do not open."""
    boxes = wire.decode_boxes(message, Kind.SHARES, terms)
    return wire.encode_boxes(
        Kind.SHARES,
        [
            (receiver, bytes(BOX_BYTES) if receivers is None or receiver in receivers else box)
            for receiver, box in boxes
        ],
        terms,
    )


def with_shares(cohort: Any, wrong: Mapping[int, Callable[[bytes], bytes]]) -> Any:
    """Everybody shares, and some of them something else."""
    for device, message in cohort.inbox.items():
        cohort.states[device], reply = cohort.peek(device, message)
        cohort.outbox[device] = wrong.get(device, lambda same: same)(reply)
    cohort.deliver()
    return cohort


def with_complaints(cohort: Any, lies: Mapping[int, Collection[int]]) -> Any:
    """Everybody opens its boxes, and some say of others what is not so."""
    for device, message in cohort.inbox.items():
        cohort.states[device], cohort.outbox[device] = cohort.peek(device, message)
    for liar, accused in lies.items():
        cohort.outbox[liar] = wire.encode_ids(Kind.COMPLAINTS, sorted(accused), cohort.terms)
    cohort.deliver()
    return cohort


def finished(cohort: Any) -> Any:
    while cohort.inbox:
        cohort.answer()
    return cohort.result


def assert_exact_without(cohort: Any, *gone: int) -> None:
    stayed = [device for device in cohort.ids if device not in gone]
    assert cohort.result.included == tuple(stayed)
    assert np.array_equal(cohort.result.values, cohort.total(stayed))


class TestOneBadDevice:
    @COHORTS
    def test_a_liar_that_accuses_everybody(self, play: Any, devices: int, signed: bool) -> None:
        cohort = play(devices, signed=signed).until("boxes")
        others = set(cohort.ids) - {BAD}
        result = finished(with_complaints(cohort, {BAD: others}))
        assert result.left_out == {"complaints": (BAD,)}
        assert result.complaints == {BAD: tuple(sorted(others))}
        assert_exact_without(cohort, BAD)

    @pytest.mark.parametrize(
        ("devices", "signed", "receivers"),
        [
            (10, False, None),
            (10, False, (13, 19)),
            (5, True, None),
            (5, True, (10,)),
            (100, False, None),
        ],
    )
    def test_garbage_to_all_or_some_neighbours(
        self, play: Any, devices: int, signed: bool, receivers: tuple[int, ...] | None
    ) -> None:
        """Those who got the garbage stay, and so does everybody else."""
        cohort = play(devices, signed=signed).until("roster")
        neighbours = cohort.server.cohort.neighbours(BAD)
        with_shares(cohort, {BAD: lambda reply: garbled(reply, cohort.terms, receivers)})
        result = finished(cohort)
        assert result.left_out == {"bad-boxes": (BAD,)}
        assert result.complaints == dict.fromkeys(receivers or sorted(neighbours), (BAD,))
        assert_exact_without(cohort, BAD)


class TestSeveral:
    def test_two_senders_of_garbage_and_a_liar(self, play: Any) -> None:
        cohort = play(10).until("roster")
        wrong = {device: lambda reply: garbled(reply, cohort.terms) for device in (10, 22)}
        with_shares(cohort, wrong)
        result = finished(with_complaints(cohort, {BAD: set(cohort.ids) - {BAD}}))
        assert result.left_out == {"bad-boxes": (10, 22), "complaints": (BAD,)}
        assert_exact_without(cohort, 10, BAD, 22)

    def test_one_complaint_leaves_the_accused_out_and_names_both(self, play: Any) -> None:
        """Nobody can say which of the two lies, so a reader of the report must know of both."""
        result = finished(with_complaints(play(10).until("boxes"), {BAD: {25}}))
        assert (result.left_out, result.complaints) == ({"bad-boxes": (25,)}, {BAD: (25,)})

    def test_too_many_stop_the_sum_before_anybody_masks_and_are_named(self, play: Any) -> None:
        cohort = play(10, minimum=9).until("roster")
        wrong = {device: lambda reply: garbled(reply, cohort.terms) for device in (10, 22)}
        with_shares(cohort, wrong)
        with refused(TooFewSurvivors, "too-few-survivors", "10", "22") as caught:
            cohort.answer()
        assert caught.value.left_out == {"bad-boxes": (10, 22)}
        assert caught.value.complaints[13] == (10, 22)
        assert all(isinstance(state, Checked) for state in cohort.states.values())

    def test_a_complaint_about_a_device_that_fell_silent_costs_nobody(self, play: Any) -> None:
        cohort = play(10).until("roster")
        with_shares(cohort, {BAD: lambda reply: garbled(reply, cohort.terms)})
        cohort.answer(without=[BAD])
        assert finished(cohort).left_out == {}
        assert_exact_without(cohort, BAD)

    @pytest.mark.parametrize("accused", [(BAD,), (999,), (10, 999)])
    def test_complaints_about_oneself_or_strangers_are_ignored(
        self, play: Any, accused: tuple[int, ...]
    ) -> None:
        result = finished(with_complaints(play(10).until("boxes"), {BAD: accused}))
        assert result.rejected == {Rejection.WRONG_COMPLAINTS.value: 1}
        assert result.left_out == {"wrong-complaints": (BAD,)}

    def test_a_message_that_can_t_be_taken_names_its_sender(self, play: Any) -> None:
        cohort = play(10).until("roster")
        with_shares(cohort, {BAD: lambda reply: reply[:-1]})
        assert finished(cohort).left_out == {"malformed": (BAD,)}


class TestGarbageInGoodBoxes:
    """Wrong shares show only when the masks come off. Then the sum stays masked, and the error names their owner."""

    @COHORTS
    def test_its_owner_is_named(
        self, play: Any, monkeypatch: pytest.MonkeyPatch, devices: int, signed: bool
    ) -> None:
        cohort = play(devices, signed=signed).until("roster")
        monkeypatch.setattr(
            masking_client,
            "split",
            lambda secret, threshold, count, *, source: [
                bytes([place]) * (SHARE_BYTES - 1) + b"\0" for place in range(count)
            ],
        )
        cohort.states[BAD], cohort.outbox[BAD] = cohort.peek(BAD, cohort.inbox.pop(BAD))
        monkeypatch.undo()
        cohort.answer()
        with refused(CorruptShares, "corrupt-shares", BAD) as caught:
            finished(cohort)
        assert caught.value.owners == (BAD,)


class TestWhomToLeaveOut:
    @pytest.mark.parametrize(
        ("complaints", "gone"),
        [
            ({}, {}),
            ({1: []}, {}),
            ({1: [2]}, {2: LeftOut.BAD_BOXES}),
            ({2: [1], 1: [2]}, {1: LeftOut.BAD_BOXES}),
            ({1: [2, 3, 4]}, {1: LeftOut.COMPLAINTS}),
            ({1: [4], 2: [4], 3: [4]}, {4: LeftOut.BAD_BOXES}),
            ({1: [4], 2: [4], 3: [4], 4: [1, 2, 3]}, {4: LeftOut.BAD_BOXES}),
            ({1: [2, 3], 4: [2, 3]}, {2: LeftOut.BAD_BOXES, 3: LeftOut.BAD_BOXES}),
        ],
    )
    def test_the_most_complaints_then_the_accused_then_the_smallest_id(
        self, complaints: dict[int, list[int]], gone: dict[int, LeftOut]
    ) -> None:
        assert devices_to_leave_out(complaints) == gone

    @given(st.sets(st.integers(0, 29), max_size=6), st.data())
    @settings(max_examples=40)
    def test_no_complaint_is_left_and_liars_take_few_with_them(
        self, bad: set[int], data: st.DataObject
    ) -> None:
        """Honest devices complain about bad ones only; bad ones about anybody."""
        complaints = {
            device: data.draw(st.sets(st.sampled_from(sorted(set(range(30)) if device in bad else bad))))
            if bad
            else set()
            for device in range(30)
        }
        complaints = {accuser: accused - {accuser} for accuser, accused in complaints.items()}
        gone = devices_to_leave_out(complaints)
        assert all(accuser in gone or accused <= gone.keys() for accuser, accused in complaints.items())
        assert len(gone.keys() - bad) <= sum(len(bad) / place for place in range(1, len(bad) + 1))
