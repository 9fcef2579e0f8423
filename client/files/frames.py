"""Data frames of pandas, polars, pyarrow and others, as the tables that files give.

narwhals knows the kinds. What it does not know and hands its rows out as an Arrow stream, polars reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedhist.client.files.columns import Columns, decoded, with_plain_types
from fedhist.client.files.native_errors import silenced
from fedhist.protocol.errors import InvalidInput, InvalidPopulation

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl

_KINDS = ("pandas", "polars", "pyarrow")
_SHOWN_NAMES = 20
_LARGE = 1 << 63

T = TypeVar("T")


def in_memory(data: Any, columns: Columns) -> nw.DataFrame[Any]:
    """A data frame as narwhals sees it, with its rows in memory; of a lazy one, the columns that are wanted.

    A stream is read to its end.
    """
    import narwhals as nw
    import polars as pl

    data = _without_format(data, columns)
    try:
        frame = nw.from_native(data, pass_through=True, allow_series=True)
    except nw.exceptions.DuplicateError:
        raise InvalidPopulation(
            "two columns of the data frame have the same name",
            allowed="a different name for each column",
            advice="rename one of them, or pass only the columns of users, items and counts",
            code="repeated-column",
        ) from None
    if isinstance(frame, nw.DataFrame):
        return frame
    source = data
    lazy = None
    if isinstance(frame, nw.LazyFrame):
        found = _native(frame.collect_schema).names()
        names = columns.named_in(found)
        if names is None:
            raise _wrong_columns(data, found, columns)
        if frame.implementation.is_polars():
            # It takes a name such as * or ^a.*$ for a pattern, unless it is told not to.
            lazy = nw.from_native(frame.to_native().select(pl.selectors.by_name(*names)))
        else:
            lazy = frame.select(*names)
        source = lazy.to_native()
    # Before narwhals, which may ask for pyarrow to collect: a stream needs no other package.
    if hasattr(source, "__arrow_c_stream__") and not isinstance(frame, nw.Series):
        try:
            return _native(lambda: nw.from_native(pl.DataFrame(source), eager_only=True))
        except _Unreadable:
            if lazy is not None:
                raise
            raise _no_frame(data) from None
    if lazy is not None:
        return _native(lambda: lazy.collect("polars"))
    raise _no_frame(data)


def _without_format(data: Any, columns: Columns) -> Any:
    """The wanted columns of a `datasets.Dataset` as an Arrow table; anything else as it is.

    A data set may say that its rows are to come as tensors or pictures, and may be some rows of a larger file.
    """
    # What made a data set has imported the module.
    module = sys.modules.get("datasets")
    if module is None or not isinstance(data, module.Dataset):
        return data
    names = columns.named_in(data.column_names)
    if names is None:
        raise _wrong_columns(data, data.column_names, columns)
    return _native(lambda: data.select_columns(list(names)).with_format("arrow")[:])


class _Unreadable(InvalidPopulation):
    """A frame that its own library, or polars, can't read."""


