"""SNAP's check-ins (Gowalla, Brightkite): user, time, latitude, longitude and location, between tabs.

A user's items are location ids as written; a check-in is one observation. Brightkite's id of zeros, which stands for
an unknown place, is an id like any other.
"""

from __future__ import annotations

import polars as pl

from fedhist.simulations.importing.contract import Format, LineReader, Parsed, observations
from fedhist.simulations.importing.fields import split_fields

_COLUMNS = 5
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"


class SnapCheckins(Format):
    """Locations by user."""

    name = "snap"
    shape = "user, time (2010-07-03T23:55:27Z), latitude, longitude and location id between tabs"

    def reader(self, beginning: pl.Series) -> LineReader | None:
        """Recognises a line with a check-in."""
        return LineReader(self.parse) if self.parse(beginning).good.any() else None

    def parse(self, lines: pl.Series) -> Parsed:
        """The users and locations of these check-ins."""
        fields = split_fields(lines, separator="\t", columns=_COLUMNS)
        place = pl.col("2", "3").str.strip_chars().cast(pl.Float64, strict=False)
        right = (
            pl.col("0").str.contains("^[0-9]+$")
            & pl.col("1").str.contains(_TIME)
            & pl.all_horizontal(place.is_finite())
            & pl.col("4").str.contains(r"^\S+$")
        )
        return observations(fields, user="0", item="4", right=right)
