"""Synthetic users for the virtual nodes of `flwr run`.

    flwr run . local --run-config 'users=5000 items=100 seed=1 out="result"'

The nodes share the population of `fedhist run` with the same users, items and seed, so the release is the same too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.datasets import DEFAULT_ITEMS
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise


def users_of(node_config: Mapping[str, object], run_config: Mapping[str, object]) -> SparsePopulation:
    """The users of one node: its part of the population that the run-config describes."""
    number, parts = _whole(node_config, "partition-id"), _whole(node_config, "num-partitions")
    items = _whole(run_config, "items", DEFAULT_ITEMS)
    whole = _synthetic(
        _whole(run_config, "users"),
        _whole(run_config, "synthetic-items", items),
        _whole(run_config, "seed", 0),
    )
    start, stop = number * whole.users // parts, (number + 1) * whole.users // parts
    return whole.part(start, stop)


def _whole(config: Mapping[str, object], name: str, default: int | None = None) -> int:
    value = config.get(name, "")
    if value == "" and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(
            f"{name} is not a whole number", allowed=f"{name}=1000 in the run-config", code="not-an-integer"
        )
    return value


@lru_cache(maxsize=1)
def _synthetic(users: int, items: int, seed: int) -> SparsePopulation:
    """Made once in each process, which serves many nodes."""
    return materialise(HeavyTailedPopulation(users=users, items=items, seed=seed))
