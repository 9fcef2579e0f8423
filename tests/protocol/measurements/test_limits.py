"""What no users can add up to is refused also where 64-bit sums of it wrap around to something harmless."""

from __future__ import annotations

import numpy as np
import pytest

from fedhist import Plan
from tests.asking import release_at, select_request
from tests.support.api import Keyed, OutOfBounds, Summed

USERS = 5
SMALL = {"users": 20, "max_threshold": 40, "candidates": 8}
CLOSED = Plan(**SMALL, items=8, mechanism="laplace")
ITEMS = Plan(**SMALL, items=8, debias="poisson")
OPEN = Plan(**SMALL, domain="open", release="truncated-laplace")


def largest_release(plan):
    return release_at(plan, plan.at_steps(plan.step_range[1]))


def counted(request, **more):
    """All users in the first bin, and nothing else."""
    header = np.zeros(request.measurement.shape.length, dtype=np.int64)
    header[0] = USERS
    return Summed(header, **more)


def wrapping_bins():
    """Nine bins whose sum is 5 modulo 2^64."""
    bins = np.array([2**61] * 8 + [USERS], dtype=np.int64)
    assert int(bins.sum()) == USERS
    return bins


def eight_keys(*columns):
    return Keyed(np.arange(8), np.tile(np.array(columns, dtype=np.int64), (8, 1)))


TOO_MUCH = {
    "bins of users": (select_request(CLOSED), Summed(np.append(wrapping_bins(), [0] * 9))),
    "bins of an item": (select_request(ITEMS), Summed(np.tile(wrapping_bins(), 8))),
    "an l1 norm": (largest_release(CLOSED), Summed(np.full(8, 2**61))),
    "masses": (select_request(OPEN), counted(select_request(OPEN), keyed=eight_keys(2**61, 0))),
    "shares": (select_request(OPEN), counted(select_request(OPEN), keyed=eight_keys(0, 2**61))),
    "counts by key": (
        largest_release(OPEN),
        Summed(np.zeros(0, dtype=np.int64), eight_keys(2**61)),
    ),
}


@pytest.mark.parametrize(("request_", "summed"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_sum_that_wraps_around_is_refused(request_, summed):
    with pytest.raises(OutOfBounds):
        request_.measurement.check(summed, USERS)
