"""From a table with a row for each observation to users' histograms, whatever the size of the table.

Rows of the same user and item are added up. Items are numbered by falling total; equal totals by the length of the
label in UTF-8, then by its code points, so 9 comes before 10 and text and integers agree. Users come in the order of
their keys. Two passes, each over pieces that fit in memory:

    read     each batch of rows: keys for users, numbers for items, dealt to partitions by the user's key
    group    each partition: its rows added up by user and item (`added_up`)

What is between the two is in memory while there is room, then in a file without a name (`spool`). The result does not
depend on the batches, the partitions or the room.

Whole numbers are their own keys, mixed by an odd factor. Other values are hashed to 64 bits. Factor and hash are drawn
anew in every run, so that nobody can choose two names that meet; only what is to be repeated draws them from a seed.
That two of n names meet by chance has a probability of n^2 / 2^65: one in 10^7 for a million. They would count as one.

A user's rows all lie in one partition, so a partition is added up without the others. One sort of one word a row does
it: the user's key above, the item's rank below. The key's first bits are the partition's, so the word has room for as
many bits of ranks. Where ranks take more, last bits of keys go, and it is checked that this makes no two users one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedhist.client.files.columns import INSIDE, Where, type_name
from fedhist.client.files.items import ALL_ITEMS, ItemChoice, StoredNames, order_of_texts
from fedhist.client.files.memory import Memory
from fedhist.client.files.spool import Array, Piece, Spool, StoredPopulation, StoredRows
from fedhist.client.freed_memory import keep_freed_memory
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.histograms import MAX_USER_TOTAL, Flags, Integers, Words
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.validation import whole_counts

if TYPE_CHECKING:
    import polars as pl

Ranks = npt.NDArray[np.uint64]

DEALT_BITS = 10
"""The number of first bits of users' keys by which rows are dealt. A partition is what some of these bits select."""

# Larger partitions are added up piece by piece: one user may have any number of rows.
_MOST_ROWS = 1 << 21


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows, in the order of the first bits of their users' keys.

    Args:
        bounds: where the rows of each value of these bits begin, and the end.
        users: the keys.
        items: the items' numbers from 1; 0 for none.
        counts: the observations that a row stands for; None if each is one.
    """

    bounds: Integers = field(repr=False)
    users: Piece = field(repr=False)
    items: Piece = field(repr=False)
    counts: Piece | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of users.

    Args:
        users: their keys.
        items: the items' numbers as of a batch; when they are added up, their ranks, the last of all for rows without.
        counts: None if each is one.
    """

    users: Words = field(repr=False)
    items: Array = field(repr=False)
    counts: Array | None = field(repr=False)


def dealt(rows: Rows, *, spool: Spool) -> Batch:
    """Put rows aside in the order of the first bits of their users' keys."""
    users, counts = rows.users, rows.counts
    places = np.uint64((1 << len(users).bit_length()) - 1)
    words = (users & ~places) | np.arange(len(users), dtype=np.uint64)
    words.sort()
    order = (words & places).astype(np.intp)
    bounds = np.searchsorted(words, np.arange(1 << DEALT_BITS, dtype=np.uint64) << np.uint64(64 - DEALT_BITS))
    return Batch(
        np.append(bounds, len(users)),
        spool.put(users[order]),
        spool.put(rows.items[order]),
        None if counts is None else spool.put(counts[order]),
    )


def pieces_of(batches: Sequence[Batch], partition: int, ranks: Ranks, *, bits: int) -> Iterator[Rows]:
    """The rows of a partition, a part of them at a time.

    Args:
        batches: all rows.
        partition: the first bits of the keys of its users.
        ranks: the rank of each item's number.
        bits: the number of these bits.
    """
    ends = slice(
        partition << DEALT_BITS - bits, (partition + 1 << DEALT_BITS - bits) + 1, 1 << DEALT_BITS - bits
    )
    parts: list[tuple[Batch, int, int]] = []
    rows = 0
    for batch in batches:
        start, stop = batch.bounds[ends].tolist()
        if parts and rows + stop - start > _MOST_ROWS:
            yield _read(parts, ranks)
            parts, rows = [], 0
        parts.append((batch, start, stop))
        rows += stop - start
    yield _read(parts, ranks)


