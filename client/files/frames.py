"""Data frames of pandas, polars, pyarrow and others, as the tables that files give.

narwhals knows the kinds. What it does not know, and hands its rows out as an Arrow stream, polars reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedhist.client.files.columns import Columns
from fedhist.client.files.record_tables import with_plain_types
from fedhist.protocol.errors import InvalidInput

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl

_KINDS = ("pandas", "polars", "pyarrow")
_SHOWN_NAMES = 20


def in_memory(data: Any) -> nw.DataFrame[Any]:
    """A data frame as narwhals sees it, with its rows in memory. A stream is read to its end."""
    import narwhals as nw
    import polars as pl

    frame = nw.from_native(data, pass_through=True, allow_series=False)
    if isinstance(frame, nw.DataFrame):
        return frame
    # A stream needs no package of its own, where narwhals may ask for pyarrow to collect.
    if hasattr(data, "__arrow_c_stream__"):
        return nw.from_native(pl.DataFrame(data), eager_only=True)
    if isinstance(frame, nw.LazyFrame):
        return frame.collect("polars")
    raise InvalidInput(
        f"the data is a {type(data).__module__}.{type(data).__name__}",
        allowed="a pandas, polars or pyarrow data frame, anything with an Arrow stream, a scipy sparse matrix, a path "
        "or a population",
        advice="make a data frame of it with the columns user and item, or scipy.sparse.csr_array(your_array)",
    )


def frame_kind(frame: nw.DataFrame[Any]) -> str:
    """The library whose frame is given back for this one: pandas, polars or pyarrow."""
    name = frame.implementation.name.lower()
    return name if name in _KINDS else "polars"


def frame_table(data: Any, columns: Columns) -> pl.DataFrame:
    """The columns user, item and maybe count of a data frame. The index of a pandas frame is not data."""
    frame = in_memory(data)
    names = columns.named_in(frame.columns)
    if names is None:
        raise _wrong_columns(frame.columns, columns)
    table = _to_polars(frame.select(*names)).rename(names)
    return with_plain_types(table, "the data frame", columns)


def frame_row(index: int) -> str:
    """The words for a row in errors."""
    return f"row {index} of the data frame (the first is row 0)"


def _to_polars(frame: nw.DataFrame[Any]) -> pl.DataFrame:
    return frame.to_polars()


def _wrong_columns(found: list[str], columns: Columns) -> InvalidInput:
    # The names of a frame's columns are the caller's own. In a file they may be data.
    shown = ", ".join(map(repr, found[:_SHOWN_NAMES])) + (", ..." if len(found) > _SHOWN_NAMES else "")
    missing = columns.missing_in(found)
    names = f"{columns.user!r}, {columns.item!r}" + (f", {columns.count!r}" if columns.count else "")
    problem = f"has no column {missing[0]!r}" if missing else f"has more than one column for one of {names}"
    return InvalidInput(
        f"the data frame {problem}",
        allowed=f"its columns: {shown or 'it has none'}",
        advice="name the columns with user=, item= and count=",
    )
