"""Nobody is counted twice, a device that is asked again gives no second view, and a plan below its floors is refused.

Exact sums are compared, so that no noise can hide an extra answer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from fedhist import Plan, SeededSource, SystemSource
from fedhist.client import Policy
from tests.asking import release_at, select_request
from tests.support.api import (
    Collector,
    Envelope,
    LabelTable,
    PolicyMemory,
    Refused,
    Reply,
    Request,
    Status,
    Total,
    admit,
    answer_population,
    check,
    clear_answer,
    crafted,
    encode,
    matched,
)

NODES = 6
LABELS = ("a", "b", "c", "d")
# Plans for twice the users, so that a user who is counted twice is in the sum instead of being refused.
COMMON: dict[str, Any] = {"users": 2 * NODES, "candidates": 16, "max_threshold": 64.0}
PLANS = {
    "closed": Plan(items=len(LABELS), mechanism="laplace", **COMMON),
    "open": Plan(domain="open", release="truncated-laplace", **COMMON),
}
SOURCE = SeededSource(1)


def requests_of(plan: Plan) -> tuple[Request, Request]:
    return select_request(plan), release_at(plan, plan.at_steps(int(plan.candidate_steps[-1])))


def collected(request: Request, twice: Collection[int]) -> Total:
    """The sum of all nodes' answers, some of which arrive twice."""
    envelope, replies = Envelope(run="run", request=request), []
    for node in range(NODES):
        # A user whose counts are not the sum of any other set of users.
        user = crafted([[(node % len(LABELS), 1 << node)]], len(LABELS), LABELS)
        data = encode(answer_population(request, user, source=SOURCE.fork(node)), request, user.labels)
        fields = envelope.reply_fields(Status.ANSWER)
        reply = Reply(asked=f"message {node}", node=node, failed=False, fields=fields, data=data)
        replies += [reply] * (2 if node in twice else 1)
    collector = Collector(envelope, LabelTable())
    asked = {f"message {node}": node for node in range(NODES)}
    for _, reply in matched(asked, replies, lambda fault, node: None):
        collector.add(reply.fields, reply.data)
    return collector.total()


def parts(total: Total) -> object:
    keyed = None if total.keyed is None else (total.keyed.keys.tolist(), total.keyed.values.tolist())
    return total.users, total.values.tolist(), list(total.labels or ()), keyed


@pytest.mark.parametrize("kind", PLANS)
def test_a_node_whose_answer_arrives_twice_is_in_the_sum_once(kind: str) -> None:
    for request in requests_of(PLANS[kind]):
        once = parts(collected(request, ()))
        for twice in ((0,), (NODES - 1,), range(NODES)):
            assert parts(collected(request, twice)) == once


@pytest.mark.parametrize("kind", PLANS)
def test_a_device_whose_clipping_is_random_answers_the_same_request_the_same(kind: str) -> None:
    """It keeps one of four items or so, so that twenty equal answers are no coincidence."""
    user = crafted([[(item, 40) for item in range(len(LABELS))]], len(LABELS), LABELS)
    plan = PLANS[kind]
    asked = Envelope("run", release_at(plan, plan.at_steps(int(plan.candidate_steps[0]))))
    answers = {clear_answer(asked, user, secret=bytes(32), source=SystemSource()) for _ in range(20)}
    assert len(answers) == 1


MASKED = Plan(
    items=len(LABELS), mechanism="laplace", masking="secagg", participants=NODES, corrupt_share=0.2, dropout_share=0.0,
    noise_from="devices", minimum_cohort=3, **COMMON,
)  # fmt: skip
FLOORS = Policy(
    minimum_masking="secagg", minimum_participants=NODES, minimum_corrupt_share=0.1, noise_from_devices=True,
    minimum_cohort=3,
)  # fmt: skip
LOWER: dict[str, dict[str, Any]] = {
    "masks": {
        "masking": "none", "participants": None, "corrupt_share": 0.05, "dropout_share": 0.1, "noise_from": "server",
    },
    "participants": {"participants": NODES - 1},
    "survivors": {"dropout_share": 0.3},
    "corrupt share": {"corrupt_share": 0.0},
    "noise": {"noise_from": "server"},
    "users": {"minimum_cohort": 2},
}  # fmt: skip


def test_a_plan_that_promises_what_a_device_demands_is_admitted() -> None:
    check(FLOORS, PolicyMemory(), Envelope("run", select_request(MASKED)))


@pytest.mark.parametrize("what", LOWER)
def test_a_plan_that_promises_less_than_a_device_demands_is_refused(what: str) -> None:
    with pytest.raises(Refused):
        check(FLOORS, PolicyMemory(), Envelope("run", select_request(replace(MASKED, **LOWER[what]))))


def test_unsigned_masks_are_refused_where_signed_ones_are_demanded() -> None:
    signed = replace(FLOORS, minimum_masking="secagg-signed")
    with pytest.raises(Refused):
        check(signed, PolicyMemory(), Envelope("run", select_request(MASKED)))


@pytest.mark.parametrize("noise_from", ["server", "devices"])
def test_a_masked_answer_is_given_once(noise_from: str) -> None:
    """Two masked answers to one request would have two shares of noise."""
    memory, plan = PolicyMemory(), replace(MASKED, noise_from=noise_from)
    for request in requests_of(plan):
        memory = admit(Policy(), memory, Envelope("run", request))
        with pytest.raises(Refused):
            check(Policy(), memory, Envelope("run", request))