def _read(parts: Sequence[tuple[Batch, int, int]], ranks: Ranks) -> Rows:
    rows = _joined(
        [
            Rows(
                batch.users.read(start, stop),
                batch.items.read(start, stop),
                None if batch.counts is None else batch.counts.read(start, stop),
            )
            for batch, start, stop in parts
        ]
    )
    # What a row without an item was to count does not count in its user's total.
    counts = None if rows.counts is None else np.where(rows.items == 0, 0, rows.counts).astype(np.int64)
    return Rows(rows.users, ranks[rows.items], counts)


@dataclass(frozen=True, eq=False)
class Sums:
    """What users have, in the order of their keys.

    Args:
        begins: where each user's items begin.
        items: the items' ranks, rising within a user.
        counts: the sums.
    """

    begins: Integers = field(repr=False)
    items: Ranks = field(repr=False)
    counts: Integers = field(repr=False)

    def of_users(self, values: Integers) -> Integers:
        """The sum of these values, one for each item of a user, by user."""
        return np.add.reduceat(values, self.begins) if len(self.begins) else np.zeros(0, dtype=np.int64)


def added_up(pieces: Iterable[Rows], *, bits: int, item_bits: int) -> tuple[Rows, Sums]:
    """The rows of a partition, or what is left of them where there are many, and what they come to.

    Args:
        pieces: its rows. As soon as there are two, they are added up together.
        bits: the number of first bits that the keys of its users share.
        item_bits: the number of bits of an item's rank.
    """
    parts: list[Rows] = []
    waiting = 0
    for piece in pieces:
        parts.append(piece)
        waiting += len(piece.users)
        if len(parts) > 1 and waiting > max(_MOST_ROWS, len(parts[0].users)):
            parts, waiting = [_reduced(_joined(parts), bits=bits, item_bits=item_bits)], 0
    rows = _joined(parts)
    return rows, _sums(rows, bits=bits, item_bits=item_bits)


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    users, items = (np.concatenate([getattr(part, name) for part in parts]) for name in ("users", "items"))
    if all(part.counts is None for part in parts):
        return Rows(users, items, None)
    # Some files may have counts and others none.
    ones = (np.ones(len(part.users), dtype=np.int32) for part in parts)
    counts = [one if part.counts is None else part.counts for part, one in zip(parts, ones, strict=True)]
    return Rows(users, items, np.concatenate(counts))


def _reduced(rows: Rows, *, bits: int, item_bits: int) -> Rows:
    """The rows added up, as rows again."""
    sums = _sums(rows, bits=bits, item_bits=item_bits)
    sizes = np.diff(sums.begins, append=len(sums.items))
    return Rows(np.repeat(np.unique(rows.users), sizes), sums.items, sums.counts)


def _sums(rows: Rows, *, bits: int, item_bits: int) -> Sums:
    below = np.uint64(item_bits)
    owners = (rows.users << np.uint64(bits)) >> below
    if item_bits > bits:
        users = np.sort(rows.users)
        cut = (users << np.uint64(bits)) >> below
        if np.count_nonzero(users[1:] != users[:-1]) > np.count_nonzero(cut[1:] != cut[:-1]):
            owners = np.unique(rows.users, return_inverse=True)[1].astype(np.uint64)
    words = (owners << below) | rows.items
    if rows.counts is None:
        words.sort()
    else:
        order = np.argsort(words)
        words = words[order]
    starts = _starts(words)
    heads = words[starts]
    if rows.counts is None:
        counts = np.diff(starts, append=len(words))
    else:
        counts = np.add.reduceat(rows.counts[order], starts) if len(starts) else np.zeros(0, dtype=np.int64)
    return Sums(_starts(heads >> below), heads & np.uint64((1 << item_bits) - 1), counts)


def _starts(ordered: Words) -> Integers:
    """Where each run of equal values begins."""
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return np.concatenate([np.zeros(min(len(ordered), 1), dtype=np.int64), changes])


Numbers = npt.NDArray[np.int32]

_EMPTY = -1
_FIRST_BITS = 12
# A small table fits in a core's cache, so it may be spread thin: keys then rarely meet.
_SPACIOUS = 1 << 17
_SPREAD = 16


