"""MovieLens ratings, in its three forms.

| file | of | a line |
|---|---|---|
| ratings.csv | ml-latest, 25m, 32m | userId,movieId,rating,timestamp, below a header with these names |
| ratings.dat | ml-1m, 10m | user::movie::rating::timestamp |
| u.data | ml-100k | user, movie, rating and timestamp between tabs |

A user's items are the numbers of the movies that they rated; every rating is one observation, high or low.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from fedhist.simulations.importing.contract import Format, LineReader, Parsed, observations
from fedhist.simulations.importing.fields import split_fields

_HEADER = "userid,movieid,rating,timestamp"
_COLUMNS = 4


class MovieLens(Format):
    """Movies by user."""

    name = "movielens"
    shape = (
        "user, movie, rating (0.5 to 5) and timestamp between tabs or ::, or between commas below "
        "userId,movieId,rating,timestamp"
    )

    def reader(self, beginning: pl.Series) -> LineReader | None:
        """Recognises the header of ratings.csv, or a rating in some line."""
        if len(beginning) and beginning[0].strip().lower() == _HEADER:
            return LineReader(partial(ratings, separator=","), header=True)
        for separator in ("::", "\t"):
            if ratings(beginning, separator=separator).good.any():
                return LineReader(partial(ratings, separator=separator))
        return None


def ratings(lines: pl.Series, *, separator: str) -> Parsed:
    """The users and movies of these ratings."""
    fields = split_fields(lines, separator=separator, columns=_COLUMNS)
    right = pl.all_horizontal(pl.col("0", "1", "3").str.contains("^[0-9]+$")) & pl.col("2").cast(
        pl.Float64, strict=False
    ).is_between(0.5, 5)
    return observations(fields, user="0", item="1", right=right)
