"""Invertible Bloom lookup tables: fixed-length vectors whose sum over devices lists every item with its total.

After Goodrich & Mitzenmacher 2011. A table has r = 4 equal sub-tables, and an item has one cell in each. A cell is a
row of 64-bit integers, and a device adds to the four cells of each of its items

    count: 1 · value: the item's clipped count · check: a 32-bit hash · key: length and kind, then text, in 32-bit words

Each distinct item is inserted once a device, whatever its count. Tables are added cell by cell, so the sum can be taken
under masks. A cell with one distinct item holds `count` copies of it: dividing by `count` gives it back, the check
confirms it, and taking it out of its other cells frees the next ones (*peeling*).

**Sums are exact.** A word or check is at most 2^32 - 1, and 2^31 (2^32 - 1) = 2^63 - 2^31 < 2^63: up to
`MAX_INSERTIONS` = 2^31 insertions into one cell no column leaves int64 as a true integer, and with one more it could.
Values are never divided: they need only a total below 2^63, and a plan keeps the mass of a whole cohort below 2^45.
So the sum modulo 2^64 *is* the true sum, whatever wrapped around on the way, and division by `count` is division of
whole numbers. The count itself passes 2^31 long before it could wrap: the decoder refuses such a cell.

**When it decodes.** Peeling n items gets stuck on a set of them of which none is alone in a cell.
- Above a load (items to cells) of min_x x / (4 (1 - e^-x)^3) = 0.772 a constant share of the items is such a set, below
  it none is (Molloy 2005), but for a window that shrinks as n^(-1/2). A full table has a load of at most 0.7.
- Two items may share all four cells: in sub-tables of m cells n (n - 1) / (2 m^4) such pairs are expected. `TableShape`
  makes m so large that this is at most 1e-6 at capacity, whatever that is; for large ones a load of 0.7 is enough.
  Larger small sets are rarer by further powers of 1/m.
So a table with no more items than its capacity fails with a probability of about 1e-6 over the salt, and one with a
load well above 0.772 always does. `benchmarks/sketch.py` prints how many failed of those that it tried.

**What it returns is right.** A cell of several items is taken for one of a single item if all their words average to
whole numbers and check and place fit: 2^-32 for the check and 1/m for the place, each time that a cell is looked at.
What is then taken out is missing elsewhere, and a table that is not empty in the end, in all columns, is refused:
nothing is returned in part. This holds for devices that follow the protocol. The salt is public, and a device that
does not follow it can make the sum undecodable, or send a table of items that it does not have.

**Privacy.** The shape is public. The server reads every item and its exact clipped count from the sum, before noise and
bar: masks hide from it who has what, and nothing else. This is central privacy. That a table failed can be seen, too:
with at most `capacity` items it does so with p = 1e-6 over the salt, which costs up to (1 + e^epsilon) p of delta; with
more items it tells something of their number, unprotected. So does the text of `TableNotDecoded`: it is for whoever
runs the server and sees the exact counts anyway, not for publication.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import DecodeError, InvalidInput, InvalidPlan, InvalidPopulation, RoundFailed
from fedhist.protocol.histograms import Flags, Integers, Words
from fedhist.protocol.keyed_codec import MAX_LABEL_BYTES, Label, label_bytes, read_labels
from fedhist.protocol.sketch.buckets import mixed_words

HASHES = 4
"""r: the cells of an item, one in each sub-table."""

MAX_LENGTH = 2**26
"""The longest vector of a device: half a gigabyte."""

MAX_INSERTIONS = 2**31
"""The most insertions into one cell for which every column is exact."""

MAX_COUNT = 2**45
"""The largest clipped count of an item on one device: the mass that a plan allows a whole cohort."""

_MAX_LOAD = Fraction(7, 10)
_MAX_PAIRS = Fraction(1, 10**6)
_TAG = b"fedhist/1/iblt"
_SHAPE = struct.Struct("<QQ")
_COUNT, _VALUE, _CHECK, _KEY = range(4)
_KIND_SHIFT = 16


@dataclass(frozen=True)
class TableShape:
    """The public size of a table.

    Args:
        capacity: how many distinct items of all devices together it is made for.
        label_bytes: the longest item, in bytes of UTF-8 or decimal digits.
    """

    capacity: int
    label_bytes: int

    def __post_init__(self) -> None:
        _check_whole("capacity", self.capacity, MAX_LENGTH)
        _check_whole("label_bytes", self.label_bytes, MAX_LABEL_BYTES)
        if self.length > MAX_LENGTH:
            raise InvalidPlan(
                f"a table for {self.capacity:,} items of up to {self.label_bytes:,} bytes has {self.length:,} values",
                allowed=f"up to {MAX_LENGTH:,} values",
                advice="lower capacity or label_bytes",
            )

    @property
    def part_cells(self) -> int:
        """m, the cells of a sub-table: a load of at most 0.7, and at most 1e-6 expected pairs that share all cells."""
        pairs = self.capacity * (self.capacity - 1) // 2
        loaded = math.ceil(Fraction(self.capacity) / (HASHES * _MAX_LOAD))
        return max(loaded, _fourth_root(math.ceil(pairs / _MAX_PAIRS)))

    @property
    def cells(self) -> int:
        """The cells of all sub-tables."""
        return HASHES * self.part_cells

    @property
    def words(self) -> int:
        """The 32-bit words of a key: one for its length and kind, and its text."""
        return 1 + -(-self.label_bytes // 4)

    @property
    def columns(self) -> int:
        """The integers of a cell."""
        return _KEY + self.words

    @property
    def length(self) -> int:
        """The integers of a table: what a device sends."""
        return self.cells * self.columns


@dataclass(frozen=True, eq=False)
class Decoded:
    """The items of a sum of tables, by their bytes (a text before the number that looks like it), with totals."""

    labels: list[Label] = field(repr=False)
    counts: Integers = field(repr=False)


class TableNotDecoded(RoundFailed):
    """A sum of tables that holds too many items, or that is no such sum. Nothing was released.

    Its numbers come from exact data: they are for whoever runs the server.

    Attributes:
        cells_used: how many cells are not empty.
        estimated_items: about how many distinct items fill so many cells; None if the cells make no sense.
        advised_capacity: what would do, with a margin; None if capacity is not the problem.
    """

    def __init__(self, problem: str, *, shape: TableShape, cells_used: int, stuck: bool) -> None:
        self.cells_used = cells_used
        self.estimated_items = _estimated_items(cells_used, shape) if stuck else None
        self.advised_capacity: int | None = None
        advice = "see that every device ran this very plan and that all masks were removed"
        if self.estimated_items is not None:
            self.advised_capacity = _rounded_up(1.1 * max(self.estimated_items, shape.capacity))
            advice = f"raise capacity to about {self.advised_capacity:,}"
            if cells_used == shape.cells:
                advice += ", or more: with no cell empty there is no telling"
            elif self.estimated_items <= _MAX_LOAD * shape.cells:
                advice += " (another salt may do; if not, some device does not follow the protocol)"
        found = (
            "" if self.estimated_items is None else f", as by about {self.estimated_items:,} distinct items"
        )
        super().__init__(
            f"{problem}: {cells_used:,} of {shape.cells:,} cells are in use{found}, "
            f"and the capacity is {shape.capacity:,}; released nothing; {advice}."
        )


def encode_table(
    labels: Sequence[Label], counts: npt.ArrayLike, shape: TableShape, *, salt: bytes
) -> Integers:
    """A device's table: each of its distinct items once, with its clipped count.

    | what arrives | what happens |
    |---|---|
    | no items | a table of zeros |
    | the text "7" and the number 7 | two items |
    | an item twice, a count below 1, a label above `shape.label_bytes` | refused, without showing it |
    | more items than `shape.capacity` | a table: the sum of all devices is what must decode |

    Args:
        labels: the device's items, texts or integers, each once.
        counts: the clipped count of each, 1 to MAX_COUNT.
        shape: the size that the plan sets.
        salt: public and the same on every device; the plan's digest.

    Returns:
        `shape.length` integers, cell by cell. They may be added in any order, modulo 2^64.
    """
    words = _key_words(labels, shape)
    rows = np.empty((len(labels), shape.columns), dtype=np.int64)
    rows[:, _COUNT] = 1
    rows[:, _VALUE] = _whole_counts(counts, len(labels))
    rows[:, _KEY:] = words
    places, rows[:, _CHECK] = _Hash(shape, salt).of(words)
    table = np.zeros((HASHES, shape.part_cells, shape.columns), dtype=np.int64)
    for part, places_there in zip(table, places, strict=True):
        np.add.at(part.reshape(-1), _entries(places_there, shape.columns), rows.reshape(-1))
    return table.reshape(-1)


def decode_table(values: Integers | Words, shape: TableShape, *, salt: bytes) -> Decoded:
    """The items in a sum of tables and their total counts: all of them exactly, or TableNotDecoded.

    Args:
        values: the sum modulo 2^64, as signed or unsigned 64-bit integers.
        shape: the size of each table.
        salt: that of each table.
    """
    if values.shape != (shape.length,) or values.dtype not in (np.int64, np.uint64):
        raise InvalidInput(
            f"a table with the shape {values.shape} and the type {values.dtype}",
            allowed=f"{shape.length:,} integers of 64 bits",
            advice="decode with the shape that the devices used",
        )
    table = values.astype(np.int64).reshape(HASHES, shape.part_cells, shape.columns)
    cells_used = int(np.count_nonzero(table.any(axis=2)))

    def failed(problem: str, *, stuck: bool = False) -> TableNotDecoded:
        return TableNotDecoded(problem, shape=shape, cells_used=cells_used, stuck=stuck)

    if not _plausible(table):
        raise failed("this is not a sum of tables")
    items = _peel(table, _Hash(shape, salt))
    # What is left after whole items went is a sum of tables again.
    if not _plausible(table):
        raise failed("the cells of the table contradict each other")
    if table.any():
        raise failed("the table does not decode", stuck=True)
    try:
        return _decoded(items)
    except DecodeError:
        raise failed("the table holds a key that is not an item") from None


class _Hash:
    """Where items go, and their checks: a public function of salt and shape.

    Two multilinear sums of a key's 32-bit words with 64-bit coefficients, modulo 2^64: different keys agree in one with
    probability at most 2^-33 (their words differ by less than 2^32), in both at most 2^-66. Then rounds of a bijection
    that is far from linear: a sum of checks must not look like the check of a sum.
    """

    def __init__(self, shape: TableShape, salt: bytes) -> None:
        self.shape = shape
        sums = 2 * shape.words
        stream = hashlib.shake_256(_TAG + _SHAPE.pack(shape.capacity, shape.label_bytes) + salt)
        drawn = np.frombuffer(stream.digest(8 * (sums + HASHES + 1)), dtype="<u8").astype(np.uint64)
        self._coefficients = drawn[:sums].reshape(shape.words, 2)
        self._tweaks = drawn[sums:]

    def of(self, words: Integers) -> tuple[Integers, Integers]:
        """For keys as rows of words: the place in each sub-table, of shape (HASHES, keys), and the check."""
        first, second = (words.view(np.uint64) @ self._coefficients).T
        mixed = np.stack([mixed_words(first ^ mixed_words(second + tweak)) for tweak in self._tweaks])
        places = (mixed[:HASHES] % np.uint64(self.shape.part_cells)).astype(np.int64)
        return places, (mixed[HASHES] >> np.uint64(32)).astype(np.int64)


def _peel(table: Integers, hashed: _Hash) -> Integers:
    """Take item after item out of the table; a row of columns for each, its key divided by its count.

    Sub-table by sub-table (Jiang, Mitzenmacher & Thaler 2014): the cells of one have different items, so all that stand
    alone in it leave at once and none twice. Below the threshold O(log log n) waves do. Counts only fall, so a cell is
    emptied at most once, and any input comes to an end.
    """
    shape = hashed.shape
    found = [np.empty((0, shape.columns), dtype=np.int64)]
    changed: Flags = table[..., _COUNT] != 0
    while changed.any():
        for number in range(HASHES):
            spots = np.flatnonzero(changed[number])
            changed[number] = False
            spots, items, places = _alone(table[number], spots, number, hashed)
            if len(spots) == 0:
                continue
            rows = table[number, spots]
            for part, flags, places_there in zip(table, changed, places, strict=True):
                np.subtract.at(part.reshape(-1), _entries(places_there, shape.columns), rows.reshape(-1))
                flags[places_there] = True
            found.append(items)
    return np.concatenate(found)


def _entries(places: Integers, columns: int) -> Integers:
    """Where the columns of these cells lie in a flat sub-table: numpy adds at single places several times as fast."""
    return (places[:, np.newaxis] * columns + np.arange(columns)).reshape(-1)


def _alone(
    part: Integers, spots: Integers, number: int, hashed: _Hash
) -> tuple[Integers, Integers, Integers]:
    """Of these cells of a sub-table those that hold one item; the items; and their places in all sub-tables."""
    shape = hashed.shape
    counts, checks, heads = (part[spots, column] for column in (_COUNT, _CHECK, _KEY))
    divisor = np.maximum(counts, 1)
    # Most cells of several items fail here, on two columns of many.
    likely = (counts > 0) & (checks % divisor == 0) & (heads % divisor == 0)
    likely &= (heads // divisor & ~(1 << _KIND_SHIFT) <= shape.label_bytes) & (heads >= 0)
    spots = spots[likely]
    items = part[spots]
    divisor = items[:, _COUNT, np.newaxis]
    words, rest = np.divmod(items[:, _CHECK:], divisor)
    whole = ~(rest.any(axis=1) | (words >> 32).any(axis=1))
    spots, items, words = spots[whole], items[whole], words[whole]
    items[:, _CHECK:] = words
    places, checks = hashed.of(np.ascontiguousarray(words[:, 1:]))
    fits = (checks == words[:, 0]) & (places[number] == spots)
    return spots[fits], items[fits], places[:, fits]


def _plausible(table: Integers) -> bool:
    """What holds for any sum of tables: no column overflowed, and all sub-tables add up to the same."""
    counts = table[..., _COUNT]
    sums = table.sum(axis=1)  # modulo 2^64, which is enough to compare
    return bool(
        (table >= 0).all()
        and (counts <= MAX_INSERTIONS).all()
        and (table[..., _VALUE] >= counts).all()
        and not table[counts == 0].any()
        and (sums == sums[0]).all()
    )


def _decoded(items: Integers) -> Decoded:
    """Items as labels, sorted; a DecodeError if some key is no label's. Peeling finds no key twice."""
    heads, chunks = items[:, _KEY], items[:, _KEY + 1 :].astype("<u4")
    kinds, lengths = heads >> _KIND_SHIFT, heads & ((1 << _KIND_SHIFT) - 1)
    # Padded with zeros, as numpy compares them: the shorter of two equal ones comes first.
    texts = np.ascontiguousarray(chunks).view(f"S{4 * chunks.shape[1]}").reshape(-1)
    order = np.lexsort((kinds, lengths, texts))
    texts, lengths, kinds = texts[order], lengths[order], kinds[order]
    if (np.char.str_len(texts) > lengths).any():
        raise DecodeError("a key with bytes after its end")
    plain = b"".join(
        [text.ljust(length, b"\0") for text, length in zip(texts.tolist(), lengths.tolist(), strict=True)]
    )
    labels = read_labels(plain, lengths, kinds.astype(np.uint8).tobytes())
    return Decoded(labels=labels, counts=items[order, _VALUE])