class Numbering:
    """Numbers 0, 1, 2, ... for keys of 64 bits, as they first appear.

    Open addressing with linear probing, at most half full, and far less while the table is small. A slot is the first
    bits of a key, so keys have to be mixed well. All rows look up at once, and those that met another key look again.
    """

    def __init__(self) -> None:
        self.length = 0
        self._bits = _FIRST_BITS
        self._keys = np.zeros(1 << self._bits, dtype=np.uint64)
        self._numbers = np.full(1 << self._bits, _EMPTY, dtype=np.int32)

    def of(self, keys: Words) -> tuple[Numbers, Integers]:
        """The number of each key, and the places at which new ones appear first, in the order of their numbers."""
        numbers = self._find(keys)
        missing = np.flatnonzero(numbers == _EMPTY)
        if len(missing) == 0:
            return numbers, missing
        _, first = np.unique(keys[missing], return_index=True)
        first = missing[np.sort(first)]
        self._add(keys[first])
        numbers[missing] = self._find(keys[missing])
        return numbers, first

    def _find(self, keys: Words) -> Numbers:
        """The number of each key, -1 for those that are not there."""
        slots = (keys >> np.uint64(64 - self._bits)).astype(np.intp)
        numbers = self._numbers[slots]
        astray = np.flatnonzero((self._keys[slots] != keys) & (numbers != _EMPTY))
        slots = slots[astray]
        while len(astray):
            slots = (slots + 1) & (len(self._keys) - 1)
            numbers[astray] = self._numbers[slots]
            on = (self._keys[slots] != keys[astray]) & (numbers[astray] != _EMPTY)
            astray, slots = astray[on], slots[on]
        return numbers

    def _add(self, keys: Words) -> None:
        """Give new, distinct keys the next numbers."""
        numbers = np.arange(self.length, self.length + len(keys), dtype=np.int32)
        self.length += len(keys)
        spread = _SPREAD if len(self._keys) < _SPACIOUS else 2
        if spread * self.length > len(self._keys):
            there = np.flatnonzero(self._numbers != _EMPTY)
            keys = np.concatenate([self._keys[there], keys])
            numbers = np.concatenate([self._numbers[there], numbers])
            self._bits = (spread * self.length - 1).bit_length() + 1
            self._keys = np.zeros(1 << self._bits, dtype=np.uint64)
            self._numbers = np.full(1 << self._bits, _EMPTY, dtype=np.int32)
        slots = (keys >> np.uint64(64 - self._bits)).astype(np.intp)
        while len(keys):
            free = self._numbers[slots] == _EMPTY
            # Of several keys for one slot the last stays, and the others go on.
            self._keys[slots[free]] = keys[free]
            self._numbers[slots[free]] = numbers[free]
            left = self._numbers[slots] != numbers
            keys, numbers, slots = keys[left], numbers[left], (slots[left] + 1) & (len(self._keys) - 1)


Tell = Callable[[str, int, int], None]
"""Called with a pass, how much of it is done, and of how much."""

Tables = Callable[[], Iterable["tuple[pl.DataFrame, Where]"]]
"""Reads a table from its start: its rows, batch by batch, each with names for the rows of its file."""

_PARTITION_ROWS = 1 << 17
# Smaller partitions only cost: as many as spare bits of keys are made of more rows than these.
_FEWEST_ROWS = 1 << 14


def table_row(index: int, role: str) -> str:
    """The words for a row of a table in errors."""
    return f"row {index + 1} of the table (the first below the header is row 1)"


