"""An upper bound on how often a table within its capacity does not decode, whatever its items are.

The chance is over the hash alone: places and checks are independent and uniform for any data that was fixed before the
salt was drawn (`table_hash`). So it holds for the worst data, and it is what the ledger is charged for.

**Stuck sets.** Peeling stops early exactly when some non-empty set of items has no cell to itself: in each of the r
sub-tables, none of the m cells holds exactly one of them. For one set of s items and one sub-table the chance of that
is

    N(s) / m^s,   N(s) = s! [x^s] (e^x - x)^m,

the number of ways to throw s balls into m cells such that no cell has exactly one. Sub-tables are independent, and n
items have C(n, s) sets of s, so the chance that any is stuck is at most

    sum over s = 2..n of C(n, s) (N(s) / m^s)^r.                                                  (first moment)

Sets of fewer of the n items are among those counted, so the sum for n covers every table of at most n items.

- For s up to 24, N(s) is the exact whole number, the sum over j of m (m-1) ... (m-j+1) times the number of partitions
  of s things into j blocks of two or more.
- Beyond, no coefficient of (e^x - x)^m being negative, N(s) / m^s <= s! (e^x - x)^m / (x m)^s for every x > 0. The
  best x solves x (e^x - 1) / (e^x - x) = s / m; any other is sound too.
- Many s are taken in blocks from a to b. With one x for a block, the logarithm of the second factor is convex in s,
  and log C(n, s) is concave and so lies below its tangent at any point. Tangent plus convex is convex, hence largest
  at a or b, and the block adds at most b - a + 1 times that.

**False peels.** A cell of several items is taken for one if its words average to whole numbers whose own check is the
average of the checks. The checks do not depend on the places, and what *perfect* peeling looks at depends on the
places alone. Consider the first time that it looks at a cell of two or more items which passes. If the average is the
key of one of them, at least one other item's check must have one given value for each half, and if it is not, the
average's own must: a chance of at most 2^-64 either way. Perfect peeling looks at each of the r m cells once and again
each time that an item leaves it. It takes out at most one item for each cell that it empties, r m in all, with r cells
each. So the chance that any false peel happens is at most r m (1 + r) 2^-64, also in a table with far more items than
it is for. Without one, real peeling is perfect peeling: the items come out exactly, or the table is seen not to be
empty.

**Rounding.** The sums are of logarithms below 10^9 with relative errors of 10^-15. Together with the places' chances,
(1 + m / 2^64)^(r s) times those of uniform ones, this is covered by a factor of 1 + 10^-4.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from fedhist.protocol.histograms import Floats
from fedhist.protocol.sketch.table_hash import HASHES

_EXACT = 24
"""Sets of up to this size are counted exactly."""

_BLOCKS_PER_OCTAVE = 48
_ROUNDING = 1e-4
_FALSE_PEEL = 2.0**-64


@functools.lru_cache(maxsize=4096)
def failure_bound(items: int, part_cells: int, hashes: int = HASHES) -> float:
    """An upper bound on the chance that a table of at most this many items does not give them back exactly.

    Args:
        items: n, the largest number of distinct items in the table.
        part_cells: m, the cells of each sub-table.
        hashes: r, the number of sub-tables.

    Returns:
        A bound of at most 1. Above a load of about 0.55, for r = 5, it is 1 and so useless.
    """
    stuck = sum(_exact_term(items, size, part_cells, hashes) for size in range(2, min(items, _EXACT) + 1))
    if items > _EXACT:
        stuck += math.fsum(np.exp(np.minimum(_block_logs(items, part_cells, hashes), 0.0)).tolist())
    false = hashes * part_cells * (1 + hashes) * _FALSE_PEEL
    return min(stuck * (1 + _ROUNDING) + false, 1.0)


def _exact_term(items: int, size: int, part_cells: int, hashes: int) -> float:
    """C(n, s) (N(s) / m^s)^r, rounded once."""
    ways, falling = 0, 1
    for blocks, partitions in enumerate(_partitions(size), start=1):
        falling *= max(part_cells - blocks + 1, 0)
        ways += partitions * falling
    return float(math.comb(items, size) * Fraction(ways, part_cells**size) ** hashes)


@functools.cache
def _partitions(size: int) -> tuple[int, ...]:
    """The number of partitions of `size` things into 1, 2, ... blocks of two or more each."""
    if size < 2:
        return ()
    counts = []
    one_less, two_less = (dict(enumerate(_partitions(size - back), start=1)) for back in (1, 2))
    for blocks in range(1, size // 2 + 1):
        # The last thing joins a block of the others, or makes one with one of them.
        alone = 1 if blocks == 1 and size == 2 else (size - 1) * two_less.get(blocks - 1, 0)
        counts.append(blocks * one_less.get(blocks, 0) + alone)
    return tuple(counts)


def _block_logs(items: int, part_cells: int, hashes: int) -> Floats:
    """For blocks of sizes s above _EXACT: an upper bound on the logarithm of what each adds to the sum."""
    from scipy.special import gammaln, psi

    octaves = math.log2(items / _EXACT)
    edges = _EXACT * 2 ** np.linspace(0, octaves, max(math.ceil(_BLOCKS_PER_OCTAVE * octaves), 1) + 1)
    first = np.unique(np.minimum(np.floor(edges[:-1]), items - 1)) + 1
    last = np.append(first[1:] - 1, items)
    middle = (first + last) / 2
    x = _saddle_points(middle / part_cells)
    every = part_cells * np.log(np.exp(x) - x)
    # The tangent of log C(n, s) at the middle, with the digamma function as the logarithm's slope.
    height = gammaln(items + 1) - gammaln(middle + 1) - gammaln(items - middle + 1)
    slope = psi(items - middle + 1) - psi(middle + 1)

    def at(size: Floats) -> Floats:
        one_part = gammaln(size + 1) + every - size * np.log(x * part_cells)
        result: Floats = height + slope * (size - middle) + hashes * one_part
        return result

    worst: Floats = np.maximum(at(first), at(last)) + np.log(last - first + 1)
    return worst


def _saddle_points(loads: Floats) -> Floats:
    """The x of x (e^x - 1) / (e^x - x) = s / m, by halving: the left side rises from 0 and is at least x - 1."""
    low, high = np.zeros_like(loads), np.minimum(loads, 600.0) + 2
    for _ in range(40):
        x = (low + high) / 2
        above = x * np.expm1(x) / (np.exp(x) - x) > loads
        low, high = np.where(above, low, x), np.where(above, x, high)
    middle: Floats = (low + high) / 2
    return middle
