"""One participant's side of a masked round: its vector, and the session's states as bytes between messages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedhist.client.device import add_noise_share, answer_population
from fedhist.protocol.errors import DecodeError, Refused, UnexpectedMessage
from fedhist.protocol.histograms import Integers, Population, labels_of
from fedhist.protocol.masking.device_session import advance, agree, given_up, prepare, start
from fedhist.protocol.masking.device_states import Aborted, Checked, DeviceState, Finished, Masked, Prepared
from fedhist.protocol.masking.keys import Identity
from fedhist.protocol.masking.masked_vector import terms_of, to_vector
from fedhist.protocol.masking.state_codec import restore, save
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request
from fedhist.protocol.wire.envelope import Envelope, Refusal


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
    envelope: Envelope, *, me: int, source: Source, identity: Identity | None = None, fewest: int = 0
) -> tuple[bytes, bytes]:
    """The session's first state and the advertisement of its keys.

    Args:
        envelope: the request.
        me: the participant's number.
        source: for the keys.
        identity: for signed masking, the participant's key and the directory of all keys.
        fewest: the participant's own floor: it gives up when it sees fewer participants than that.
    """
    state, message = start(terms_of(envelope), me, source=source, identity=identity, fewest=fewest)
    return save(state), message


def resume(terms: MaskingTerms, state: bytes) -> DeviceState | Prepared:
    """The session under these terms; Refused if the state is of another one, or damaged.

    Keys that were advertised for this session ahead are a `Prepared`. The request must be admitted before it goes on,
    as it would be before keys are made.
    """
    try:
        session = restore(state)
    except DecodeError:
        raise Refused(Refusal.NO_SESSION) from None
    same = session.session == terms.session if isinstance(session, Prepared) else session.terms == terms
    if not same:
        raise Refused(Refusal.NO_SESSION)
    return session


def join(
    envelope: Envelope, prepared: Prepared, *, me: int, identity: Identity | None = None, fewest: int = 0
) -> DeviceState:
    """The session of keys that were advertised before its request came; the rest is as in `begin`.

    Refused if they were advertised under another number: the participant's identity has changed since.
    """
    if prepared.me != me:
        raise Refused(Refusal.NO_SESSION)
    return agree(prepared, terms_of(envelope), identity=identity, fewest=fewest)


def proceed(
    session: DeviceState,
    message: bytes,
    *,
    vector: Callable[[], Integers],
    source: Source,
    following: bytes | None = None,
) -> tuple[bytes, bytes]:
    """The next state and the answer. An empty answer means that the device gave up, for good.

    The answer that ends a round before the run's last one begins with an advertisement of fresh keys for the next: the
    state is then that of the next round's session.

    Args:
        session: what `resume` or `join` found; not to be used again.
        message: the server's.
        vector: called when the vector is due, and not before: data is not looked at for a session that the device
            gives up.
        source: for what the step draws.
        following: the session of the run's next round, `next_session`; None if there is none.
    """
    values = None
    if isinstance(session, Checked):
        if (end := given_up(session, message)) is not None:
            return save(end), b""
        values = vector()
    after, answer = advance(session, message, source=source, vector=values)
    if isinstance(session, Masked) and isinstance(after, Finished) and following is not None:
        prepared, advertisement = prepare(following, session.me, source=source, identity=session.identity)
        return save(prepared), advertisement + answer
    return save(after), b"" if isinstance(after, Aborted) else answer