class Tabulation:
    """Takes the rows of a table, batch by batch, and makes its population.

    Args:
        memory: how much may be used.
        rng: keys of users and items are drawn from it, and so is the order of users.
        strict: refuse rows without a value instead of leaving them out.
        lenient: leave out rows that break a rule, too, see `read`.
        tell: called as the work goes on.
        again: reads the same rows again, to find one of a user in an error.
    """

    def __init__(
        self,
        *,
        memory: Memory,
        rng: Source,
        strict: bool = False,
        lenient: bool = False,
        tell: Tell = lambda *progress: None,
        again: Tables = tuple,
    ) -> None:
        keep_freed_memory()
        self.rows = self.left_out = 0
        self._spool = Spool(memory.room)
        self._memory, self._strict, self._lenient = memory, strict, lenient
        self._tell, self._again = tell, again
        self._batches: list[Future[Batch]] = []
        self._dealing = ThreadPoolExecutor(1)
        self._waiting: list[Rows] = []
        words = rng.words(4)
        self._users, self._items = _Keys("user", words[:2]), _Keys("item", words[2:])
        self._numbering = Numbering()
        self._names: list[pl.Series] = []
        # Of items by their numbers from 1; the first is of rows without an item.
        self._totals = np.zeros(1, dtype=np.int64)

    def add(self, table: pl.DataFrame, where: Where = table_row) -> None:
        """Take in the next rows.

        Args:
            table: with a column for the user, one for the item and maybe one for the count; and maybe INSIDE, to leave
                out rows whose users stay.
            where: names one of these rows, for errors.
        """
        self.rows += table.height
        if table.height == 0:
            return
        if self._strict:
            _refuse_missing(table, where)
        table, there, counts = self._usable(table, where)
        if INSIDE in table.columns:
            # Whatever the window: whether files go together must not tell which of them has rows in it.
            self._items.expect(table["item"].dtype, lambda: where(0, "item"))
            there = there & table[INSIDE].fill_null(value=False).to_numpy()
            if counts is None:
                # A row that is left out does not count in its user's total.
                counts = there.astype(np.int32)
        if table.height:
            self._number(table, there, counts, where)

    def population(
        self, choice: ItemChoice = ALL_ITEMS, *, labels: Sequence[str] | None = None
    ) -> SparsePopulation:
        """The population of all rows so far, over the chosen items. Nothing can be added any more.

        Args:
            choice: which items, and in which order.
            labels: what listed items are called in the end, if not as they are listed.
        """
        import polars as pl

        self._deal()
        column = pl.concat(self._names) if self._names else pl.Series(dtype=pl.Int64)
        order = partial(order_of_texts, column.cast(pl.String))
        chosen = choice.of(StoredNames(column), self._totals[1 : self._numbering.length + 1], order)
        nothing = len(chosen.labels)
        ranks = np.append(-1, chosen.ranks)
        rows = self._grouped(np.where(ranks < 0, nothing, ranks).astype(np.uint64), chosen.numbers)
        named = chosen.labels if labels is None else labels
        whole = SparsePopulation(
            rows.mapped(nothing),
            labels=tuple(named) if isinstance(named, list | range) else named,
            dropped_items=chosen.dropped_items,
            dropped_count=chosen.dropped_count,
            item_origin=chosen.origin,
        )
        return whole if rows.in_memory else StoredPopulation(**vars(whole), rows=rows)

    def _usable(
        self, table: pl.DataFrame, where: Where
    ) -> tuple[pl.DataFrame, Flags, npt.NDArray[np.int32] | None]:
        """The rows with a user; which have all other values; and their counts, None if each is one.

        Which ones of a user's rows stay depends on that user's rows alone.
        """
        import polars as pl

        kept = np.flatnonzero(table["user"].is_not_null().to_numpy())
        users = table if len(kept) == table.height else table[kept]
        there = users.select(pl.all_horizontal(pl.all().is_not_null())).to_series()
        counts = None
        if "count" in table.columns:
            _check_counted(users["count"].dtype)
            if self._lenient:
                number = _number_of(users["count"])
                whole = number.is_between(0, MAX_USER_TOTAL) & (number == number.floor())
                there &= whole.fill_null(value=False)
                counts = number.fill_null(0).fill_nan(0).clip(0, MAX_USER_TOTAL).to_numpy().astype(np.int32)
            else:
                counts = _counts(users["count"], lambda row: where(int(kept[row]), "count"))
        self.left_out += table.height - int(there.sum())
        return users, there.to_numpy(), counts

    def _number(
        self, table: pl.DataFrame, there: Flags, counts: npt.NDArray[np.int32] | None, where: Where
    ) -> None:
        """Number the items of these rows.

        Args:
            table: the rows.
            there: which of them have an item.
            counts: None if each is one observation.
            where: names one of them.
        """
        import polars as pl

        users = self._users.of(table["user"], lambda: where(0, "user"))
        items = _plain(table["item"] if there.all() else table["item"].filter(there))
        found, first = self._numbering.of(self._items.of(items, lambda: where(0, "item")))
        if len(first):
            names = items.gather(first)
            # As new text: a part of a column keeps all of it in memory.
            self._names.append(pl.Series(names.to_list()) if names.dtype == pl.String else names)
        if len(self._totals) <= self._numbering.length:
            more = max(self._numbering.length + 1, 2 * len(self._totals)) - len(self._totals)
            self._totals = np.append(self._totals, np.zeros(more, dtype=np.int64))
        numbers = np.zeros(table.height, dtype=np.uint16 if self._numbering.length < 1 << 16 else np.uint32)
        numbers[there] = found + np.int32(1)
        if len(self._totals) <= len(numbers):
            # The sums are whole numbers below 2^53.
            self._totals += np.bincount(numbers, counts, minlength=len(self._totals)).astype(np.int64)
        else:
            np.add.at(self._totals, numbers.astype(np.intp), 1 if counts is None else counts.astype(np.int64))
        self._waiting.append(Rows(users, numbers, counts))
        if sum(len(rows.users) for rows in self._waiting) >= self._memory.batch_rows:
            self._deal()

    def _deal(self) -> None:
        """Deal the rows that wait together: many small files are no more batches than a large one."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # In another thread, while the next rows are read and numbered; no more than one batch waits for it.
        if len(self._batches) > 1:
            self._batches[-2].result()
        self._batches.append(self._dealing.submit(dealt, _joined(waiting), spool=self._spool))

    def _grouped(self, ranks: Ranks, numbers: npt.NDArray[np.int32]) -> StoredRows:
        """All rows, added up by user and item.

        Args:
            ranks: of the items by their numbers from 1; the last one, which the first also is, for rows without one.
            numbers: what each rank is called in the end.
        """
        batches = [batch.result() for batch in self._batches]
        self._dealing.shutdown()
        nothing = np.uint64(len(numbers))
        item_bits = len(numbers).bit_length()
        bits = min((self.rows // _PARTITION_ROWS).bit_length(), DEALT_BITS)
        if bits < item_bits <= min((self.rows // _FEWEST_ROWS).bit_length(), DEALT_BITS):
            bits = item_bits
        in_order = np.array_equal(numbers, np.arange(len(numbers)))

        def group(partition: int) -> tuple[Integers, npt.NDArray[np.int32], Integers, Words]:
            """The number of each user's items, the items, the counts, and the keys of users with too much."""
            rows, sums = added_up(
                pieces_of(batches, partition, ranks, bits=bits), bits=bits, item_bits=item_bits
            )
            kept, too_much = sums.items != nothing, rows.users[:0]
            if int(sums.counts.sum()) > MAX_USER_TOTAL:
                over = sums.of_users(sums.counts) > MAX_USER_TOTAL
                too_much = np.unique(rows.users)[over]
                kept &= ~np.repeat(over, sums.of_users(np.ones(len(kept), dtype=np.int64)))
            items = sums.items[kept].astype(np.int32)
            lengths = sums.of_users(kept.astype(np.int64))
            return lengths, items if in_order else numbers[items], sums.counts[kept], too_much

        partitions = range(1 << bits if batches else 0)
        out, heavy = StoredRows(self.rows, Spool(self._memory.room)), []
        with closing(self._spool), ThreadPoolExecutor(self._memory.workers) as threads:
            for partition, (lengths, items, counts, too_much) in enumerate(threads.map(group, partitions)):
                self._tell("group", partition + 1, len(partitions))
                out.append(lengths, items, counts)
                if len(too_much):
                    heavy.append(too_much)
                    for piece in pieces_of(
                        batches, partition, np.arange(len(ranks)).astype(np.uint64), bits=bits
                    ):
                        self.left_out += int((np.isin(piece.users, too_much) & (piece.items > 0)).sum())
        if heavy and not self._lenient:
            raise self._too_much(np.concatenate(heavy))
        return out

    def _too_much(self, users: Words) -> InvalidPopulation:
        """Names the first of these users by a row."""
        whose = "of a user"
        for table, where in self._again():
            found = np.flatnonzero(np.isin(self._users.of(table["user"], str), users))
            if len(found):
                whose = f"of the user in {where(int(found[0]), 'user')}"
                break
        return InvalidPopulation(
            f"the counts {whose} add up to too much",
            allowed=f"a total of at most {MAX_USER_TOTAL:,} for each user",
            advice="count in larger units",
            code="total-too-large",
        )


