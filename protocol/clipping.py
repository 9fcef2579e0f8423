"""Clipping a user's histogram to a bound, on the integer grid, never above the bound.

A user at or below the bound is exact: counts times 2^bits. Only clipped users are rounded, with one uniform number
each. No floating-point value enters a message, so every engine adds up the same integers.
"""

from __future__ import annotations

import numpy as np

from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import AnyIntegers, Flags, Floats, Histograms, Integers, Words
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.privacy.randomness import Source

# Cumulated totals times a scale stay below 2^62.
_PRODUCT_BITS = 61
# Allows for the float error of the scale (below 2^-50): a scale lowered by this is below the true one.
_SCALE_SAFETY = 1 - 2.0**-40
# Standard deviations of rounding that the l2 clip leaves room for; beyond them it truncates.
_ROUNDING_ROOM = 3
_SHORT_ROW = 32
# Below this, adding up with numpy takes less time than scipy does to load.
_FEW_ENTRIES = 1 << 17


def user_totals(histograms: Histograms) -> Integers:
    """|N_i|_1 of each user."""
    return row_sums(entry_counts(histograms), histograms.offsets)


def user_squares(histograms: Histograms) -> Integers:
    """|N_i|_2^2 of each user, exact."""
    counts = entry_counts(histograms)
    return row_sums(counts * counts, histograms.offsets)


def is_clipped(histograms: Histograms, threshold: Threshold, *, norm: Norm) -> Flags:
    """Which users are above the bound, decided in whole numbers."""
    if norm is Norm.L1:
        return user_totals(histograms) > threshold.floor
    return user_squares(histograms) > threshold.square_floor


def sum_items(histograms: Histograms) -> Integers:
    """The exact sum of the histograms over users, by item."""
    return sum_by_item(entry_counts(histograms), entry_items(histograms), histograms.domain_size)


def sum_clipped(histograms: Histograms, threshold: Threshold, *, norm: Norm, source: Source) -> Integers:
    """The sum over users of their clipped histograms, in steps, by item.

    What a device sends in round 2. A user's share of it has l1 or l2 norm at most `threshold.steps`, for every draw.
    """
    total = sum_items(histograms) << threshold.bits
    clipped = is_clipped(histograms, threshold, norm=norm)
    if clipped.any():  # audited: closed clip
        above, words = _above(histograms, clipped, source)
        kept = (
            shrink_l1(above, threshold, words)
            if norm is Norm.L1
            else shrink_l2(above, np.full(above.users, threshold.steps, dtype=np.int64), words)
        )
        total -= sum_by_item((above.counts << threshold.bits) - kept, above.items, above.domain_size)
    return total


def clipped_entries(histograms: Histograms, threshold: Threshold, *, source: Source) -> Integers:
    """Each entry after the l1 clip, in steps: users at or below the bound as they are, others as in `shrink_l1`.

    On a grid of one count this is an open domain's random clip: everybody keeps min(m_i, C) whole counts.
    """
    kept = entry_counts(histograms) << threshold.bits
    clipped = is_clipped(histograms, threshold, norm=Norm.L1)
    if clipped.any():  # audited: open clip
        above, words = _above(histograms, clipped, source)
        kept[np.repeat(clipped, np.diff(histograms.offsets))] = shrink_l1(above, threshold, words)
    return kept


def _above(histograms: Histograms, clipped: Flags, source: Source) -> tuple[Histograms, Words]:
    """The users above the bound, and one word for each, which depends on the source and their number alone."""
    return take_users(histograms, clipped), source.user_words(histograms.user_numbers()[clipped])


