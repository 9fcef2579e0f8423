"""A participant's steps: data is read when it is due and not before, and the participant's own floor is kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhist import Plan, RoundFailed, SeededSource
from tests.asking import select_request
from tests.support.api import (
    CollectingAdvertisements,
    Envelope,
    Integers,
    MaskedSum,
    proceed,
    resume,
    terms_of,
)
from tests.support.api import begin_masked as begin
from tests.support.refusals import refused

PLAN = Plan(users=50, items=3, candidates=4, masking="secagg", participants=5, dropout_share=0.2)


def run(due: list[tuple[str, int]], *, fewest: int = 0, silent: int = 0, garbled: str = "") -> MaskedSum:
    """A masked round over five participants, the last of which are `silent`: when each one's vector is due.

    In the stage `garbled` they get nonsense of the server.
    """
    envelope, source = Envelope(run="r", request=select_request(PLAN)), SeededSource(1)
    server: Any = CollectingAdvertisements(terms_of(envelope), source=source)
    states = {}
    for me in range(5 - silent):
        states[me], message = begin(terms_of(envelope), me=me, source=source.fork(me), fewest=fewest)
        server.add(me, message)
    while isinstance(closed := server.close(), tuple):
        server, messages = closed
        for me, message in messages:

            def vector(me: int = me, stage: str = server.name) -> Integers:
                due.append((stage, me))
                return np.ones(terms_of(envelope).length, dtype=np.int64)

            session = resume(terms_of(envelope), states[me])
            draws = source.fork(me, server.name)
            said = b"nonsense" if garbled == server.name else message
            states[me], answer = proceed(session, said, vector=vector, source=draws)
            if answer:
                server.add(me, answer)
    return closed


def test_data_is_due_when_the_complaints_are_settled_and_only_then() -> None:
    due: list[tuple[str, int]] = []
    total = run(due)
    assert due == [("masking", me) for me in range(5)]
    assert set(total.values.tolist()) == {5}


def test_a_cohort_below_the_participant_s_own_floor_gets_nothing() -> None:
    """The plan is content with four; participants that ask for five do not even share their secrets with four."""
    assert len(run([], fewest=4, silent=1).included) == 4
    with refused(RoundFailed, "too-few-survivors"):
        run([], fewest=5, silent=1)


def test_a_participant_that_gives_up_has_not_looked_at_its_data() -> None:
    due: list[tuple[str, int]] = []
    with refused(RoundFailed, "too-few-survivors"):
        run(due, garbled="masking")
    assert due == []
