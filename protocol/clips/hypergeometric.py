"""Hypergeometric draws by inversion, vectorised: one uniform number a draw, whatever else is in the batch."""

from __future__ import annotations

import functools

import numpy as np

from fedhist.protocol.histograms import Flags, Floats, Integers

_TABLE_SIZE = 1 << 16
# Probabilities below this no longer change a double.
_NOTHING_LEFT = 1e-20
_FEW_CELLS = 1 << 11
_CELLS = 1 << 17
_MOST_VALUES = 64


def hypergeometric(good: Integers, bad: Integers, draws: Integers, *, uniforms: Floats) -> Integers:
    """The number of good balls among `draws` balls drawn without replacement from `good` + `bad` ones.

    Chop-down search outwards from the mode (Kachitvichyanukul & Schmeiser 1985, without their approximations): the
    probabilities are subtracted from the uniform number in the order mode, mode + 1, mode - 1, ... until it is used up.
    Accurate to the rounding of doubles: a relative error of the probabilities of 10^-9 for a million balls, 10^-5 for
    two thousand million.
    """
    # In doubles, because the product may exceed 2^63. Any start inside the support would do.
    centre = np.floor((draws + 1.0) * (good + 1.0) / (good + bad + 2.0)).astype(np.int64)
    mode: Integers = np.clip(centre, np.maximum(0, draws - bad), np.minimum(good, draws))
    result = mode.copy()
    at_mode = np.exp(
        _log_choose(good, mode) + _log_choose(bad, draws - mode) - _log_choose(good + bad, draws)
    )
    remaining = uniforms - at_mode
    active = np.flatnonzero(remaining >= 0)
    if not len(active):
        return result
    search = _Search(mode[active], good[active], bad[active], draws[active], at_mode[active])
    remaining = remaining[active]
    passed = 0
    while len(active):
        count = _values_at_once(len(active), passed)
        values, chances = search.following(count)
        passed += count
        left = np.subtract.accumulate(np.concatenate([remaining[np.newaxis], chances]))[1:]
        used_up = left[-1] < 0
        place = (left < 0).argmax(axis=0)
        result[active[used_up]] = values[place, np.arange(len(active))][used_up]
        going = ~used_up & (chances[-2] + chances[-1] >= _NOTHING_LEFT)
        active, remaining = active[going], left[-1][going]
        search.keep(going)
    return result


def _values_at_once(draws: int, passed: int) -> int:
    """The number of values to look at next: many if the draws are few, because then the calls dominate the cost.

    Draws that needed many values will need more, so the number grows, up to the cells that a cache holds.
    """
    return max(1, min(max(_FEW_CELLS, min(passed * draws // 4, _CELLS)) // draws, _MOST_VALUES))


class _Search:
    """The next values, alternately above and below the mode, and their probabilities by recurrence.

    A value outside the support has probability 0.
    """

    def __init__(
        self, mode: Integers, good: Integers, bad: Integers, draws: Integers, at_mode: Floats
    ) -> None:
        self._good, self._draws = good.astype(np.float64), draws.astype(np.float64)
        self._slack = bad - self._draws
        self._above = self._below = mode.astype(np.float64)
        self._up = self._down = at_mode

    def following(self, count: int) -> tuple[Floats, Floats]:
        """The next `count` values above and below, and their probabilities: shape (2 count, draws).

        Products and sums are taken one after the other, so that no bit depends on `count` and thus on the rest of
        the batch. Probabilities after a negligible pair are 0.
        """
        steps = np.arange(1.0, count + 1)[:, np.newaxis]
        above, below = self._above + steps, self._below - steps
        rise = (self._good - above + 1) * (self._draws - above + 1) / (above * (self._slack + above))
        fall = (below + 1) * (self._slack + below + 1) / ((self._good - below) * (self._draws - below))
        values, chances = np.empty((2, 2 * count, len(self._good)))
        values[0::2], values[1::2] = above, below
        rise[0] *= self._up
        fall[0] *= self._down
        up = np.multiply.accumulate(rise, out=chances[0::2])
        down = np.multiply.accumulate(fall, out=chances[1::2])
        if count > 1:
            over = up[:-1] + down[:-1] < _NOTHING_LEFT
            up[1:][over] = down[1:][over] = 0
        self._above, self._below = above[-1], below[-1]
        self._up, self._down = up[-1], down[-1]
        return values, chances

    def keep(self, going: Flags) -> None:
        for name in ("_good", "_draws", "_slack", "_up", "_down", "_above", "_below"):
            setattr(self, name, getattr(self, name)[going])


def _log_choose(total: Integers, part: Integers) -> Floats:
    return _log_factorial(total) - _log_factorial(part) - _log_factorial(total - part)


def _log_factorial(values: Integers) -> Floats:
    # The table holds what the function returns, so that no draw depends on the largest value in the batch.
    if len(values) == 0 or int(values.max()) < _TABLE_SIZE:
        return _table()[values]
    return _log_factorial_function(values)


@functools.cache
def _table() -> Floats:
    return _log_factorial_function(np.arange(_TABLE_SIZE))


def _log_factorial_function(values: Integers) -> Floats:
    from scipy.special import gammaln

    logarithms: Floats = gammaln(values + 1.0)
    return logarithms
