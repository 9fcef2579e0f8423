"""Populations from files: sparse matrices of scipy, and tables of user, item and count.

| file | what it holds | item labels |
|---|---|---|
| .npz | a matrix of users by items, from `scipy.sparse.save_npz` | none: columns keep their numbers |
| .csv, .tsv, also with .gz | columns user, item and maybe count; UTF-8 | text, as written: 007 stays 007 |
| .parquet | the same columns; users and items are strings or integers | strings or integers, as stored |

In a table one row is one observation, or as many as its count says; rows of the same user and item are
added up. Users are numbered as they first appear. Items are numbered by falling total; equal totals by the
length of the label in UTF-8, then by its code points, so 9 comes before 10 and text and integers agree.

Packed files (.npz, .gz, .parquet) are refused when they would unpack to more than a limit, see `client/unpacked.py`.
"""

from __future__ import annotations

import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedhist.client.populations import Label, SparsePopulation
from fedhist.client.unpacked import check_archive, check_parquet, check_shape, unpack_gzip
from fedhist.protocol.errors import InvalidFile, InvalidInput, InvalidPopulation
from fedhist.protocol.histograms import MAX_USER_TOTAL, Integers
from fedhist.protocol.item_list import MAX_ITEMS_BYTES, parse_items, unreadable
from fedhist.protocol.validation import whole_counts

if TYPE_CHECKING:
    import polars as pl

