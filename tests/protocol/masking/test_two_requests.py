"""An advertisement is for one session and one device, and what follows for one view of what is summed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from fedhist import SeededSource
from tests.support.api import (
    AbortReason,
    CollectingAdvertisements,
    Identity,
    Masked,
    Rejection,
    Shared,
    advertisement_text,
    start,
)
from tests.support.api import MaskingKind as Kind
from tests.support.api import wire_module as wire

ME = 10


def advertised(cohort: Any, device: int, **terms: Any) -> Any:
    """The state and the message of a device that has just advertised its keys, perhaps for another session."""
    identity: Identity | None = cohort.identities[device] if cohort.terms.signed else None
    return start(replace(cohort.terms, **terms), device, source=cohort.source.fork(device), identity=identity)


def server_of(cohort: Any, **terms: Any) -> Any:
    directory = cohort.identities[ME].directory if cohort.terms.signed else None
    return CollectingAdvertisements(
        replace(cohort.terms, **terms), source=SeededSource(3), directory=directory
    )


class TestReplays:
    """The server keeps an advertisement of another session and puts it in a roster, or into its own session."""

    @pytest.mark.parametrize("signed", [False, True])
    def test_the_server_takes_none_of_another_session(self, play: Any, signed: bool) -> None:
        cohort = play(signed=signed)
        for message in (
            advertised(cohort, ME, session=b"x" * 32)[1],
            wire.message(Kind.ADVERTISEMENT, replace(cohort.terms, session=cohort.terms.digest), bytes(96)),
        ):
            server = server_of(cohort)
            assert not server.add(ME, message)
            assert server.rejected == {Rejection.MALFORMED: 1}

    def test_a_signature_says_all_that_it_is_for(self) -> None:
        """Fixed lengths before the body: no two pairs of session and device have the same text."""
        texts = {advertisement_text(bytes([one]) * 32, two, b"body") for one in range(3) for two in range(3)}
        assert len(texts) == 9


class TwoFaces:
    """A server that shows some devices one request and the others another, with the same advertised keys."""

    def __init__(self, play: Any, *, count: int, lied_to: int, signed: bool) -> None:
        self.cohort = play(count, signed=signed)
        ids = self.cohort.ids
        self.classes = [set(ids[lied_to:]), set(ids[:lied_to])]
        requests = [bytes([face]) * 32 for face in (1, 2)]
        self.terms = {
            device: replace(self.cohort.terms, request=requests[device in self.classes[1]]) for device in ids
        }
        keys = {device: advertised(self.cohort, device, request=self.terms[device].request) for device in ids}
        self.boxes: dict[int, list[tuple[int, bytes]]] = {device: [] for device in ids}
        for request, members in zip(requests, self.classes, strict=True):
            server = server_of(self.cohort, request=request)
            for device, (_, message) in keys.items():
                assert server.add(device, message)
            rosters = dict(server.close()[1])
            for device in members:
                shared, shares = self.cohort.peek(device, rosters[device], keys[device][0])
                assert isinstance(shared, Shared)
                self.cohort.states[device] = shared
                for receiver, box in wire.decode_boxes(shares, Kind.SHARES, self.terms[device]):
                    self.boxes[receiver].append((device, box))

    def step(self, device: int, message: bytes) -> bytes:
        self.cohort.states[device], answer = self.cohort.peek(device, message)
        return bytes(answer)

    def complaints(self, device: int) -> set[int]:
        """What the device says of the boxes of everybody."""
        terms = self.terms[device]
        answer = self.step(device, wire.encode_boxes(Kind.BOXES, sorted(self.boxes[device]), terms))
        return set(wire.decode_ids(answer, Kind.COMPLAINTS, terms))

    def masked_with(self, device: int, peers: Collection[int]) -> bool:
        """Whether the device masks its vector with these."""
        self.step(device, wire.encode_ids(Kind.PEERS, sorted(set(peers) - {device}), self.terms[device]))
        return isinstance(self.cohort.states[device], Masked)


class TestTwoRequests:
    @pytest.mark.parametrize("signed", [False, True])
    def test_no_box_opens_across_them_and_nobody_masks_across_them(self, play: Any, signed: bool) -> None:
        server = TwoFaces(play, count=7, lied_to=2, signed=signed)
        for members, others in (server.classes, server.classes[::-1]):
            for device in members:
                assert server.complaints(device) == others
        device = min(server.classes[0])
        assert not server.masked_with(device, server.cohort.ids)
        assert server.cohort.states[device].reason is AbortReason.STRANGER

    @pytest.mark.parametrize("lied_to", range(8))
    def test_of_signed_devices_one_class_at_most_masks(self, play: Any, lied_to: int) -> None:
        """Seven devices, of which four neighbours must be left: five of one mind can go on, and two can't."""
        server = TwoFaces(play, count=7, lied_to=lied_to, signed=True)
        went_on = []
        for members in server.classes:
            for device in members:
                server.complaints(device)
            went_on.append({device for device in members if server.masked_with(device, members)})
        assert went_on == [members if len(members) >= 5 else set() for members in server.classes]

    def test_a_message_under_the_one_is_none_under_the_other(self, play: Any) -> None:
        server = TwoFaces(play, count=7, lied_to=3, signed=False)
        device, other = min(server.classes[0]), min(server.classes[1])
        server.step(device, wire.encode_boxes(Kind.BOXES, [], server.terms[other]))
        assert server.cohort.states[device].reason is AbortReason.MALFORMED