def _native(call: Callable[[], T]) -> T:
    """What another library makes of a frame. Its errors may quote a value, and so may what it prints."""
    import narwhals as nw
    import polars as pl

    try:
        return silenced(call)
    except (
        *(pl.exceptions.PolarsError, pl.exceptions.PanicException, nw.exceptions.NarwhalsError),
        *(OSError, ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
    ) as error:
        raise _Unreadable(
            f"the data frame can't be read ({type(error).__name__})",
            allowed="a data frame whose columns of users, items and counts polars can read",
            advice="collect a lazy frame, or convert the columns to text or integers, before you pass it",
            code="unreadable-frame",
        ) from None


def frame_kind(frame: nw.DataFrame[Any]) -> str:
    """The library whose frame is given back for this one: pandas, polars or pyarrow."""
    name = frame.implementation.name.lower()
    return name if name in _KINDS else "polars"


def frame_table(data: Any, columns: Columns, *, lenient: bool) -> pl.DataFrame:
    """The columns user, item and maybe count of a data frame. The index of a pandas frame is not data.

    Arrow takes any bytes for text. Text that is none is missing for a node, which is `lenient`, and an error elsewhere.
    """
    import polars as pl

    frame = in_memory(data, columns)
    native = frame.to_native()
    found = list(native.columns) if frame.implementation.is_pandas() else frame.columns
    names = columns.named_in(found)
    if names is None:
        raise _wrong_columns(native, found, columns)
    if frame.implementation.is_pandas():
        table = pl.DataFrame(
            {role: _from_pandas(native[name], name, lenient=lenient) for name, role in names.items()}
        )
    else:
        table = _native(lambda: frame[list(names)].to_polars().rename(names))
    table = with_plain_types(table, "the data frame", columns, InvalidPopulation)
    for column in table.select(pl.col(pl.String)):
        text = decoded(column.cast(pl.Binary))
        if text.null_count() > column.null_count() and not lenient:
            row = int((text.is_null() & column.is_not_null()).arg_max() or 0)
            raise InvalidPopulation(
                f"the {column.name} in {frame_row(columns, 0, row, column.name)} is not in UTF-8",
                allowed="text in UTF-8",
                advice="make the column again from text",
                code="not-utf8",
            )
        table = table.with_columns(text)
    return table


def frame_row(columns: Columns, start: int, index: int, role: str) -> str:
    """The words for a row in errors, counted as `iloc` does."""
    return f"row {start + index:,}, column {columns.name_of(role)!r}, of the data frame (the first is row 0)"


def _from_pandas(column: Any, name: str, *, lenient: bool) -> pl.Series:
    """A column of a pandas frame. pyarrow makes some types faster, and is needed for none."""
    import polars as pl

    try:
        if column.dtype == object or getattr(column.dtype, "storage", "") == "python":
            return silenced(lambda: _from_objects(_one_by_one(column) if lenient else column))
        try:
            read: Any = pl.from_pandas(column)
            return pl.Series(read)
        except ImportError:
            if column.dtype.name == "category":
                return _from_pandas(column.astype(column.cat.categories.dtype), name, lenient=lenient)
            return pl.Series(column.to_numpy(dtype=object, na_value=None).tolist())
    except (
        *(AttributeError, TypeError, ValueError, OverflowError, RuntimeError),
        *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
    ):
        # The errors of others may quote a value.
        raise InvalidPopulation(
            f"column {name!r} of the data frame, of the type {column.dtype}, can't be read{_mixture(column)}",
            allowed="text, integers, categories, truth values or dates, one kind in all rows",
            advice=f'convert the column, for example with .astype({{"{name}": "str"}})',
            code="mixed-column",
        ) from None


def _one_by_one(column: Any) -> Any:
    """The values as text where they are not of one kind; what is no text, number, truth value or date is missing.

    Each is read for itself: were the most common kind the right one, a user of many rows could take all others' away.
    """
    known = column[column.notna()]
    kinds = known.map(type).unique()
    if len(kinds) == 1 and (not issubclass(kinds[0], str | int) or known.map(_as_text).notna().all()):
        return column
    return column.where(column.notna(), None).map(_as_text)


def _as_text(value: Any) -> str | None:
    match value:
        case str():
            return value if value.isascii() or value.encode(errors="replace").decode() == value else None
        case bool() | np.bool_():
            return str(value).lower()
        case int() | np.integer() if abs(int(value)) < _LARGE:
            return str(int(value))
        case float() | np.floating():
            return repr(float(value))
        case date():
            return value.isoformat()
    return None


def _from_objects(column: Any) -> pl.Series:
    """A column of Python objects: text, as a rule."""
    import polars as pl

    values = column.to_numpy(dtype=object)
    if len(values) and isinstance(values[0], str):
        try:
            return pl.Series(values)
        except TypeError:  # missing values, or a mixture
            pass
    values = values.copy()
    values[column.isna().to_numpy()] = None
    return pl.Series(values.tolist())


def _mixture(column: Any) -> str:
    """Words for the first value that is of another kind than those before it."""
    kinds = column.dropna().map(lambda value: type(value).__name__)
    others = (kinds != kinds.iloc[0]).to_numpy() if len(kinds) else [False]
    if not any(others):
        return ""
    other = int(np.argmax(others))
    row = int(np.flatnonzero(column.notna().to_numpy())[other])
    return (
        f": row {row:,} (the first is row 0) holds a {kinds.iloc[other]}, the rows before a {kinds.iloc[0]}"
    )


def _no_frame(data: object) -> InvalidInput:
    return InvalidInput(
        f"the data is a {type(data).__module__}.{type(data).__name__}",
        allowed="a pandas, polars or pyarrow data frame, anything with an Arrow stream of columns, a scipy sparse "
        "matrix, a path or a population",
        advice="make a data frame of it with the columns user and item, or scipy.sparse.csr_array(your_array)",
        code="not-a-data-frame",
    )


def _wrong_columns(native: Any, found: list[Any], columns: Columns) -> InvalidInput:
    # The names of a frame's columns are the caller's own. In a file they may be data.
    shown = ", ".join(map(repr, found[:_SHOWN_NAMES])) + (", ..." if len(found) > _SHOWN_NAMES else "")
    missing = columns.missing_in(found)
    names = ", ".join(map(repr, columns.names))
    problem = f"has no column {missing[0]!r}" if missing else f"has two columns for one of {names}"
    if set(missing) & set(getattr(getattr(native, "index", None), "names", ())):
        advice = "an index is not data: make columns of it with reset_index()"
    elif not all(isinstance(name, str) for name in found):
        advice = "names of columns are texts: give it some with frame.columns = [...]"
    elif missing:
        advice = "name the columns with user=, item=, count= and time="
    else:
        advice = "rename one of them, or leave it out"
    return InvalidInput(
        f"the data frame {problem}",
        allowed=f"one of its columns: {shown}" if shown else "a data frame with columns",
        advice=advice,
        code="missing-column",
    )
