"""What one participant answers, what it refuses, and where its data comes from.

`fedhist.client.mount` puts our handlers on a Flower ClientApp; it loads Flower when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedhist.client.config import (
        is_virtual,
        node_identity,
        node_memory,
        node_policy,
        node_population,
        partition_loader,
    )
    from fedhist.client.flower import mount
    from fedhist.client.policy import Policy

__all__ = [
    "Policy",
    "is_virtual",
    "mount",
    "node_identity",
    "node_memory",
    "node_policy",
    "node_population",
    "partition_loader",
]

_HOME_OF = {
    "mount": "flower",
    "node_identity": "config",
    "node_memory": "config",
    "node_policy": "config",
    "node_population": "config",
    "Policy": "policy",
    "is_virtual": "config",
    "partition_loader": "config",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
