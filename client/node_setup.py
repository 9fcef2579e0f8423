"""What `mount` takes, from a node's own configuration: functions of its Context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Context

from fedhist.client.node_config import NodeSettings, read_node_config
from fedhist.client.policy import Policy
from fedhist.protocol.histograms import Labels
from fedhist.protocol.labels.intervals import bin_labels, checked_edges
from fedhist.protocol.labels.item_list import read_items
from fedhist.protocol.plugins import load_files_once

if TYPE_CHECKING:
    from fedhist.protocol.masking.keys import Identity

Load = Callable[[Context], Any]
"""Returns a node's users, as whatever `fedhist.histogram` takes for data."""


def node_population(context: Context) -> NodeSettings:
    """The node's own configuration, for `mount` to read the users in its file or database, with or without a window.

    The server has no say in what is read, but for the window of its plan.
    """
    return read_node_config(context.node_config)


def node_items(context: Context) -> Labels | None:
    """The public list that the node's own configuration names as `items-path`, or its `bins`."""
    settings = read_node_config(context.node_config)
    if settings.bins is not None:
        return bin_labels(checked_edges(settings.bins))
    return None if settings.items_path is None else read_items(settings.items_path)


def node_policy(context: Context) -> Policy:
    """The limits in the node's own configuration."""
    return read_node_config(context.node_config).policy


def node_memory(context: Context) -> Path | None:
    """The file that the node's own configuration names as `memory-path`."""
    return read_node_config(context.node_config).memory_path


def node_identity(context: Context) -> Identity | None:
    """The key and the directory that the node's own configuration names; None if it names none."""
    return read_node_config(context.node_config).identity()


def node_plugins(context: Context) -> None:
    """Load the files that the node's own configuration names as `plugin`. The server has no say in them."""
    load_files_once(read_node_config(context.node_config).plugin)
