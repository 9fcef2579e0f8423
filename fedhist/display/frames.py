"""Columns as a data frame of the kind that somebody works with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, cast

FrameKind = Literal["pandas", "polars", "pyarrow"]
DEFAULT_KIND: FrameKind = "polars"
"""The kind of frame where no frame came in."""


def data_frame(
    columns: Mapping[str, Sequence[Any]], kind: str | None = None, *, texts: Collection[str] = ()
) -> Any:
    """The columns as a frame.

    Args:
        columns: values by name, all of the same length.
        kind: "pandas", "polars" or "pyarrow"; None for polars.
        texts: the columns that hold texts when there are no rows; the others hold numbers then.
    """
    import narwhals

    empty = not any(map(len, columns.values()))
    types = {name: narwhals.String() if name in texts else narwhals.Float64() for name in columns}
    frame = narwhals.from_dict(
        {name: _of_one_type(values) for name, values in columns.items()},
        schema=types if empty else None,
        backend=cast(FrameKind, kind or DEFAULT_KIND),
    )
    return frame.to_native()


def _of_one_type(values: Sequence[Any]) -> list[Any]:
    """The values; all of them as texts where some are, with half a surrogate pair, which no frame takes, as "?"."""
    listed = list(values)
    if not any(isinstance(value, str) for value in listed):
        return listed
    return [
        None if value is None else str(value).encode("utf-8", "replace").decode("utf-8") for value in listed
    ]
