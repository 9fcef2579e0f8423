"""From a table with a row for each observation to users' histograms, whatever the size of the table.

Rows of the same user and item are added up. Users are numbered as they first appear. Items are numbered by falling
total; equal totals by the length of the label in UTF-8, then by its code points, so 9 comes before 10 and text and
integers agree. Three passes, each over pieces that fit in memory:

    read     each batch of rows: keys for users, numbers for items, dealt to partitions by the user's key
    group    each partition: its rows added up by user and item (`grouping`)
    merge    the users of all partitions in the order of their first rows (`merging`)

What is between two passes is in memory while there is room, then in a file without a name (`spool`). The result does
not depend on the batches, the partitions or the room.

Whole numbers are their own keys, mixed by a factor. Other values are hashed to 64 bits with a seed of their own in
every run, so that nobody can choose two names that meet. That two of n names meet by chance has a probability of
n^2 / 2^65: one in 10^7 for a million. They would count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedhist.client.files.columns import Where
from fedhist.client.files.grouping import DEALT_BITS, Batch, added_up, dealt, pieces_of, rows_with_items
from fedhist.client.files.item_choice import ALL_ITEMS, Chosen, ItemChoice
from fedhist.client.files.memory import Memory
from fedhist.client.files.merging import Partition, merged, put_aside
from fedhist.client.files.names import ItemNames, NumberNames, TextNames
from fedhist.client.files.numbering import Numbering
from fedhist.client.files.record_tables import type_name
from fedhist.client.files.spool import Spool
from fedhist.client.files.stored import StoredPopulation
from fedhist.client.files.window_rows import INSIDE
from fedhist.client.freed_memory import keep_freed_memory
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.histograms import MAX_USER_TOTAL, Flags, Integers, Words
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.protocol.validation import whole_counts

if TYPE_CHECKING:
    import polars as pl

Tell = Callable[[str, int, int], None]
"""Called with a pass, how much of it is done, and of how much."""

_PARTITION_ROWS = 1 << 17


def table_row(index: int, role: str) -> str:
    """The words for a row of a table in errors."""
    return f"row {index + 1} of the table (the first below the header is row 1)"


class Tabulation:
    """Takes the rows of a table, batch by batch, and makes its population.

    Args:
        memory: how much may be used.
        lenient: leave out rows that break a rule instead of refusing the table, see `node_data`.
        idle: a row without an item is a user without items.
        tell: called as the work goes on.
    """

    def __init__(
        self,
        *,
        memory: Memory,
        lenient: bool = False,
        idle: bool = False,
        tell: Tell = lambda *progress: None,
    ) -> None:
        keep_freed_memory()
        self.rows = self.left_out = 0
        self._spool = Spool(memory.room)
        self._memory, self.lenient, self._idle, self._tell = memory, lenient, idle, tell
        self._batches: list[Future[Batch]] = []
        self._dealing = ThreadPoolExecutor(1)
        self._waiting: list[tuple[int, Words, npt.NDArray[np.int32], npt.NDArray[np.int32] | None]] = []
        self._places: list[tuple[int, Where]] = []
        self._users, self._items = _Keys("user"), _Keys("item")
        self._numbering = Numbering()
        self._names: ItemNames = NumberNames()
        self._totals = np.zeros(0, dtype=np.int64)

    def add(self, table: pl.DataFrame, where: Where = table_row) -> None:
        """Take in the next rows.

        Args:
            table: with a column for the user, one for the item and maybe one for the count; and maybe INSIDE, to leave
                out rows whose users stay.
            where: names a row of the file that these are from, for errors. Rows of one file have one `where`.
        """
        if not self._places or self._places[-1][1] is not where:
            self._places.append((self.rows, where))
        first_row, self.rows = self.rows, self.rows + table.height
        if table.height == 0:
            return
        if self.lenient:
            table, there, counts = self._usable(table)
        else:
            self._refuse_missing(table, first_row)
            there, counts = table["item"].is_not_null().to_numpy(), self._counts(table, first_row)
        if INSIDE in table.columns:
            # Whatever the window: whether files go together must not tell which of them has rows in it.
            self._items.expect(table["item"].dtype, lambda: self._place(first_row, "item"))
            there = there & table[INSIDE].fill_null(value=False).to_numpy()
            if counts is None:
                # A row that is left out does not count in its user's total.
                counts = there.astype(np.int32)
        if table.height:
            self._deal(table, there, counts, first_row)

    @property
    def items(self) -> int:
        """The number of different items so far."""
        return self._numbering.length

    def population(
        self, choice: ItemChoice = ALL_ITEMS, *, labels: Sequence[str] | None = None
    ) -> SparsePopulation:
        """The population of all rows so far, over the chosen items. Nothing can be added any more.

        Args:
            choice: which items, and in which order.
            labels: what listed items are called in the end, if not as they are listed.
        """
        chosen = choice.of(self._names, self._totals[: self.items])
        with closing(Spool(self._memory.room)) as between:
            partitions = self._partitions(chosen, between)
            self._spool.close()
            rows = merged(partitions, spool=Spool(self._memory.room), each=self._each)
        named = chosen.labels if labels is None else labels
        whole = SparsePopulation(
            rows.mapped(len(named)),
            labels=tuple(named) if isinstance(named, list | range) else named,
            dropped_items=chosen.dropped_items,
            dropped_count=chosen.dropped_count,
            item_origin=chosen.origin,
        )
        return whole if rows.in_memory else StoredPopulation(**vars(whole), rows=rows)

    def _usable(self, table: pl.DataFrame) -> tuple[pl.DataFrame, Flags, npt.NDArray[np.int32] | None]:
        """The rows with a user; which have an item and a count; and these counts.

        Which ones of a user's rows stay depends on that user's rows alone.
        """
        import polars as pl

        users = table.drop_nulls(["user"])
        there = users["item"].is_not_null()
        counts = None
        if "count" in table.columns:
            column = users["count"]
            if column.dtype == pl.String:
                column = column.str.strip_chars()
            number = column.cast(pl.Float64, strict=False)
            there &= (number.is_between(0, MAX_USER_TOTAL) & (number == number.floor())).fill_null(
                value=False
            )
            counts = number.fill_null(0).fill_nan(0).clip(0, MAX_USER_TOTAL).to_numpy().astype(np.int32)
        if INSIDE in table.columns:
            there &= users[INSIDE].is_not_null()
        self.left_out += table.height - int(there.sum())
        return users, there.to_numpy(), counts

    def _refuse_missing(self, table: pl.DataFrame, first_row: int) -> None:
        for name in table.columns:
            if table[name].null_count() and not (self._idle and name == "item"):
                place = self._place(first_row + int(table[name].is_null().arg_max() or 0), name)
                raise InvalidPopulation(
                    f"the {name} in {place} is missing",
                    allowed="a value in every row",
                    advice="complete or remove the row; in a CSV file an empty text is written as two double quotes",
                )

    def _counts(self, table: pl.DataFrame, first_row: int) -> npt.NDArray[np.int32] | None:
        """The observations that each row stands for; None if each is one."""
        import polars as pl

        if "count" not in table.columns:
            return None
        column = table["count"]
        if column.dtype == pl.String:
            column = column.str.strip_chars().cast(pl.Float64, strict=False)
            if column.null_count():
                place = self._place(first_row + int(column.is_null().arg_max() or 0), "count")
                raise InvalidPopulation(
                    f"the count in {place} is not a number",
                    allowed=f"whole numbers from 0 to {MAX_USER_TOTAL:,}",
                    advice="correct or remove the row",
                )
        elif not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
            raise InvalidPopulation(
                f"the counts have the type {type_name(column.dtype)}",
                allowed="numbers",
                advice="convert the column to integers",
            )
        elif column.dtype.is_decimal() or str(column.dtype).endswith("128"):
            # numpy has no type for these; whole numbers up to the limit are exact in the one they get.
            column = column.cast(pl.Float64)
        return whole_counts(column.to_numpy(), lambda row: self._place(first_row + row, "count"))

    def _deal(
        self,
        table: pl.DataFrame,
        there: Flags,
        counts: npt.NDArray[np.int32] | None,
        first_row: int,
    ) -> None:
        """Number the items of these rows, and put the rows aside.

        Args:
            table: the rows.
            there: which of them have an item.
            counts: None if each is one observation.
            first_row: the number of the first.
        """
        users = self._users.of(table["user"], lambda: self._place(first_row, "user"))
        if there.all():
            numbers = self._numbered(table["item"], first_row)
        else:
            numbers = np.full(table.height, -1, dtype=np.int32)
            numbers[there] = self._numbered(table["item"].filter(there), first_row)
        if len(self._totals) < self._numbering.length:
            room = max(self._numbering.length, 2 * len(self._totals))
            self._totals = np.concatenate([self._totals, np.zeros(room - len(self._totals), dtype=np.int64)])
        _add_to(self._totals, numbers, counts)
        self._waiting.append((first_row, users, numbers, counts))
        if sum(len(waiting) for _, waiting, _, _ in self._waiting) >= self._memory.batch_rows:
            self._deal_waiting()

    def _deal_waiting(self) -> None:
        """Deal the rows that wait together: many small files are no more batches than a large one."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        first_rows, users, numbers, counts = zip(*waiting, strict=True)
        whole = None
        if any(one is not None for one in counts):
            # Some files may have counts and others none.
            whole = np.concatenate(
                [
                    np.ones(len(keys), dtype=np.int32) if one is None else one
                    for keys, one in zip(users, counts, strict=True)
                ]
            )
        # In another thread, while the next rows are read and numbered; no more than one batch waits for it.
        if len(self._batches) > 1:
            self._batches[-2].result()
        keys, items = np.concatenate(users), np.concatenate(numbers)
        batch = self._dealing.submit(dealt, keys, items, whole, first_row=first_rows[0], spool=self._spool)
        self._batches.append(batch)

    def _numbered(self, items: pl.Series, first_row: int) -> npt.NDArray[np.int32]:
        numbers, first = self._numbering.of(self._items.of(items, lambda: self._place(first_row, "item")))
        if len(first):
            names = _plain(items.gather(first))
            if self._numbering.length == len(first) and not names.dtype.is_integer():
                self._names = TextNames(room=self._memory.names)
            self._names.append(names)
        return numbers

    def _partitions(self, chosen: Chosen, spool: Spool) -> list[Partition]:
        """All rows, added up by user and item, and put aside."""
        # Its last place is for rows without an item, whose number is -1.
        ranks = np.append(chosen.ranks, np.int32(-1))
        in_order = np.array_equal(chosen.numbers, np.arange(len(chosen.numbers)))
        item_bits = max(len(chosen.labels) - 1, 1).bit_length()
        self._deal_waiting()
        batches, self._batches = [batch.result() for batch in self._batches], []
        self._dealing.shutdown()
        bits = min((self.rows // _PARTITION_ROWS).bit_length(), DEALT_BITS)

        def group(partition: int) -> Partition:
            pieces = pieces_of(batches, partition, ranks, bits=bits)
            users = added_up(pieces, bits=bits, item_bits=item_bits)
            if not in_order:
                users = replace(users, items=chosen.numbers[users.items])
            too_much = users.keys[np.searchsorted(users.first_rows, users.too_many)]
            rows_of_these = rows_with_items(batches, partition, too_much, bits=bits) if len(too_much) else 0
            return put_aside(users, rows=self.rows, rows_of_these=rows_of_these, spool=spool)

        done = list(self._each("group", group, range(1 << bits if batches else 0)))
        self._refuse_totals(done)
        return done

    def _refuse_totals(self, partitions: list[Partition]) -> None:
        over = [int(part.too_many[0]) for part in partitions if len(part.too_many)]
        if self.lenient:
            self.left_out += sum(part.rows_of_these for part in partitions)
        elif over:
            raise InvalidPopulation(
                f"the counts of the user in {self._place(min(over), 'user')} add up to too much",
                allowed=f"a total of at most {MAX_USER_TOTAL:,} for each user",
                advice="count in larger units",
            )

    def _each(self, name: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> Iterator[Any]:
        """Work on parts in threads, in order; numpy lets go of the interpreter's lock where the time goes."""
        with ThreadPoolExecutor(self._memory.workers) as threads:
            for done, result in enumerate(threads.map(work, parts), 1):
                self._tell(name, done, len(parts))
                yield result

    def place_of_next(self, where: Where) -> Where:
        """Names a row of the next batch of a file by its index in the batch; `where` by its index in the file."""
        is_same = bool(self._places) and self._places[-1][1] is where
        before = self.rows - self._places[-1][0] if is_same else 0
        return lambda row, role: where(before + row, role)

    def _place(self, row: int, role: str) -> str:
        """The words for a row of all that were added."""
        first, where = next((first, where) for first, where in reversed(self._places) if first <= row)
        return where(row - first, role)


class _Keys:
    """Keys of 64 bits for the values of a column, the same for the same value in every batch.

    Args:
        role: user or item.
    """

    def __init__(self, role: str) -> None:
        drawn = SystemSource().words(2)
        self._factor = drawn[0] | np.uint64(1)
        self._seed = int(drawn[1] >> np.uint64(1))
        self._role = role
        self._kind: str | None = None

    def of(self, column: pl.Series, place: Callable[[], str]) -> Words:
        """The keys, well mixed in their first bits.

        Args:
            column: the values.
            place: the words for its first row, for errors.
        """
        import polars as pl

        if len(column) == 0:
            return np.empty(0, dtype=np.uint64)
        kind = column.dtype
        self.expect(kind, place)
        if isinstance(kind, pl.Categorical | pl.Enum):
            column = column.to_physical()
        if not column.dtype.is_integer() or "128" in str(kind):
            return np.asarray(column.hash(self._seed).to_numpy(), dtype=np.uint64)
        values = column.to_numpy().astype(np.uint64 if kind == pl.UInt64 else np.int64, copy=False)
        # An odd factor loses nothing.
        keys: Words = values.view(np.uint64) * self._factor
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
            )


def _plain(labels: pl.Series) -> pl.Series:
    """Names of categories as text; integers of one width; other labels as they are."""
    import polars as pl

    if isinstance(labels.dtype, pl.Categorical | pl.Enum):
        return labels.cast(pl.String)
    if labels.dtype.is_integer() and labels.dtype != pl.UInt64 and "128" not in str(labels.dtype):
        return labels.cast(pl.Int64)
    return labels


def _add_to(totals: Integers, numbers: npt.NDArray[np.int32], counts: npt.NDArray[np.int32] | None) -> None:
    """Add counts, or one for each, to the totals of these items; -1 is none."""
    if counts is None and (len(numbers) == 0 or numbers.min() >= 0) and len(totals) <= len(numbers):
        totals += np.bincount(numbers, minlength=len(totals))
        return
    kept = numbers >= 0
    np.add.at(totals, numbers[kept].astype(np.intp), 1 if counts is None else counts[kept].astype(np.int64))
