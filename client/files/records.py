"""Populations from files and data frames: sparse matrices of scipy, and tables of user, item and count.

| file | what it holds | item labels |
|---|---|---|
| .npz | a matrix of users by items, from `scipy.sparse.save_npz` | none: columns keep their numbers |
| .npz of `fedhist paper sentiment140` | the same with labels (`matrix_files`) | as imported |
| .csv, .tsv, also with .gz | columns user, item and maybe count; UTF-8 | text, as written: 007 stays 007 |
| .jsonl, .jsonl.gz | a JSON object a line with keys user, item and maybe count | text; numbers as written |
| .parquet | the same columns | integers as stored; strings, categories, truth values and dates as text |
| a data frame (`frames`) | the same columns | the same |
| a folder or a pattern | tables of these kinds (`data_files`), one after the other | as in each |

The columns may have other names, and numbers may be counted in bins (`columns`). One row is one observation, or as many
as its count says. Tables are read in batches, and what they come to need not fit in memory (`tabulation`). A .npz is
read whole, and refused when it would unpack to more than a limit (`memory`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedhist.client.files.columns import USUAL_COLUMNS, Columns, Where
from fedhist.client.files.data_files import (
    MATRIX,
    PARQUET,
    check_content,
    data_files,
    expected_rows,
    suffix_of,
)
from fedhist.client.files.item_choice import ItemChoice
from fedhist.client.files.matrix_files import has_labels, read_matrix
from fedhist.client.files.memory import Memory, memory_limit
from fedhist.client.files.parquet_tables import checked_groups, parquet_batches
from fedhist.client.files.row_values import binned, with_inside
from fedhist.client.files.spool import free_space, temporary_folder
from fedhist.client.files.tabulation import Tables, Tabulation
from fedhist.client.files.text_tables import json_batches, text_batches
from fedhist.client.populations import Label, SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import names_of
from fedhist.protocol.labels.intervals import bin_labels
from fedhist.protocol.labels.item_origin import ItemOrigin
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource

if TYPE_CHECKING:
    import polars as pl

# A row with its key, item and count, and a user with one item.
_BYTES_A_ROW = 32


class Following(Protocol):
    """Follows the reading of a table."""

    def reading(self, stage: str, done: int, total: int) -> None:
        """A pass goes on: `read` or `group`, as done of total."""

    def say(self, text: str) -> None:
        """Something to tell the user at once."""


class _Nobody:
    def reading(self, stage: str, done: int, total: int) -> None:
        pass

    def say(self, text: str) -> None:
        pass


NOBODY: Following = _Nobody()


def read_population(
    path: Path,
    *,
    columns: Columns = USUAL_COLUMNS,
    top_items: int | None = None,
    items: Sequence[Label] | None = None,
    memory: str | int | None = None,
    seed: int | None = None,
) -> SparsePopulation:
    """The population in a file, or in the tables of a folder or pattern.

    Args:
        path: a .npz, .csv, .csv.gz, .tsv, .tsv.gz, .jsonl, .jsonl.gz or .parquet file; or a folder of tables, or a
            pattern such as `visits/*.parquet`, read in the order of their names.
        columns: the names of the columns of a table, and the bins for its values.
        top_items: keep this many of the most frequent items, numbered by falling total. It looks at the data,
            so the choice itself is not private: for simulations.
        items: the public list of the closed domain. Exactly these items are kept, in this order; one that the
            file does not have is there and empty. Labels are compared as text. The columns of a .npz
            without labels are called by their numbers, from 0.
        memory: the bytes that reading a table may use, as a number or a text such as 1GB; half of what is available
            without it. What does not fit goes to a temporary file, and the population stays there.
        seed: gives the users of a table the same order whenever it is read. Without it they have a new one each time.

    Users whose items are all left out stay, as empty users. `dropped_items` and `dropped_count` of the result
    say how much was left out, and `item_origin` whether the list of items was inferred from the data.
    """
    choice, rng = ItemChoice(top_items, items), order_of_users(seed)
    return population_in(Path(path), choice, columns=columns, memory=memory, follow=NOBODY, rng=rng)


def order_of_users(seed: int | None) -> Source:
    """Where the keys of users come from, in whose order they are."""
    return SystemSource() if seed is None else SeededSource(seed).fork("order of users")


def population_in(
    path: Path,
    choice: ItemChoice,
    *,
    columns: Columns,
    memory: str | int | None,
    follow: Following,
    rng: Source,
) -> SparsePopulation:
    """The same for a choice of items of any kind; `follow` hears how it goes."""
    check_bins(columns, choice)
    tabulation = read_tables(path, columns, memory_limit(memory), rng=rng, follow=follow)
    if tabulation is None:
        return over_items(read_matrix(path), choice)
    return populated(tabulation, columns, choice)


def read_tables(
    path: Path,
    columns: Columns,
    limit: Memory,
    *,
    rng: Source,
    follow: Following = NOBODY,
    lenient: bool = False,
) -> Tabulation | None:
    """All rows of the tables that a path stands for; None for a matrix."""
    tables = [
        _Table(file, suffix_of(file, columns.separator), columns, limit, tell=not lenient)
        for file in data_files(path)
    ]
    rows = sum(table.checked() for table in tables)
    if tables[0].suffix == MATRIX:
        return None
    _check_space(rows, limit, follow)
    return tabulated(
        lambda: chain.from_iterable(table.rows() for table in tables),
        columns, limit, rng=rng, follow=follow, expected=rows, lenient=lenient,
    )  # fmt: skip


def read_frame(
    frame: Any,
    *,
    columns: Columns = USUAL_COLUMNS,
    top_items: int | None = None,
    items: Sequence[Label] | None = None,
    memory: str | int | None = None,
    seed: int | None = None,
) -> SparsePopulation:
    """The population in a data frame of pandas, polars, pyarrow or anything that narwhals reads.

    The arguments are those of `read_population`, and so is the result for a file with the same rows.
    """
    choice, rng = ItemChoice(top_items, items), order_of_users(seed)
    return population_of(frame, choice, columns=columns, memory=memory, follow=NOBODY, rng=rng)


def population_of(
    frame: Any,
    choice: ItemChoice,
    *,
    columns: Columns,
    memory: str | int | None,
    follow: Following,
    rng: Source,
) -> SparsePopulation:
    """The same for a choice of items of any kind; `follow` hears how it goes."""
    check_bins(columns, choice)
    return populated(read_rows(frame, columns, memory_limit(memory), rng=rng, follow=follow), columns, choice)


def read_rows(
    frame: Any,
    columns: Columns,
    limit: Memory,
    *,
    rng: Source,
    follow: Following = NOBODY,
    lenient: bool = False,
) -> Tabulation:
    """All rows of a data frame."""
    from fedhist.client.files.frames import frame_row, frame_table

    check_not_text(columns, "a data frame")
    table = frame_table(frame, columns, lenient=lenient)
    starts = range(0, table.height, limit.batch_rows)
    return tabulated(
        lambda: (
            (table.slice(start, limit.batch_rows), partial(frame_row, columns, start)) for start in starts
        ),
        columns, limit, rng=rng, follow=follow, expected=table.height, lenient=lenient,
    )  # fmt: skip


def over_items(population: SparsePopulation, choice: ItemChoice) -> SparsePopulation:
    """A population in memory over the chosen items."""
    if not choice.given:
        return population
    if population.labels is None:
        if choice.rename is not None:
            raise InvalidInput("--normalise needs items with names", allowed="data with names as text")
        # A list of names for a file without names is a mistake that would otherwise drop everything.
        if choice.listed is not None and not all(
            label.isascii() and label.isdigit() for label in map(str, choice.listed)
        ):
            raise InvalidInput(
                "the list of items has names, but the items of this data have only numbers",
                allowed="column numbers from 0",
                advice="pass the numbers of the columns",
                code="numbered-items",
            )
    # Equal totals by their number.
    chosen = choice.of(
        names_of(population), population.totals(), lambda totals: np.argsort(-totals, kind="stable")
    )
    return population.over(chosen)


def item_origin(path: Path, *, top_items: int | None = None) -> ItemOrigin:
    """What decides the items of a file when no list is given, without reading the file in full."""
    if top_items is not None:
        return ItemOrigin.TOP
    first = data_files(path)[0]
    named = first.suffix.lower() != MATRIX or has_labels(first)
    return ItemOrigin.DATA if named else ItemOrigin.PUBLIC


@dataclass(frozen=True)
class _Table:
    """A file with a table. Errors name the line that was refused if they may `tell`."""

    path: Path
    suffix: str
    columns: Columns
    memory: Memory
    tell: bool = True

    def checked(self) -> int:
        """About how many rows it has; refuses what can be seen before it is read."""
        if self.suffix == MATRIX and self.columns.given:
            raise InvalidInput(
                f"{self.path} is a matrix, whose columns are the items, and {self.columns.in_words()} was given",
                allowed="names of columns, a separator and bins for tables: .csv, .tsv, .jsonl and .parquet",
                advice="leave them out",
                code="columns-of-a-matrix",
            )
        if not self.suffix.startswith((".csv", ".tsv")):
            check_not_text(self.columns, str(self.path))
        check_content(self.path, self.suffix)
        if self.suffix == PARQUET:
            return sum(group.rows for group in checked_groups(self.path, self.columns, self.memory))
        return expected_rows(self.path, self.suffix)

    def rows(self) -> Iterator[tuple[pl.DataFrame, Where]]:
        """Its rows, with columns user, item and maybe count, and how they are named in errors."""
        if self.suffix == PARQUET:
            return parquet_batches(self.path, self.columns, memory=self.memory)
        if self.suffix.startswith(".jsonl"):
            return json_batches(self.path, self.columns, tell=self.tell, memory=self.memory)
        separator = self.columns.separator or ("\t" if self.suffix.startswith(".tsv") else ",")
        return text_batches(self.path, self.columns, separator=separator, tell=self.tell, memory=self.memory)


def tabulated(
    tables: Tables,
    columns: Columns,
    memory: Memory,
    *,
    rng: Source,
    follow: Following = NOBODY,
    expected: int = 0,
    lenient: bool = False,
) -> Tabulation:
    """All rows that are read. `expected` is about how many there are."""
    tabulation = Tabulation(memory=memory, rng=rng, lenient=lenient, tell=follow.reading, again=tables)
    for read, where in tables():
        table = read
        if isinstance(columns.window, Window):
            table = with_inside(table, columns.window, columns, where, lenient=lenient)
        if columns.bins is not None:
            table = binned(table, columns.bins, where, lenient=lenient)
        tabulation.add(table, where)
        follow.reading("read", tabulation.rows, max(expected, tabulation.rows))
    return tabulation


def populated(tabulation: Tabulation, columns: Columns, choice: ItemChoice) -> SparsePopulation:
    """The population of all rows, over the chosen items or the bins."""
    if columns.bins is None:
        return tabulation.population(choice)
    labels = bin_labels(columns.bins)
    return tabulation.population(ItemChoice(listed=range(len(labels))), labels=labels)


def _check_space(rows: int, memory: Memory, follow: Following) -> None:
    """Say how much temporary space the rows may take, and refuse them where there is less."""
    needed = rows * _BYTES_A_ROW
    if needed <= memory.room:
        return
    free, folder = free_space(), temporary_folder()
    if needed > free:
        raise InvalidInput(
            f"about {rows:,} rows may take {_size(needed)} of temporary space, and {folder} has {_size(free)} free",
            allowed="rows that fit in memory or in the temporary folder",
            advice="make room, name another folder in TMPDIR, or give more --memory",
        )
    follow.say(
        f"about {rows:,} rows: up to {_size(needed)} of temporary space in {folder}, which has {_size(free)} free; "
        "more --memory needs less"
    )


def _size(length: int) -> str:
    return f"{length / 1e9:,.1f} GB" if length >= 1e9 else f"{length / 1e6:,.1f} MB"


def check_not_text(columns: Columns, data: str) -> None:
    """Refuse what only text files have: a separator, and no line of names."""
    for name, given in (
        ("a separator", columns.separator is not None),
        ("columns by number", columns.numbered),
    ):
        if given:
            raise InvalidInput(
                f"{name} for {data}",
                allowed=f"{name} for .csv, .tsv and other text files",
                advice="leave it out",
                code="option-of-text-files",
            )


def check_bins(columns: Columns, choice: ItemChoice) -> None:
    """Refuse bins beside another choice of items."""
    if columns.bins is not None and choice.given:
        raise InvalidInput(
            "bins together with another choice of items",
            allowed="bins alone",
            advice="the bins are the list of items, so leave the other out",
            code="bins-with-other-items",
        )
