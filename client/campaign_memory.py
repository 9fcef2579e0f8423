"""What a device remembers of its users in campaigns: for each what was used of the bound, under a key and no name.

It is written before an answer leaves. What was written for an answer that was never sent, because the device died or
a masked round failed, stays used: that costs accuracy, and never privacy. A device that forgets gives its users a
second bound: docs/privacy-campaigns.md says what is left of the promise then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedhist.protocol.clips.campaign_bound import ONE
from fedhist.protocol.errors import RoundFailed, UnusableMemory
from fedhist.protocol.histograms import Integers, Words

TABLE = (
    "CREATE TABLE campaign (campaign TEXT NOT NULL, user INTEGER NOT NULL, used INTEGER NOT NULL, "
    "PRIMARY KEY (campaign, user)) WITHOUT ROWID"
)
RELEASES = "CREATE TABLE campaign_releases (campaign TEXT NOT NULL PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID"
"""The number of releases that were spent for, whatever they took."""

Take = Callable[[Integers], Integers]
"""What a window takes of what each user has left: from 0 to all of it."""


def releases_in(database: sqlite3.Connection, campaign: str) -> int:
    """The number of releases of this campaign that were spent for, also of those that took nothing of anybody."""
    row = database.execute("SELECT count FROM campaign_releases WHERE campaign = ?", (campaign,)).fetchone()
    return 0 if row is None else int(row[0])


def left_in(database: sqlite3.Connection, path: Path, campaign: str, users: Words) -> Integers:
    """What each of these users has left. Of users who share a key, all but the first have nothing."""
    found = database.execute(
        "SELECT user, used FROM campaign WHERE campaign = ? ORDER BY user", (campaign,)
    ).fetchall()
    rows = np.array(found, dtype=np.int64).reshape(-1, 2)
    if len(rows) and not (rows[:, 1].min() >= 0 and rows[:, 1].max() <= ONE):
        raise UnusableMemory(
            f"what users have left of a campaign is damaged in the device's memory {path}",
            allowed="a memory that fedhist wrote",
        )
    left = np.full(len(users), ONE, dtype=np.int64)
    keys = users.view(np.int64)
    places = np.searchsorted(rows[:, 0], keys)
    known = np.flatnonzero(places < len(rows))
    known = known[rows[places[known], 0] == keys[known]]
    left[known] -= rows[places[known], 1]
    first = np.zeros(len(users), dtype=np.bool_)
    first[np.unique(keys, return_index=True)[1]] = True
    return np.where(first, left, 0)


def spend(
    database: sqlite3.Connection,
    path: Path,
    campaign: str,
    users: Words,
    take: Take,
    *,
    after: int | None = None,
) -> Integers:
    """What each user had left, after what a window takes of it was written.

    Args:
        database: the memory.
        path: its file.
        campaign: its digest.
        users: the users' keys.
        take: what the window takes.
        after: the number of releases that the caller knows of; RoundFailed if there are others meanwhile. It does not
            ask what they took: that is the users' data.
    """
    if after is not None and releases_in(database, campaign) != after:
        raise RoundFailed(
            f"another run has used {path} since this one began; nothing was released. Run it again"
        )
    left = left_in(database, path, campaign, users)
    taken = take(left)
    if not ((taken >= 0) & (taken <= left)).all():
        raise UnusableMemory("a window would take more than is left", allowed="at most what is left")
    changed = np.flatnonzero(taken)
    used = ONE - left[changed] + taken[changed]
    rows = zip(users.view(np.int64)[changed].tolist(), used.tolist(), strict=True)
    database.executemany(
        "INSERT OR REPLACE INTO campaign (campaign, user, used) VALUES (?, ?, ?)",
        ((campaign, user, amount) for user, amount in rows),
    )
    database.execute(
        "INSERT INTO campaign_releases (campaign, count) VALUES (?, 1) "
        "ON CONFLICT (campaign) DO UPDATE SET count = count + 1",
        (campaign,),
    )
    return left
