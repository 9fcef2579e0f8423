"""What is summed under the masks: one vector of whole numbers whose length and width the request alone decides.

The first value is the participant's number of users, so the server learns how many users a sum is over and not how many
each participant has. After it come the values of an unmasked contribution, the same integers, so that a masked sum
equals an unmasked one to the bit. Over an open domain round 2 is an invertible Bloom lookup table, because a list of
keys can't be masked.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedhist.protocol.codec import largest_noise, largest_value
from fedhist.protocol.envelope import Envelope
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.histograms import Integers
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.keyed_codec import with_short_names
from fedhist.protocol.masking.encoding import width_for
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Contribution, Labels, ReleaseRequest, Request, Total
from fedhist.protocol.sketch.iblt import TableShape, decode_table, encode_table

_SESSION_TAG = b"fedhist/1/masking/session\x00"


def terms_of(envelope: Envelope) -> MaskingTerms:
    """The terms of the one masking session that this request may have.

    The session is named by the whole request: the run's name, the round, the plan and the threshold. Run names are
    random, and a device answers one session for each run and round, so no two rounds share keys, seeds or graphs.
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


def table_shape(plan: Plan) -> TableShape:
    """The table of an open domain's round 2."""
    return TableShape(capacity=plan.table_capacity, label_bytes=plan.label_bytes)


def has_table(request: Request) -> bool:
    """Whether the answer to this request travels as a table of keys."""
    return request.plan.is_open and isinstance(request, ReleaseRequest)


def vector_length(request: Request) -> int:
    """How many values every participant sends."""
    return 1 + (table_shape(request.plan).length if has_table(request) else request.length)


def to_vector(contribution: Contribution, request: Request, labels: Labels | None) -> Integers:
    """A participant's contribution as the vector that is masked; `labels` name its item numbers.

    Items whose names do not fit into the plan's table are left out.
    """
    values = contribution.values
    if has_table(request):
        assert contribution.keyed is not None  # noqa: S101 - an open domain's release is keyed
        keyed = with_short_names(contribution.keyed, 1, labels, request.plan.label_bytes)
        keys = keyed.keys.tolist()
        names = keys if labels is None else [labels[key] for key in keys]
        counts = keyed.values[:, 0]
        values = encode_table(names, counts, table_shape(request.plan), salt=request.plan.digest)
    return np.concatenate([np.array([contribution.users], dtype=np.int64), values])


def to_total(vector: Integers, request: Request, *, participants: int) -> Total:
    """The sum of the vectors of so many participants, as the coordinator reads it."""
    users, plan = int(vector[0]), request.plan
    if not 1 <= users <= plan.users:
        raise RoundFailed(
            f"round {request.round}: the participants declare {users} users together and the plan is for "
            f"{plan.users}; nothing was released. Make a plan for all of them"
        )
    if not has_table(request):
        return Total(
            round=request.round,
            users=users,
            values=vector[1:],
            shares=participants,
            width=vector_width(request),
        )
    table = decode_table(vector[1:], table_shape(plan), salt=plan.digest)
    return Total(
        round=request.round,
        users=users,
        values=vector[:0],
        keyed=Keyed(keys=np.arange(len(table.counts)), values=table.counts[:, np.newaxis]),
        labels=table.labels,
        shares=participants,
    )


def vector_width(request: Request) -> int:
    """32 or 64 bits a value, so that no sum over the plan's users wraps; see `encoding` for the proof.

    A table's cells need 64, by the proof in protocol/sketch/iblt.py. Noise stays inside `largest_noise` but with
    probability 2^-40; a sum that wraps around is wrong and as private as ever.
    """
    if has_table(request):
        return 64
    return width_for(max(largest_value(request), 1), request.plan.users, noise_tail=largest_noise(request))
