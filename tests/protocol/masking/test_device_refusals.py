"""A device gives up, for good and without a word, at the first thing that is wrong."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from fedhist import InvalidInput, SeededSource
from tests.support.api import (
    LOW_ORDER,
    PRIME,
    SHARE_BYTES,
    Aborted,
    AbortReason,
    Checked,
    Finished,
    GraphParameters,
    Masked,
    Shared,
    save,
    seal_all,
    start,
)
from tests.support.api import MaskingKind as Kind
from tests.support.api import advance_session as advance
from tests.support.api import restore_state as restore
from tests.support.api import wire_module as wire

ME = 10


def assert_aborts(play: Any, message: bytes, reason: AbortReason, me: int = ME) -> None:
    state, reply = play.peek(me, message)
    assert isinstance(state, Aborted)
    assert (state.reason, reply) == (reason, b"")
    for later in (message, play.inbox[me], b""):
        assert play.peek(me, later, state) == (state, b"")


def rewrite_roster(play: Any, **changes: Any) -> bytes:
    """The roster of ME with other parameters, or with `edit` applied to its list of (id, body)."""
    parameters, neighbours = wire.decode_roster(play.inbox[ME], play.terms)
    entries = [(peer, bytearray(advert.unsigned + advert.signature)) for peer, advert in neighbours.items()]
    entries = changes.pop("edit", lambda entries: entries)(entries)
    fields = {
        "devices": parameters.devices,
        "neighbours": parameters.neighbours,
        "threshold": parameters.threshold,
    }
    return wire.encode_roster(
        GraphParameters(**(fields | changes)),
        [wire.roster_entry(peer, bytes(body)) for peer, body in entries],
        play.terms,
    )


def with_key(place: int, key: bytes) -> Any:
    def edit(entries: list[tuple[int, bytearray]]) -> list[tuple[int, bytearray]]:
        entries[1][1][place : place + 32] = key
        return entries

    return edit


class TestRoster:
    def test_an_unchanged_one_is_taken(self, play: Any) -> None:
        cohort = play().until("roster")
        assert rewrite_roster(cohort) == cohort.inbox[ME]
        assert isinstance(cohort.peek(ME, rewrite_roster(cohort))[0], Shared)

    @pytest.mark.parametrize("place", [0, 32])
    @pytest.mark.parametrize("point", sorted(LOW_ORDER))
    def test_a_key_of_low_order(self, play: Any, point: bytes, place: int) -> None:
        cohort = play().until("roster")
        for high_bit in (0, 0x80):
            key = point[:-1] + bytes([point[-1] | high_bit])
            assert_aborts(cohort, rewrite_roster(cohort, edit=with_key(place, key)), AbortReason.BAD_KEY)

    @pytest.mark.parametrize("place", [0, 32])
    def test_a_key_of_another_neighbour_or_its_own(self, play: Any, place: int) -> None:
        cohort = play().until("roster")
        _, neighbours = wire.decode_roster(cohort.inbox[ME], cohort.terms)
        first, second = list(neighbours.values())[:2]
        mine = cohort.states[ME]
        own = (mine.box_pair.public, mine.mask_pair.public)
        for key in (first.box_key, first.mask_key, (second.mask_key, second.box_key)[place // 32], *own):
            assert_aborts(cohort, rewrite_roster(cohort, edit=with_key(place, key)), AbortReason.REPEATED_KEY)

    @pytest.mark.parametrize(
        ("edit", "reason"),
        [
            (lambda entries: entries[:-1], AbortReason.WRONG_NEIGHBOURS),
            (lambda entries: [*entries, (999, bytearray(range(96)))], AbortReason.WRONG_NEIGHBOURS),
            (lambda entries: [], AbortReason.WRONG_NEIGHBOURS),
            (lambda entries: [(ME, entries[0][1]), *entries[1:]], AbortReason.WRONG_NEIGHBOURS),
            (lambda entries: [entries[0], *entries[:-1]], AbortReason.MALFORMED),
            (lambda entries: entries[::-1], AbortReason.MALFORMED),
        ],
        ids=["fewer", "more", "none", "itself", "one twice", "out of order"],
    )
    def test_a_wrong_list_of_neighbours(self, play: Any, edit: Any, reason: AbortReason) -> None:
        cohort = play(8).until("roster")
        assert_aborts(cohort, rewrite_roster(cohort, edit=edit), reason)

    @pytest.mark.parametrize(
        "changes",
        [
            {"threshold": 1},
            {"threshold": 2},
            {"threshold": 4},
            {"neighbours": 2},
            {"devices": 6},
            {"devices": 2},
        ],
        ids=str,
    )
    def test_parameters_other_than_the_safe_ones(self, play: Any, changes: dict[str, int]) -> None:
        cohort = play().until("roster")
        assert_aborts(cohort, rewrite_roster(cohort, **changes), AbortReason.UNSAFE_GRAPH)

    def test_a_sparse_graph_that_is_too_thin(self, play: Any) -> None:
        cohort = play(100).until("roster")
        thin = rewrite_roster(cohort, neighbours=14, edit=lambda entries: entries[:14])
        low = rewrite_roster(cohort, threshold=5)
        for message in (thin, low):
            assert_aborts(cohort, message, AbortReason.UNSAFE_GRAPH)

    def test_fewer_devices_than_agreed(self, play: Any) -> None:
        cohort = play(6, minimum=6).until("roster")
        assert_aborts(cohort, rewrite_roster(cohort, devices=5), AbortReason.TOO_FEW)

    def test_another_session(self, play: Any) -> None:
        cohort, other = play().until("roster"), play(session=2).until("roster")
        assert_aborts(cohort, other.inbox[ME], AbortReason.MALFORMED)


class TestBoxes:
    """A box that does not open is a complaint about its sender; a message that is none ends the session."""

    def edited(self, cohort: Any, edit: Any) -> bytes:
        boxes = wire.decode_boxes(cohort.inbox[ME], Kind.BOXES, cohort.terms)
        return wire.encode_boxes(Kind.BOXES, edit(boxes), cohort.terms)

    def assert_complains(self, cohort: Any, edit: Any, *accused: int) -> None:
        state, reply = cohort.peek(ME, self.edited(cohort, edit))
        assert isinstance(state, Checked)
        assert wire.decode_ids(reply, Kind.COMPLAINTS, cohort.terms) == accused
        assert list(state.shares) == list(state.mask_keys) == [i for i in cohort.ids[1:] if i not in accused]

    def test_good_ones_are_no_reason_to_complain(self, play: Any) -> None:
        self.assert_complains(play().until("boxes"), lambda boxes: boxes)

    @pytest.mark.parametrize("place", [0, 12, 40, 93])
    def test_a_tampered_one(self, play: Any, place: int) -> None:
        def flip(boxes: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
            sender, box = boxes[2]
            boxes[2] = sender, box[:place] + bytes([box[place] ^ 1]) + box[place + 1 :]
            return boxes

        self.assert_complains(play().until("boxes"), flip, 19)

    @pytest.mark.parametrize("place", [0, 1])
    def test_one_that_opens_and_holds_no_share(self, play: Any, place: int) -> None:
        cohort = play().until("boxes")
        good, none = (number.to_bytes(SHARE_BYTES, "little") for number in (PRIME - 1, PRIME))
        shares = (good, none) if place else (none, good)
        key = cohort.states[ME].receiving_keys[19]
        ((_, box),) = seal_all(19, [(ME, key)], [shares], cohort.terms.digest, source=SeededSource(1))
        self.assert_complains(
            cohort, lambda boxes: [(sender, box if sender == 19 else own) for sender, own in boxes], 19
        )

    def test_two_swapped(self, play: Any) -> None:
        cohort = play().until("boxes")
        swap = lambda boxes: [(boxes[0][0], boxes[1][1]), (boxes[1][0], boxes[0][1]), *boxes[2:]]  # noqa: E731
        self.assert_complains(cohort, swap, 13, 16)

    def test_another_receivers(self, play: Any) -> None:
        cohort = play().until("boxes")
        others = dict(wire.decode_boxes(cohort.inbox[13], Kind.BOXES, cohort.terms))
        replace = lambda boxes: [(sender, others.get(sender, box)) for sender, box in boxes]  # noqa: E731
        self.assert_complains(cohort, replace, 16, 19, 22)

    def test_its_own_sent_back(self, play: Any) -> None:
        cohort = play().until("roster")
        _, reply = cohort.peek(ME, cohort.inbox[ME])
        mine = dict(wire.decode_boxes(reply, Kind.SHARES, cohort.terms))
        cohort.answer()
        back = lambda boxes: [(sender, mine[sender]) for sender, _ in boxes]  # noqa: E731
        self.assert_complains(cohort, back, 13, 16, 19, 22)

    def test_one_replayed_from_another_session(self, play: Any) -> None:
        cohort, other = play().until("boxes"), play(session=2).until("boxes")
        old = dict(wire.decode_boxes(other.inbox[ME], Kind.BOXES, other.terms))
        replay = lambda boxes: [(sender, old[sender]) for sender, _ in boxes]  # noqa: E731
        # The seeded devices have the same keys in both sessions: only the binding to the session differs.
        self.assert_complains(cohort, replay, 13, 16, 19, 22)

    def test_a_strangers(self, play: Any) -> None:
        cohort = play().until("boxes")
        stranger = lambda boxes: [*boxes, (999, boxes[0][1])]  # noqa: E731
        assert_aborts(cohort, self.edited(cohort, stranger), AbortReason.STRANGER)

    def test_fewer_than_the_threshold(self, play: Any) -> None:
        cohort = play(9).until("boxes")
        assert isinstance(cohort.peek(ME, self.edited(cohort, lambda boxes: boxes[:5]))[0], Checked)
        assert_aborts(cohort, self.edited(cohort, lambda boxes: boxes[:4]), AbortReason.TOO_FEW)


class TestPeers:
    def peers(self, cohort: Any, *ids: int) -> bytes:
        return wire.encode_ids(Kind.PEERS, ids, cohort.terms)

    def test_it_masks_with_exactly_these_and_keeps_shares_of_no_others(self, play: Any) -> None:
        cohort = play(9).until("peers")
        state, _ = cohort.peek(ME, self.peers(cohort, *cohort.ids[2:]))
        assert isinstance(state, Masked)
        assert list(state.shares) == cohort.ids[2:]

    @pytest.mark.parametrize(
        ("ids", "reason"),
        [
            ((13, 16, 19, 22, 25, 999), AbortReason.STRANGER),
            ((ME, 13, 16, 19, 22, 25), AbortReason.STRANGER),
            ((13, 13, 16, 19, 22, 25), AbortReason.MALFORMED),
            ((16, 13, 19, 22, 25), AbortReason.MALFORMED),
            ((13, 16, 19, 22), AbortReason.TOO_FEW),
            ((), AbortReason.TOO_FEW),
        ],
    )
    def test_a_wrong_list(self, play: Any, ids: tuple[int, ...], reason: AbortReason) -> None:
        cohort = play(9).until("peers")
        assert_aborts(cohort, self.peers(cohort, *ids), reason)

    def test_one_whose_box_did_not_open(self, play: Any) -> None:
        """Nobody could undo the mask with it from a share that this device has, so it is not masked with."""
        cohort = play(9).until("boxes")
        boxes = wire.decode_boxes(cohort.inbox[ME], Kind.BOXES, cohort.terms)
        boxes[0] = boxes[0][0], bytes(len(boxes[0][1]))
        cohort.states[ME], _ = cohort.peek(ME, wire.encode_boxes(Kind.BOXES, boxes, cohort.terms))
        assert_aborts(cohort, self.peers(cohort, *cohort.ids[1:]), AbortReason.STRANGER)
        assert isinstance(cohort.peek(ME, self.peers(cohort, *cohort.ids[2:]))[0], Masked)

    def test_a_missing_vector_is_the_callers_mistake(self, play: Any) -> None:
        cohort = play().until("peers")
        for vector in (None, np.zeros(3, dtype=np.int64), np.zeros(4)):
            with pytest.raises(InvalidInput):
                advance(cohort.states[ME], cohort.inbox[ME], source=SeededSource(1), vector=vector)


class TestUnmask:
    def request(self, cohort: Any, *dead: int) -> bytes:
        return wire.encode_unmask(dead, b"", cohort.terms)

    def test_one_kind_of_share_of_each_neighbour(self, play: Any) -> None:
        cohort = play(9).until("unmask")
        state, reply = cohort.peek(ME, self.request(cohort, 13, 19))
        opened = wire.decode_opening(reply, cohort.terms)
        assert isinstance(state, Finished)
        assert [share.owner for share in opened] == cohort.ids[1:]
        secret = wire.ShareKind.MASK_SECRET
        assert [share.owner for share in opened if share.kind is secret] == [13, 19]

    @pytest.mark.parametrize(
        ("dead", "reason"),
        [
            ((999,), AbortReason.STRANGER),
            ((ME,), AbortReason.STRANGER),
            ((13, 13), AbortReason.MALFORMED),
            ((16, 13), AbortReason.MALFORMED),
            ((13, 16, 19, 22), AbortReason.TOO_FEW),
        ],
    )
    def test_a_wrong_list_of_the_dead(self, play: Any, dead: tuple[int, ...], reason: AbortReason) -> None:
        cohort = play(9).until("unmask")
        assert_aborts(cohort, self.request(cohort, *dead), reason)

    def test_a_neighbour_that_never_shared_is_no_dead_one(self, play: Any) -> None:
        cohort = play(9).advertise().answer(without=[13]).answer().answer()
        assert_aborts(cohort, self.request(cohort, 13), AbortReason.STRANGER)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("stage", ["boxes", "peers", "unmask"])
def test_a_second_message_of_a_stage(play: Any, stage: str, stored: bool) -> None:
    cohort = play(9).until(stage)
    state, reply = cohort.peek(ME, cohort.inbox[ME])
    assert reply
    if stored:
        state = restore(save(state))
    others = [wire.encode_unmask([16], b"", cohort.terms)] if stage == "unmask" else []
    for again in (cohort.inbox[ME], *others):
        following, reply = cohort.peek(ME, again, state)
        assert isinstance(following, Aborted)
        assert reply == b""
        if stage == "unmask":
            assert following.reason is AbortReason.UNEXPECTED


@pytest.mark.parametrize("stage", ["roster", "boxes", "peers", "unmask"])
def test_any_other_kind_of_message_ends_the_session(play: Any, stage: str) -> None:
    cohort = play().until(stage)
    good = cohort.inbox[ME]
    for kind in Kind:
        message = wire.message(kind, cohort.terms, good[wire.HEADER_BYTES :])
        if message != good:
            assert_aborts(cohort, message, AbortReason.MALFORMED)


@pytest.mark.parametrize("me", [-1, 1 << 64])
def test_ids_are_unsigned_64_bit_numbers(play: Any, me: int) -> None:
    with pytest.raises(InvalidInput):
        start(play().terms, me, source=SeededSource(1))


def test_the_largest_id_works(play: Any) -> None:
    state, message = start(play().terms, (1 << 64) - 1, source=SeededSource(1))
    assert struct.unpack_from("<2sBB", message) == (b"FM", wire.VERSION, 1)
    assert state.me == (1 << 64) - 1
