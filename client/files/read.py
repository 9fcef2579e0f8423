"""Populations from files, databases and data frames: sparse matrices, and tables of user, item and count.

| what | what it holds | item labels |
|---|---|---|
| .npz | a matrix of users by items, from `scipy.sparse.save_npz` | none: columns keep their numbers |
| .npz of `fedhist paper sentiment140` | the same with labels (`matrix_files`) | as imported |
| .csv, .tsv, also with .gz | columns user, item and maybe count; UTF-8 | text, as written: 007 stays 007 |
| .jsonl, .jsonl.gz | a JSON object a line with keys user, item and maybe count | text; numbers as written |
| .parquet | the same columns | integers as stored; strings, categories, truth values and dates as text |
| a data frame (`frames`) | the same columns | the same |
| a query (`database`) | the same columns | text |
| a folder or a pattern | tables of these kinds (`data_files`), one after the other | as in each |

The columns may have other names, and numbers may be counted in bins (`columns`). One row is one observation, or as many
as its count says. Tables are read in batches, and what they come to need not fit in memory (`count`). A .npz is
read whole, and refused when it would unpack to more than a limit (`memory`).

On a node one user's odd row must not decide whether the node's other users are in a sum. So rows without a user, an
item or a whole count are left out there, and so are those of a user whose counts add up to too much. A user whose rows
are all left out stays, as an empty one: how many users there are must not tell what one of them has. A table without
rows is a node without users.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from fedhist.client.files.columns import USUAL_COLUMNS, Columns, Where, binned, with_inside, with_named_truths
from fedhist.client.files.count import Tables, Tabulation
from fedhist.client.files.data_files import MATRIX, PARQUET, check_content, data_files, suffix_of
from fedhist.client.files.database import Database
from fedhist.client.files.frames import frame_row, frame_table
from fedhist.client.files.items import ALL_ITEMS, ItemChoice
from fedhist.client.files.matrix_files import has_labels, read_matrix
from fedhist.client.files.memory import Memory, memory_limit
from fedhist.client.files.parquet_tables import checked_groups, parquet_batches
from fedhist.client.files.spool import free_space, temporary_folder
from fedhist.client.files.text_tables import expected_rows, json_batches, text_batches
from fedhist.client.populations import Label, SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import MAX_USER_TOTAL, Population, labels_of, names_of
from fedhist.protocol.item_lists import ItemOrigin, bin_labels, origin_of
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource

if TYPE_CHECKING:
    import polars as pl

# A row with its key, item and count, and a user with one item.
_BYTES_A_ROW = 32

log = logging.getLogger("fedhist")


def is_path(data: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether it names a file, a folder or a pattern."""
    return isinstance(data, str | os.PathLike)


def is_matrix(data: object) -> bool:
    """Whether it is a sparse matrix of scipy."""
    # What made a matrix has imported scipy's module. Nobody else waits for it.
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(data))


def is_population(data: object) -> TypeGuard[Population]:
    """Whether it has users and shards of its own."""
    return all(hasattr(data, name) for name in ("users", "domain_size", "shards"))


class Following(Protocol):
    """Follows the reading of a table."""

    def reading(self, stage: str, done: int, total: int) -> None:
        """A pass goes on: `read` or `group`, as done of total."""

    def say(self, text: str) -> None:
        """Something to tell the user at once."""

    def left_out(self, rows: int) -> None:
        """The number of rows that were left out. For the owner of the table alone: it depends on the exact data."""


