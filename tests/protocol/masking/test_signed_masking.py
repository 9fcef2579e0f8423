"""Signed mode: a server that deviates gets aborts instead of sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhist import InvalidInput, SeededSource
from tests.support.api import (
    AbortReason,
    CollectingAdvertisements,
    Confirmed,
    Finished,
    Identity,
    Rejection,
    TooFewSurvivors,
    start,
)
from tests.support.api import MaskingKind as Kind
from tests.support.api import masking_client_module as masking_client
from tests.support.api import wire_module as wire
from tests.support.refusals import refused

ME = 10


def roster_with(cohort: Any, body_of_13: bytes) -> bytes:
    parameters, neighbours = wire.decode_roster(cohort.inbox[ME], cohort.terms)
    bodies = {peer: advert.unsigned + advert.signature for peer, advert in neighbours.items()} | {
        13: body_of_13
    }
    entries = [wire.roster_entry(peer, bodies[peer]) for peer in sorted(bodies)]
    return wire.encode_roster(parameters, entries, cohort.terms)


def survivors(cohort: Any, *devices: int) -> bytes:
    return wire.message(Kind.SURVIVORS, cohort.terms, wire.id_list(devices))


def forged(cohort: Any) -> bytes:
    """An advertisement of device 13 that somebody else signed."""
    forger = Identity(SeededSource(99).words(4).tobytes(), {})
    return start(cohort.terms, 13, source=SeededSource(5), identity=forger)[1]


def of_another_session(cohort: Any) -> bytes:
    other = type(cohort)(signed=True, session=2).until("roster")
    _, neighbours = wire.decode_roster(other.inbox[ME], other.terms)
    body = neighbours[13].unsigned + neighbours[13].signature
    return wire.message(Kind.ADVERTISEMENT, cohort.terms, body)


def of_another_device(cohort: Any) -> bytes:
    """The server can't put one device in twice under two names."""
    return start(cohort.terms, 16, source=SeededSource(5), identity=cohort.identities[16])[1]


class TestAdvertisements:
    @pytest.mark.parametrize("other", [forged, of_another_session, of_another_device])
    def test_one_that_the_device_did_not_sign_for_itself_in_this_session(self, play: Any, other: Any) -> None:
        cohort = play(signed=True).until("roster")
        message = roster_with(cohort, other(cohort)[wire.HEADER_BYTES :])
        assert cohort.reason(message) is AbortReason.BAD_SIGNATURE

    def test_one_of_a_device_that_nobody_knows(self, play: Any) -> None:
        cohort = play(signed=True).until("roster")
        state = cohort.states[ME]
        known = {device: key for device, key in state.identity.directory.items() if device != 13}
        narrow = replace(state, identity=Identity(state.identity.secret, known))
        assert cohort.reason(cohort.inbox[ME], narrow) is AbortReason.BAD_SIGNATURE

    def test_the_server_leaves_forgers_out(self, play: Any) -> None:
        cohort = play(signed=True)
        assert not cohort.server.add(13, forged(cohort))
        assert cohort.server.rejected == {Rejection.BAD_SIGNATURE: 1}
        cohort.until("result")
        assert np.array_equal(cohort.result.values, cohort.total(cohort.ids))

    def test_an_identity_or_a_directory_is_needed_and_only_here(self, play: Any) -> None:
        signed, plain, source = play(signed=True).terms, play().terms, SeededSource(1)
        for attempt in (
            lambda: start(signed, ME, source=source),
            lambda: start(plain, ME, source=source, identity=Identity(bytes(32), {})),
            lambda: CollectingAdvertisements(signed, source=source),
            lambda: CollectingAdvertisements(plain, source=source, directory={}),
        ):
            with pytest.raises(InvalidInput):
                attempt()


class TestSurvivors:
    @pytest.mark.parametrize(
        ("listed", "reason"),
        [
            ((13, 16, 19, 22, 25, 28), AbortReason.WRONG_SURVIVORS),
            ((10, 13, 16, 19, 22, 25, 28, 999), AbortReason.WRONG_SURVIVORS),
            ((10, 13, 16, 19), AbortReason.TOO_FEW),
            ((10, 13, 13, 16, 19, 22), AbortReason.MALFORMED),
        ],
        ids=["not-me", "stranger", "few", "twice"],
    )
    def test_a_wrong_set_is_not_signed(self, play: Any, listed: tuple[int, ...], reason: AbortReason) -> None:
        cohort = play(7, signed=True).until("survivors")
        assert cohort.reason(survivors(cohort, *listed)) is reason

    def test_a_device_signs_one_set_only_and_unmasks_nothing_before(self, play: Any) -> None:
        cohort = play(7, signed=True).until("survivors")
        state, _ = cohort.peek(ME, survivors(cohort, *cohort.ids))
        assert isinstance(state, Confirmed)
        again, early = survivors(cohort, *cohort.ids[:6]), wire.encode_unmask((), b"", cohort.terms)
        for message, at in ((again, state), (early, None)):
            assert cohort.reason(message, at) is AbortReason.MALFORMED


