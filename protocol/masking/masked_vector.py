"""What is summed under the masks: one vector of whole numbers whose length and width the request alone decides.

The first value is the participant's number of users, so the server learns how many users a sum is over and not how many
each participant has. After it come the values of an unmasked contribution, the same integers, so that a masked sum
equals an unmasked one to the bit. Where keys are measured, they travel as a table: `measurements/kept_table.py`.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.rounds import Contribution, Labels, Request, Total
from fedhist.protocol.wire.envelope import Envelope

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
        width=request.measurement.masked_width,
        corrupt_share=plan.corrupt_share,
        dropout_share=plan.dropout_share,
        minimum_survivors=plan.minimum_survivors,
        signed=plan.masks.signed,
        participants=plan.masks.participants,
    )


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
