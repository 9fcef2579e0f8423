"""Data from outside, checked once: after that all counts are whole, not negative, and of items in the domain.

`checked` makes a few passes over cache-sized pieces, so its temporaries stay small for any number of users, and it
copies nothing that already has the right type and no repeated items. Its errors name the row and the column, never
a count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.histograms import MAX_USER_TOTAL, Flags, Histograms, Integers

# Item numbers are stored in 32 bits. A plan allows far fewer items (`plan/rules.py`).
MAX_COLUMNS = 2**31 - 1

# A piece of this size and its temporaries stay in a core's cache.
_PIECE = 1 << 17

_WHOLE_COUNTS = f"whole numbers from 0 to {MAX_USER_TOTAL:,}"


def checked(
    offsets: npt.ArrayLike,
    items: npt.ArrayLike,
    counts: npt.ArrayLike,
    *,
    domain_size: int,
    first_user: int = 0,
) -> Histograms:
    """Histograms from compressed sparse rows of unknown origin, or an `InvalidPopulation`.

    Counts may have a floating-point or boolean type as long as every one is whole. The counts of an item that a
    row names several times are added up; rows need not be sorted; a stored zero is fine. No count can exceed
    MAX_USER_TOTAL, so the counts and items of the result always have 32 bits. They are read-only.

    | what arrives | what happens |
    |---|---|
    | an empty row | a user without items |
    | a row that names an item twice | one entry with the sum; then all rows are sorted by item |
    | 2.0 | 2 |
    | 2.5, -1, nan, inf | refused, with the row and the column |
    | no column | refused |

    Args:
        offsets: where each user's entries begin, from 0; the last one is the number of entries.
        items: the item number of each entry.
        counts: the count of each entry.
        domain_size: d, the number of items.
        first_user: the number of the first of these users in the whole population.
    """
    starts = _flat(offsets, "offsets", kinds="iu")
    numbers = _flat(items, "item numbers", kinds="iu")
    values = _flat(counts, "counts", kinds="iufb")
    _check_shape(len(starts) - 1, domain_size)
    checked_offsets = _check_offsets(starts, len(numbers), len(values))
    checked_items = _check_items(numbers, checked_offsets, domain_size)

    def place(entry: int) -> str:
        return f"row {_row(checked_offsets, entry)}, column {checked_items[entry]} (counted from 0)"

    histograms = Histograms(
        offsets=_read_only(checked_offsets),
        items=_read_only(checked_items),
        counts=_read_only(whole_counts(values, place)),
        domain_size=domain_size,
        first_user=first_user,
    )
    _check_totals(histograms)
    return without_repeats(histograms) if _has_repeats(histograms) else histograms


def whole_counts(values: npt.NDArray[Any], place: Callable[[int], str]) -> npt.NDArray[np.int32]:
    """The values as 32-bit integers if each one is a whole number from 0 to MAX_USER_TOTAL.

    Args:
        values: counts of any integer, floating-point or boolean type.
        place: describes where an entry stands, for the error.
    """
    if values.dtype.kind not in "iufb":
        raise InvalidPopulation(
            f"the counts have the type {values.dtype}",
            allowed="numbers",
            advice="convert the counts to integers",
        )
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        if piece.dtype.kind == "f":
            # The limit itself is no 16-bit or 32-bit floating-point number.
            piece = piece.astype(np.promote_types(piece.dtype, np.float64), copy=False)
        # The minimum of a piece with a nan is nan, which fails this comparison.
        whole = piece.dtype.kind != "f" or (np.trunc(piece) == piece).all()
        if piece.min() >= 0 and piece.max() <= MAX_USER_TOTAL and whole:
            continue
        entry, kind = _first_wrong(piece)
        raise InvalidPopulation(
            f"the count at {place(start + entry)} is {kind}",
            allowed=_WHOLE_COUNTS,
            advice="correct or remove that entry",
            code="bad-count",
        )
    return values.astype(np.int32, copy=False)


def without_repeats(histograms: Histograms) -> Histograms:
    """The same histograms with each user's repeated items summed and the items in rising order."""
    from scipy.sparse import csr_array

    entries = slice(int(histograms.offsets[0]), int(histograms.offsets[-1]))
    # Copies, because scipy sorts and adds up in place; a user's total fits in 32 bits, and so does every sum.
    rows = csr_array(
        (
            histograms.counts[entries].astype(np.int32),
            histograms.items[entries].astype(np.int32),
            histograms.offsets - histograms.offsets[0],
        ),
        shape=(histograms.users, histograms.domain_size),
    )
    rows.sum_duplicates()
    return Histograms(
        offsets=_read_only(rows.indptr.astype(np.int64)),
        items=_read_only(rows.indices.astype(np.int32, copy=False)),
        counts=_read_only(rows.data),
        domain_size=histograms.domain_size,
        first_user=histograms.first_user,
    )