class _Nobody:
    def reading(self, stage: str, done: int, total: int) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def left_out(self, rows: int) -> None:
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

    Rows without a user, an item or a count are left out, and their number is logged; `Columns(strict=True)` refuses
    them. Users whose items are all left out stay, as empty users. `dropped_items` and `dropped_count` of the result
    say how much was left out, and `item_origin` whether the list of items was inferred from the data.
    """
    return _read_own(Path(path), ItemChoice(top_items, items), columns, memory, seed)


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
    return _read_own(frame, ItemChoice(top_items, items), columns, memory, seed)


def _read_own(
    data: Any, choice: ItemChoice, columns: Columns, memory: str | int | None, seed: int | None
) -> SparsePopulation:
    rng = order_of_users(seed)
    population, left_out = read_data(data, choice, columns=columns, memory=memory, rng=rng)
    if left_out:
        log.warning("%d rows without a user, an item or a count were left out", left_out)
    return population


def order_of_users(seed: int | None) -> Source:
    """Where the keys of users come from, in whose order they are."""
    return SystemSource() if seed is None else SeededSource(seed).fork("order of users")


def read_data(
    data: Any,
    choice: ItemChoice = ALL_ITEMS,
    *,
    columns: Columns,
    memory: str | int | None,
    rng: Source,
    follow: Following = NOBODY,
    lenient: bool = False,
) -> tuple[SparsePopulation, int]:
    """The population in a path, a database or a data frame, and how many rows were left out.

    Args:
        data: see the table above.
        choice: which items.
        columns: the names of the columns of a table, and the bins for its values.
        memory: as of `read_population`.
        rng: the order of users is drawn from it.
        follow: hears how it goes.
        lenient: leave out odd rows as nodes do, and name no line of a file.
    """
    check_bins(columns, choice)
    limit = memory_limit(memory)
    if is_path(data):
        files = [(file, suffix_of(file, columns.separator)) for file in data_files(Path(data))]
        expected = sum([_checked_rows(*file, columns, limit) for file in files])
        if files[0][1] == MATRIX:
            return over_items(
                read_matrix(files[0][0], memory=None if memory is None else limit.limit), choice
            ), 0
        _check_space(expected, limit, follow)
        tables: Tables = partial(_of_files, files, columns, limit, tell=not lenient)
    elif isinstance(data, Database):
        _check_not_text(columns, "a database")
        tables, expected = partial(data.batches, columns), 0
    else:
        _check_not_text(columns, "a data frame")
        table = frame_table(data, columns, lenient=lenient)
        tables, expected = partial(_of_frame, table, columns, limit.batch_rows), table.height
    strict = columns.strict and not lenient
    tabulation = Tabulation(
        memory=limit, rng=rng, strict=strict, lenient=lenient, tell=follow.reading, again=tables
    )
    for rows, where in tables():
        counted = with_named_truths(rows, choice.truths)
        if isinstance(columns.window, Window):
            counted = with_inside(counted, columns.window, columns, where, lenient=lenient)
        if columns.bins is not None:
            counted = binned(counted, columns.bins, where, lenient=lenient)
        tabulation.add(counted, where)
        follow.reading("read", tabulation.rows, max(expected, tabulation.rows))
    if columns.bins is None:
        return tabulation.population(choice), tabulation.left_out
    labels = bin_labels(columns.bins)
    binned_items = ItemChoice(listed=range(len(labels)))
    return tabulation.population(binned_items, labels=labels), tabulation.left_out


def _checked_rows(path: Path, suffix: str, columns: Columns, memory: Memory) -> int:
    """About how many rows a file has; refuses what can be seen before it is read."""
    if suffix == MATRIX and columns.given:
        raise InvalidInput(
            f"{path} is a matrix, whose columns are the items, and {columns.in_words()} was given",
            allowed="names of columns, a separator and bins for tables: .csv, .tsv, .jsonl and .parquet",
            advice="leave them out",
            code="columns-of-a-matrix",
        )
    if not suffix.startswith((".csv", ".tsv")):
        _check_not_text(columns, str(path))
    check_content(path, suffix)
    if suffix == PARQUET:
        return sum(group.rows for group in checked_groups(path, columns, memory))
    return expected_rows(path)


def _of_files(
    files: Sequence[tuple[Path, str]], columns: Columns, memory: Memory, *, tell: bool
) -> Iterator[tuple[pl.DataFrame, Where]]:
    """The rows of all files, with how they are named in errors."""
    for path, suffix in files:
        if suffix == PARQUET:
            yield from parquet_batches(path, columns, memory=memory)
        elif suffix.startswith(".jsonl"):
            yield from json_batches(path, columns, tell=tell, memory=memory)
        else:
            separator = columns.separator or ("\t" if suffix.startswith(".tsv") else ",")
            yield from text_batches(path, columns, separator=separator, tell=tell, memory=memory)


def _of_frame(table: pl.DataFrame, columns: Columns, rows: int) -> Iterator[tuple[pl.DataFrame, Where]]:
    for start in range(0, table.height, rows):
        yield table.slice(start, rows), partial(frame_row, columns, start)


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


def read_node_data(
    data: Any,
    *,
    columns: Columns = USUAL_COLUMNS,
    items: Sequence[Label] | None = None,
    rename: Callable[[str], str] | None = None,
    memory: str | int | None = None,
) -> tuple[Population, int]:
    """A node's users, and how many rows were left out.

    Args:
        data: a path as `read_population` takes it, a `Database`, a data frame or anything with an Arrow stream, a scipy
            matrix or a population.
        columns: the columns of a table, and the bins for its values. A population has none, and may come from elsewhere
            on some nodes.
        items: the public list of a closed domain; for a matrix, what its columns are called.
        rename: writes the names of items alike.
        memory: what reading may use, as of `read_population`.
    """
    choice = ItemChoice(listed=items, rename=rename)
    if is_population(data):
        return _of_items(data, choice), 0
    if not is_matrix(data):
        return read_data(data, choice, columns=columns, memory=memory, rng=SystemSource(), lenient=True)
    if columns.given:
        raise InvalidInput(
            f"{columns.in_words()} for a matrix, whose columns are the items",
            allowed="names of columns, a separator and bins for tables",
            advice="leave them out",
        )
    return SparsePopulation.from_scipy(data, labels=items), 0


def node_users(data: Any, **how: Any) -> Population:
    """The same, with a line in the node's log when rows were left out.

    Args:
        data: see `read_node_data`.
        how: its other arguments.
    """
    population, left_out = read_node_data(data, **how)
    if left_out:
        log.warning(
            "%d rows of %s were left out: a row needs a user, an item (with bins, a finite number), in the column "
            "of counts a whole number and, for a window, a time, and a user's counts may add up to at most %d.",
            left_out,
            data if is_path(data) else "the node's data",
            MAX_USER_TOTAL,
        )
    return population


def _of_items(population: Population, choice: ItemChoice) -> Population:
    """A population over a public list, if there is one and it is not of that list already.

    A population with a public list of its own, from `items-path` or bins, is not counted over another: what stands in
    one list alone would be left out without a word.
    """
    labels = labels_of(population)
    if choice.listed is None or (labels is not None and list(labels) == list(choice.listed)):
        return population
    is_public = labels is not None and not origin_of(population).tells("closed")
    if is_public or not isinstance(population, SparsePopulation):
        raise InvalidInput(
            "the node's users come with a list of items, and the app has another or another order",
            allowed="one list, the same in both",
            advice="leave items-path or bins out of the node's configuration, or items= out of mount",
        )
    return over_items(population, choice)


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


def check_bins(columns: Columns, choice: ItemChoice) -> None:
    """Refuse bins beside another choice of items."""
    if columns.bins is not None and choice.given:
        raise InvalidInput(
            "bins together with another choice of items",
            allowed="bins alone",
            advice="the bins are the list of items, so leave the other out",
            code="bins-with-other-items",
        )


def _check_not_text(columns: Columns, data: str) -> None:
    """Refuse what only text files have: a separator, and no line of names."""
    if columns.separator is not None or columns.numbered:
        name = "columns by number" if columns.separator is None else "a separator"
        raise InvalidInput(
            f"{name} for {data}",
            allowed=f"{name} for .csv, .tsv and other text files",
            advice="leave it out",
            code="option-of-text-files",
        )