_SUFFIXES = (".npz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
_MAGIC = {".npz": b"PK", ".parquet": b"PAR1", ".csv.gz": b"\x1f\x8b", ".tsv.gz": b"\x1f\x8b"}
# The packed ones among them polars would unpack unasked, whatever the file is called.
_NOT_TEXT = (
    b"PK\x03\x04", b"PAR1", b"\x1f\x8b", b"\x93NUMPY", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda",
)  # fmt: skip
_COLUMNS = ("user", "item", "count")
_LOOK_BYTES = 4096
_SHOWN_NAMES = 8
_SHOWN_CHARACTERS = 32


def read_population(
    path: Path, *, top_items: int | None = None, items: Sequence[Label] | None = None
) -> SparsePopulation:
    """The population in a file.

    Args:
        path: a .npz, .csv, .csv.gz, .tsv, .tsv.gz or .parquet file.
        top_items: keep this many of the most frequent items, numbered by falling total. It looks at the data,
            so the choice itself is not private: for simulations.
        items: the public list of the closed domain. Exactly these items are kept, in this order; one that the
            file does not have is there and empty. Labels are compared as text. The columns of a .npz are
            called by their numbers, from 0.

    Users whose items are all left out stay, as empty users. `dropped_items` and `dropped_count` of the result
    say how much was left out.
    """
    wanted = _check_choice(top_items, items)
    path = Path(path)
    suffix = _suffix(path)
    _check_content(path, suffix)
    if suffix == ".npz":
        population = _read_matrix(path)
    elif suffix == ".parquet":
        population = _tabulated(_parquet_table(path))
    else:
        population = _tabulated(_text_table(path, separator="\t" if suffix.startswith(".tsv") else ","))
    if wanted is not None:
        return _over(population, wanted, labels=items)
    return population if top_items is None else population.keep_top_items(top_items)


def read_items(path: Path) -> list[str]:
    """A public list of items from a UTF-8 text file, one item a line."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_ITEMS_BYTES + 1)
    except OSError:
        raise unreadable(str(path)) from None
    return parse_items(data, name=str(path))


def _check_choice(top_items: int | None, items: Sequence[Label] | None) -> list[str] | None:
    """The wanted items as text."""
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
    if isinstance(items, str) or not wanted or len(set(wanted)) < len(wanted):
        raise InvalidInput(
            "the list of items is empty, names an item twice or is a single text",
            allowed="a list of one or more different labels",
            advice="pass each item of the domain once",
        )
    return wanted


def _suffix(path: Path) -> str:
    name = path.name.lower()
    # The longest match, so that .csv.gz is not taken for .gz alone.
    matches = [suffix for suffix in _SUFFIXES if name.endswith(suffix)]
    if not matches:
        raise InvalidFile(
            f"{path.name} has a suffix that is not known",
            allowed=", ".join(_SUFFIXES),
            advice="convert the file or correct its name",
        )
    return max(matches, key=len)


def _check_content(path: Path, suffix: str) -> None:
    """Refuse what is not a readable file, and a file that begins like another kind than its name says."""
    try:
        if not path.is_file():
            problem = f"{path} is not a file" if path.exists() else f"there is no file {path}"
            raise InvalidFile(problem, allowed="a file that exists", advice="check the path")
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
    if not (beginning.startswith(magic) if magic else _is_text(beginning)):
        raise _mistaken(path, suffix)


def _is_text(beginning: bytes) -> bool:
    return not beginning.startswith(_NOT_TEXT) and b"\x00" not in beginning


def _mistaken(path: Path, suffix: str) -> InvalidFile:
    return InvalidFile(
        f"{path} does not hold what its suffix {suffix} says",
        allowed=f"a {suffix} file" + ("" if suffix in _MAGIC else " in UTF-8"),
        advice="correct the suffix or convert the file",
    )


def _read_matrix(path: Path) -> SparsePopulation:
    from scipy.sparse import load_npz  # noqa: PLC0415 - loads when a matrix is read

    try:
        check_archive(path)
        with zipfile.ZipFile(path) as archive:
            is_sparse = "format.npy" in archive.namelist()
        with warnings.catch_warnings():
            # scipy only warns when indices are no integers and it cuts them to fit.
            warnings.simplefilter("error", RuntimeWarning)
            # load_npz never unpickles: an archive with Python objects is refused.
            matrix: Any = load_npz(path) if is_sparse else None
    except InvalidInput:
        raise
    except (
        OSError, EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError,
        MemoryError, SyntaxError, RuntimeError, RuntimeWarning, tokenize.TokenError, zipfile.BadZipFile,
        zlib.error,
    ):  # fmt: skip
        raise InvalidFile(
            f"{path} is damaged, does not fit in memory or is no sparse matrix",
            allowed="a file written by scipy.sparse.save_npz",
            advice="write it again",
        ) from None
    if matrix is None:
        raise InvalidFile(
            f"{path} holds no sparse matrix",
            allowed="a file written by scipy.sparse.save_npz",
            advice="save scipy.sparse.csr_array(your_array) with save_npz",
        )
    check_shape(path, matrix.shape, entries=None if matrix.format == "csr" else matrix.data.size)
    return SparsePopulation.from_scipy(matrix)


def _text_table(path: Path, *, separator: str) -> pl.DataFrame:
    """The columns user, item and maybe count of a text file; users and items are text.

    Types are never guessed: a guess from the first rows would turn 007 into 7 in one file and not in another.
    """
    import polars as pl  # noqa: PLC0415 - loads when a table is read

    source: Path | bytes = path.resolve()
    if (suffix := _suffix(path)).endswith(".gz"):
        source = unpack_gzip(path)
        if not _is_text(source[:_LOOK_BYTES]):
            raise _mistaken(path, suffix)

    def read(**options: Any) -> pl.DataFrame:
        return pl.read_csv(source, separator=separator, infer_schema_length=0, glob=False, **options)

    with _refusing_damage(
        path, advice="write labels that hold a quote or a separator in double quotes, as UTF-8"
    ):
        header = read(has_header=False, n_rows=1, truncate_ragged_lines=True).row(0)
        names = _columns(path, [name or "" for name in header])
        whole = {name: pl.Int64 for name, meaning in names.items() if meaning == "count"}
        try:
            table = read(columns=list(names), schema_overrides=whole)
        except pl.exceptions.PolarsError:
            # Some count is not written as an integer: 2.0 is welcome, and otherwise the error names the row.
            table = read(columns=list(names))
    return table.rename(names)


def _parquet_table(path: Path) -> pl.DataFrame:
    """The columns user, item and maybe count of a Parquet file; users and items are strings or integers."""
    import polars as pl  # noqa: PLC0415 - loads when a table is read

    check_parquet(path, frozenset(_COLUMNS))
    with _refusing_damage(path, advice="write it again"):
        names = _columns(path, list(pl.read_parquet_schema(path.resolve())))
        table = pl.read_parquet(path.resolve(), columns=list(names), glob=False).rename(names)
    for name in ("user", "item"):
        kind = table.schema[name]
        if isinstance(kind, pl.Categorical | pl.Enum):
            table = table.with_columns(pl.col(name).cast(pl.String))
        elif not (kind.is_integer() or kind in (pl.String, pl.Null)):
            raise InvalidFile(
                f"column {name} of {path} has the type {kind}",
                allowed="strings or integers",
                advice="convert the column",
            )
    return table


@contextmanager
def _refusing_damage(path: Path, *, advice: str) -> Iterator[None]:
    """Turn the reader's errors into ours. Theirs quote the file, so they are not passed on."""
    import polars as pl  # noqa: PLC0415 - loads when a table is read

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError):
        raise InvalidFile(
            f"{path} is damaged or does not follow its format", allowed="a complete file", advice=advice
        ) from None


