"""What a server refuses of an answer beside what its measurement can tell."""

from __future__ import annotations

import pytest

from fedhist import Plan, SeededSource
from tests.asking import release_at, select_request
from tests.support.api import Collector, Envelope, Fault, LabelTable, Status, answer, encode

PLAN = Plan(users=2, items=3)


@pytest.mark.parametrize("request_", [select_request(PLAN), release_at(PLAN, PLAN.at_steps(5000))])
@pytest.mark.parametrize(("users", "fault"), [(2, None), (3, Fault.OUT_OF_BOUNDS)])
def test_more_users_than_the_plan_has_are_refused(make_histograms, request_, users, fault):
    envelope = Envelope("run", request_)
    collector = Collector(envelope, LabelTable())
    sent = answer(request_, make_histograms([[1, 0, 0]] * users), source=SeededSource(1), labels=range(3))
    assert collector.add(envelope.reply_fields(Status.ANSWER), encode(sent, request_)) is fault
