"""Sums of your own Flower messages under masks: a mod for the ClientApp, and a function for the ServerApp.

    @client_app.train(mods=[masking.mod()])             # the node: its arrays leave it masked, or not at all
    masking.sum_on_grid(grid, content, bound=8.0)       # the server: the sum of what the nodes' handlers return

The server sees the sum and who is in it. No differential privacy is claimed: `docs/masking-your-messages.md` says what
is. Names load when they are first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fedhist.client.masked_messages import is_virtual, mod
    from fedhist.server.masked_messages import NodeSum, sum_on_grid

__all__ = ["NodeSum", "is_virtual", "mod", "sum_on_grid"]

_HOME_OF = {
    "NodeSum": "server.masked_messages",
    "is_virtual": "client.masked_messages",
    "mod": "client.masked_messages",
    "sum_on_grid": "server.masked_messages",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"fedhist.{_HOME_OF[name]}"), name)
