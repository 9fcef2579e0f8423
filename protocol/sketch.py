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
(below), so cells are as good as independent and uniform whatever items there are. For at most `capacity` items,
the chance that they do not all come back exactly is at most `TableShape.failure_bound`, a proven bound for the worst
data (below), below 1e-9 for every shape:

- Two items may share all five cells: n (n - 1) / (2 m^5) such pairs are expected. m is so large that this is at most
  5e-10 at capacity, and up to about 5,400 items nothing else counts.
- Beyond, the load (items to cells) is 0.56. The bound is a first moment, which is finite up to a load of 0.566 and
  infinite above; peeling itself works up to 0.701 (Molloy 2005), except for a chance that we can't bound as well. With
  four hashes the same bound would allow a load of 0.61, but pairs alone would fail with 6e-8 at 16,384 items, and m
  would have to be nearly four times as large for 1e-9. Six hashes take 0.51.

A table with a load well above 0.701 never decodes. `benchmarks/sketch.py` prints how many of its tables failed.

**What it returns is right.** The bound covers cells of several items that look like one. A table that is not empty in
all columns at the end is refused: no part of it is returned.

**Privacy.** The shape is public. The server reads every item and its exact clipped count from the sum, before noise
and bar: masks hide from it which device has what, and nothing else. This is central privacy. That a table did not
decode is visible too. For items that devices *hold*, this is charged to the ledger (`protocol/plan/terms.py`).
Against devices that *send* what the protocol does not allow it is not private, and can't be: such a device can add
numbers to a few cells that make decoding depend on one item of others.

## Where the items of a table go

Where the items of a table go: a keyed hash, under a salt that was unknown when the data was fixed.

A table that decodes or not, depending on who holds what, would reveal data. Whether it decodes is decided by the items'
cells, so the cells must be as good as random *for every set of items that devices may hold*. A public hash, or a keyed
one that is linear, does not give that: an attacker could compute a name that shares all cells with a given other name,
put it into their own data, and see the run fail exactly when some user has the other name.

**The hash.** A key is a fixed number of 32-bit words (length and text, filled up with zeros), that is, of blocks of 16
bytes. Its tag is the CBC-MAC of these blocks under AES-256, and its outputs are the encryptions of `tag ^ 0`, `tag ^
1`, ... under a second, independent key. Both keys come from SHA-512 over a domain tag, the shape and the salt.

**Why it is a pseudorandom function.** CBC-MAC is one for messages of one fixed length: with q keys of b blocks it is
told from a random function with an advantage of at most about (q b)^2 / 2^128 more than AES from a random permutation
(Bellare, Kilian & Rogaway 2000). Given distinct tags, whose blocks `tag ^ j` meet with a probability below (3 q)^2 /
2^128, the outputs are values of a random permutation at distinct places, which are independent and uniform except for a
term of the same size. With 2^22 items of 1,024 bytes all this is below 2^-68. So for data that was fixed before the
salt was drawn, places and checks are as good as independent and uniform, for each item and between items. Places are
64-bit words modulo m, each of which has a chance of at most (1 + m / 2^64) / m.

One encryption call serves a block of all items: there is no loop over items.

## How often a table does not decode

An upper bound on how often a table within its capacity does not decode, whatever its items are.

The chance is over the hash alone: places and checks are independent and uniform for any data that was fixed before the
salt was drawn (above). So it holds for the worst data, and it is what the ledger is charged for.

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
import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import DecodeError, InvalidInput, InvalidPlan, InvalidPopulation, RoundFailed
from fedhist.protocol.histograms import Flags, Floats, Integers, Words
from fedhist.protocol.privacy.randomness import aes_blocks
from fedhist.protocol.wire.keyed_codec import MAX_LABEL_BYTES, Label, label_bytes, read_labels

HASHES = 5
"""r: the cells of an item, one in each sub-table."""

CHECK_WORDS = 2
"""The 32-bit words of an item's check."""

SALT_BYTES = 32
"""A salt has 256 bits."""

_TAG = b"fedhist/2/iblt"
_SHAPE = struct.Struct("<QQ")
_BLOCK = 16
_KEY_BYTES = 32
# Five places and a check of 64 bits each, two to a block.
_BLOCKS_OUT = (HASHES + 2) // 2

_EXACT = 24
"""Sets of up to this size are counted exactly."""

_BLOCKS_PER_OCTAVE = 48
_ROUNDING = 1e-4
_FALSE_PEEL = 2.0**-64

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


class TableHash:
    """The places and checks of keys, for one salt and one shape.

    Args:
        capacity, label_bytes: the table's, which are part of the key.
        part_cells: m, the cells of a sub-table.
        salt: drawn after the data was fixed.
    """

    def __init__(self, *, capacity: int, label_bytes: int, part_cells: int, salt: bytes) -> None:
        self._part_cells = np.uint64(part_cells)
        keys = hashlib.sha512(_TAG + _SHAPE.pack(capacity, label_bytes) + salt).digest()
        self._absorbing_key, self._expanding_key = keys[:_KEY_BYTES], keys[_KEY_BYTES:]

    def of(self, words: Integers) -> tuple[Integers, Integers]:
        """For keys as rows of words: the place in each sub-table, of shape (HASHES, keys), and the checks' words."""
        items, width = words.shape
        message = np.zeros((-(-4 * width // _BLOCK), items, _BLOCK // 4), dtype="<u4")
        for number, block in enumerate(message):
            part = words[:, 4 * number : 4 * number + 4]
            block[:, : part.shape[1]] = part
        tags = np.zeros((items, 2), dtype="<u8")
        for block in message:
            tags = _encrypted(self._absorbing_key, tags ^ block.view("<u8"))
        tweaks = np.arange(_BLOCKS_OUT, dtype="<u8")[:, np.newaxis, np.newaxis] * np.array(
            [1, 0], dtype="<u8"
        )
        drawn = (
            _encrypted(self._expanding_key, tags ^ tweaks).astype(np.uint64, copy=False).transpose(0, 2, 1)
        )
        drawn = drawn.reshape(2 * _BLOCKS_OUT, items)
        places = (drawn[:HASHES] % self._part_cells).astype(np.int64)
        check = drawn[HASHES]
        halves = np.stack([check & np.uint64(0xFFFFFFFF), check >> np.uint64(32)], axis=1)
        return places, halves.astype(np.int64)


def _encrypted(key: bytes, blocks: Words) -> Words:
    """AES-256 on each pair of 64-bit words."""
    return np.frombuffer(aes_blocks(key, blocks.tobytes()), dtype="<u8").reshape(blocks.shape)


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
    stuck = 0.0
    for size in range(2, min(items, _EXACT) + 1):
        # One by one: sum() carries more digits from Python 3.12 on, and a plan would cost another last digit there.
        stuck += _exact_term(items, size, part_cells, hashes)
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