def user_blocks(offsets: npt.NDArray[np.integer], *, nonzeros: int, users: int) -> Iterator[tuple[int, int]]:
    """All users in order, cut into runs (start, stop) of consecutive ones.

    A run has at most `users` users and at most `nonzeros` entries; a user with more entries is a run alone.
    """
    last = len(offsets) - 1
    start = 0
    while start < last:
        limit = min(start + users, last)
        room = int(offsets[start]) + nonzeros
        fitting = int(np.searchsorted(offsets[start + 1 : limit + 1], room, side="right"))
        stop = start + max(fitting, 1)
        yield start, stop
        start = stop


def _flat(values: npt.ArrayLike, name: str, *, kinds: str) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        # An empty list has no type of its own; numpy would call it floating-point.
        array = array.astype(np.int64) if array.dtype.kind not in kinds else array
    if array.ndim != 1 or array.dtype.kind not in kinds:
        allowed = "integers" if kinds == "iu" else "numbers"
        raise InvalidPopulation(
            f"the {name} have the type {array.dtype} and {array.ndim} dimension(s)",
            allowed=f"one dimension of {allowed}",
            advice="pass the three arrays of compressed sparse rows",
            code="wrong-arrays",
        )
    return array


def _check_shape(users: int, domain_size: int) -> None:
    if users < 0:
        raise InvalidPopulation(
            "there are no offsets", allowed="one more offset than users", code="no-offsets"
        )
    if not 1 <= domain_size <= MAX_COLUMNS:
        raise InvalidPopulation(
            f"the domain has {domain_size:,} items (columns)",
            allowed=f"1 to {MAX_COLUMNS:,} items",
            advice="check that rows are users and columns are items",
            code="bad-domain",
        )


def _check_offsets(offsets: npt.NDArray[Any], items: int, counts: int) -> Integers:
    if items != counts:
        raise InvalidPopulation(
            f"there are {items:,} item numbers and {counts:,} counts",
            allowed="one count for each item number",
            advice="pass the three arrays of the same matrix",
            code="lengths-differ",
        )
    if offsets[0] != 0 or offsets[-1] != items:
        raise InvalidPopulation(
            f"the offsets run from {offsets[0]} to {offsets[-1]} for {items:,} entries",
            allowed="offsets from 0 to the number of entries",
            advice="pass the three arrays of the same matrix",
            code="bad-offsets",
        )
    for start in range(0, len(offsets) - 1, _PIECE):
        piece = offsets[start : start + _PIECE + 1]
        falls = piece[1:] < piece[:-1]
        if falls.any():
            raise InvalidPopulation(
                f"the offsets fall at row {start + int(np.argmax(falls))} (counted from 0)",
                allowed="offsets that never fall",
                advice="build the rows again from the source",
                code="falling-offsets",
            )
    return offsets.astype(np.int64, copy=False)


