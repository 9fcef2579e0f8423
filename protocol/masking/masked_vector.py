"""What is summed under the masks: one vector of whole numbers whose length and width the request alone decides.

The first value is the participant's number of users, so the server learns how many users a sum is over and not how many
each participant has. After it come the values of an unmasked contribution, the same integers, so that a masked sum
equals an unmasked one to the bit. Where keys are measured, they travel as a table: `measurements/keys.py`.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.graph import MaskingTerms
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Contribution, Labels, Request, Round, Total
from fedhist.protocol.wire.envelope import Envelope

_SESSION_TAG = b"fedhist/2/masking/session\x00"
_REQUEST_TAG = b"fedhist/2/masking/request\x00"


def session_of(run: str, plan: Plan, round_: Round) -> bytes:
    """The name of the one masking session that a round of a run may have.

    Run names are random, and a device answers one session for each run and round, so no two rounds share keys, seeds or
    graphs.
    """
    name = f"{round_.value}\x00{run}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(_SESSION_TAG + plan.digest + name).digest()


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
        signed=plan.is_signed,
        participants=plan.masks.participants,
        request=hashlib.sha256(_REQUEST_TAG + bytes.fromhex(envelope.fingerprint)).digest(),
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
