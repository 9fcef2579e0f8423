"""The ClientApp of `flwr run`: a node with a file of its own reads that, a virtual node has synthetic users.

    flwr run . local --run-config 'users=5000 items=100 seed=1 out="result"'

Virtual nodes share the population of `fedhist run` with the same users, items and seed, so the release is the same too.
"""

from __future__ import annotations

from functools import lru_cache

from flwr.app import Context
from flwr.clientapp import ClientApp

from fedhist.client.app import (
    is_virtual,
    mount,
    node_identity,
    node_memory,
    node_policy,
    node_population,
)
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Population
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.simulations.datasets import DEFAULT_ITEMS
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise


def load(context: Context) -> Population:
    """The node's users."""
    if not is_virtual(context):
        return node_population(context)
    config = context.node_config
    number, parts = int(config["partition-id"]), int(config["num-partitions"])
    whole = _synthetic(
        _number(context, "users", None),
        _number(context, "synthetic-items", _number(context, "items", DEFAULT_ITEMS)),
        _number(context, "seed", 0),
    )
    start, stop = number * whole.users // parts, (number + 1) * whole.users // parts
    return SparsePopulation(whole.histograms.rows(start, stop))


def source(context: Context) -> Source:
    """The operating system, but for virtual nodes of a run with a seed: a seed of the server's is not for real data."""
    if not is_virtual(context) or context.run_config.get("seed", "") == "":
        return SystemSource()
    return SeededSource(_number(context, "seed", 0))


def _number(context: Context, name: str, default: int | None) -> int:
    value = context.run_config.get(name, "")
    if value == "" and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{name} is not a whole number", allowed=f"{name}=1000 in the run-config")
    return value


@lru_cache(maxsize=1)
def _synthetic(users: int, items: int, seed: int) -> SparsePopulation:
    """Once for each process, which serves many nodes."""
    return materialise(HeavyTailedPopulation(users=users, items=items, seed=seed))


client_app = mount(
    ClientApp(),
    load,
    policy=node_policy,
    source=source,
    memory=node_memory,
    identity=node_identity,
    simulated=is_virtual,
)
