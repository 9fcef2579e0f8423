"""Sentiment140: tweets as CSV in latin-1, with the columns polarity, id, date, query, user and text.

A user's items are the words of their tweets. The text is taken through these steps, in this order:

1. HTML entities are decoded once: named ones that end in a semicolon (&quot; &amp; ...), and &#39;. Other numeric ones
   become a space.
2. Upper case becomes lower case.
3. Addresses, from http://, https:// or www. to the next white space, become a space.
4. Mentions, an @ that follows no word character and the letters, digits and underscores after it, become a space.
5. Words are the longest runs of the characters a to z, 0 to 9 and '.

A user is the author as written, or the addressee: the first mention of the tweet, in lower case. Tweets that mention
nobody have no addressee and are left out. A user without words stays, as a user without items.
"""

from __future__ import annotations

from dataclasses import dataclass
from html.entities import html5
from typing import Literal

import polars as pl

from fedhist.simulations.importing.contract import Format, LineReader, Parsed
from fedhist.simulations.importing.fields import split_fields

By = Literal["author", "addressee"]

_COLUMNS = 6
_APOSTROPHE = r"&#0*39;|&#[xX]0*27;"
_OTHER_NUMBER = r"&#[0-9]+;|&#[xX][0-9a-fA-F]+;"
_ADDRESS = r"(?:https?://|www\.)\S+"
_MENTION = r"(^|[^a-z0-9_])@([a-z0-9_]+)"
_WORD = r"[a-z0-9']+"


@dataclass(frozen=True)
class Sentiment140(Format):
    """Words by author, or by addressee."""

    by: By = "author"
    name = "sentiment140"
    shape = "polarity,id,date,query,user,text with a polarity of 0, 2 or 4"
    encoding = "latin-1"

    def reader(self, beginning: pl.Series) -> LineReader | None:
        """Recognises a line with the six columns."""
        return LineReader(self.parse) if _tweets(beginning)["5"].is_not_null().any() else None

    def parse(self, lines: pl.Series) -> Parsed:
        """The words of these tweets."""
        tweets = _tweets(lines)
        good = tweets["5"].is_not_null()
        texts = tweets.filter(good).select(pl.col("4").alias("user"), _plain_text(pl.col("5")).alias("text"))
        if self.by == "addressee":
            texts = texts.with_columns(pl.col("text").str.extract(_MENTION, 2).alias("user"))
            texts = texts.filter(pl.col("user").is_not_null())
        listed = texts.select("user", _words(pl.col("text")).alias("item"))
        words = listed.filter(pl.col("item").list.len() > 0).explode("item")
        # Versions of polars explode an empty list differently, so users without words are added apart.
        without_words = listed.filter(pl.col("item").list.len() == 0).select(
            "user", pl.lit(None, pl.String).alias("item")
        )
        records = pl.concat([words, without_words])
        return Parsed(records=records.with_columns(pl.lit(1, dtype=pl.Int64).alias("count")), good=good)


def _tweets(lines: pl.Series) -> pl.DataFrame:
    """The six columns; null in a line of another form."""
    # As published, every field is quoted. The text comes last, so its own quotes can't be taken for separators.
    as_published = lines.str.contains('^".*"$').fill_null(value=False)
    fields = lines.str.slice(1).str.strip_suffix('"').str.splitn('","', _COLUMNS).struct.unnest()
    fields.columns = [str(number) for number in range(_COLUMNS)]
    fields = fields.with_columns(pl.col("5").str.replace_all('""', '"', literal=True))
    if not as_published.all():
        # Other programs leave out the quotes that are not needed when they rewrite the file.
        others = split_fields(lines, separator=",", columns=_COLUMNS, quoted=True)
        fields = pl.DataFrame([fields[name].zip_with(as_published, others[name]) for name in fields.columns])
    right = (
        pl.col("0").str.contains("^[024]$")
        & pl.col("1").str.contains("^[0-9]+$")
        & (pl.col("4").str.len_bytes() > 0)
        & pl.col("5").is_not_null()
    )
    return fields.select(pl.when(right).then(pl.all()))


def _plain_text(text: pl.Expr) -> pl.Expr:
    """Steps 1 to 3."""
    named = {f"&{name}": value for name, value in html5.items() if name.endswith(";")}
    # Numeric ones first: a decoded "&" must not begin another entity.
    numbered = text.str.replace_all(_APOSTROPHE, "'").str.replace_all(_OTHER_NUMBER, " ")
    decoded = numbered.str.replace_many(list(named), list(named.values()))
    return decoded.str.to_lowercase().str.replace_all(_ADDRESS, " ")


def _words(text: pl.Expr) -> pl.Expr:
    """Steps 4 and 5."""
    return text.str.replace_all(_MENTION, "$1 ").str.extract_all(_WORD)
