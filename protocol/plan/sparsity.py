"""The number of items that a user counts with in the choice of the threshold, where a plan does not say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from fedhist.protocol.plugins import Kind, plugin_named
from fedhist.protocol.privacy.neighbours import clipped_sum_l2

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""E|Z| of a standard Gaussian."""

_ROOT_SPARSITY = (3, 8)
_LEAST_RESOLUTION = 3.0


def usual_sparsity(plan: Plan) -> int:
    """The largest of 9, 16, ..., 64 with eps' M/(2 sqrt(s)) >= 3, at most all items; all for the paper's selectors.

    The choice tells W(C) = 0 from W(C) = M by a factor of e^3 then. A smaller s sharpens it, and a larger one
    counts users of many items as they are: few have a ratio of norms above sqrt(64), none above sqrt(d).
    """
    items = cast(int, plan.items)
    plugin = plugin_named(Kind.SELECTOR, plan.selector)
    if plan.selector == "oracle" or (plugin is not None and plugin.thing.counts_all_items):
        return items
    root = math.inf
    if plan.mechanism != "laplace" and not plan.per_item:
        moved = clipped_sum_l2(1, domain_size=items, neighbours=plan.neighbours).value
        price = items * moved * plan.multiplier * MEAN_ABSOLUTE
        root = plan.epsilon_select * price / (2 * _LEAST_RESOLUTION)
    lowest, highest = _ROOT_SPARSITY
    return min(items, max(lowest, math.floor(min(root, highest))) ** 2)
