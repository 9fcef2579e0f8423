"""States survive being stored, and damage does not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.api import Aborted, AbortReason, DecodeError, DeviceState, save
from tests.support.api import restore_state as restore


def every_state(play: Any, *, signed: bool) -> list[DeviceState]:
    cohort = play(signed=signed).advertise()
    found = [cohort.states[10]]
    while cohort.inbox:
        cohort.answer()
        found.append(cohort.states[10])
    return [*found, Aborted(terms=cohort.terms, me=10, reason=AbortReason.BAD_KEY)]


@pytest.mark.parametrize("signed", [False, True])
def test_every_state_comes_back_the_same(play: Any, signed: bool) -> None:
    states = every_state(play, signed=signed)
    assert len({type(state) for state in states}) == (7 if signed else 6)
    for state in states:
        assert restore(save(state)) == state
        assert save(restore(save(state))) == save(state)


@pytest.mark.parametrize("signed", [False, True])
def test_a_session_that_is_stored_after_each_message_is_the_same_session(play: Any, signed: bool) -> None:
    plain, stored = play(signed=signed).until("result"), play(signed=signed).advertise()
    while stored.inbox:
        stored.states = {device: restore(save(state)) for device, state in stored.states.items()}
        stored.answer()
    assert np.array_equal(stored.result.values, plain.result.values)


@pytest.fixture(scope="module")
def signed_states(play: Any) -> list[DeviceState]:
    return every_state(play, signed=True)


@given(data=st.data())
def test_damage_is_noticed(signed_states: list[DeviceState], data: st.DataObject) -> None:
    state = data.draw(st.sampled_from(signed_states))
    saved = bytearray(save(state))
    place = data.draw(st.integers(0, len(saved) - 1))
    saved[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DecodeError):
        restore(bytes(saved))


@pytest.mark.parametrize("signed", [False, True])
def test_cut_or_followed_by_something(play: Any, signed: bool) -> None:
    for state in every_state(play, signed=signed):
        saved = save(state)
        for wrong in (b"", saved[:10], saved[:-1], saved + b"\x00", saved[1:]):
            with pytest.raises(DecodeError):
                restore(wrong)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:2] + b"\x01" + content[3:],
        lambda content: content[:3] + b"\x07" + content[4:],
        lambda content: content + b"\x00",
        lambda content: content[:-1],
        lambda content: content[: 12 + 32 + 4] + bytes([33]) + content[12 + 32 + 5 :],
    ],
    ids=["version", "kind", "longer", "shorter", "terms"],
)
def test_even_with_a_right_digest_the_content_must_fit(play: Any, change: Callable[[bytes], bytes]) -> None:
    for state in every_state(play, signed=False):
        content = change(save(state)[:-32])
        with pytest.raises(DecodeError):
            restore(content + hashlib.sha256(b"fedhist/masking/1/state\x00" + content).digest())
