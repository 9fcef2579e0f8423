"""`at_least`: a lower limit for each true count, from the exact law of the noise.

**Closed domains.** With q the smallest integer for which P(Z > q) <= 0.05, the limit is the smallest of

    value - q                       and
    the 5 % quantile of the count's posterior, under the distribution of counts that `empirical_bayes` has learned,
    after the steps of the estimates or after ten times as many, whichever is smaller

and 0 if that is negative. *For an item that was named beforehand it holds with at least the probability 0.95, whatever
the data*: the value is the clipped count plus Z, so P(clipped count >= value - q) = P(Z <= q) >= 0.95; clipping only
takes away, so the true count is at least the clipped one; and a minimum with anything else only lowers the limit, as
does the cut at 0 where counts are not negative. It needs no correction for the choice of the threshold: that choice is
made in an earlier round with draws of its own, and the noise of the release is drawn afterwards, from a law that the
threshold fixes. So given the threshold, whatever led to it, the clipped counts are fixed numbers and the noise has just
this law. The same after the keys of an open domain were discovered: their noise and their bar belong to an earlier
round.

*For rows that are picked because of their values it is measured, not proved*: the largest of many values are large
because their noise is, and value - q alone holds for none of the 20 largest of 1,000 equal counts. The posterior knows
how many others there are. `benchmarks/estimates.py` prints how often it holds. Beyond 14 standard deviations of the
noise only value - q is left, which is off by a small share of such a count.

**Above a bar.** Where the value itself had to pass the bar, values near it are there because their noise was large.
What holds then is the law of the noise *given that the value passed*. Instead of value - q the limit is at most the
smallest count x with

    P(Y >= value | Y > bar, x) >= 0.05

which of the keys that are shown holds for at least 95 %, whatever their counts: a count x' is below its limit only if
P(Y >= value | Y > bar, x') < 0.05, and a tail probability is below 0.05 with a probability of at most 0.05. The
condition is monotone in x because the noise has a log-concave law. A count is at least 1: other keys are not noised.
The posterior is by the same law, and all else is as above.

Users who dropped out are missing in the sum, so the limit holds for the count of all users, too. It does not hold
against clients that make counts up. No upper limit follows: nothing here knows what clipping took away.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.histograms import Floats, Integers
from fedhist.server.estimates.noise_law import NoiseLaw

LEVEL = 0.95


def above(law: NoiseLaw, chance: float) -> int:
    """What the noise exceeds in neither direction but with this chance."""
    return law.radius(1 - 2 * chance)


def above_bar(values: Integers, law: NoiseLaw, bar: int) -> Floats:
    """What is at most the limit of integer counts that are shown because they exceed the bar."""
    distinct, places = np.unique(values, return_inverse=True)
    tail = 1 - LEVEL
    first, last = np.ones_like(distinct), distinct
    while (first < last).any():
        middle = (first + last) // 2
        holds = law.reaching(distinct - middle) >= tail * law.reaching(bar + 1 - middle)
        first, last = np.where(holds, first, np.minimum(middle + 1, last)), np.where(holds, middle, last)
    return last[places].astype(np.float64)