def shrink_l1(above: Histograms, threshold: Threshold, words: Words) -> Integers:
    """Clip users with totals m above the bound B by systematic rounding, with one uniform number u each.

    With S_j the running total, B in steps and u uniform over 0, ..., m - 1: q_j = floor((S_j B + u)/m) - floor((S_{j-1}
    B + u)/m). For every u and every order of the user's items:

    - *Exact.* The sum telescopes to floor(B + u/m) - floor(u/m) = B. So the l1 norm is B, and no more than B items are
      left. Privacy rests on this alone: sensitivity and cutoffs hold for every draw (`privacy/bars.py`, mixtures).
    - *Never more than there is.* q_j is at most N_j B/m rounded up, and N_j B/m is below N_j 2^bits, a whole number.
    - *Unbiased.* floor((x + u)/m) averages x/m over all u for a whole x (Hermite's identity), so E q_j = N_j B/m. On a
      grid of one count this is the A_j(C) of an open domain: each count is kept with probability C/m.
    - *Least variance.* q_j is N_j B/m rounded down or up: of the variance f (1 - f) <= 1/4, f its fraction, and no
      unbiased whole number has less. Of C counts drawn without replacement it is up to C/4.

    The order decides which of a user's items are rounded up together. It changes neither the law of any one q_j nor the
    total, and users draw independently of each other: no choice of names gives an item more, or a user.

    u is floor(w m 2^-32) for 32 random bits w, which moves the chance that an item is rounded up by less than 2^-31.
    S_j B + u < 2^31 2^31 + 2^31 fits in 64 bits.
    """
    counts, lengths = above.counts, np.diff(above.offsets)
    totals = row_sums(counts, above.offsets)
    offset = ((words >> np.uint64(32)) * totals.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    running = running_totals(counts, above.offsets)
    per_entry_total, per_entry_offset = np.repeat(totals, lengths), np.repeat(offset, lengths)
    after = (running * threshold.steps + per_entry_offset) // per_entry_total
    before = ((running - counts) * threshold.steps + per_entry_offset) // per_entry_total
    return after - before


def shrink_l2(above: Histograms, bounds: Integers, words: Words) -> Integers:
    """Clip users above their bounds B in l2 norm, with systematic rounding where it fits and truncation where not.

    Each user's scale is T/|N|_2 as f 2^-e with whole f and e, never above the true scale, and T a little under B so
    that the rounding error (mean square below nnz/4, cross term of deviation at most B) seldom passes B. With S_j the
    running total and u uniform in [0, 2^e): q_j = floor((S_j f + u) 2^-e) - floor((S_{j-1} f + u) 2^-e), which is
    unbiased. The norm is then checked in whole numbers; a user above B is truncated instead: floor(N_j f 2^-e) is at
    most N_j T/|N|_2, so the norm is at most T <= B. Hence |q|_2 <= B for every draw.

    Deviation from plain truncation: that is biased by half a step per item, and rounding to nearest can raise the norm.
    """
    counts = above.counts
    norms = np.sqrt(row_sums(counts * counts, above.offsets).astype(np.float64))
    scales = l2_target(bounds, np.diff(above.offsets)) / norms
    return round_scaled(counts, above.offsets, scales, words, bound=bounds, norm=Norm.L2)


def l2_target(steps: int | Integers, nonzeros: Integers) -> Floats:
    """T: the norm to which a user of this bound and this number of items is scaled, before rounding."""
    bound = np.asarray(steps, dtype=np.float64)
    room = bound * bound - nonzeros / 4 - _ROUNDING_ROOM * bound
    target: Floats = np.sqrt(np.where(room > 0, room, bound * bound))
    return target


def round_scaled(
    counts: AnyIntegers,
    offsets: AnyIntegers,
    scales: Floats,
    words: Words,
    *,
    bound: int | Integers,
    norm: Norm,
) -> Integers:
    """Each user's entries times their scale, rounded without bias where the result stays in the bound, else truncated.

    Truncated entries are at most the scaled ones: |q| <= bound for every draw if the scaled norms are at most the
    bound.
    """
    lengths, totals = np.diff(offsets), row_sums(counts, offsets)
    scale = scales * _SCALE_SAFETY
    exponent = np.minimum(_PRODUCT_BITS - np.frexp(totals * scale)[1], _PRODUCT_BITS)
    factor = np.ldexp(scale, exponent).astype(np.int64)
    offset = (words >> (64 - exponent).astype(np.uint64)).astype(np.int64)

    entry_factor, entry_exponent = np.repeat(factor, lengths), np.repeat(exponent, lengths)
    cumulated = running_totals(counts, offsets) * entry_factor + np.repeat(offset, lengths)
    weighted = counts * entry_factor
    steps: Integers = (cumulated >> entry_exponent) - ((cumulated - weighted) >> entry_exponent)
    sizes, most = (steps, bound) if norm is Norm.L1 else (steps * steps, bound**2)
    outside = row_sums(sizes, offsets) > most
    if outside.any():
        entries = np.repeat(outside, lengths)
        steps[entries] = weighted[entries] >> entry_exponent[entries]
    return steps


def take_users(histograms: Histograms, chosen: Flags) -> Histograms:
    """The chosen users as histograms of their own, 64-bit, offsets from 0. User numbers are not kept."""
    lengths = np.diff(histograms.offsets)[chosen]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(offsets[-1]) + np.repeat(histograms.offsets[:-1][chosen] - offsets[:-1], lengths)
    return Histograms(
        offsets=offsets,
        items=histograms.items[places],
        counts=histograms.counts[places].astype(np.int64),
        domain_size=histograms.domain_size,
    )


def entry_counts(histograms: Histograms) -> Integers:
    """The counts of these users' entries, 64-bit."""
    start, stop = histograms.offsets[0], histograms.offsets[-1]
    return histograms.counts[start:stop].astype(np.int64, copy=False)


def entry_items(histograms: Histograms) -> AnyIntegers:
    """The items of these users' entries."""
    start, stop = histograms.offsets[0], histograms.offsets[-1]
    return histograms.items[start:stop]


def row_sums(values: AnyIntegers, offsets: AnyIntegers) -> Integers:
    """The sum of each user's entries; an empty user has 0, where reduceat alone would take the next user's first."""
    starts = offsets[:-1] - offsets[0]
    if len(values) < _SHORT_ROW * len(starts):
        # Whole numbers, so the differences of a running sum are exact, and faster than reduceat for short rows.
        running = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
        differences: Integers = np.diff(running[offsets - offsets[0]])
        return differences
    filled = offsets[1:] > offsets[:-1]
    sums = np.zeros(len(starts), dtype=np.int64)
    if filled.any():
        sums[filled] = np.add.reduceat(values, starts[filled], dtype=np.int64)
    return sums


def running_totals(counts: AnyIntegers, offsets: AnyIntegers) -> Integers:
    """S_j: the sum of a user's counts up to and including entry j. Offsets start at 0."""
    running = np.cumsum(counts, dtype=np.int64)
    before = np.concatenate([[0], running])[offsets[:-1]]
    since_start: Integers = running - np.repeat(before, np.diff(offsets))
    return since_start


def sum_by_item(values: Integers, items: AnyIntegers, domain_size: int) -> Integers:
    """The exact sum of the values of each item."""
    if len(items) < _FEW_ENTRIES:
        total = np.zeros(domain_size, dtype=np.int64)
        np.add.at(total, items, values)
        return total
    from scipy.sparse import csr_array

    # One long row: its transpose times (1) adds values by item in exact 64-bit integers, faster than bincount.
    # Its end has the type of the items where it fits, or scipy would copy them.
    ends = np.array(
        [0, len(items)], dtype=items.dtype if len(items) <= np.iinfo(items.dtype).max else np.int64
    )
    row = csr_array((values, items, ends), shape=(1, domain_size))
    return np.asarray(row.T @ np.ones(1, dtype=np.int64), dtype=np.int64)


def tail_weights(totals: Integers, squares: Integers) -> Floats:
    """r_i = |N_i|_1 / |N_i|_2, the rate at which clipping user i in l2 loses mass; 0 for an empty user."""
    return totals / np.sqrt(np.maximum(squares, 1).astype(np.float64))
