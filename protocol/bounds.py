"""What a server can check of a contribution that it sees: no honest participant goes beyond these.

A participant with u users sends a sum of u users' vectors, so any norm of it is at most u times the bound on one
user's. That whole numbers on the grid arrived is settled by the codec, which knows no others.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.errors import OutOfBounds
from fedhist.protocol.histograms import Integers
from fedhist.protocol.open_statistics import SHARE_BITS
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.rounds import Contribution, ReleaseRequest, Request

# Sums of squares are taken in doubles; an honest vector may exceed the bound by their rounding only.
_SLACK = 1 + 1e-9


def check_contribution(contribution: Contribution, request: Request) -> None:
    """Raise OutOfBounds unless so many users can have sent this under the plan."""
    plan, users = request.plan, contribution.users
    if users > plan.users:
        raise OutOfBounds(f"{users} users in one contribution; the plan is for {plan.users} in all")
    if isinstance(request, ReleaseRequest):
        _check_release(contribution, request)
    elif plan.per_item:
        _at_most(contribution.values.reshape(plan.items or 0, -1).sum(axis=1), users, "users of an item")
    elif not plan.is_open:
        _check_tail(contribution.values, users, plan)
    elif plan.statistic == "bucketed":
        _check_bucketed(contribution.values, users, plan)
    else:
        _check_plain(contribution, plan)


def _check_release(contribution: Contribution, request: ReleaseRequest) -> None:
    users, steps = contribution.users, request.threshold.steps
    if request.item_thresholds is not None:
        _at_most(contribution.values, users * request.item_thresholds, "an item's clipped sum")
    elif contribution.keyed is not None:
        _at_most(contribution.keyed.values.sum(), users * steps, "the l1 norm")
    elif request.plan.norm is Norm.L1:
        _at_most(contribution.values.sum(), users * steps, "the l1 norm")
    elif float(np.linalg.norm(contribution.values.astype(np.float64))) > users * steps * _SLACK:
        raise OutOfBounds("the l2 norm is above the bound of so many users")


def _check_tail(values: Integers, users: int, plan: Plan) -> None:
    """Every user is in one bin, with a weight up to the cap."""
    counted, weighed = np.split(values, 2)
    _exactly(counted, users)
    _at_most(weighed, counted * plan.tail_cap, "the weight of a bin")


def _check_plain(contribution: Contribution, plan: Plan) -> None:
    users, cap = contribution.users, int(plan.candidate_steps[-1])
    counted, summed = np.split(contribution.values, 2)
    _exactly(counted, users)
    _at_most(summed, counted * cap, "the total of a bin")
    assert contribution.keyed is not None  # noqa: S101 - the codec read the keys that the request asks for
    mass, share = contribution.keyed.values.sum(axis=0).tolist()
    _at_most(np.int64(mass), users * cap, "the mass of all items")
    _at_most(np.int64(share), users << SHARE_BITS, "the share of all items")


def _check_bucketed(values: Integers, users: int, plan: Plan) -> None:
    candidates = plan.candidate_steps
    above, overflow, table = np.split(values, [len(candidates), 2 * len(candidates)])
    _at_most(above, users, "users above a candidate")
    _at_most(overflow, users * int(candidates[-1]), "the overflow of a candidate")
    expected = table.reshape(-1, len(candidates)).sum(axis=0)
    _at_most(expected, users * candidates << SHARE_BITS, "the expected counts of a candidate")


def _exactly(counted: Integers, users: int) -> None:
    if int(counted.sum()) != users:
        raise OutOfBounds("the users of all bins are not the declared number")


def _at_most(values: Integers | np.int64, bound: Integers | int, what: str) -> None:
    if (np.asarray(values) > bound).any():
        raise OutOfBounds(f"{what} is above what so many users can add up to")
