"""What honest users can add up to, as comparisons that can't wrap around."""

from __future__ import annotations

import numpy as np

from fedhist.protocol.errors import OutOfBounds
from fedhist.protocol.histograms import Integers

# Sums are taken in doubles first; an honest vector may exceed the bound by their rounding only.
SLACK = 1 + 1e-9


def exactly(counted: Integers, users: int) -> None:
    """Refuse bins that do not hold each user once."""
    # First each, so that the sum can't wrap around to the right number.
    if (counted > users).any() or int(counted.sum()) != users:
        raise OutOfBounds("the users of all bins are not the declared number")


def at_most(values: Integers, bounds: Integers | int, what: str) -> None:
    """Refuse values above what the declared users can add up to."""
    if (np.asarray(values) > bounds).any():
        raise beyond(what)


def sum_at_most(rows: Integers, bounds: Integers | int, what: str) -> None:
    """The same of sums over the first axis. In doubles first: sums of whole numbers that pass that can't wrap."""
    if (rows.sum(axis=0, dtype=np.float64) > np.multiply(bounds, SLACK)).any():
        raise beyond(what)
    at_most(rows.sum(axis=0), bounds, what)


def beyond(what: str) -> OutOfBounds:
    """The refusal."""
    return OutOfBounds(f"{what} is above what the declared number of users can add up to")