def _refuse_missing(table: pl.DataFrame, where: Where) -> None:
    for name in table.columns:
        if table[name].null_count():
            role = "time" if name == INSIDE else name
            place = where(int(table[name].is_null().arg_max() or 0), role)
            raise InvalidPopulation(
                f"the {role} in {place} is missing",
                allowed="a value in every row",
                advice="complete or remove the row; in a CSV file an empty text is written as two double quotes",
                code="missing-value",
            )


def _check_counted(kind: pl.DataType) -> None:
    """A column that no row's count can be in is not one row's fault."""
    import polars as pl

    if not (kind.is_numeric() or kind in (pl.String, pl.Boolean, pl.Null)):
        raise InvalidPopulation(
            f"the counts have the type {type_name(kind)}",
            allowed="numbers",
            advice="convert the column to integers",
            code="column-type",
        )


def _number_of(column: pl.Series) -> pl.Series:
    """A column of counts as numbers; missing where it can't be read."""
    import polars as pl

    texts = column.dtype == pl.String
    return (column.str.strip_chars() if texts else column).cast(pl.Float64, strict=False)


def _counts(column: pl.Series, place: Callable[[int], str]) -> npt.NDArray[np.int32]:
    """The observations that each row stands for; none where that is missing."""
    import polars as pl

    if column.dtype == pl.String:
        number = _number_of(column)
        wrong = number.is_null() & column.is_not_null()
        if wrong.any():
            raise InvalidPopulation(
                f"the count in {place(int(wrong.arg_max() or 0))} is not a number",
                allowed=f"whole numbers from 0 to {MAX_USER_TOTAL:,}",
                advice="correct or remove the row",
                code="count-not-a-number",
            )
        column = number
    elif column.dtype.is_decimal() or str(column.dtype).endswith("128"):
        # numpy has no type for these; whole numbers up to the limit are exact in the one they get.
        column = column.cast(pl.Float64)
    return whole_counts(column.fill_null(0).to_numpy(), place)


