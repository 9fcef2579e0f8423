"""The server ignores what is wrong, says why, and unmasks the right sum or none."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
import pytest

from fedhist import RoundFailed, SeededSource
from tests.support.api import (
    PRIME,
    SHARE_BYTES,
    CorruptShares,
    Rejection,
    ShareKind,
    TooFewSurvivors,
    UnexpectedMessage,
    start,
)
from tests.support.api import MaskingKind as Kind
from tests.support.api import wire_module as wire
from tests.support.refusals import refused


def rejected(cohort: Any) -> dict[Rejection, int]:
    return dict(cohort.server.rejected)


def lies(cohort: Any, message: bytes, *, kind: ShareKind | None = None, owner: int | None = None) -> bytes:
    """An opening with every share (of this kind, or of this owner) replaced by another one."""
    opened = []
    for share in wire.decode_opening(message, cohort.terms):
        wrong = (7 * int.from_bytes(share.share, "little") + 1) % PRIME
        hit = (kind is None or share.kind is kind) and (owner is None or share.owner == owner)
        opened.append(
            (share.owner, share.kind, wrong.to_bytes(SHARE_BYTES, "little") if hit else share.share)
        )
    return wire.encode_opening(opened, cohort.terms)


class TestIgnored:
    def test_duplicates_count_once(self, play: Any) -> None:
        cohort = play().until("boxes")
        for device, message in cohort.inbox.items():
            _, reply = cohort.peek(device, message)
            assert cohort.server.add(device, reply)
            assert not cohort.server.add(device, reply)
        assert rejected(cohort) == {Rejection.DUPLICATE: 5}

    @pytest.mark.parametrize("stage", ["roster", "boxes", "peers", "unmask"])
    def test_strangers_and_wrong_sizes_and_the_device_may_try_again(self, play: Any, stage: str) -> None:
        cohort = play().until(stage)
        _, reply = cohort.peek(10, cohort.inbox[10])
        assert not cohort.server.add(999, reply)
        for wrong in (reply[:-1], reply + b"\x00", reply[:20], b"", cohort.inbox[10]):
            assert not cohort.server.add(10, wrong)
        assert rejected(cohort) == {Rejection.STRANGER: 1, Rejection.MALFORMED: 5}
        assert cohort.server.add(10, reply)

    def test_an_advertisement_with_bad_keys(self, play: Any) -> None:
        cohort = play()
        server = cohort.server
        _, good = start(cohort.terms, 1, source=SeededSource(1))
        body = good[wire.HEADER_BYTES :]
        for keys in (bytes(32) + body[32:64], body[:32] * 2):
            assert not server.add(2, wire.message(Kind.ADVERTISEMENT, cohort.terms, keys + body[64:]))
        assert server.add(1, good)
        assert not server.add(2, good)
        assert rejected(cohort) == {Rejection.BAD_KEY: 3}

    def test_boxes_for_others_than_the_neighbours(self, play: Any) -> None:
        cohort = play().until("roster")
        _, reply = cohort.peek(10, cohort.inbox[10])
        boxes = wire.decode_boxes(reply, Kind.SHARES, cohort.terms)
        for wrong in (boxes[:-1], [*boxes, (999, boxes[0][1])], []):
            assert not cohort.server.add(10, wire.encode_boxes(Kind.SHARES, wrong, cohort.terms))
        assert rejected(cohort) == {Rejection.WRONG_RECEIVERS: 3}

    def test_shares_of_the_kind_that_was_not_asked_for(self, play: Any) -> None:
        cohort = play(9).until("peers").answer(without=[13])
        _, reply = cohort.peek(10, cohort.inbox[10])
        opened = wire.decode_opening(reply, cohort.terms)
        turned = [(share.owner, ShareKind(3 - share.kind), share.share) for share in opened]
        for wrong in (turned, opened[:-1], []):
            assert not cohort.server.add(10, wire.encode_opening(wrong, cohort.terms))
        assert rejected(cohort) == {Rejection.WRONG_SHARES: 3}

    def test_they_are_in_the_result(self, play: Any) -> None:
        cohort = play().until("unmask")
        cohort.server.add(999, b"")
        cohort.answer()
        assert cohort.result.rejected == {"stranger": 1}


class TestLies:
    """Of nine devices any five neighbours rebuild a secret; device 13 is dead."""

    def openings(self, play: Any) -> tuple[Any, dict[int, bytes]]:
        cohort = play(9).until("peers").answer(without=[13])
        return cohort, {device: cohort.peek(device, message)[1] for device, message in cohort.inbox.items()}

    @pytest.mark.parametrize("kind", [*ShareKind, None])
    @pytest.mark.parametrize("liars", [[10], [34], [16, 31]])
    def test_a_few_do_not_spoil_the_sum(self, play: Any, liars: list[int], kind: ShareKind | None) -> None:
        cohort, openings = self.openings(play)
        cohort.outbox = openings | {liar: lies(cohort, openings[liar], kind=kind) for liar in liars}
        cohort.deliver()
        assert np.array_equal(cohort.result.values, cohort.total(set(cohort.ids) - {13}))

    @pytest.mark.parametrize(
        ("devices", "signed", "every"), [(40, False, 5), (100, False, 10), (61, True, 5)]
    )
    def test_a_fifth_of_them_or_less_does_not_either(
        self, play: Any, devices: int, signed: bool, every: int
    ) -> None:
        """Too many for luck: a random half of forty shares holds none of eight wrong ones once in eight hundred."""
        cohort = play(devices, signed=signed, length=1).until("unmask")
        cohort.outbox = {device: cohort.peek(device, message)[1] for device, message in cohort.inbox.items()}
        for liar in cohort.ids[::every]:
            cohort.outbox[liar] = lies(cohort, cohort.outbox[liar])
        cohort.deliver()
        assert np.array_equal(cohort.result.values, cohort.total(cohort.ids))

    @pytest.mark.parametrize("owner", [13, 16, None])
    def test_too_many_stop_the_round_and_the_owners_are_named(self, play: Any, owner: int | None) -> None:
        cohort, openings = self.openings(play)
        cohort.outbox = {device: lies(cohort, reply, owner=owner) for device, reply in openings.items()}
        with refused(CorruptShares, "corrupt-shares") as caught:
            cohort.deliver()
        owners = tuple(cohort.ids) if owner is None else (owner,)
        assert caught.value.owners == owners
        assert caught.value.left_out == {"corrupt-shares": owners}
        assert f"corrupt-shares {owners[0]}" in str(caught.value)

    def test_no_spare_share_leaves_no_choice(self, play: Any) -> None:
        cohort, openings = self.openings(play)
        kept = dict(list(openings.items())[:6])
        kept[10] = lies(cohort, kept[10])
        cohort.outbox = kept
        with pytest.raises(CorruptShares):
            cohort.deliver()


class TestNothingIsAskedOfTooFew:
    def test_nobody_came_or_too_few_for_any_graph(self, play: Any) -> None:
        with refused(TooFewSurvivors, "too-few-survivors") as caught:
            play().server.close()
        assert (caught.value.stage, caught.value.alive) == ("advertising", 0)
        with refused(RoundFailed, "bad-number-of-devices"):
            play(2).advertise()

    @pytest.mark.parametrize(
        ("after", "stopped"),
        [
            ("roster", ("sharing", 0, "devices")),
            ("boxes", ("checking", 0, "devices")),
            ("peers", ("masking", 4, "neighbours of some device")),
            ("unmask", ("unmasking", 4, "shares of a secret")),
        ],
    )
    def test_too_few_answer(self, play: Any, after: str, stopped: tuple[str, int, str]) -> None:
        cohort = play(9).until(after)
        with refused(TooFewSurvivors, "too-few-survivors") as caught:
            cohort.answer(without=[10, 13, 16, 19])
        assert (caught.value.stage, caught.value.alive, caught.value.of) == stopped

    @pytest.mark.parametrize("after", ["roster", "boxes", "peers", "unmask"])
    def test_exactly_as_many_as_it_takes_are_enough(self, play: Any, after: str) -> None:
        """Five neighbours rebuild a secret, so six must answer: none is a neighbour of its own."""
        silent = [10, 13, 16]
        cohort = play(9).until(after).answer(without=silent)
        while cohort.inbox:
            cohort.answer(without=silent)
        included = cohort.ids if after == "unmask" else cohort.ids[3:]
        assert cohort.result.included == tuple(included)
        assert np.array_equal(cohort.result.values, cohort.total(included))


@pytest.mark.parametrize("stage", ["roster", "boxes", "peers", "survivors", "unmask"])
def test_a_closed_stage_takes_nothing(play: Any, stage: str) -> None:
    """A late answer is an error of the caller, and changes nothing."""
    cohort = play(signed=True).until(stage)
    closed, late = cohort.server, cohort.peek(10, cohort.inbox[10])[1]
    cohort.answer(without=[10] if stage == "unmask" else [])
    with pytest.raises(UnexpectedMessage):
        closed.add(10, late)
    with pytest.raises(UnexpectedMessage):
        closed.close()
    while cohort.inbox:
        cohort.answer()
    assert np.array_equal(cohort.result.values, cohort.total(cohort.ids))


def test_a_request_names_the_dead_only(play: Any) -> None:
    cohort = play(9).until("peers").answer(without=[13, 22])
    for device, message in cohort.inbox.items():
        assert device not in (13, 22)
        assert wire.decode_unmask(message, cohort.terms).dead == (13, 22)


def test_a_device_whose_neighbours_did_not_share_is_left_out_and_the_rest_is_exact(play: Any) -> None:
    cohort = play(9).advertise().answer(without=[10, 13]).answer().answer().answer()
    assert cohort.result.included == tuple(cohort.ids[2:])
    assert np.array_equal(cohort.result.values, cohort.total(cohort.ids[2:]))


def test_a_device_that_lost_most_of_its_neighbours_is_left_out_of_a_sparse_graph(play: Any) -> None:
    cohort = play(100).advertise()
    neighbours = {device: set(cohort.server.cohort.neighbours(device)) for device in cohort.ids}
    silent = sorted(neighbours[10])[:11]
    expected = set(cohort.ids) - set(silent)
    while lonely := {device for device in expected if len(neighbours[device] & expected) < 6}:
        expected -= lonely
    assert 10 not in expected
    assert len(expected) > 75
    cohort.answer(without=silent).answer().answer().answer()
    assert set(cohort.result.included) == expected
    assert np.array_equal(cohort.result.values, cohort.total(expected))


class Followed(bytearray):
    """A message of which a test can see whether somebody still holds it: unlike bytes, it takes weak references."""


class TestOneSum:
    """Ten thousand inputs of 40 kB must never be in memory together."""

    LENGTH = 50_000

    @pytest.mark.parametrize("signed", [False, True])
    def test_no_input_is_held_once_it_is_added(self, play: Any, signed: bool) -> None:
        """Nor one that is refused; two of nine drop out, and the sum is that of the others."""
        cohort = play(9, length=self.LENGTH, signed=signed).until("peers")
        replies = {device: cohort.peek(device, message) for device, message in cohort.inbox.items()}
        held = []
        for device in cohort.ids[2:]:
            cohort.states[device], reply = replies[device]
            for sent, taken in ((reply[:-1], False), (reply, True), (reply, False)):
                message = Followed(sent)
                held.append(ref(message))
                assert cohort.server.add(device, message) is taken
        message = Followed(replies[10][1])
        held.append(ref(message))
        assert not cohort.server.add(999, message)
        del message
        assert [one() for one in held] == [None] * len(held)
        cohort.deliver()
        cohort.answer()
        if signed:
            cohort.answer()
        assert cohort.result.included == tuple(cohort.ids[2:])
        assert np.array_equal(cohort.result.values, cohort.total(cohort.ids[2:]))

    @pytest.mark.parametrize("width", [32, 64])
    def test_an_input_of_another_length_or_width_adds_nothing(self, play: Any, width: int) -> None:
        cohort = play(width=width).until("peers")
        for device in cohort.ids:
            cohort.states[device], reply = cohort.peek(device, cohort.inbox[device])
            body = reply[wire.HEADER_BYTES :]
            for wrong in (body * 2, body[: len(body) // 2], body[: -width // 8], b""):
                assert not cohort.server.add(device, wire.message(Kind.MASKED, cohort.terms, wrong))
            assert cohort.server.add(device, reply)
        assert rejected(cohort) == {Rejection.MALFORMED: 20}
        cohort.deliver()
        cohort.answer()
        assert np.array_equal(cohort.result.values, cohort.total(cohort.ids))
