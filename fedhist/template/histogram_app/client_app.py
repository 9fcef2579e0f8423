"""The nodes: each answers with sums over its own users, if its own configuration admits the question."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from scipy.sparse import csr_array

from fedhist.client import is_virtual, mount, node_identity, node_memory, node_policy, node_population

from .items import ITEMS

USERS_OF_A_VIRTUAL_NODE = 2_000


def users_here(context: Context) -> Any:
    """The node's users: those in its own file or database, or synthetic ones in a simulation."""
    if not is_virtual(context):
        return node_population(context)
    random = np.random.Generator(np.random.Philox(int(context.node_config["partition-id"])))
    # On average a user has the first item four times and the last one once.
    return csr_array(random.poisson(np.linspace(4.0, 1.0, len(ITEMS)), (USERS_OF_A_VIRTUAL_NODE, len(ITEMS))))


app = mount(
    ClientApp(),
    users_here,
    items=ITEMS,
    policy=node_policy,
    memory=node_memory,
    identity=node_identity,
    simulated=is_virtual,
)