class _Keys:
    """Keys of 64 bits for the values of a column, the same for the same value in every batch.

    Args:
        role: user or item.
        secret: two words.
    """

    def __init__(self, role: str, secret: Words) -> None:
        self._factor = secret[0] | np.uint64(1)
        self._seed = int(secret[1] >> np.uint64(1))
        self._role = role
        self._kind: str | None = None

    def of(self, column: pl.Series, place: Callable[[], str]) -> Words:
        """The keys, well mixed in their first bits.

        Args:
            column: the values.
            place: the words for its first row, for errors.
        """
        if len(column) == 0:
            return np.empty(0, dtype=np.uint64)
        self.expect(column.dtype, place)
        column = _plain(column)
        if not column.dtype.is_integer() or "128" in str(column.dtype):
            return np.asarray(column.hash(self._seed).to_numpy(), dtype=np.uint64)
        # An odd factor loses nothing.
        keys: Words = column.to_numpy().view(np.uint64) * self._factor
        return keys

    def expect(self, dtype: pl.DataType, place: Callable[[], str]) -> None:
        """Refuse a column of another kind than those before."""
        import polars as pl

        wide = "128" in str(dtype) or dtype == pl.UInt64
        kind = f"integers of type {dtype}" if wide else "integers" if dtype.is_integer() else "text"
        self._kind = self._kind or kind
        if kind != self._kind:
            raise InvalidPopulation(
                f"the {self._role}s are {self._kind} at first, and {kind} from {place()} on",
                allowed="the same type of column in all files",
                advice="convert the column in some of them",
                code="mixed-column",
            )


def _plain(column: pl.Series) -> pl.Series:
    """Categories as text; integers of one width; other values as they are."""
    import polars as pl

    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    if column.dtype.is_integer() and column.dtype != pl.UInt64 and "128" not in str(column.dtype):
        return column.cast(pl.Int64)
    return column
