"""What a plan measures beside the clipped sum: the rest, which clipping took from users above the threshold.

A user's message is then (q, e', t'): q is the clipped histogram, e' the rest of it, item by item, in a unit that makes
its norm at most E, and t' the total of the rest, cut and in a unit that makes it at most E. One mechanism noises all of
it. E is small beside the threshold C, so the clipped sum has little more noise than alone, and e' and t', in counts,
have much more.

    --upper-limits R   e', for users of norm up to R: unit E/(R - C)
    --rescale          t', up to 8 C of each user: unit E/(8 C)
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.histograms import MAX_USER_TOTAL
from fedhist.protocol.privacy.neighbours import Norm

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

TOTAL_CAP = 8
"""The most of a user's rest that counts in its total, in thresholds."""
# Each part adds a tenth to the square of an l2 sensitivity, 4.9 % to it, and a tenth to an l1 sensitivity.
_SHARE = 10
# Fewer steps, and E would be too coarse a tenth.
_LEAST_STEPS = 100


def parts(plan: Plan) -> int:
    """How many parts are measured beside the clipped sum."""
    return (plan.upper_limits is not None) + (plan.rescale is not None)


def part_bound(bound: int, norm: Norm) -> int:
    """E: the norm of each part, for a threshold in any unit."""
    return math.isqrt(bound * bound // _SHARE) if norm is Norm.L2 else bound // _SHARE


def rest_room(plan: Plan, steps: int) -> int:
    """The largest norm of what clipping takes from a user of norm R, in steps; at least one."""
    if plan.upper_limits is None:
        raise LookupError("this plan has no upper limits: ask for them first")
    return max(math.ceil(Fraction(plan.upper_limits) * (1 << plan.grid_bits)) - steps, 1)


def released_values(plan: Plan) -> int:
    """The number of values in the sum that is noised."""
    items = plan.closed.items
    return items + (items if plan.upper_limits is not None else 0) + (plan.rescale is not None)


def check_rest(plan: Plan) -> None:
    """Refuse to measure what clipping takes where it is not whole histograms of a closed domain that are clipped."""
    if not parts(plan):
        return
    if plan.per_item or (plan.is_open and not plan.discovers):
        raise InvalidPlan(
            "upper limits or rescaling where items are clipped one by one or above a bar",
            allowed="both over a closed domain or after a discovery, without debiasing",
            advice="leave out --upper-limits and --rescale",
        )
    if plan.upper_limits is not None and not plan.min_threshold <= plan.upper_limits <= MAX_USER_TOTAL:
        raise InvalidPlan(
            f"the upper limits are for users of norm up to {plan.upper_limits!r}",
            allowed=f"{plan.min_threshold:g} to {MAX_USER_TOTAL:,}",
            advice="give --upper-limits the largest norm that a user may have",
        )
    if not plan.is_open and plan.step_range[0] < _LEAST_STEPS:
        raise InvalidPlan(
            "the grid is too coarse to measure what clipping takes",
            allowed=f"a smallest threshold of at least {_LEAST_STEPS} steps",
            advice="raise --min-threshold or lower --max-threshold",
        )
