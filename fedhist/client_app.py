"""The ClientApp of `flwr run`: a node with a file of its own reads that, a virtual node has synthetic users.

    flwr run . local --run-config 'users=5000 items=100 seed=1 out="result"'

Synthetic users belong to simulations, and a bundle carries none: a deployed node has no use for them. Inside a bundle
`fedhist` is the bundle's own package, so the simulations of the fedhist that is installed on the machine are added to
it, for virtual nodes and nobody else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp

import fedhist  # waits for the package as in fedhist.server_app
from fedhist.client.config import (
    NodeSettings,
    is_virtual,
    node_identity,
    node_items,
    node_memory,
    node_plugins,
    node_policy,
    node_population,
)
from fedhist.client.flower import mount
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Labels, Population
from fedhist.protocol.plugins import load_files_once
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource


def users(context: Context) -> Population | NodeSettings:
    """The node's users, or where they are."""
    return virtual_users(context) if is_virtual(context) else node_population(context)


def virtual_users(context: Context) -> Population:
    """The synthetic users of a virtual node."""
    fedhist.__path__.extend(place for place in places_with_simulations() if place not in fedhist.__path__)
    try:
        from fedhist.simulations.engines.synthetic_nodes import users_of
    except ImportError as error:
        raise InvalidInput(
            f"a virtual node needs fedhist's simulations, and a bundle has none ({error.name} is missing)",
            allowed="an environment in which the same version of fedhist is installed",
            advice="run pip install '.[simulation]' in the checkout, with the Python that runs flwr",
            code="no-simulations",
        ) from error
    return users_of(context.node_config, context.run_config)


def places_with_simulations() -> list[str]:
    """Where an installed fedhist, or a checkout on the path, has its sub-packages."""
    return [
        str(place)
        for entry in map(Path, sys.path)
        if (entry / "fedhist" / "__init__.py").is_file()
        for place in (entry / "fedhist", entry)
        if (place / "simulations" / "__init__.py").is_file()
    ]


def items(context: Context) -> Labels | None:
    """The node's public list. A virtual node has none: its items have the numbers of the plan."""
    return None if is_virtual(context) else node_items(context)


def plugins(context: Context) -> None:
    """Load what a node's own configuration names. A virtual node has none, no data either, and takes the run's."""
    named = context.run_config.get("plugin", "")
    if is_virtual(context) and isinstance(named, str):
        load_files_once(filter(None, named.split(":")))
    else:
        node_plugins(context)


def source(context: Context) -> Source:
    """The operating system. The run's seed is the server's choice, so only virtual nodes draw from it."""
    seed = context.run_config.get("seed", "")
    return SeededSource(seed) if is_virtual(context) and isinstance(seed, int) else SystemSource()


app = mount(
    ClientApp(),
    users,
    items=items,
    policy=node_policy,
    source=source,
    memory=node_memory,
    identity=node_identity,
    simulated=is_virtual,
    plugins=plugins,
)
