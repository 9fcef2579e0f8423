"""Invertible Bloom lookup tables: fixed-length vectors whose sum over devices lists every item with its total.

After Goodrich & Mitzenmacher 2011. A table has r = 5 equal sub-tables, and an item has one cell in each. A cell is a
row of 64-bit integers, and a device adds to the five cells of each of its items

    count: 1 · value: the item's clipped count · check: two 32-bit words · key: length, then text, in 32-bit words

Each device inserts each of its distinct items once, whatever the count. Tables are added cell by cell, so the sum can
be taken under masks. A cell with one distinct item holds `count` copies of it: dividing by `count` gives it back, the
check confirms it, and taking it out of its other cells frees the next ones (*peeling*). An item is its bytes: the text
7 and the number 7 are one item, which comes back as text.

**Sums are exact.** A word of a check or a key is at most 2^32 - 1, and 2^31 (2^32 - 1) = 2^63 - 2^31 < 2^63: up to
`MAX_INSERTIONS` = 2^31 insertions into one cell no such column leaves int64 as a true integer, and with one more it
could. So the sum modulo 2^64 *is* the true sum, whatever wrapped around on the way, and division by `count` is
division of whole numbers. The count itself passes 2^31 long before it could wrap: the decoder refuses such a cell.
Values are neither divided nor looked at: they come out modulo 2^64, as a residue that is noised before it is read as a
number.

**When it decodes.** Where an item goes is decided by a keyed hash under a salt that was drawn after the data was fixed
(`table_hash`), so cells are as good as independent and uniform whatever items there are. For at most `capacity` items,
the chance that they do not all come back exactly is at most `TableShape.failure_bound`, a proven bound for the worst
data (`decoding_bound`), below 1e-9 for every shape:

- Two items may share all five cells: n (n - 1) / (2 m^5) such pairs are expected. m is so large that this is at most
  5e-10 at capacity, and up to about 5,400 items nothing else counts.
- Beyond, the load (items to cells) is 0.56. The bound is a first moment, which is finite up to a load of 0.566 and
  infinite above; peeling itself works up to 0.701 (Molloy 2005), but for a chance that we can't bound as well. With
  four hashes the same bound would allow a load of 0.61, but pairs alone would fail with 6e-8 at 16,384 items, and m
  would have to be nearly four times as large for 1e-9. Six hashes take 0.51.

A table with a load well above 0.701 never decodes. `benchmarks/sketch.py` prints how many of its tables failed.

**What it returns is right.** The bound covers cells of several items that look like one. A table that is not empty in
all columns at the end is refused: no part of it is returned.

**Privacy.** The shape is public. The server reads every item and its exact clipped count from the sum, before noise
and bar: masks hide from it which device has what, and nothing else. This is central privacy. That a table did not
decode is visible too. For items that devices *hold*, this is charged to the ledger (`protocol/plan/table_terms.py`).
Against devices that *send* what the protocol does not allow it is not private, and can't be: such a device can add
numbers to a few cells that make decoding depend on one item of others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import DecodeError, InvalidInput, InvalidPlan, InvalidPopulation, RoundFailed
from fedhist.protocol.histograms import Flags, Integers, Words
from fedhist.protocol.sketch.decoding_bound import failure_bound
from fedhist.protocol.sketch.table_hash import CHECK_WORDS, HASHES, TableHash
from fedhist.protocol.wire.keyed_codec import MAX_LABEL_BYTES, Label, label_bytes, read_labels

MAX_TABLE_LENGTH = 2**26
"""The longest vector of a device: half a gigabyte."""

MAX_FAILURE = 1e-9
"""The largest chance with which a table within its capacity may fail."""

MAX_INSERTIONS = 2**31
"""The most insertions into one cell for which every column is exact."""

MAX_COUNT = 2**45
"""The largest clipped count of an item on one device: the mass that a plan allows a whole cohort."""

_MAX_LOAD = Fraction(14, 25)
_MAX_PAIRS = Fraction(5, 10**10)
_COUNT, _VALUE, _CHECK = range(3)
_KEY = _CHECK + CHECK_WORDS
_TEXT = 0


@dataclass(frozen=True)
class TableShape:
    """The public size of a table.

    Args:
        capacity: the number of distinct items, of all devices together, that it is made for.
        label_bytes: the longest item, in bytes of UTF-8 or decimal digits.
    """

    capacity: int
    label_bytes: int

    def __post_init__(self) -> None:
        _check_whole("capacity", self.capacity, MAX_TABLE_LENGTH)
        _check_whole("label_bytes", self.label_bytes, MAX_LABEL_BYTES)
        if self.length > MAX_TABLE_LENGTH:
            raise InvalidPlan(
                f"a table for {self.capacity:,} items of up to {self.label_bytes:,} bytes has {self.length:,} values",
                allowed=f"up to {MAX_TABLE_LENGTH:,} values",
                advice="lower capacity or label_bytes",
                code="table-too-large",
            )

    @property
    def part_cells(self) -> int:
        """m, the cells of a sub-table: a load of at most 0.56, and at most 5e-10 expected pairs that share all cells.

        Computed in whole numbers, so that it is the same on every machine.
        """
        pairs = self.capacity * (self.capacity - 1) // 2
        loaded = math.ceil(Fraction(self.capacity) / (HASHES * _MAX_LOAD))
        return max(loaded, _root(math.ceil(pairs / _MAX_PAIRS), HASHES))

    @property
    def failure_bound(self) -> float:
        """An upper bound on the chance that a table within its capacity does not decode, whatever it holds."""
        return failure_bound(self.capacity, self.part_cells)

    @property
    def cells(self) -> int:
        """The number of cells in all sub-tables."""
        return HASHES * self.part_cells

    @property
    def words(self) -> int:
        """The number of 32-bit words in a key: one for its length, and its text."""
        return 1 + -(-self.label_bytes // 4)

    @property
    def columns(self) -> int:
        """The number of integers in a cell."""
        return _KEY + self.words

    @property
    def length(self) -> int:
        """The number of integers in a table, which is what a device sends."""
        return self.cells * self.columns


@dataclass(frozen=True, eq=False)
class Decoded:
    """The items of a sum of tables, as texts in the order of their bytes, with their totals modulo 2^64."""

    labels: list[str] = field(repr=False)
    counts: Integers = field(repr=False)


class TableNotDecoded(RoundFailed):
    """A sum of tables that does not decode. The error does not say how full the table is, nor what is wrong with it."""

    def __init__(self) -> None:
        super().__init__("the sum of the tables does not decode; nothing was released")


def encode_table(
    labels: Sequence[Label], counts: npt.ArrayLike, shape: TableShape, *, salt: bytes
) -> Integers:
    """A device's table: each of its distinct items once, with its clipped count.

    | what arrives | what happens |
    |---|---|
    | no items | a table of zeros |
    | the text "7" and the number 7 | one item, with the sum of their counts |
    | a count below 1, a label above `shape.label_bytes` | refused, without showing it |
    | more items than `shape.capacity` | a table: the sum of all devices is what must decode |

    Args:
        labels: the device's items, texts or integers. Labels with the same text are one item.
        counts: the clipped count of each, 1 to MAX_COUNT.
        shape: the size that the plan sets.
        salt: the same on every device, drawn after the data was fixed.

    Returns:
        `shape.length` integers, cell by cell. They may be added in any order, modulo 2^64.
    """
    texts, values = _added_up(labels, _whole_counts(counts, len(labels)))
    words = _key_words(texts, shape)
    rows = np.empty((len(texts), shape.columns), dtype=np.int64)
    rows[:, _COUNT] = 1
    rows[:, _VALUE] = values
    rows[:, _KEY:] = words
    places, rows[:, _CHECK:_KEY] = _hash_of(shape, salt).of(words)
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
            f"the table has the shape {values.shape} and the type {values.dtype}",
            allowed=f"{shape.length:,} integers of 64 bits",
            advice="decode with the shape that the devices used",
            code="other-shape",
        )
    table = values.astype(np.int64).reshape(HASHES, shape.part_cells, shape.columns)
    if not _plausible(table):
        raise TableNotDecoded
    items = _peel(table, shape, _hash_of(shape, salt))
    if table.any():
        raise TableNotDecoded
    try:
        return _decoded(items)
    except DecodeError:
        raise TableNotDecoded from None


def _hash_of(shape: TableShape, salt: bytes) -> TableHash:
    return TableHash(
        capacity=shape.capacity, label_bytes=shape.label_bytes, part_cells=shape.part_cells, salt=salt
    )


def _peel(table: Integers, shape: TableShape, hashed: TableHash) -> Integers:
    """Take item after item out of the table; a row of columns for each, its key divided by its count.

    Sub-table by sub-table (Jiang, Mitzenmacher & Thaler 2014): the cells of one have different items, so all that stand
    alone in it leave at once and none twice. Below the threshold O(log log n) waves are enough. Counts only fall, so a
    cell is emptied at most once, and peeling ends for any input.
    """
    found = [np.empty((0, shape.columns), dtype=np.int64)]
    changed: Flags = table[..., _COUNT] != 0
    while changed.any():
        for number in range(HASHES):
            spots = np.flatnonzero(changed[number])
            changed[number] = False
            spots, items, places = _alone(table[number], spots, number, shape, hashed)
            if len(spots) == 0:
                continue
            rows = table[number, spots]
            for part, flags, places_there in zip(table, changed, places, strict=True):
                np.subtract.at(part.reshape(-1), _entries(places_there, shape.columns), rows.reshape(-1))
                flags[places_there] = True
            found.append(items)
    return np.concatenate(found)


def _entries(places: Integers, columns: int) -> Integers:
    """The places of these cells' columns in a flat sub-table. numpy adds at single places several times faster."""
    return (places[:, np.newaxis] * columns + np.arange(columns)).reshape(-1)