def _key_words(labels: Sequence[Label], shape: TableShape) -> Integers:
    """Each label as 32-bit words: its length and kind, then its text, filled up with zeros."""
    types = set(map(type, labels))
    if any(issubclass(kind, bool) or not issubclass(kind, str | int | np.integer) for kind in types):
        raise InvalidPopulation("an item that is neither text nor an integer", allowed="texts and integers")
    texts = [label_bytes(label) for label in labels]
    kinds = np.fromiter([not isinstance(label, str) for label in labels], dtype=np.int64, count=len(texts))
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    if lengths.max(initial=0) > shape.label_bytes:
        raise InvalidPopulation(
            "an item's name is too long for the table",
            allowed=f"up to {shape.label_bytes:,} bytes of UTF-8, the plan's label_bytes",
            advice="raise label_bytes in the plan, or shorten or hash long names",
        )
    if len(set(labels)) != len(texts):
        raise InvalidPopulation(
            "an item stands twice", allowed="each item once", advice="add up its counts first"
        )
    width = 4 * (shape.words - 1)
    padded = b"".join([text.ljust(width, b"\0") for text in texts])
    words = np.empty((len(texts), shape.words), dtype=np.int64)
    words[:, 0] = lengths | kinds << _KIND_SHIFT
    words[:, 1:] = np.frombuffer(padded, dtype="<u4").reshape(len(texts), shape.words - 1)
    return words


