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

import csv
import re
from array import array
from collections.abc import Iterator
from html.entities import html5
from pathlib import Path
from typing import Literal

import numpy as np

from fedhist.client.files.matrix_files import MATRIX_SUFFIXES, matrix_arrays
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidFile
from fedhist.server.disk import new_file

By = Literal["author", "addressee"]

MAX_MALFORMED = 0.001
"""The largest share of malformed lines with which a file is read."""
_NAMED_LINES = 10

_ENTITY = re.compile(r"&(?:#(?:0*39|[xX]0*27)|#([0-9]+|[xX][0-9a-fA-F]+)|([A-Za-z][A-Za-z0-9]*));")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+")
_MENTION = re.compile(r"(?<![a-z0-9_])@([a-z0-9_]+)")
_WORD = re.compile(r"[a-z0-9']+")


def read_sentiment140(path: Path, *, by: By = "author") -> SparsePopulation:
    """The words of the users in this file, numbered by falling total."""
    users, words = dict[str, int](), dict[str, int]()
    owners, items = array("q"), array("q")
    for author, text in _tweets(path):
        plain = _plain_text(text)
        user: str | None = author
        if by == "addressee":
            mention = _MENTION.search(plain)
            user = None if mention is None else mention[1]
        if user is not None:
            number = users.setdefault(user, len(users))
            found = [words.setdefault(word, len(words)) for word in _WORD.findall(_MENTION.sub(" ", plain))]
            owners.extend([number] * len(found))
            items.extend(found)
    if not words:
        raise InvalidFile(f"{path} has no words", allowed="a file with at least one", advice="check the file")
    from scipy.sparse import coo_array

    of_words = np.frombuffer(items, dtype=np.int64)
    order = np.argsort(-np.bincount(of_words, minlength=len(words)), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    entries = (np.ones(len(items), dtype=np.int64), (np.frombuffer(owners, dtype=np.int64), rank[of_words]))
    names = list(words)
    matrix = coo_array(entries, shape=(len(users), len(words))).tocsr()
    return SparsePopulation.from_scipy(matrix, labels=[names[number] for number in order.tolist()])


def _tweets(path: Path) -> Iterator[tuple[str, str]]:
    """The author and the text of each tweet. Too many lines of another form are refused by number, at the end."""
    lines, malformed = 0, list[int]()
    try:
        with path.open(encoding="latin-1", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                row = line.rstrip("\r\n")
                if row.strip():
                    lines += 1
                    fields = _fields(row)
                    if fields is None:
                        malformed.append(number)
                    else:
                        yield fields
    except OSError as error:
        raise InvalidFile(
            f"{path} can't be read ({error.strerror})", allowed="a file you may read", advice="check the path"
        ) from None
    if len(malformed) > MAX_MALFORMED * lines:
        shown = ", ".join(map(str, malformed[:_NAMED_LINES]))
        raise InvalidFile(
            f"{len(malformed):,} of {lines:,} lines of {path} are malformed, among them {shown}",
            allowed=f"a share of at most {MAX_MALFORMED} that are not polarity,id,date,query,user,text with a "
            "polarity of 0, 2 or 4",
            advice="check which file it is",
            code="malformed-lines",
        )


def _fields(line: str) -> tuple[str, str] | None:
    """The author and the text in a line; None for a line of another form."""
    if line.startswith('"') and line.endswith('"'):
        # As published, every field is quoted. The text comes last, so its own quotes can't be taken for separators.
        fields = line[1:-1].split('","', 5)
        fields[-1] = fields[-1].replace('""', '"')
    else:
        # Other programs leave out the quotes that are not needed when they rewrite the file.
        try:
            fields = next(csv.reader([line]))
        except csv.Error:
            return None
    if len(fields) != 6 or fields[0] not in ("0", "2", "4") or not fields[1].isdecimal() or not fields[4]:
        return None
    return fields[4], fields[5]


def _plain_text(text: str) -> str:
    """Steps 1 to 3."""
    return _ADDRESS.sub(" ", _ENTITY.sub(_decoded, text).lower())


def _decoded(entity: re.Match[str]) -> str:
    if entity[2] is not None:
        return html5.get(f"{entity[2]};", entity[0])
    return "'" if entity[1] is None else " "


def write_matrix(population: SparsePopulation, path: Path, *, force: bool = False) -> None:
    """Write the population as a matrix file, whole or not at all.

    Args:
        population: users and items; users' numbers are their rows.
        path: the file to make; its name must end in .npz.
        force: replace a file of that name.
    """
    with new_file(path, suffixes=MATRIX_SUFFIXES, force=force) as file:
        np.savez_compressed(file, **matrix_arrays(population))  # type: ignore[arg-type]  # none is called allow_pickle
