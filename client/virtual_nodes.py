"""Virtual nodes of Flower's Simulation Engine, and how one app serves them and real ones.

Flower gives a virtual node a `partition-id` and `num-partitions`, and apps switch on that.
"""

from __future__ import annotations

from typing import Any, Protocol

from flwr.app import Context

from fedhist.client.node_config import FLOWERS_KEYS, SOURCE_KEYS
from fedhist.client.node_setup import Load, node_population
from fedhist.protocol.errors import InvalidInput


class Partitioned(Protocol):
    """What is used of a `flwr_datasets.FederatedDataset`."""

    def load_partition(self, partition_id: int, split: str | None = None) -> Any:
        """The rows of one partition, a `datasets.Dataset`."""

    @property
    def partitioners(self) -> Any:
        """By split, what cuts it."""


def is_virtual(context: Context) -> bool:
    """Whether Flower's Simulation Engine made the node: it has its two keys, and no data or memory of its own.

    The node's own configuration decides, which no server has a say in. Not for deployed nodes whose configurations have
    the same two keys and nothing else of ours: they would be taken for virtual ones.
    """
    config, own = context.node_config, (*SOURCE_KEYS, "memory-path")
    return all(name in config for name in FLOWERS_KEYS) and not any(name in config for name in own)


def partition_loader(
    dataset: Partitioned, *, split: str | None = None, deployed: Load = node_population
) -> Load:
    """For `mount`: a virtual node has its partition of a `FederatedDataset`, a real one what is its own.

    Args:
        dataset: of flwr-datasets. Nothing is loaded before a node is asked.
        split: the name of the split, if several are partitioned.
        deployed: where the users of a real node are; in its configuration, if left out.
    """

    def load(context: Context) -> Any:
        if not is_virtual(context):
            return deployed(context)
        number, nodes = (int(context.node_config[name]) for name in FLOWERS_KEYS)
        rows = dataset.load_partition(number, split)
        (cut,) = [one for name, one in dataset.partitioners.items() if split in (None, name)]
        if cut.num_partitions != nodes:
            # Some rows would be nobody's, or some nodes would have none.
            raise InvalidInput(
                f"the data set has {cut.num_partitions} partitions, and the simulation {nodes} nodes",
                allowed="as many partitions as nodes",
                advice="set num-supernodes of the federation, or the partitioner's num_partitions",
                code="other-number-of-partitions",
            )
        return rows

    return load