def _columns(path: Path, found: list[str]) -> dict[str, str]:
    """From the file's own names of the columns we read to user, item and count."""
    names = {name: name.lower() for name in found if name.lower() in _COLUMNS}
    matches = [name.lower() for name in found if name in names]
    if "user" in matches and "item" in matches and len(set(matches)) == len(matches):
        return names
    shown = [name[:_SHOWN_CHARACTERS] for name in found[:_SHOWN_NAMES]]
    more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    raise InvalidFile(
        f"{path} has the columns {', '.join(shown)}{more}",
        allowed="one column user, one column item and at most one column count, in any case, among others",
        advice="rename the columns",
    )


def _tabulated(table: pl.DataFrame) -> SparsePopulation:
    """The population of a table with a column for the user, one for the item and maybe one for the count."""
    from scipy.sparse import coo_array  # noqa: PLC0415 - loads when a table is read

    if table.height == 0:
        raise InvalidPopulation(
            "the table has no rows", allowed="at least one row", advice="check that the file is complete"
        )
    _refuse_missing(table)
    counts = _counts(table)
    user_numbers, user_rows = _numbered(table["user"])
    item_numbers, item_rows = _numbered(table["item"])
    _check_user_totals(user_numbers, user_rows, counts)
    labels = table["item"][item_rows]
    order = _item_order(labels, _sums(item_numbers, counts, len(labels)))
    new_numbers = np.empty(len(order), dtype=np.int32)
    new_numbers[order] = np.arange(len(order), dtype=np.int32)
    rows = coo_array(
        (counts, (user_numbers, new_numbers[item_numbers])), shape=(len(user_rows), len(labels))
    ).tocsr()
    return SparsePopulation.from_arrays(
        rows.indptr, rows.indices, rows.data, domain_size=len(labels), labels=labels[order].to_list()
    )


def _refuse_missing(table: pl.DataFrame) -> None:
    for name in table.columns:
        if table[name].null_count():
            raise InvalidPopulation(
                f"the {name} in {_row(int(table[name].is_null().arg_max() or 0))} is missing",
                allowed="a value in every row",
                advice="complete or remove the row; an empty text is written as two double quotes",
            )


def _counts(table: pl.DataFrame) -> npt.NDArray[np.int32]:
    """How many observations each row stands for: its count, or one when there is no such column."""
    import polars as pl  # noqa: PLC0415 - loads when a table is read

    if "count" not in table.columns:
        return np.ones(table.height, dtype=np.int32)
    column = table["count"]
    if column.dtype == pl.String:
        column = column.str.strip_chars().cast(pl.Float64, strict=False)
        if column.null_count():
            raise InvalidPopulation(
                f"the count in {_row(int(column.is_null().arg_max() or 0))} is not a number",
                allowed=f"whole numbers from 0 to {MAX_USER_TOTAL:,}",
                advice="correct or remove the row",
            )
    elif not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise InvalidPopulation(
            f"the counts have the type {column.dtype}",
            allowed="numbers",
            advice="convert the column to integers",
        )
    elif column.dtype.is_decimal() or str(column.dtype).endswith("128"):
        # numpy has no type for these; whole numbers up to the limit are exact in the one they get.
        column = column.cast(pl.Float64)
    return whole_counts(column.to_numpy(), _row)


