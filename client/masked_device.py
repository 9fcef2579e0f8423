"""One participant's side of a masked round: its vector, and the session's states as bytes between messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np

from fedhist.client.device import add_noise_share, answer_population
from fedhist.protocol.errors import DecodeError, Refused, UnexpectedMessage
from fedhist.protocol.histograms import Integers, Population, labels_of
from fedhist.protocol.masking.client import (
    Aborted,
    Checked,
    DeviceState,
    advance,
    given_up,
    restore,
    save,
    start,
)
from fedhist.protocol.masking.crypto import Identity, participant_number
from fedhist.protocol.masking.graph import MaskingTerms
from fedhist.protocol.masking.masked_vector import to_vector
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request
from fedhist.protocol.wire.envelope import PARTICIPANT_BYTES, Refusal


class Sessions(Protocol):
    """Where a participant's sessions lie between messages, by name."""

    def keep(self, run: str, state: bytes) -> None:
        """Keep a session's state."""

    def take(self, run: str, resume: Callable[[bytes], DeviceState]) -> DeviceState:
        """The session, which is forgotten on return: each state is used once or never."""


def participant_vector(request: Request, population: Population, *, source: Source, own: Source) -> Integers:
    """What this participant adds to the masked sum: the sum over its users, and its share of noise if devices add it.

    A participant without users adds nothing but its noise, so nobody can tell.

    Args:
        request: what the server asks.
        population: the participant's users.
        source: for what users draw.
        own: for the participant's share of noise; no other participant may draw the same.
    """
    contribution = answer_population(request, population, source=source)
    return with_noise(to_vector(contribution, request, labels_of(population)), request, own=own)


def with_noise(vector: Integers, request: Request, *, own: Source) -> Integers:
    """The vector with the participant's share of noise on its values, if the plan has devices draw it.

    The number of users gets none: the plan tells it, and the server learns its sum only.
    """
    if request.measurement.share is None:
        if request.measurement.noised(request.plan):
            raise UnexpectedMessage(state="a plan whose devices add the noise", message=request.measurement)
        return vector
    return np.concatenate([vector[:1], add_noise_share(request, vector[1:], source=own)])


def begin(
    terms: MaskingTerms, *, me: int, source: Source, identity: Identity | None = None, fewest: int = 0
) -> tuple[bytes, bytes]:
    """The session's first state and the advertisement of its keys.

    Args:
        terms: what both sides agree on.
        me: the participant's number.
        source: for the keys.
        identity: for signed masking, the participant's key and the directory of all keys.
        fewest: the participant's own floor: it gives up when it sees fewer participants than that.
    """
    state, message = start(terms, me, source=source, identity=identity, fewest=fewest)
    return save(state), message


def resume(terms: MaskingTerms, state: bytes) -> DeviceState:
    """The session under these terms; Refused if the state is of another one, or damaged."""
    try:
        session = restore(state)
    except DecodeError:
        raise Refused(Refusal.NO_SESSION) from None
    if session.terms != terms:
        raise Refused(Refusal.NO_SESSION)
    return session


def proceed(
    session: DeviceState, message: bytes, *, vector: Callable[[], Integers], source: Source
) -> tuple[bytes, bytes]:
    """The next state and the answer. An empty answer means that the device gave up, for good.

    Args:
        session: what `resume` found; not to be used again.
        message: the server's.
        vector: called when the vector is due, and not before: data is not looked at for a session that the device
            gives up.
        source: for what the step draws.
    """
    values = None
    if isinstance(session, Checked):
        if (end := given_up(session, message)) is not None:
            return save(end), b""
        values = vector()
    after, answer = advance(session, message, source=source, vector=values)
    return save(after), b"" if isinstance(after, Aborted) else answer


def step(
    name: str,
    terms: MaskingTerms,
    message: object,
    *,
    begins: bool,
    sessions: Sessions,
    node: int,
    admitted: Callable[[], tuple[Identity | None, int]],
    vector: Callable[[], Integers],
    source: Source,
) -> bytes:
    """The answer to one message of a session, whose next state is kept. Raises Refused.

    A session is admitted in its first step, before keys are made.

    Args:
        name: of the session.
        terms: what both sides agree on.
        message: the server's.
        begins: whether keys are asked for.
        sessions: where the state lies, and no longer than until the next step.
        node: the participant's number, unless it has an identity, which has its own.
        admitted: its identity in a signed session, and its floor. Refuses the session, or notes that it begins.
        vector: as in `proceed`.
        source: for what the step draws.
    """
    if begins:
        identity, fewest = admitted()
        me = node if identity is None else participant_number(identity.public)
        state, answer = begin(terms, me=me, source=source, identity=identity, fewest=fewest)
        answer = me.to_bytes(PARTICIPANT_BYTES, "little") + answer
    else:
        if not isinstance(message, bytes):
            raise Refused(Refusal.MALFORMED)
        # Gone before it is used, so that a step that fails half way is not repeated. A message of another session,
        # late or sent again, does not end this one.
        session = sessions.take(name, partial(resume, terms))
        state, answer = proceed(session, message, vector=vector, source=source)
    sessions.keep(name, state)
    if not answer:
        raise Refused(Refusal.UNSAFE)
    return answer
