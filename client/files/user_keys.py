"""By what a user is known in later runs: a hash of the name under a secret of the device, never the name.

A name is the text of the user's value: 7 in one file and "7" in another are one user. Two of n users meet by chance
with a probability of n^2 / 2^65; they would count as one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from fedhist.protocol.histograms import Words

if TYPE_CHECKING:
    import polars as pl

_TAG = b"fedhist/1/campaign/user-key"
_PERSON = b"fedhist/1/user"


def user_key_of(secret: bytes) -> bytes:
    """The secret under which users' names are hashed, from the device's secret."""
    return hmac.digest(secret, _TAG, "sha256")


def name_keys(column: pl.Series, secret: bytes) -> Words:
    """The key of each name in a column, well mixed in its first bits."""
    import polars as pl

    names = pl.DataFrame({"name": column.cast(pl.String)})
    distinct = names["name"].unique()
    keys = pl.DataFrame({"name": distinct, "key": _hashed(distinct.to_list(), secret)})
    found = names.join(keys, on="name", how="left", maintain_order="left")["key"]
    return np.asarray(found.to_numpy(), dtype=np.uint64)


def number_keys(first: int, users: int, secret: bytes) -> Words:
    """The keys of users who have numbers for names."""
    return _hashed((str(number) for number in range(first, first + users)), secret)


def _hashed(names: Iterable[str], secret: bytes) -> Words:
    digests = (
        hashlib.blake2b(
            name.encode("utf-8", "surrogatepass"), digest_size=8, key=secret, person=_PERSON
        ).digest()
        for name in names
    )
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)