def _row(index: int) -> str:
    return f"row {index + 1} of the table (the first below the header is row 1)"


def _numbered(column: pl.Series) -> tuple[Integers, Integers]:
    """Each row's value as a number, by first appearance; and the row where each value appears first."""
    changes = (column != column.shift(1)).fill_null(value=True).to_numpy()
    run_starts = np.flatnonzero(changes)
    if 2 * len(run_starts) > len(column):
        return _numbered_one_by_one(column)
    # Files are often sorted by user, and then one row of each run tells all.
    numbers, first_runs = _numbered_one_by_one(column[run_starts])
    return np.repeat(numbers, np.diff(run_starts, append=len(column))), run_starts[first_runs]


def _numbered_one_by_one(column: pl.Series) -> tuple[Integers, Integers]:
    first = _first_rows(column)
    first_rows = np.flatnonzero(first == np.arange(len(first), dtype=first.dtype))
    # Only the rows where a value appears first are ever looked up.
    numbers = np.empty(len(first), dtype=np.int64)
    numbers[first_rows] = np.arange(len(first_rows))
    return numbers[first], first_rows


def _first_rows(column: pl.Series) -> npt.NDArray[np.integer]:
    """For each row the first row that has the same value."""
    import polars as pl  # noqa: PLC0415 - loads when a table is read

    if column.dtype in (pl.Int32, pl.Int64):
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < 2 * len(values):
            # Integers that lie close together need no hash table.
            places: Integers = (values - low).astype(np.int64, copy=False)
            first = np.full(high - low + 1, len(values), dtype=np.int64)
            np.minimum.at(first, places, np.arange(len(values)))
            return first[places]
    rows = column.to_frame("value").with_row_index("row")
    return rows.select(pl.col("row").first().over("value")).to_series().to_numpy()


def _check_user_totals(users: Integers, first_rows: Integers, counts: npt.NDArray[np.int32]) -> None:
    if counts.sum(dtype=np.int64) <= MAX_USER_TOTAL:
        return
    too_large = _sums(users, counts, len(first_rows)) > MAX_USER_TOTAL
    if too_large.any():
        raise InvalidPopulation(
            f"the counts of the user in {_row(int(first_rows[np.argmax(too_large)]))} add up to too much",
            allowed=f"a total of at most {MAX_USER_TOTAL:,} for each user",
            advice="count in larger units",
        )


def _sums(groups: Integers, counts: npt.NDArray[np.int32], length: int) -> Integers:
    sums = np.zeros(length, dtype=np.int64)
    np.add.at(sums, groups, counts.astype(np.int64))
    return sums


def _item_order(labels: pl.Series, totals: Integers) -> Integers:
    import polars as pl  # noqa: PLC0415 - loads when a table is read

    items = pl.DataFrame({"total": totals, "text": labels.cast(pl.String)}).with_row_index("number")
    ordered = items.sort(
        pl.col("total"), pl.col("text").str.len_bytes(), "text", descending=[True, False, False]
    )
    return ordered["number"].cast(pl.Int64).to_numpy()


def _over(
    population: SparsePopulation, wanted: list[str], *, labels: Sequence[Label] | None
) -> SparsePopulation:
    """The population over the wanted items, in their order."""
    if population.labels is None:
        # A list of names for a file without names is a mistake that would otherwise drop everything.
        if not all(label.isascii() and label.isdigit() for label in wanted):
            raise InvalidInput(
                "the list of items has names, but the columns of a .npz have only numbers",
                allowed="column numbers from 0",
                advice="pass the numbers of the columns",
            )
        numbers = {str(number): number for number in range(population.domain_size)}
    else:
        numbers = {str(label): number for number, label in enumerate(population.labels)}
    return population.select_items([numbers.get(label, -1) for label in wanted], labels=labels)
