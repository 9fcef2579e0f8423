"""What every rival's script shares: the table of counts, and the loop that answers real_accuracy.py.

Runs in the environment of a rival, so numpy is all that it may import. Standard input has a JSON list of bounds a
line, `[total]` or `[items, counts of an item]`, and standard output gets the relative loss of one release for each.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Table:
    """One row for each observation, the number of items, and the budget.

    Args:
        users, items: of each row.
        size: the number of items, which are 0, 1, ....
        epsilon, delta: the total of one release.
    """

    users: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    size: int
    epsilon: float
    delta: float


def serve(prepare: Callable[[Table], Callable[[list[int]], npt.NDArray[np.float64]]]) -> None:
    """Answer every line of standard input with the loss of a release.

    Args:
        prepare: gets the table once, and returns the function that releases a histogram under given bounds.
    """
    path, epsilon, delta = sys.argv[1:]
    with np.load(path) as arrays:
        users = np.repeat(arrays["users"], arrays["counts"])
        size = int(arrays["size"])
        # Items are numbered by falling frequency, which no library should make use of.
        shuffled = np.random.default_rng(0).permutation(size)
        items = shuffled[np.repeat(arrays["items"], arrays["counts"])]
    truth = np.bincount(items, minlength=size)
    release = prepare(Table(users, items, size, float(epsilon), float(delta)))
    for line in sys.stdin:
        released = release(json.loads(line))
        print(json.dumps(float(np.abs(released - truth).sum() / truth.sum())), flush=True)


def zcdp_within(epsilon: float, delta: float) -> float:
    """The largest rho for which rho-zCDP is (epsilon, delta)-DP.

    By the conversion of Canonne, Kamath and Steinke (2020), for libraries whose Gaussian noise takes zCDP only.
    """
    orders = 1 + np.geomspace(1e-3, 1e4, 20_000)

    def log_delta(rho: float) -> float:
        bounds = (orders - 1) * (orders * rho - epsilon) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
        return float(bounds.min())

    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(middle) <= math.log(delta) else (low, middle)
    return low
