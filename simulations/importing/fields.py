"""Splits lines of text into fields, all lines at once."""

from __future__ import annotations

import re

import polars as pl

QUOTE = '"'


def split_fields(lines: pl.Series, *, separator: str, columns: int, quoted: bool = False) -> pl.DataFrame:
    """The fields of each line in the columns "0", "1", ...; all null in a line with another number of fields.

    Args:
        lines: lines of text.
        separator: the text between two fields.
        columns: the number of fields in a line.
        quoted: True when a field may be in double quotes, with a quote inside written twice. It may not contain a line
            break.
    """
    names = [str(number) for number in range(columns)]
    with_quotes = lines.str.contains(QUOTE, literal=True).fill_null(value=False)
    if not quoted or not with_quotes.any():
        return _split_plain(lines, separator, names)
    plain = _split_plain(lines.set(with_quotes, None), separator, names)
    among = _split_quoted(lines.set(~with_quotes, None), separator, names)
    return pl.DataFrame([plain[name].zip_with(~with_quotes, among[name]) for name in names])


def _split_plain(lines: pl.Series, separator: str, names: list[str]) -> pl.DataFrame:
    if len(names) == 1:
        return pl.DataFrame({names[0]: lines})
    fields = lines.str.splitn(separator, len(names)).struct.unnest()
    fields.columns = names
    # The last field holds the rest of the line: null if there are too few fields, with a separator if too many.
    right = ~pl.col(names[-1]).str.contains(separator, literal=True)
    return fields.select(pl.when(right).then(pl.col(names)))


def _split_quoted(lines: pl.Series, separator: str, names: list[str]) -> pl.DataFrame:
    field = rf'(?:"((?:[^"]|"")*)"|([^"{re.escape(separator)}]*))'
    groups = lines.str.extract_groups(f"^{re.escape(separator).join([field] * len(names))}$").struct.unnest()
    first, second = groups.columns[0::2], groups.columns[1::2]
    return groups.select(
        pl.coalesce(pl.col(inside).str.replace_all('""', QUOTE, literal=True), pl.col(bare)).alias(name)
        for name, inside, bare in zip(names, first, second, strict=True)
    )