def _whole_counts(counts: npt.ArrayLike, items: int) -> Integers:
    array = np.asarray(counts)
    if array.shape != (items,) or (items and array.dtype.kind not in "iu"):
        raise InvalidPopulation(
            f"counts with the shape {array.shape} and the type {array.dtype} for {items:,} items",
            allowed="one whole count for each item",
        )
    if items and not (array.min() >= 1 and array.max() <= MAX_COUNT):
        raise InvalidPopulation(
            "a count that is out of range",
            allowed=f"1 to {MAX_COUNT:,}",
            advice="leave out items without a count, and clip the others",
        )
    return array.astype(np.int64)


def _check_whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidPlan(f"{name} is {value!r}", allowed=f"a whole number from 1 to {most:,}")


def _fourth_root(number: int) -> int:
    """The least whole number whose fourth power is at least `number`; in integers, the same on every machine."""
    root = math.isqrt(math.isqrt(number))
    return root if root**4 >= number else root + 1


def _estimated_items(cells_used: int, shape: TableShape) -> int:
    """How many items leave so many cells empty: a cell of m stays empty with probability (1 - 1/m)^n.

    With no empty cell there is only a least number; half a cell stands for none.
    """
    if shape.part_cells == 1:
        return 2
    empty = max(shape.cells - cells_used, 0.5) / shape.cells
    return round(math.log(empty) / math.log1p(-1 / shape.part_cells))


def _rounded_up(number: float) -> int:
    """Up to two significant digits."""
    unit = int(10 ** max(math.floor(math.log10(number)) - 1, 0))
    return math.ceil(number / unit) * unit
