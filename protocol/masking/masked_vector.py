"""What is summed under the masks: one vector of whole numbers whose length and width the request alone decides.

The first value is the participant's number of users, so the server learns how many users a sum is over and not how many
each participant has. After it come the values of an unmasked contribution, the same integers, so that a masked sum
equals an unmasked one to the bit. Over an open domain round 2 is an invertible Bloom lookup table, because a list of
keys can't be masked.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.histograms import Integers
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.masking.encoding import width_for
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.plan.table_terms import table_shape
from fedhist.protocol.rounds import Contribution, Labels, ReleaseRequest, Request, Total
from fedhist.protocol.sketch.iblt import Decoded, TableNotDecoded, TableShape, decode_table, encode_table
from fedhist.protocol.wire.codec import largest_noise, largest_value
from fedhist.protocol.wire.envelope import Envelope
from fedhist.protocol.wire.keyed_codec import with_short_names

_SESSION_TAG = b"fedhist/1/masking/session\x00"


def terms_of(envelope: Envelope) -> MaskingTerms:
    """The terms of the one masking session that this request may have.

    The session is named by the whole request: the run's name, the round, the plan, the threshold and the table's salt.
    Run names are random, and a device answers one session for each run and round, so no two rounds share keys, seeds or
    graphs.
    """
    request = envelope.request
    plan = request.plan
    return MaskingTerms(
        session=hashlib.sha256(_SESSION_TAG + bytes.fromhex(envelope.fingerprint)).digest(),
        length=vector_length(request),
        width=vector_width(request),
        corrupt_share=plan.corrupt_share,
        dropout_share=plan.dropout_share,
        minimum_survivors=plan.minimum_survivors,
        signed=plan.is_signed,
        participants=plan.participants or 0,
    )


def shape_of(request: Request) -> TableShape | None:
    """The table as which the answer to this request travels; None if it is no table."""
    if not (request.plan.has_table and isinstance(request, ReleaseRequest)):
        return None
    return table_shape(request.plan, request.threshold.steps)


def vector_length(request: Request) -> int:
    """How many values every participant sends."""
    shape = shape_of(request)
    return 1 + (request.length if shape is None else shape.length)


def to_vector(contribution: Contribution, request: Request, labels: Labels | None) -> Integers:
    """A participant's contribution as the vector that is masked; `labels` name its item numbers.

    Items whose names do not fit into the plan's table are left out.
    """
    values = contribution.values
    shape = shape_of(request)
    if shape is not None:
        assert contribution.keyed is not None and isinstance(request, ReleaseRequest)  # noqa: S101 - as the shape says
        keyed = with_short_names(contribution.keyed, 1, labels, request.plan.label_bytes)
        keys = keyed.keys.tolist()
        names = keys if labels is None else [labels[key] for key in keys]
        values = encode_table(names, keyed.values[:, 0], shape, salt=request.table_salt)
    return np.concatenate([np.array([contribution.users], dtype=np.int64), values])


def to_total(vector: Integers, request: Request, *, participants: int) -> Total:
    """The sum of the vectors of so many participants, as the coordinator reads it."""
    users, plan = int(vector[0]), request.plan
    if not 1 <= users <= plan.users:
        raise RoundFailed(
            f"round {request.round}: the participants declare {users} users together and the plan is for "
            f"{plan.users}; nothing was released. Make a plan for all of them"
        )
    shape = shape_of(request)
    if shape is None:
        return Total(
            round=request.round,
            users=users,
            values=vector[1:],
            shares=participants,
            width=vector_width(request),
        )
    assert isinstance(request, ReleaseRequest)  # noqa: S101 - it has a table
    unread = False
    try:
        table = decode_table(vector[1:], shape, salt=request.table_salt)
    except TableNotDecoded:
        table, unread = Decoded(labels=[], counts=vector[:0]), True
    return Total(
        round=request.round,
        users=users,
        values=vector[:0],
        keyed=Keyed(keys=np.arange(len(table.counts)), values=table.counts[:, np.newaxis]),
        labels=table.labels,
        shares=participants,
        unread=unread,
    )


def vector_width(request: Request) -> int:
    """32 or 64 bits a value, so that no sum over the plan's users wraps; see `encoding` for the proof.

    A table's cells need 64, by the proof in protocol/sketch/iblt.py. Noise stays inside `largest_noise` but with
    probability 2^-40; a sum that wraps around is wrong and as private as ever.
    """
    if shape_of(request) is not None:
        return 64
    return width_for(max(largest_value(request), 1), request.plan.users, noise_tail=largest_noise(request))
