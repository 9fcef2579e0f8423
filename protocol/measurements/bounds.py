"""What a server can check of a contribution that it sees: no honest participant goes beyond these.

A participant with u users sends a sum of u users' vectors, so any norm of it is at most u times the bound on one
user's. That whole numbers on the grid arrived is settled by the codec, which knows no others.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.errors import OutOfBounds
from fedhist.protocol.histograms import Integers
from fedhist.protocol.measurements.noisy_tail import tail_measurement
from fedhist.protocol.measurements.open_statistics import SHARE_BITS
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
    elif plan.noise_by_devices:
        measurement = tail_measurement(plan)
        _at_most(
            contribution.values, users * measurement.largest * measurement.coefficients[0], "a measured sum"
        )
    elif plan.per_item:
        _sum_at_most(contribution.values.reshape(plan.items or 0, -1).T, users, "the users of an item")
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
        _sum_at_most(contribution.keyed.values, users * steps, "the l1 norm")
    elif request.plan.norm is Norm.L1:
        _sum_at_most(contribution.values, users * steps, "the l1 norm")
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
    bounds = np.array([users * cap, users << SHARE_BITS])
    _sum_at_most(contribution.keyed.values, bounds, "the mass or the share of all items")


def _check_bucketed(values: Integers, users: int, plan: Plan) -> None:
    candidates = plan.candidate_steps
    above, overflow, table = np.split(values, [len(candidates), 2 * len(candidates)])
    _at_most(above, users, "users above a candidate")
    _at_most(overflow, users * int(candidates[-1]), "the overflow of a candidate")
    bounds = users * candidates << SHARE_BITS
    _sum_at_most(table.reshape(-1, len(candidates)), bounds, "the expected counts of a candidate")


def _exactly(counted: Integers, users: int) -> None:
    # First each, so that the sum can't wrap around to the right number.
    if (counted > users).any() or int(counted.sum()) != users:
        raise OutOfBounds("the users of all bins are not the declared number")


def _sum_at_most(rows: Integers, bounds: Integers | int, what: str) -> None:
    """Sums over the first axis. In doubles first: sums of whole numbers that pass that can't wrap around."""
    if (rows.sum(axis=0, dtype=np.float64) > np.multiply(bounds, _SLACK)).any():
        raise _beyond(what)
    _at_most(rows.sum(axis=0), bounds, what)


def _at_most(values: Integers, bounds: Integers | int, what: str) -> None:
    if (np.asarray(values) > bounds).any():
        raise _beyond(what)


def _beyond(what: str) -> OutOfBounds:
    return OutOfBounds(f"{what} is above what so many users can add up to")
