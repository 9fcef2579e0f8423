"""A device gives up, for good and without a word, at the first thing that is wrong."""

from __future__ import annotations

import struct
from dataclasses import replace
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


def rewrite_roster(play: Any, edit: Any = list, **changes: Any) -> bytes:
    """The roster of ME with other parameters, or with `edit` applied to its list of (id, body)."""
    parameters, neighbours = wire.decode_roster(play.inbox[ME], play.terms)
    entries = [(peer, bytearray(advert.unsigned + advert.signature)) for peer, advert in neighbours.items()]
    return wire.encode_roster(
        replace(parameters, **changes),
        [wire.roster_entry(peer, bytes(body)) for peer, body in edit(entries)],
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
    def test_a_key_of_low_order_or_of_another_neighbour_or_its_own(self, play: Any, place: int) -> None:
        cohort = play().until("roster")
        low = [point[:-1] + bytes([point[-1] | high]) for point in sorted(LOW_ORDER) for high in (0, 0x80)]
        _, neighbours = wire.decode_roster(cohort.inbox[ME], cohort.terms)
        first, second = list(neighbours.values())[:2]
        mine = cohort.states[ME]
        used = [first.box_key, first.mask_key, (second.mask_key, second.box_key)[place // 32]]
        used += [mine.box_pair.public, mine.mask_pair.public]
        for keys, reason in ((low, AbortReason.BAD_KEY), (used, AbortReason.REPEATED_KEY)):
            for key in keys:
                assert cohort.reason(rewrite_roster(cohort, with_key(place, key))) is reason

    @pytest.mark.parametrize(
        ("settings", "changes", "reason"),
        [
            ({}, {"edit": lambda entries: entries[:-1]}, AbortReason.WRONG_NEIGHBOURS),
            ({}, {"edit": lambda entries: [*entries, (999, bytes(range(96)))]}, AbortReason.WRONG_NEIGHBOURS),
            ({}, {"edit": lambda entries: []}, AbortReason.WRONG_NEIGHBOURS),
            (
                {},
                {"edit": lambda entries: [(ME, entries[0][1]), *entries[1:]]},
                AbortReason.WRONG_NEIGHBOURS,
            ),
            ({}, {"edit": lambda entries: [entries[0], *entries[:-1]]}, AbortReason.MALFORMED),
            ({}, {"edit": lambda entries: entries[::-1]}, AbortReason.MALFORMED),
            *(
                ({"devices": 5}, changes, AbortReason.UNSAFE_GRAPH)
                for changes in (
                    {"threshold": 1},
                    {"threshold": 2},
                    {"threshold": 4},
                    {"neighbours": 2},
                    {"devices": 6},
                    {"devices": 2},
                )
            ),
            # A sparse graph that is too thin.
            (
                {"devices": 100},
                {"neighbours": 14, "edit": lambda entries: entries[:14]},
                AbortReason.UNSAFE_GRAPH,
            ),
            ({"devices": 100}, {"threshold": 5}, AbortReason.UNSAFE_GRAPH),
            ({"devices": 6, "minimum": 6}, {"devices": 5}, AbortReason.TOO_FEW),
        ],
    )
    def test_wrong_neighbours_and_parameters_other_than_the_safe_ones(
        self, play: Any, settings: dict[str, int], changes: dict[str, Any], reason: AbortReason
    ) -> None:
        cohort = play(**({"devices": 8} | settings)).until("roster")
        assert cohort.reason(rewrite_roster(cohort, **changes)) is reason

    def test_another_session(self, play: Any) -> None:
        cohort, other = play().until("roster"), play(session=2).until("roster")
        assert cohort.reason(other.inbox[ME]) is AbortReason.MALFORMED


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

    def test_those_of_others_and_of_another_session(self, play: Any) -> None:
        cohort, other = play().until("roster"), play(session=2).until("boxes")
        _, reply = cohort.peek(ME, cohort.inbox[ME])
        cohort.answer()
        good, thirds, old = (
            dict(wire.decode_boxes(sums.inbox[device], Kind.BOXES, sums.terms))
            for sums, device in ((cohort, ME), (cohort, 13), (other, ME))
        )
        for boxes, accused in (
            (good, ()),
            (good | {13: good[16], 16: good[13]}, (13, 16)),
            # Another receiver's.
            (good | thirds, (16, 19, 22)),
            # Its own, sent back.
            (dict(wire.decode_boxes(reply, Kind.SHARES, cohort.terms)), (13, 16, 19, 22)),
            # The seeded devices have the same keys in both sessions: only the binding to the session differs.
            (old, (13, 16, 19, 22)),
        ):
            taken = [(sender, boxes[sender]) for sender in good]
            self.assert_complains(cohort, lambda _, taken=taken: taken, *accused)
        with_stranger = self.edited(cohort, lambda boxes: [*boxes, (999, boxes[0][1])])
        assert cohort.reason(with_stranger) is AbortReason.STRANGER

    def test_fewer_than_the_threshold(self, play: Any) -> None:
        cohort = play(9).until("boxes")
        assert isinstance(cohort.peek(ME, self.edited(cohort, lambda boxes: boxes[:5]))[0], Checked)
        assert cohort.reason(self.edited(cohort, lambda boxes: boxes[:4])) is AbortReason.TOO_FEW


def peers(cohort: Any, *ids: int) -> bytes:
    return wire.encode_ids(Kind.PEERS, ids, cohort.terms)


def unmask(cohort: Any, *dead: int) -> bytes:
    return wire.encode_unmask(dead, b"", cohort.terms)


@pytest.mark.parametrize(
    ("stage", "request_with", "ids", "reason"),
    [
        ("peers", peers, (13, 16, 19, 22, 25, 999), AbortReason.STRANGER),
        ("peers", peers, (ME, 13, 16, 19, 22, 25), AbortReason.STRANGER),
        ("peers", peers, (13, 13, 16, 19, 22, 25), AbortReason.MALFORMED),
        ("peers", peers, (16, 13, 19, 22, 25), AbortReason.MALFORMED),
        ("peers", peers, (13, 16, 19, 22), AbortReason.TOO_FEW),
        ("peers", peers, (), AbortReason.TOO_FEW),
        ("unmask", unmask, (999,), AbortReason.STRANGER),
        ("unmask", unmask, (ME,), AbortReason.STRANGER),
        ("unmask", unmask, (13, 13), AbortReason.MALFORMED),
        ("unmask", unmask, (16, 13), AbortReason.MALFORMED),
        ("unmask", unmask, (13, 16, 19, 22), AbortReason.TOO_FEW),
    ],
)
def test_a_wrong_list_of_peers_or_of_the_dead(
    play: Any, stage: str, request_with: Any, ids: tuple[int, ...], reason: AbortReason
) -> None:
    cohort = play(9).until(stage)
    assert cohort.reason(request_with(cohort, *ids)) is reason


class TestPeers:
    def test_it_masks_with_exactly_these_and_keeps_shares_of_no_others(self, play: Any) -> None:
        """Nor with one whose box did not open: nobody could undo that mask from a share that this device has."""
        cohort = play(9).until("boxes")
        boxes = wire.decode_boxes(cohort.inbox[ME], Kind.BOXES, cohort.terms)
        boxes[0] = boxes[0][0], bytes(len(boxes[0][1]))
        cohort.states[ME], _ = cohort.peek(ME, wire.encode_boxes(Kind.BOXES, boxes, cohort.terms))
        assert cohort.reason(peers(cohort, *cohort.ids[1:])) is AbortReason.STRANGER
        state, _ = cohort.peek(ME, peers(cohort, *cohort.ids[3:]))
        assert isinstance(state, Masked)
        assert list(state.shares) == cohort.ids[3:]

    def test_a_missing_vector_is_the_callers_mistake(self, play: Any) -> None:
        cohort = play().until("peers")
        for vector in (None, np.zeros(3, dtype=np.int64), np.zeros(4)):
            with pytest.raises(InvalidInput):
                advance(cohort.states[ME], cohort.inbox[ME], source=SeededSource(1), vector=vector)


class TestUnmask:
    def test_one_kind_of_share_of_each_neighbour(self, play: Any) -> None:
        cohort = play(9).until("unmask")
        state, reply = cohort.peek(ME, unmask(cohort, 13, 19))
        opened = wire.decode_opening(reply, cohort.terms)
        assert isinstance(state, Finished)
        assert [share.owner for share in opened] == cohort.ids[1:]
        secret = wire.ShareKind.MASK_SECRET
        assert [share.owner for share in opened if share.kind is secret] == [13, 19]

    def test_a_neighbour_that_never_shared_is_no_dead_one(self, play: Any) -> None:
        cohort = play(9).advertise().answer(without=[13]).answer().answer()
        assert cohort.reason(unmask(cohort, 13)) is AbortReason.STRANGER


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
            assert cohort.reason(message) is AbortReason.MALFORMED


@pytest.mark.parametrize("me", [-1, 1 << 64])
def test_ids_are_unsigned_64_bit_numbers(play: Any, me: int) -> None:
    with pytest.raises(InvalidInput):
        start(play().terms, me, source=SeededSource(1))


def test_the_largest_id_works(play: Any) -> None:
    state, message = start(play().terms, (1 << 64) - 1, source=SeededSource(1))
    assert struct.unpack_from("<2sBB", message) == (b"FM", wire.VERSION, 1)
    assert state.me == (1 << 64) - 1
