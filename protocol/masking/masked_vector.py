"""What is summed under the masks: one vector of whole numbers whose length and width the request alone decides.

The first value is the participant's number of users, so the server learns how many users a sum is over and not how many
each participant has. After it come the values of an unmasked contribution, the same integers, so that a masked sum
equals an unmasked one to the bit. Where keys are measured, they travel as a table: `measurements/kept_table.py`.

Questions about the same users that are asked in one round may share a masking session: their vectors, one after
another, are one vector. The server learns the sum of each and nothing else, as from sessions of their own: a sum of
vectors side by side is the sums side by side. All are over the same participants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhist.protocol.errors import InvalidInput, RoundFailed
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Contribution, Labels, Request, Round, Total, round_after
from fedhist.protocol.wire.envelope import Envelope

_SESSION_TAG = b"fedhist/2/masking/session\x00"
_REQUEST_TAG = b"fedhist/2/masking/request\x00"
_JOINT_SESSION_TAG = b"fedhist/2/masking/joint-session\x00"
_JOINT_REQUEST_TAG = b"fedhist/2/masking/joint-request\x00"


def session_of(run: str, plan: Plan, round_: Round) -> bytes:
    """The name of the one masking session that a round of a run may have.

    It is known before the request is, so devices can advertise keys for it. Run names are random, and a device answers
    one session for each run and round, so no two rounds share keys, seeds or graphs.
    """
    name = f"{round_.value}\x00{run}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(_SESSION_TAG + plan.digest + name).digest()


def next_session(envelope: Envelope) -> bytes | None:
    """The session for which devices advertise keys when they unmask this round's sum; None in the last round."""
    following = round_after(envelope.request.plan, envelope.request.round)
    return None if following is None else session_of(envelope.run, envelope.request.plan, following)


def terms_of(envelope: Envelope) -> MaskingTerms:
    """The terms of the one masking session that this request may have.

    Beside the session they have the digest of the whole request: also of the threshold and the table's salt.
    """
    request = envelope.request
    plan = request.plan
    return MaskingTerms(
        session=session_of(envelope.run, plan, request.round),
        length=vector_length(request),
        width=request.measurement.masked_width,
        corrupt_share=plan.corrupt_share,
        dropout_share=plan.dropout_share,
        minimum_survivors=plan.minimum_survivors,
        signed=plan.masks.signed,
        participants=plan.masks.participants,
        request=hashlib.sha256(_REQUEST_TAG + bytes.fromhex(envelope.fingerprint)).digest(),
    )


def joint_terms(envelopes: Sequence[Envelope]) -> MaskingTerms:
    """The terms of the one masking session of requests that are asked together, in this order.

    The names of session and request are digests of all of theirs, so that nobody masks another list of questions. Both
    have a fixed length, so no two lists give the same bytes. Values are as wide as the widest question needs; the most
    cautious question says how many have to stay.
    """
    each = [terms_of(envelope) for envelope in envelopes]
    if len(each) == 1:
        return each[0]
    widest = replace(
        each[0],
        session=hashlib.sha256(_JOINT_SESSION_TAG + b"".join(terms.session for terms in each)).digest(),
        length=sum(terms.length for terms in each),
        width=max(terms.width for terms in each),
        minimum_survivors=max(terms.minimum_survivors for terms in each),
        request=hashlib.sha256(_JOINT_REQUEST_TAG + b"".join(terms.request for terms in each)).digest(),
    )
    own = [
        replace(
            terms,
            session=widest.session,
            length=widest.length,
            width=widest.width,
            minimum_survivors=widest.minimum_survivors,
            request=widest.request,
        )
        for terms in each
    ]
    alike = {(envelope.run, envelope.request.round) for envelope in envelopes}
    if any(terms != widest for terms in own) or len(alike) > 1:
        raise InvalidInput(
            "questions in one masking session that differ in their run, round, participants or masking",
            allowed="one run, one round and the same settings of masking",
        )
    return widest


def apart(vector: Integers, requests: Sequence[Request]) -> list[Integers]:
    """The vectors of requests that were masked together, in their order."""
    return np.split(vector, np.cumsum([vector_length(request) for request in requests])[:-1])


def vector_length(request: Request) -> int:
    """The number of values that every participant sends."""
    return 1 + request.measurement.masked_length


def to_vector(contribution: Contribution, request: Request, labels: Labels | None) -> Integers:
    """A participant's contribution as the vector that is masked; `labels` name its item numbers."""
    values = request.measurement.to_masked(contribution.summed, labels)
    return np.concatenate([np.array([contribution.users], dtype=np.int64), values])


def to_total(vector: Integers, request: Request, *, participants: int) -> Total:
    """The sum of the participants' vectors, as the coordinator reads it."""
    users, plan = int(vector[0]), request.plan
    if not 1 <= users <= plan.users:
        raise RoundFailed(
            f"round {request.round}: the participants declare {users} users together and the plan is for "
            f"{plan.users}; nothing was released. Make a plan for all of them"
        )
    return request.measurement.from_masked(vector[1:], users=users, shares=participants)
