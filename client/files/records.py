"""Populations from files and data frames: sparse matrices of scipy, and tables of user, item and count.

| file | what it holds | item labels |
|---|---|---|
| .npz | a matrix of users by items, from `scipy.sparse.save_npz` | none: columns keep their numbers |
| .npz of `fedhist data import` | the same with labels (`matrix_files`) | as imported |
| .csv, .tsv, also with .gz | columns user, item and maybe count; UTF-8 | text, as written: 007 stays 007 |
| .jsonl, .jsonl.gz | a JSON object a line with keys user, item and maybe count | text; numbers as written |
| .parquet | the same columns | integers as stored; strings, categories, truth values and dates as text |
| a data frame (`frames`) | the same columns | the same |

The columns may have other names, and numbers may be counted in bins (`columns`). One row is one observation, or as many
as its count says (`tabulation`). Packed files (.npz, .gz, .parquet) are refused when they would unpack to more than a
limit (`unpacked`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.client.files.bins import binned
from fedhist.client.files.columns import USUAL_COLUMNS, Columns, Where, bin_labels
from fedhist.client.files.matrix_files import has_labels, read_matrix
from fedhist.client.files.record_tables import json_table, parquet_table, text_table
from fedhist.client.files.tabulation import tabulated, usable_rows
from fedhist.client.files.text_lines import JsonPlaces, TextPlaces
from fedhist.client.files.unpacked import PACKED
from fedhist.client.populations import Label, SparsePopulation
from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.protocol.histograms import Histograms
from fedhist.protocol.labels.encodings import UTF_16_MARKS, not_utf8
from fedhist.protocol.labels.item_list import first_repeat
from fedhist.protocol.labels.item_origin import ItemOrigin

if TYPE_CHECKING:
    import polars as pl

_GZIP = b"\x1f\x8b"
_SUFFIXES = (".npz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".parquet")
_MAGIC = {".npz": b"PK", ".parquet": b"PAR1", ".csv.gz": _GZIP, ".tsv.gz": _GZIP, ".jsonl.gz": _GZIP}
_NOT_TEXT = (b"PK\x03\x04", b"PAR1", b"\x93NUMPY", *PACKED)
_LOOK_BYTES = 4096


def read_population(
    path: Path,
    *,
    columns: Columns = USUAL_COLUMNS,
    top_items: int | None = None,
    items: Sequence[Label] | None = None,
) -> SparsePopulation:
    """The population in a file.

    Args:
        path: a .npz, .csv, .csv.gz, .tsv, .tsv.gz, .jsonl, .jsonl.gz or .parquet file.
        columns: the names of the columns of a table, and the bins for its values.
        top_items: keep this many of the most frequent items, numbered by falling total. It looks at the data,
            so the choice itself is not private: for simulations.
        items: the public list of the closed domain. Exactly these items are kept, in this order; one that the
            file does not have is there and empty. Labels are compared as text. The columns of a .npz
            without labels are called by their numbers, from 0.

    Users whose items are all left out stay, as empty users. `dropped_items` and `dropped_count` of the result
    say how much was left out, and `item_origin` whether the list of items was read off the data.
    """
    wanted = _check_choice(top_items, items, columns)
    path = Path(path)
    suffix = _suffix(path)
    _check_columns(path, suffix, columns)
    _check_content(path, suffix)
    if suffix == ".npz":
        population = read_matrix(path)
    else:
        table = _table(path, suffix, columns)
        population = _populated(table, columns, _places(path, suffix, columns))
    return _over(population, wanted, labels=items, top_items=top_items)


def read_frame(
    frame: Any,
    *,
    columns: Columns = USUAL_COLUMNS,
    top_items: int | None = None,
    items: Sequence[Label] | None = None,
) -> SparsePopulation:
    """The population in a data frame of pandas, polars, pyarrow or anything that narwhals reads.

    The arguments are those of `read_population`, and so is the result for a file with the same rows.
    """
    from fedhist.client.files.frames import frame_row, frame_table

    wanted = _check_choice(top_items, items, columns)
    if columns.separator is not None:
        raise InvalidInput("a separator for a data frame", allowed="a separator for a text file")
    population = _populated(frame_table(frame, columns), columns, partial(frame_row, columns))
    return _over(population, wanted, labels=items, top_items=top_items)


def over_items(
    population: SparsePopulation, *, top_items: int | None = None, items: Sequence[Label] | None = None
) -> SparsePopulation:
    """A population in memory over its top items, or over a public list as `read_population` takes it."""
    wanted = _check_choice(top_items, items, USUAL_COLUMNS)
    return _over(population, wanted, labels=items, top_items=top_items)


def item_origin(path: Path, *, top_items: int | None = None) -> ItemOrigin:
    """What decides the items of a file when no list is given, without reading the file in full."""
    if top_items is not None:
        return ItemOrigin.TOP
    named = _suffix(path) != ".npz" or has_labels(path)
    return ItemOrigin.DATA if named else ItemOrigin.PUBLIC


def read_node_population(path: Path, *, items: Sequence[Label] | None = None) -> tuple[SparsePopulation, int]:
    """A node's users in a file as `read_population` reads it, and how many rows of a table were left out.

    One user's odd row must not decide whether the node's other users are in a sum. So rows without a user, an item or a
    whole count are left out, and so are those of a user whose counts add up to too much. A user whose rows are all left
    out stays, as an empty one: how many users there are must not tell what one of them has. A table without rows is a
    node without users.
    """
    path = Path(path)
    suffix = _suffix(path)
    if suffix == ".npz":
        return read_population(path, items=items), 0
    wanted = _check_choice(None, items, USUAL_COLUMNS)
    _check_content(path, suffix)
    table = _table(path, suffix, USUAL_COLUMNS, tell=False)
    usable = usable_rows(table)
    if usable.height == 0:
        nothing, labels = np.zeros(0, dtype=np.int32), list(items or ())
        rows = Histograms(np.zeros(1, dtype=np.int64), nothing, nothing, domain_size=len(labels))
        population = SparsePopulation(rows, labels=labels)
    else:
        population = _over(tabulated(usable), wanted, labels=items)
    users = table["user"].drop_nulls().n_unique()
    return _with_empty_users(population, users), table.height - usable.height


def _table(path: Path, suffix: str, columns: Columns, *, tell: bool = True) -> pl.DataFrame:
    """The table in a file. An error names the line that was refused if it may `tell`."""
    if suffix == ".parquet":
        return parquet_table(path, columns)
    if suffix.startswith(".jsonl"):
        return json_table(path, columns, tell=tell)
    return text_table(path, columns, separator=_separator(suffix, columns), tell=tell)


def _separator(suffix: str, columns: Columns) -> str:
    return columns.separator or ("\t" if suffix.startswith(".tsv") else ",")


def _places(path: Path, suffix: str, columns: Columns) -> Where:
    """How rows of the file are named in errors."""
    if suffix == ".parquet":
        return lambda row, role: f"row {row + 1:,}, column {columns.name_of(role)!r}, of {path}"
    if suffix.startswith(".jsonl"):
        return JsonPlaces(path, columns)
    return TextPlaces(path, columns, _separator(suffix, columns))


def _populated(table: pl.DataFrame, columns: Columns, where: Where) -> SparsePopulation:
    """The population of a table, over its own items or over all bins."""
    if columns.bins is None:
        return tabulated(table, where)
    population = tabulated(binned(table, columns.bins, where), where)
    labels = bin_labels(columns.bins)
    numbers = {place: number for number, place in enumerate(population.labels or ())}
    return population.select_items([numbers.get(place, -1) for place in range(len(labels))], labels=labels)


def _with_empty_users(population: SparsePopulation, users: int) -> SparsePopulation:
    """The population with empty users at its end, so that there are `users` in all."""
    rows = population.histograms
    offsets = np.pad(rows.offsets, (0, users - rows.users), mode="edge")
    return replace(population, histograms=replace(rows, offsets=offsets))


def _check_choice(top_items: int | None, items: Sequence[Label] | None, columns: Columns) -> list[str] | None:
    """The wanted items as text."""
    if columns.bins is not None and (top_items is not None or items is not None):
        raise InvalidInput(
            "bins together with another choice of items",
            allowed="bins alone",
            advice="the bins are the list of items, so leave the other out",
        )
    if top_items is not None and items is not None:
        raise InvalidInput(
            "both top_items and items were given", allowed="one of the two", advice="leave one out"
        )
    if top_items is not None and top_items < 1:
        raise InvalidInput(
            f"top_items is {top_items}", allowed="1 or more", advice="leave it out to keep all items"
        )
    if items is None:
        return None
    wanted = [str(label) for label in items]
    if isinstance(items, str) or not wanted:
        problem = "is empty" if not wanted else "is a single text"
        raise InvalidInput(f"the list of items {problem}", allowed="a list of one or more different labels")
    again = first_repeat(wanted)
    if again is not None:
        raise InvalidInput(
            f"item {again[1]:,} of the list of items repeats item {again[0]:,} (the first is item 0)",
            allowed="different labels, as text: 7 and '7' are the same item",
            advice="pass each item of the domain once",
        )
    return wanted


def _suffix(path: Path) -> str:
    name = path.name.lower()
    # The longest match, so that .csv.gz is not taken for .gz alone.
    matches = [suffix for suffix in _SUFFIXES if name.endswith(suffix)]
    if not matches:
        _check_is_file(path)
        raise InvalidFile(
            f"{path.name} has a suffix that is not known",
            allowed=", ".join(_SUFFIXES),
            advice="convert the file, with fedhist data import if it can, or correct its name",
        )
    return max(matches, key=len)


def _check_is_file(path: Path) -> None:
    if not path.is_file():
        problem = f"{path} is not a file" if path.exists() else f"there is no file {path}"
        raise InvalidFile(problem, allowed="a file that exists", advice="check the path")


def _check_columns(path: Path, suffix: str, columns: Columns) -> None:
    """Refuse names of columns and a separator for a file that has none."""
    if suffix == ".npz" and columns.given:
        raise InvalidInput(
            f"{path} is a matrix, whose columns are the items, and {columns.in_words()} was given",
            allowed="names of columns, a separator and bins for tables: .csv, .tsv, .jsonl and .parquet",
            advice="leave them out",
        )
    if columns.separator is not None and not suffix.startswith((".csv", ".tsv")):
        raise InvalidInput(
            f"{path} has no separator", allowed="a separator for .csv and .tsv files", advice="leave it out"
        )


def _check_content(path: Path, suffix: str) -> None:
    """Refuse what is not a readable file, and a file that begins like another kind than its name says."""
    try:
        _check_is_file(path)
        with path.open("rb") as file:
            beginning = file.read(_LOOK_BYTES)
    except OSError as error:
        raise InvalidFile(
            f"{path} can't be opened ({error.strerror})",
            allowed="a file you may read",
            advice="check its permissions",
        ) from None
    if not beginning:
        raise InvalidFile(f"{path} is empty", allowed="a file with a population", advice="write it again")
    magic = _MAGIC.get(suffix)
    is_text = not beginning.startswith(_NOT_TEXT) and b"\x00" not in beginning
    if beginning.startswith(magic) if magic else is_text:
        return
    if not magic and beginning[0] in UTF_16_MARKS:
        raise not_utf8(str(path), line=1, position=0, byte=beginning[0])
    raise InvalidFile(
        f"{path} does not hold what its suffix {suffix} says",
        allowed=f"a {suffix} file" + ("" if magic else " in UTF-8"),
        advice="correct the suffix or convert the file",
    )


def _over(
    population: SparsePopulation,
    wanted: list[str] | None,
    *,
    labels: Sequence[Label] | None,
    top_items: int | None = None,
) -> SparsePopulation:
    """The population over the wanted items in their order, over the top items, or as it is."""
    if wanted is None:
        return population if top_items is None else population.keep_top_items(top_items)
    if population.labels is None:
        # A list of names for a file without names is a mistake that would otherwise drop everything.
        if not all(label.isascii() and label.isdigit() for label in wanted):
            raise InvalidInput(
                "the list of items has names, but the items of this data have only numbers",
                allowed="column numbers from 0",
                advice="pass the numbers of the columns",
            )
        numbers = {str(number): number for number in range(population.domain_size)}
    else:
        numbers = {str(label): number for number, label in enumerate(population.labels)}
    return population.select_items([numbers.get(label, -1) for label in wanted], labels=labels)
