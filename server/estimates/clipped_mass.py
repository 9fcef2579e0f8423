"""What clipping took, given back: upper limits for true counts, and estimates in proportion.

**Upper limits.** Write x for an item's clipped count, e for what clipping took of it, C for the threshold and R for the
largest norm of a user. Of a user of norm r > C clipping leaves C/r of every count. So the true count t = x + e has two
limits, of which the smaller holds, each with half of the chance to fail:

    t <= (value + noise of the value) + (rest + noise of the rest)
    t <= (value + noise of the value) R/C          because a user keeps at least C/R of every count

The first is good for large items and the second for small ones. Both hold for every item and any mix of items, if no
user's norm is above R. That is a promise about the data that nothing here can check: what lies beyond R is cut off on
devices, for privacy, and a user beyond R may have had any count of an item.

**Why they are not narrower.** One user of norm R may have all of it in one item, and has to be hidden. With that user
the true count is t + R, and a limit of level 0.95 is at least t + R with chance 0.95; so without that user, where the
count is t, the limit is still at least t + R with chance e^-epsilon (0.95 - delta), 0.35 at epsilon = 1. This holds for
every private limit that is sure, however little is clipped: it is often wider than R.

**Rescaling.** The estimates are multiplied by (their sum + what clipping took in all) / (their sum), never by less than
1. It is right for items in which heavy users have the same share as in all items, and wrong for others.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.protocol.clips.clipping import l2_target
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.rest_terms import part_bound, rest_room
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.server.estimates.limits import LEVEL, above
from fedhist.server.estimates.noise_law import NoiseLaw

# Of the chance to fail, the share of the value's noise: it is far smaller than that of the rest.
_VALUE_SHARE = 0.1


def upper_limits(
    plan: Plan,
    threshold: Threshold,
    values: Integers,
    rests: Integers,
    law: NoiseLaw,
    *,
    level: float = LEVEL,
) -> Floats:
    """A limit for each true count, in counts, that holds with at least the chance `level`."""
    fails = (1 - level) / 2
    room = rest_room(plan, threshold.steps)
    unit = room / part_bound(threshold.steps, plan.norm)
    clipped = values + float(above(law, fails * _VALUE_SHARE))
    with_rest = clipped + (rests + above(law, fails * (1 - _VALUE_SHARE))) * unit
    largest, items = float(room + threshold.steps), plan.closed.items
    # A clipped user of all items is scaled to a norm a little below C, or to C and then truncated.
    kept = float(l2_target(threshold.steps, np.array([items]))[0])
    truncated = kept == threshold.steps
    if plan.norm is Norm.L1:
        kept, truncated = float(threshold.steps), False
    in_proportion = (values + above(law, fails)) * max(largest / kept, 1.0)
    limits: Floats = with_rest if truncated else np.minimum(with_rest, in_proportion)
    # A true count is at least the clipped one, whatever the noise of the rest says.
    limits = np.maximum(np.maximum(limits, clipped), 0.0)
    return np.ldexp(limits, -threshold.bits)


def rescaling(estimates: Floats, taken: float, *, deviation: float) -> float:
    """The factor that gives back what clipping took in all, measured with noise of this standard deviation.

    A measured total L counts as L (1 - deviation^2/L^2), and as 0 where that is negative: one that does not stand out
    of its noise changes nothing.
    """
    total = math.fsum(estimates.tolist())
    if total <= 0 or taken <= deviation:
        return 1.0
    return 1 + taken * (1 - (deviation / taken) ** 2) / total
