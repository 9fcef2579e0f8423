"""The nodes: each answers with sums over its own users, if its own configuration admits the question."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from scipy.sparse import csr_array

import fedhist
from fedhist.client.app import mount, node_identity, node_memory, node_policy
from fedhist.client.files.records import read_node_population

from .items import ITEMS

USERS_OF_A_VIRTUAL_NODE = 50


def is_virtual(context: Context) -> bool:
    """Whether Flower's Simulation Engine made the node. One with data of its own is never taken for virtual."""
    return "data-path" not in context.node_config and "partition-id" in context.node_config


def users_here(context: Context) -> fedhist.SparsePopulation:
    """The node's users: those in its file, or synthetic ones in a simulation."""
    if is_virtual(context):
        random = np.random.Generator(np.random.Philox(int(context.node_config["partition-id"])))
        counts = random.poisson(2.0, (USERS_OF_A_VIRTUAL_NODE, len(ITEMS)))
        return fedhist.SparsePopulation.from_scipy(csr_array(counts), labels=ITEMS)
    population, left_out = read_node_population(Path(str(context.node_config["data-path"])), items=ITEMS)
    if left_out:
        logging.getLogger("fedhist").warning("%d rows could not be read and were left out", left_out)
    return population


app = mount(
    ClientApp(),
    users_here,
    policy=node_policy,
    memory=node_memory,
    identity=node_identity,
    simulated=is_virtual,
)