def _check_items(items: npt.NDArray[Any], offsets: Integers, domain_size: int) -> npt.NDArray[np.int32]:
    for start in range(0, len(items), _PIECE):
        piece = items[start : start + _PIECE]
        if piece.min() >= 0 and piece.max() < domain_size:
            continue
        entry = start + int(np.argmax((piece < 0) | (piece >= domain_size)))
        row = _row(offsets, entry)
        raise InvalidPopulation(
            f"entry {entry - int(offsets[row])} of row {row} (from 0) names an item outside the domain",
            allowed=f"item numbers from 0 to {domain_size - 1:,}",
            advice="number the items from 0, or make the domain larger",
            code="item-outside-domain",
        )
    return items.astype(np.int32, copy=False)


def _first_wrong(piece: npt.NDArray[Any]) -> tuple[int, str]:
    """The place of the first count that is not allowed, and what is wrong with it."""
    faults: list[tuple[str, Flags]] = []
    if piece.dtype.kind == "f":
        faults.append(("not finite", ~np.isfinite(piece)))
    faults.append(("negative", piece < 0))
    faults.append((f"above {MAX_USER_TOTAL:,}", piece > MAX_USER_TOTAL))
    if piece.dtype.kind == "f":
        faults.append(("not a whole number", np.trunc(piece) != piece))
    entry = int(np.argmax(np.logical_or.reduce([wrong for _, wrong in faults])))
    return entry, next(kind for kind, wrong in faults if wrong[entry])


def _check_totals(histograms: Histograms) -> None:
    offsets, counts = histograms.offsets, histograms.counts
    for start, stop in user_blocks(offsets, nonzeros=_PIECE, users=_PIECE):
        low, high = int(offsets[start]), int(offsets[stop])
        # When all users of the block together stay below the limit, so does each of them.
        if counts[low:high].sum(dtype=np.int64) <= MAX_USER_TOTAL:
            continue
        running = np.concatenate(([0], np.cumsum(counts[low:high], dtype=np.int64)))
        totals = np.diff(running[offsets[start : stop + 1] - low])
        if totals.max() > MAX_USER_TOTAL:
            raise InvalidPopulation(
                f"the counts of row {start + int(np.argmax(totals > MAX_USER_TOTAL))} (counted from 0) "
                f"add up to more than {MAX_USER_TOTAL:,}",
                allowed=f"a total of at most {MAX_USER_TOTAL:,} for each user",
                advice="count in larger units",
                code="total-too-large",
            )


def _has_repeats(histograms: Histograms) -> bool:
    """Whether some user's row names an item twice. Rows in rising order, the usual case, need no sort."""
    for start, stop in user_blocks(histograms.offsets, nonzeros=_PIECE, users=_PIECE):
        if _rows_rise(histograms, start, stop):
            continue
        keys = _keys(histograms, start, stop)
        keys.sort()
        if (keys[1:] == keys[:-1]).any():
            return True
    return False


def _rows_rise(histograms: Histograms, start: int, stop: int) -> bool:
    offsets = histograms.offsets[start : stop + 1]
    items = histograms.items[offsets[0] : offsets[-1]]
    rises = items[1:] > items[:-1]
    row_starts = offsets - offsets[0]
    # Between one row and the next the item number may fall.
    inner = row_starts[(row_starts > 0) & (row_starts < len(items))]
    rises[inner - 1] = True
    return bool(rises.all())


def _keys(histograms: Histograms, start: int, stop: int) -> Integers:
    """A number for each entry of these users that stands for its user and item."""
    offsets = histograms.offsets[start : stop + 1]
    rows = np.repeat(np.arange(stop - start, dtype=np.int64), np.diff(offsets))
    rows *= histograms.domain_size
    rows += histograms.items[int(offsets[0]) : int(offsets[-1])]
    return rows


def _row(offsets: Integers, entry: int) -> int:
    return int(np.searchsorted(offsets, entry, side="right")) - 1


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