def flipped(signature: bytes, place: int) -> bytes:
    return signature[:place] + bytes([signature[place] ^ 1]) + signature[place + 1 :]


class TestConfirmations:
    """Seven devices, threshold four."""

    def confirmed(self, play: Any, **settings: Any) -> tuple[Any, dict[int, bytes]]:
        cohort = play(7, signed=True, **settings).until("survivors")
        signatures = {}
        for device, message in cohort.inbox.items():
            cohort.states[device], reply = cohort.peek(device, message)
            signatures[device] = wire.decode_confirmation(reply, cohort.terms)
        return cohort, signatures

    def unmask(self, cohort: Any, signatures: dict[int, bytes], *dead: int) -> bytes:
        entries = b"".join(wire.confirmation_entry(*entry) for entry in sorted(signatures.items()))
        return wire.encode_unmask(dead, entries, cohort.terms)

    def test_enough_of_them_open_the_shares_of_those_confirmed_as_dead(self, play: Any) -> None:
        cohort, signatures = self.confirmed(play)
        for signers, dead, reason in (
            (7, (), None),
            (4, (), None),
            (3, (), AbortReason.TOO_FEW),
            (0, (), AbortReason.TOO_FEW),
            (7, (13,), AbortReason.WRONG_SURVIVORS),
        ):
            message = self.unmask(cohort, dict(list(signatures.items())[:signers]), *dead)
            if reason is None:
                assert isinstance(cohort.peek(ME, message)[0], Finished)
            else:
                assert cohort.reason(message) is reason

    @pytest.mark.parametrize(
        "change",
        [
            *(lambda s, _, place=place: {13: flipped(s[13], place)} for place in (0, 31, 32, 63)),
            lambda s, _: {13: s[16]},
            lambda s, _: {999: s[16]},
            lambda _, others: others,
        ],
        ids=["0", "31", "32", "63", "of-another-device", "of-a-stranger", "of-another-session"],
    )
    def test_a_wrong_one(self, play: Any, change: Any) -> None:
        cohort, signatures = self.confirmed(play)
        _, others = self.confirmed(play, session=2)
        message = self.unmask(cohort, signatures | change(signatures, others))
        assert cohort.reason(message) is AbortReason.BAD_SIGNATURE

    def test_a_right_one_of_a_device_that_is_no_survivor(self, play: Any) -> None:
        cohort = play(7, signed=True).until("survivors")
        state, _ = cohort.peek(ME, survivors(cohort, *cohort.ids[:6]))
        signature = cohort.identities[28].sign(masking_client._survivors_text(state))
        message = self.unmask(cohort, {28: signature}, 28)
        assert cohort.reason(message, state) is AbortReason.BAD_SIGNATURE

    def test_two_sets_shown_to_two_halves_unmask_neither(self, play: Any) -> None:
        """The attack on unsigned masking: device 28 is alive to some and dead to others, for both kinds of share."""
        cohort = play(7, signed=True).until("survivors")
        sets = {device: cohort.ids if device in (10, 13, 16) else cohort.ids[:6] for device in cohort.ids[:6]}
        signatures = {}
        for device, shown in sets.items():
            cohort.states[device], reply = cohort.peek(device, survivors(cohort, *shown))
            signatures[device] = wire.decode_confirmation(reply, cohort.terms)
        for device, shown in sets.items():
            same = {other: signatures[other] for other in sets if sets[other] == shown}
            dead = sorted(set(cohort.ids) - set(shown))
            assert cohort.reason(self.unmask(cohort, same, *dead), me=device) is AbortReason.TOO_FEW
            everyone = self.unmask(cohort, signatures, *dead)
            assert cohort.reason(everyone, me=device) is AbortReason.BAD_SIGNATURE

    def test_the_server_ignores_forged_ones_and_stops_when_too_few_confirm(self, play: Any) -> None:
        cohort = play(7, signed=True).until("survivors")
        assert not cohort.server.add(ME, wire.message(Kind.CONFIRMATION, cohort.terms, bytes(64)))
        assert cohort.server.rejected == {Rejection.BAD_SIGNATURE: 1}
        with refused(TooFewSurvivors, "too-few-survivors") as caught:
            cohort.answer(without=cohort.ids[:3])
        assert (caught.value.stage, caught.value.alive, caught.value.needed) == ("confirming", 4, 5)
