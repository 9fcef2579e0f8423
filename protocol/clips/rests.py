"""What clipping takes from users, summed up beside the clipped sum: item by item, or in all. See `rest_terms`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.clips.clipping import (
    is_clipped,
    rest_of,
    round_scaled,
    row_sums,
    sum_by_item,
    sum_items,
)
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Histograms, Integers
from fedhist.protocol.plan.rest_terms import TOTAL_CAP, part_bound, rest_room
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.privacy.randomness import Source

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


def sum_with_rests(plan: Plan, histograms: Histograms, threshold: Threshold, *, source: Source) -> Integers:
    """The clipped sum, and beside it what is missing there, in the parts that the plan asks for."""
    clipped = is_clipped(histograms, threshold, norm=plan.norm)
    above, taken = rest_of(histograms, clipped, threshold, norm=plan.norm, source=source)
    total = sum_items(histograms) << threshold.bits
    total -= sum_by_item(taken, above.items, above.domain_size)
    users = histograms.user_numbers()[clipped]
    return np.concatenate([total, *_rests(plan, above, taken, users, threshold=threshold, source=source)])


def _rests(
    plan: Plan, above: Histograms, taken: Integers, users: Integers, *, threshold: Threshold, source: Source
) -> Iterator[Integers]:
    """Sums of the parts in units of their own. Each user adds at most E to each, in the plan's norm, for every draw."""
    norm, bound = plan.norm, part_bound(threshold.steps, plan.norm)
    if plan.upper_limits is not None:
        room = float(rest_room(plan, threshold.steps))
        lengths, floats = np.diff(above.offsets), taken.astype(np.float64)
        owners = np.repeat(np.arange(above.users), lengths)
        sizes = np.bincount(owners, floats if norm is Norm.L1 else floats**2, minlength=above.users)
        sizes = sizes if norm is Norm.L1 else np.sqrt(sizes)
        scales = np.where(sizes > 0, bound / np.maximum(sizes, room), 0.0)
        words = source.user_words(users, 1)
        steps = round_scaled(taken, above.offsets, scales, words, bound=bound, norm=norm)
        yield sum_by_item(steps, above.items, above.domain_size)
    if plan.rescale is not None:
        most = TOTAL_CAP * threshold.steps
        shares = np.minimum(row_sums(taken, above.offsets), most) / most
        parts = np.ldexp(source.user_words(users, 2) >> np.uint64(11), -53)
        yield np.minimum(np.floor(shares * bound + parts), bound).astype(np.int64).sum(keepdims=True)
