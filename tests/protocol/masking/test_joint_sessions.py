"""One masking session for the same round of several questions: its terms, and its sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist import InvalidInput, Plan, SeededSource
from tests.builders import population_of
from tests.support.api import (
    Envelope,
    MaskedQuestion,
    Selection,
    apart,
    joint_terms,
    masked_round,
    masked_together,
    release_request,
    select_request,
    terms_of,
    vector_length,
)

RUN = "a-run"
MASKED: dict[str, Any] = {
    "users": 12, "masking": "secagg", "participants": 6, "selector": "fixed", "threshold": 4.0,
}  # fmt: skip


def asked(items: int, *, run: str = RUN, **changes: Any) -> Envelope:
    plan = Plan(**MASKED | {"items": items} | changes)
    request = release_request(plan, Selection(plan.fixed_threshold), source=SeededSource(1))
    return Envelope(run=run, request=request)


def test_the_terms_are_of_all_questions_in_their_order() -> None:
    one, other = asked(3), asked(5, threshold=2.0)
    joint = joint_terms([one, other])
    assert joint.length == vector_length(one.request) + vector_length(other.request)
    assert joint.participants == 6
    digests = {
        terms.digest
        for terms in (
            joint,
            joint_terms([other, one]),
            joint_terms([one, one]),
            joint_terms([one, asked(5, threshold=3.0)]),
            terms_of(one),
            terms_of(other),
        )
    }
    assert len(digests) == 6
    assert joint_terms([one]) == terms_of(one)


@pytest.mark.parametrize(
    "other",
    [
        asked(3, run="another-run"),
        asked(3, participants=5),
        asked(3, corrupt_share=0.1),
        asked(3, masking="secagg-signed"),
        Envelope(run=RUN, request=select_request(Plan(users=12, items=3, masking="secagg", participants=6))),
    ],
    ids=["run", "participants", "corrupt share", "signed", "round"],
)
def test_questions_that_differ_in_what_a_session_has_once_are_refused(other: Envelope) -> None:
    with pytest.raises(InvalidInput, match="questions in one masking session"):
        joint_terms([asked(3), other])


def test_vectors_come_apart_where_they_were_joined() -> None:
    requests = [asked(3).request, asked(1).request, asked(2).request]
    whole = np.arange(sum(map(vector_length, requests)))
    assert [part.tolist() for part in apart(whole, requests)] == [[0, 1, 2, 3], [4, 5], [6, 7, 8]]


@pytest.mark.parametrize("masking", ["secagg", "secagg-signed"])
def test_sums_of_32_and_64_bits_side_by_side_are_those_of_sessions_of_their_own(masking: str) -> None:
    random = np.random.default_rng(3)
    narrow = asked(3, masking=masking).request
    wide = asked(2, masking=masking, threshold=1e6, max_threshold=1e6, users=12_000).request
    assert (narrow.measurement.masked_width, wide.measurement.masked_width) == (32, 64)
    tables = (random.integers(0, 9, (12, 3)), random.integers(0, 900_000, (12, 2)))
    questions = [
        MaskedQuestion(request, population_of(table), SeededSource(number))
        for number, (request, table) in enumerate(zip((narrow, wide), tables, strict=True))
    ]
    for question, outcome in zip(questions, masked_together(questions), strict=True):
        alone = masked_round(question.request, question.population, source=question.source)
        together = outcome()
        assert together.total.values.tolist() == alone.total.values.tolist()
        assert together.total.users == alone.total.users == 12
        assert together.included == alone.included
