"""Secrets stay where they are: in no repr, no error, no log; fresh in every round; and masked bytes look random."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import numpy as np
import pytest

from fedhist import FedhistError
from tests.support.api import Advertised, Checked, DeviceState, Identity, Masked, Shared, save
from tests.support.api import MaskingKind as Kind
from tests.support.api import restore_state as restore
from tests.support.api import wire_module as wire


def secrets_of(state: DeviceState) -> list[bytes]:
    """Everything in a state that nobody else may see."""
    match state:
        case Advertised():
            found = [state.box_pair.secret, state.mask_pair.secret, state.seed]
        case Shared():
            found = [state.mask_pair.secret, state.seed, *state.receiving_keys.values()]
        case Checked():
            shares = [share for pair in state.shares.values() for share in pair]
            found = [state.mask_pair.secret, state.seed, *shares]
        case Masked():
            found = [share for pair in state.shares.values() for share in pair]
        case _:
            found = []
    identity = getattr(state, "identity", None)
    return found + ([identity.secret] if identity else [])


def leaks(text: str, secrets: list[bytes]) -> bool:
    """Whether a secret, or an eighth of one, shows in any of the usual spellings."""
    for secret in secrets:
        for begin in range(0, 32, 8):
            piece = secret[begin : begin + 8]
            spellings = (
                piece.hex(),
                repr(piece)[2:-1],
                str(int.from_bytes(secret, "little")),
                str(list(piece))[1:-1],
            )
            if any(spelling in text for spelling in spellings):
                return True
    return False


@pytest.mark.parametrize("signed", [False, True])
def test_no_state_shows_its_secrets(play: Any, signed: bool) -> None:
    cohort = play(signed=signed).advertise()
    seen = 0
    while cohort.inbox:
        for state in cohort.states.values():
            secrets = secrets_of(state)
            seen += len(secrets)
            assert not leaks(f"{state!r} {state} {[state]}", secrets)
        cohort.answer()
    assert seen > 50


def test_the_scan_sees_a_secret() -> None:
    secret = bytes(range(100, 132))
    for text in (f"key={secret!r}", secret.hex(), str(list(secret)), str(int.from_bytes(secret, "little"))):
        assert leaks(text, [secret])


def test_no_error_or_log_shows_a_secret(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cohort = play(signed=True).advertise()
    printed: list[str] = []
    secrets: list[bytes] = []
    while cohort.inbox:
        for device, message in cohort.inbox.items():
            state = cohort.states[device]
            secrets += secrets_of(state)
            for wrong in (message[:-1], message[:40], bytes(300)):
                printed.append(repr(cohort.peek(device, wrong)))
            with pytest.raises(FedhistError) as caught:
                restore(save(state)[:-1])
            printed.append("".join(traceback.format_exception(caught.value)) + repr(caught.value.args))
        cohort.answer()
    printed.append(repr(cohort.result))
    assert not leaks(" ".join(printed) + caplog.text, secrets)


def test_no_secret_travels_in_the_clear(play: Any) -> None:
    """Before unmasking, no message holds a share, a seed or a secret key."""
    cohort = play().advertise()
    secrets = [secret for state in cohort.states.values() for secret in secrets_of(state)]
    for _ in range(3):
        sent = b"".join(cohort.inbox.values())
        cohort.answer()
        secrets += [secret for state in cohort.states.values() for secret in secrets_of(state)]
        assert not any(secret[:16] in sent for secret in secrets)
    assert len(secrets) > 40


def test_two_rounds_share_nothing(play: Any) -> None:
    """Same devices, same operating system, two sessions: no key, seed, commitment, salt, box or mask comes twice."""
    seen: set[bytes] = set()
    count = 0
    for session in (1, 2):
        cohort = play(6, seed=None, session=session)
        pieces = [cohort.server._salt]
        cohort.advertise()
        for state in cohort.states.values():
            pieces += [state.box_pair.public, state.mask_pair.public, *secrets_of(state)]
        for message in cohort.inbox.values():
            _, neighbours = wire.decode_roster(message, cohort.terms)
            pieces += {advert.commitment for advert in list(neighbours.values())[:1]}
        cohort.answer()
        pieces += [key for state in cohort.states.values() for key in state.receiving_keys.values()]
        cohort.answer()
        masked = [cohort.peek(device, message)[1] for device, message in cohort.inbox.items()]
        pieces += [data[wire.HEADER_BYTES :] for data in masked]
        pieces = list(dict.fromkeys(pieces))
        seen |= set(pieces)
        count += len(pieces)
    assert len(seen) == count


def test_the_session_changes_every_derived_key_even_if_the_randomness_repeats(play: Any) -> None:
    """Two seeded sessions draw the same key pairs; nothing that is derived from them is the same."""
    one, two = play(session=1).until("boxes"), play(session=2).until("boxes")
    for device in one.ids:
        first, second = one.states[device], two.states[device]
        assert first.mask_pair == second.mask_pair
        assert not set(first.receiving_keys.values()) & set(second.receiving_keys.values())
    one.answer(), two.answer()
    for device in one.ids:
        first_masked, second_masked = (
            np.frombuffer(cohort.peek(device, cohort.inbox[device])[1][wire.HEADER_BYTES :], np.uint32)
            for cohort in (one, two)
        )
        assert not (first_masked == second_masked).any()


@pytest.mark.parametrize("signed", [False, True])
def test_no_message_but_the_masked_vectors_depends_on_what_devices_hold(play: Any, signed: bool) -> None:
    """The same draws and other data: same complaints, same drop-outs, same openings, byte for byte."""

    def transcript(scale: int) -> list[tuple[str, int, bytes]]:
        cohort = play(7, signed=signed)
        cohort.vector = lambda device: np.full(cohort.terms.length, scale * device, dtype=np.int64)
        cohort.advertise()
        cohort.states[16], shares = cohort.peek(16, cohort.inbox.pop(16))
        cohort.outbox[16] = shares[:-100] + bytes(100)
        cohort.answer().answer().answer(without=[22])
        while cohort.inbox:
            cohort.answer()
        assert (cohort.result.left_out, len(cohort.result.included)) == ({"bad-boxes": (16,)}, 5)
        return cohort.sent

    one, other = transcript(0), transcript(2**25)
    assert [(*who, len(data)) for *who, data in one] == [(*who, len(data)) for *who, data in other]
    changed = [data[3] for (*_, data), (*_, twin) in zip(one, other, strict=True) if data != twin]
    assert changed == [Kind.MASKED] * 5


def byte_chi_square(data: bytes) -> float:
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    expected = len(data) / 256
    return float(((counts - expected) ** 2 / expected).sum())


def test_masked_vectors_and_their_sums_look_random_and_that_of_all_without_self_masks_would_not(
    play: Any,
) -> None:
    """Chi-square of the bytes with 255 degrees of freedom: 255 on average, and 400 once in a hundred million."""
    cohort = play(4, length=50_000).until("peers")
    replies = [cohort.peek(device, message)[1] for device, message in cohort.inbox.items()]
    bodies = [np.frombuffer(reply[wire.HEADER_BYTES :], np.uint32) for reply in replies]
    # The difference to the next number must not show anything either.
    sums = [np.sum(bodies[:count], axis=0, dtype=np.uint32) for count in (2, 3, 4)]
    for numbers in (*bodies, *map(np.diff, bodies), *sums):
        assert byte_chi_square(numbers.tobytes()) < 400


def test_an_identity_does_not_show_its_key() -> None:
    identity = Identity(bytes(range(100, 132)), {})
    assert not leaks(repr(identity), [identity.secret])
