"""`estimate`: a value for each item that is nearer to the count than the noised one is, most of the time.

The law of the noise is known exactly, so all released values together tell how the clipped counts are distributed.
Each value is then replaced by a quantile of what its count may have been (empirical Bayes):

1. *Distribution*: the maximum of the likelihood over distributions on a grid of non-negative counts, approached by a
   few dozen steps of expectation maximisation from a flat start. Few steps keep it smooth where few values tell.
2. *Quantile*: the median would be best for the sum of absolute errors against the clipped counts. But clipping only
   takes away, so true counts lie above, and the median of many small counts adds up to less than they do. So it is
   the 0.6 quantile, or a higher one, up to 0.7, where that is needed for the estimates to add up to the values.
3. *Where nothing can be learned, nothing is changed*: a value of more than 8 standard deviations of the noise is
   returned as it is, one of 4 to 8 in part, and one with m others within a standard deviation is moved by the share
   m^2/(m^2 + 25) only. So a single item, or a few far from each other, keep their values. Negative values become 0.

The estimate rises with the value, so it keeps the order of items. It is deterministic.

`at_least` uses the same distribution: see `limits` for what it promises. It rises with the value, too, and is never
above the estimate, because both value - q and the 0.05 quantile are below both parts that an estimate is made of.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.histograms import Floats, Integers
from fedhist.server.estimates.limits import LEVEL, above, above_bar
from fedhist.server.estimates.noise_law import NoiseLaw

# In standard deviations of the noise: values beyond are not changed, and from half of it on less and less.
_ALONE = 8
# Of values beyond `_ALONE` the nearer ones still tell how counts are distributed just below it.
_REACH = 14
_BINS = 8
"""To a standard deviation, of values and of counts alike."""
_STEPS = 30
_MORE_STEPS = 270
"""After those of the estimates, for limits: few steps see some counts among many zeros as if they were spread."""
_NEIGHBOURS = 5.0
_QUANTILES = 0.6, 0.7
_HALVINGS = 12


def estimates_and_limits(values: Integers, law: NoiseLaw) -> tuple[Floats, Floats]:
    """The estimates of the clipped counts and a lower limit for each, in steps like the values and not negative."""
    plain = np.maximum(values, 0).astype(np.float64)
    limits = np.maximum(values - above(law, 1 - LEVEL), 0).astype(np.float64)
    if law.deviation < 1:
        return plain, limits
    width = max(1, round(law.deviation / _BINS))
    ends = round(_REACH * law.deviation / width)
    places = np.arange(-ends, ends + 1)
    near = values <= ends * width
    # Bin b holds the whole numbers from b width - width//2 on, `width` of them; values further down count as lowest.
    bins = np.clip((values[near] + width // 2) // width, -ends, ends)
    held = np.bincount(bins + ends, minlength=len(places)).astype(np.float64)
    curve, least = _curves(held, places, _kernel(law, width, ends), places * width / law.deviation)
    # Both curves in one search: the estimate is the real part.
    both = np.interp(values, places * width, (curve + 1j * least) * width, right=complex(0, np.inf))
    return np.where(near, both.real, plain), np.minimum(limits, both.imag)


def limits_above_bar(values: Integers, law: NoiseLaw, bar: int) -> Floats:
    """Lower limits for integer counts whose values exceed the bar; `above_bar` has the part that is proved."""
    limits = above_bar(values, law, bar)
    width = max(1, round(law.deviation / _BINS))
    firsts = np.arange(bar + 1, bar + 1 + round(_REACH * law.deviation) + width, width)
    near = values < firsts[-1] + width
    held = np.bincount((values[near] - firsts[0]) // width, minlength=len(firsts)).astype(np.float64)
    if not held.any():
        return limits
    # Below the bar as many counts as above it: values tell these hardly apart.
    counts = np.append(np.linspace(1, bar, len(firsts), dtype=np.int64), firsts)
    apart = firsts[:, np.newaxis] - counts
    chances = np.subtract(law.reaching(apart), law.reaching(apart + width))
    shown = np.maximum(law.reaching(bar + 1 - counts), 1e-300)
    low = _low(_learned(held, np.maximum(chances / shown, 1e-300)))
    least = np.interp(low, np.arange(len(counts)), counts)
    return np.minimum(limits, np.interp(values, firsts + width / 2, least, right=np.inf))


def _kernel(law: NoiseLaw, width: int, ends: int) -> Floats:
    """The chance that a value falls into a bin (rows) if its count is that of a grid point (columns)."""
    apart = np.arange(-2 * ends, ends + 1)
    firsts = apart * width - width // 2
    chances = np.subtract(law.reaching(firsts), law.reaching(firsts + width))
    kernel: Floats = np.maximum(chances, 1e-300)[
        np.arange(-ends, ends + 1)[:, np.newaxis] - np.arange(ends + 1) + 2 * ends
    ]
    return kernel


def _curves(held: Floats, places: Integers, kernel: Floats, deviations: Floats) -> tuple[Floats, Floats]:
    """The estimate, and the low quantile of the count, at the middle of each bin, in bins."""
    plain = np.maximum(places, 0).astype(np.float64)
    if not held.any():
        return plain, plain
    learned = _learned(held, kernel)
    near = _within(held, _BINS)
    trust = np.clip(2 - 2 * deviations / _ALONE, 0, 1) * near**2 / (near**2 + _NEIGHBOURS**2)

    def moved(quantile: float) -> Floats:
        changed = plain + trust * (_crossing(learned[0], quantile) - plain)
        rising: Floats = np.maximum.accumulate(changed)
        return rising

    least, (low, high) = _low(learned), _QUANTILES
    target = held @ places
    if held @ moved(low) >= target:
        return moved(low), least
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if held @ moved(middle) < target else (low, middle)
    return moved(high), least


def _learned(held: Floats, kernel: Floats) -> tuple[Floats, Floats]:
    """The chance of a count up to each grid point given the value's bin, after few steps and after many."""
    shares = np.full(kernel.shape[1], 1 / kernel.shape[1])
    filled = held > 0
    known, rows = held[filled], kernel[filled]
    after = []
    for steps in (_STEPS, _MORE_STEPS):
        for _ in range(steps):
            shares *= (known / (rows @ shares)) @ rows / held.sum()
        joint = kernel * shares
        after.append(np.cumsum(joint, axis=1) / joint.sum(axis=1, keepdims=True))
    return after[0], after[1]


def _low(learned: tuple[Floats, Floats]) -> Floats:
    """The low quantile of each row, the smaller one of both; it rises except for rounding."""
    least = np.minimum(*(_crossing(up_to, 1 - LEVEL) for up_to in learned))
    rising: Floats = np.minimum.accumulate(least[::-1])[::-1]
    return rising


def _crossing(up_to: Floats, quantile: float) -> Floats:
    """Where each row first reaches the quantile, between grid points on a straight line."""
    after = (up_to >= quantile).argmax(axis=1)
    before = np.maximum(after - 1, 0)
    rows = np.arange(len(up_to))
    low, high = up_to[rows, before], up_to[rows, after]
    part = np.where(after > 0, (quantile - low) / np.maximum(high - low, 1e-300), 0.0)
    place: Floats = before + part
    return place


def _within(held: Floats, bins: int) -> Floats:
    """The number of values in the bins up to so far away."""
    sums = np.concatenate([np.zeros(bins + 1), np.cumsum(held), np.full(bins, held.sum())])
    near: Floats = sums[2 * bins + 1 :] - sums[: -2 * bins - 1]
    return near