def _alone(
    part: Integers, spots: Integers, number: int, shape: TableShape, hashed: TableHash
) -> tuple[Integers, Integers, Integers]:
    """Those of these cells that hold one item; the items; and their places in all sub-tables."""
    counts, checks, heads = (part[spots, column] for column in (_COUNT, _CHECK, _KEY))
    divisor = np.maximum(counts, 1)
    # Most cells of several items fail here, on two columns of many.
    likely = (counts > 0) & (checks % divisor == 0) & (heads % divisor == 0)
    likely &= (heads // divisor <= shape.label_bytes) & (heads >= 0)
    spots = spots[likely]
    items = part[spots]
    divisor = items[:, _COUNT, np.newaxis]
    words, rest = np.divmod(items[:, _CHECK:], divisor)
    whole = ~(rest.any(axis=1) | (words >> 32).any(axis=1))
    spots, items, words = spots[whole], items[whole], words[whole]
    items[:, _CHECK:] = words
    places, checks = hashed.of(words[:, CHECK_WORDS:])
    fits = (checks == words[:, :CHECK_WORDS]).all(axis=1) & (places[number] == spots)
    return spots[fits], items[fits], places[:, fits]


def _plausible(table: Integers) -> bool:
    """Whether this can be a sum of tables: no count or word overflowed, and all sub-tables have equal sums.

    Values may be anything modulo 2^64, except where there is no item.
    """
    counts = table[..., _COUNT]
    sums = table.sum(axis=1)  # modulo 2^64, which is enough to compare
    return bool(
        (counts >= 0).all()
        and (table[..., _CHECK:] >= 0).all()
        and (counts <= MAX_INSERTIONS).all()
        and not table[counts == 0].any()
        and (sums == sums[0]).all()
    )


def _decoded(items: Integers) -> Decoded:
    """Items as texts, sorted. DecodeError if a key is not a label's. Peeling finds no key twice."""
    lengths, chunks = items[:, _KEY], items[:, _KEY + 1 :].astype("<u4")
    # Padded with zeros, as numpy compares them: the shorter of two equal ones comes first.
    texts = np.ascontiguousarray(chunks).view(f"S{4 * chunks.shape[1]}").reshape(-1)
    order = np.lexsort((lengths, texts))
    texts, lengths = texts[order], lengths[order]
    if (np.char.str_len(texts) > lengths).any():
        raise DecodeError("a key has bytes after its end")
    plain = b"".join(
        [text.ljust(length, b"\0") for text, length in zip(texts.tolist(), lengths.tolist(), strict=True)]
    )
    labels = read_labels(plain, lengths, bytes([_TEXT]) * len(lengths))
    return Decoded(labels=list(map(str, labels)), counts=items[order, _VALUE])


def _added_up(labels: Sequence[Label], counts: Integers) -> tuple[list[bytes], Integers]:
    """The distinct items as bytes, each with the sum of its counts."""
    types = set(map(type, labels))
    if any(issubclass(kind, bool) or not issubclass(kind, str | int | np.integer) for kind in types):
        raise InvalidPopulation(
            "an item is neither text nor an integer", allowed="texts and integers", code="not-an-item"
        )
    texts = [label_bytes(label) for label in labels]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    if len(numbers) == len(texts):
        return texts, counts
    sums = np.zeros(len(numbers), dtype=np.int64)
    np.add.at(sums, [numbers[text] for text in texts], counts)
    return list(numbers), sums


def _key_words(texts: Sequence[bytes], shape: TableShape) -> Integers:
    """Each label as 32-bit words: its length, then its text, filled up with zeros."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    if lengths.max(initial=0) > shape.label_bytes:
        raise InvalidPopulation(
            "an item's name is too long for the table",
            allowed=f"up to {shape.label_bytes:,} bytes of UTF-8, the plan's label_bytes",
            advice="raise label_bytes in the plan, or shorten or hash long names",
            code="name-too-long",
        )
    width = 4 * (shape.words - 1)
    padded = b"".join([text.ljust(width, b"\0") for text in texts])
    words = np.empty((len(texts), shape.words), dtype=np.int64)
    words[:, 0] = lengths
    words[:, 1:] = np.frombuffer(padded, dtype="<u4").reshape(len(texts), shape.words - 1)
    return words


def _whole_counts(counts: npt.ArrayLike, items: int) -> Integers:
    array = np.asarray(counts)
    if array.shape != (items,) or (items and array.dtype.kind not in "iu"):
        raise InvalidPopulation(
            f"the counts of {items:,} items have the shape {array.shape} and the type {array.dtype}",
            allowed="one whole count for each item",
            code="wrong-counts",
        )
    if items and not (array.min() >= 1 and array.max() <= MAX_COUNT):
        raise InvalidPopulation(
            "a count is out of range",
            allowed=f"1 to {MAX_COUNT:,}",
            advice="leave out items without a count, and clip the others",
            code="count-out-of-range",
        )
    return array.astype(np.int64)


def _check_whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidPlan(
            f"{name} is {value!r}", allowed=f"a whole number from 1 to {most:,}", code="out-of-range"
        )


def _root(number: int, power: int) -> int:
    """The smallest whole number whose power is at least `number`, in integers: the same on every machine."""
    low, high = 0, 1 << -(-number.bit_length() // power)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if middle**power >= number else (middle + 1, high)
    return low
