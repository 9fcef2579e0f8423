"""A population in memory: compressed sparse rows, checked when they come in, read as views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedhist.client.files.items import Chosen
from fedhist.display.tables import html_table
from fedhist.protocol.errors import InvalidInput, InvalidPopulation
from fedhist.protocol.histograms import Histograms, Integers, Population
from fedhist.protocol.item_lists import ItemOrigin
from fedhist.protocol.validation import checked, user_blocks, whole_counts, without_repeats

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix

Label = str | int

# About 2,000 users with 75 items each: temporaries of clipping and statistics stay in a core's cache.
SHARD_NONZEROS = 150_000
# Statistics hold a few numbers for each user, so users without items are not free either.
SHARD_USERS = 65_536


@dataclass(frozen=True, eq=False, repr=False)
class SparsePopulation:
    """All users in memory. Made by `from_scipy`, `from_arrays` or `read_population`, which check the data.

    Args:
        histograms: checked histograms of all users.
        labels: what each item is called, in the order of the item numbers; None when items have only numbers.
        dropped_items: the number of items that were left out to make this population (by a public list, or by rank).
        dropped_count: the sum of all users' counts of those items.
        item_origin: what decided which items there are. A file with names says that its data did; labels that you pass
            yourself count as public.
    """

    histograms: Histograms
    labels: Sequence[Label] | None = None
    dropped_items: int = 0
    dropped_count: int = 0
    item_origin: ItemOrigin = ItemOrigin.PUBLIC

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != self.domain_size:
            raise InvalidPopulation(
                f"there are {len(self.labels):,} labels for {self.domain_size:,} items",
                allowed="one label for each item",
                advice="pass the labels in the order of the columns",
                code="wrong-number-of-labels",
            )

    def __repr__(self) -> str:
        return (
            f"SparsePopulation(users={self.users}, domain_size={self.domain_size}, nonzeros={self.nonzeros})"
        )

    def _repr_html_(self) -> str:
        """How a notebook shows it: sizes, and where the items come from."""
        listed = {
            ItemOrigin.PUBLIC: "a public list or numbers",
            ItemOrigin.SYNTHETIC: "synthetic",
            ItemOrigin.DATA: "inferred from the data, so over a closed domain a release is not private",
            ItemOrigin.TOP: "the most frequent ones, inferred from the data, so a release is not private",
        }
        rows: list[tuple[str, object]] = [
            ("users", f"{self.users:,}"),
            ("items", f"{self.domain_size:,}{'' if self.labels is None else ', with names'}"),
            ("pairs of a user and an item", f"{self.nonzeros:,}"),
            ("list of items", listed[self.item_origin]),
        ]
        if self.dropped_items:
            left_out = f"{self.dropped_items:,} items with {self.dropped_count:,} counts"
            rows.append(("left out", left_out))
        return html_table("Population", rows)

    @classmethod
    def from_arrays(
        cls,
        offsets: npt.ArrayLike,
        items: npt.ArrayLike,
        counts: npt.ArrayLike,
        *,
        domain_size: int,
        labels: Sequence[Label] | None = None,
        item_origin: ItemOrigin = ItemOrigin.PUBLIC,
    ) -> SparsePopulation:
        """A population from the three arrays of compressed sparse rows. See `checked` for what is allowed."""
        histograms = checked(offsets, items, counts, domain_size=domain_size)
        return cls(histograms, labels=_distinct(labels), item_origin=item_origin)

    @classmethod
    def from_scipy(
        cls, matrix: sparray | spmatrix, *, labels: Sequence[Label] | None = None
    ) -> SparsePopulation:
        """A population from a scipy sparse matrix or array of any format: rows are users, columns are items.

        Compressed sparse rows are used in place when their types fit (int32); other formats are converted.
        """
        offsets, items, counts, domain_size = _rows_of(matrix)
        return cls.from_arrays(offsets, items, counts, domain_size=domain_size, labels=labels)

    @property
    def users(self) -> int:
        """The number of users."""
        return self.histograms.users

    @property
    def domain_size(self) -> int:
        """The number of items in the domain."""
        return self.histograms.domain_size

    @property
    def nonzeros(self) -> int:
        """The number of (user, item) pairs that are stored."""
        return self.histograms.nonzeros

    def shards(self) -> Iterator[Histograms]:
        """The users in order, as views of at most SHARD_NONZEROS entries and SHARD_USERS users.

        A user with more entries than that is a shard alone.
        """
        blocks = user_blocks(self.histograms.offsets, nonzeros=SHARD_NONZEROS, users=SHARD_USERS)
        return (self.histograms.rows(start, stop) for start, stop in blocks)

    def part(self, start: int, stop: int) -> SparsePopulation:
        """Users start..stop of these, by place, under their own numbers; a view."""
        return replace(self, histograms=self.histograms.rows(start, stop))

    def totals(self) -> Integers:
        """The true histogram: how often all users together have each item. Exact."""
        return item_totals(self)

    def keep_top_items(self, d: int) -> SparsePopulation:
        """The population over its `d` most frequent items, or over all of them when it has no more than `d`.

        Frequent means a large total over all users. Items are renumbered by falling total, equal totals by
        their old number. Every user stays, if need be as an empty one: the number of users does not change.
        """
        if d < 1:
            raise InvalidInput(
                f"the number of items to keep is {d}",
                allowed="1 or more",
                advice="keep at least one item",
                code="bad-top-items",
            )
        kept = np.argsort(-self.totals(), kind="stable")[:d]
        top = self.select_items(kept, labels=kept.tolist() if self.labels is None else None)
        return replace(top, item_origin=ItemOrigin.TOP)

    def select_items(
        self, numbers: npt.ArrayLike, *, labels: Sequence[Label] | None = None
    ) -> SparsePopulation:
        """The population over these items alone, renumbered in this order. Every user stays.

        Args:
            numbers: old item numbers without repeats; -1 stands for an item that nobody has.
            labels: what the items are called from now on; the old labels when left out. Such a list counts as public,
                unless the items had been chosen by their totals before.
        """
        listed = labels is not None and self.item_origin is not ItemOrigin.TOP
        origin = ItemOrigin.PUBLIC if listed else self.item_origin
        chosen = np.asarray(numbers, dtype=np.int64)
        present = chosen >= 0
        self._check_selection(chosen, chosen[present], named=labels is not None or self.labels is None)
        new_number = np.full(self.domain_size, -1, dtype=np.int32)
        new_number[chosen[present]] = np.flatnonzero(present)
        if labels is None and self.labels is not None:
            labels = [self.labels[number] for number in chosen]
        totals = self.totals()
        return SparsePopulation(
            _renumbered(self, new_number, domain_size=len(chosen)),
            labels=_distinct(labels),
            dropped_items=self.dropped_items + self.domain_size - int(present.sum()),
            dropped_count=self.dropped_count + int(totals.sum()) - int(totals[chosen[present]].sum()),
            item_origin=origin,
        )

    def over(self, chosen: Chosen) -> SparsePopulation:
        """The population over chosen items, under their new numbers; those of one number are added up."""
        top = self.item_origin is ItemOrigin.TOP
        kept = chosen.ranks[chosen.ranks >= 0]
        histograms = _renumbered(self, chosen.ranks, domain_size=len(chosen.labels))
        if len(np.unique(kept)) < len(kept):
            histograms = without_repeats(histograms)
        return SparsePopulation(
            replace(histograms, items=chosen.numbers[histograms.items]),
            labels=_distinct(chosen.labels),
            dropped_items=self.dropped_items + chosen.dropped_items,
            dropped_count=self.dropped_count + chosen.dropped_count,
            item_origin=ItemOrigin.TOP if top else chosen.origin,
        )

    def _check_selection(self, chosen: Integers, present: Integers, *, named: bool) -> None:
        allowed = f"one or more item numbers below {self.domain_size:,}, each once, or -1"
        if chosen.ndim != 1 or chosen.size == 0:
            raise InvalidInput("no items were chosen", allowed=allowed, advice="choose at least one item")
        if chosen.min() < -1 or chosen.max() >= self.domain_size:
            raise InvalidInput("a chosen item is outside the domain", allowed=allowed)
        if np.bincount(present, minlength=1).max() > 1:
            raise InvalidInput("an item was chosen twice", allowed=allowed, advice="choose each item once")
        if len(present) < len(chosen) and not named:
            raise InvalidInput(
                "an item that nobody has would have no label",
                allowed="labels for the chosen items",
                code="item-without-label",
            )


def item_totals(population: Population) -> Integers:
    """How often all users of a population together have each item, exactly, in one pass over its shards."""
    totals = np.zeros(population.domain_size, dtype=np.int64)
    for shard in population.shards():
        add_items(totals, shard)
    return totals


def add_items(totals: Integers, shard: Histograms) -> None:
    """Add what these users have of each item to `totals`."""
    entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
    # Both casts take numpy's fast path for add.at, which is ten times the general one.
    np.add.at(totals, shard.items[entries].astype(np.intp), shard.counts[entries].astype(np.int64))


def _renumbered(
    population: SparsePopulation, new_number: npt.NDArray[np.int32], *, domain_size: int
) -> Histograms:
    """The same users over the items whose new number is not negative."""
    old = population.histograms
    offsets = np.zeros(old.users + 1, dtype=np.int64)
    # Pages that are never filled are never given out, so the upper bound on the length costs nothing.
    items = np.empty(old.nonzeros, dtype=np.int32)
    counts = np.empty(old.nonzeros, dtype=np.int32)
    filled = 0
    for shard in population.shards():
        entries = slice(int(shard.offsets[0]), int(shard.offsets[-1]))
        numbers = new_number[shard.items[entries]]
        kept = np.flatnonzero(numbers >= 0)
        end = filled + len(kept)
        items[filled:end] = numbers[kept]
        counts[filled:end] = shard.counts[entries][kept]
        first = shard.first_user - old.first_user
        kept_before = np.searchsorted(kept, shard.offsets[1:] - shard.offsets[0])
        offsets[first + 1 : first + shard.users + 1] = filled + kept_before
        filled = end
    return Histograms(
        offsets=offsets,
        items=items[:filled],
        counts=counts[:filled],
        domain_size=domain_size,
        first_user=old.first_user,
    )


def _rows_of(matrix: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int]:
    """The offsets, items and counts of a sparse matrix, and the number of its columns."""
    from scipy.sparse import coo_array, issparse

    sparse: bool = issparse(matrix)
    if not sparse or matrix.ndim != 2:
        what = f"a sparse array with {matrix.ndim} dimension(s)" if sparse else f"a {type(matrix).__name__}"
        raise InvalidPopulation(
            f"the population is {what}",
            allowed="a scipy sparse matrix of users by items",
            advice="make rows of the users and columns of the items",
            code="not-a-matrix",
        )
    domain_size = int(matrix.shape[1])
    if matrix.format == "csr":
        return matrix.indptr, matrix.indices, matrix.data, domain_size
    with _refusing_contradictions(matrix.format):
        if matrix.format in ("csc", "bsr"):
            # Conversion follows the stored indices unseen: one out of range would touch foreign memory.
            # scipy's own check trusts the last offset, and looks at nothing when that one is 0.
            if (np.diff(matrix.indptr) < 0).any():
                raise ValueError("offsets fall")
            matrix.check_format(full_check=True)
        entries = matrix.tocoo()
    # Conversion to rows sums repeats, so each is checked before.
    rows, columns = entries.row, entries.col
    counts = whole_counts(
        entries.data, lambda entry: f"row {rows[entry]}, column {columns[entry]} (counted from 0)"
    )
    with _refusing_contradictions("coo"):
        compressed = coo_array((counts.astype(np.int64), (rows, columns)), shape=entries.shape).tocsr()
    return compressed.indptr, compressed.indices, compressed.data, domain_size


@contextmanager
def _refusing_contradictions(sparse_format: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError):
        raise InvalidPopulation(
            f"the {sparse_format} matrix contradicts itself or does not fit in memory",
            allowed="a consistent scipy sparse matrix of integers",
            advice="build the matrix again from the source",
        ) from None


def _distinct(labels: Sequence[Label] | None) -> tuple[Label, ...] | None:
    if labels is None:
        return None
    if len(set(labels)) < len(labels):
        raise InvalidPopulation(
            "two items have the same label",
            allowed="a different label for each item",
            advice="rename one of them",
            code="repeated-item",
        )
    return tuple(labels)
