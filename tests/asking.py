"""Requests as the server makes them, for tests of either side."""

from __future__ import annotations

from typing import Any

from fedhist import Histograms, Plan, SeededSource
from tests.support.api import (
    NOTHING_SETTLED,
    Asking,
    Bound,
    Integers,
    Request,
    Selection,
    Settled,
    Threshold,
    Total,
    release_request,
    select_request,
    steps_of,
)

__all__ = ["first_request", "reading_of", "release_at", "releasing", "select_request", "selecting"]


def first_request(plan: Plan) -> Request:
    """What a run asks first."""
    request = steps_of(plan)[0].request(plan, None, source=SeededSource(0))
    assert request is not None
    return request


def release_at(
    plan: Plan,
    threshold: Threshold,
    item_thresholds: Integers | None = None,
    settled: Settled = NOTHING_SETTLED,
) -> Request:
    """Round 2 at this threshold, with the bounds of single items where the plan has them."""
    selection = Selection(threshold, item_thresholds=item_thresholds, settled=settled)
    return release_request(plan, selection, source=SeededSource(0))


def reading_of(plan: Plan, users: Histograms) -> Any:
    """What a selector reads of these users."""
    measurement = select_request(plan).measurement
    summed = measurement.of(users, source=SeededSource(0))
    return measurement.read(Total(users.users, summed.values, summed.keyed))


def selecting(request: Request) -> Asking:
    """A run that waits for the sum of its first round."""
    step, *after = steps_of(request.plan)
    return Asking(request, step, tuple(after), None)


def releasing(request: Request) -> Asking:
    """A run that waits for the sum of its last round, whose threshold is the request's."""
    assert isinstance(request.given, Bound)
    return Asking(request, steps_of(request.plan)[-1], (), Selection(request.given.threshold))
