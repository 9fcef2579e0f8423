"""The two rounds as the server runs them: the coordinator, the selectors, and the one place that builds a release.

`fedhist.server.run_on_grid` runs them on the Grid of a Flower ServerApp; it loads Flower when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedhist.server.flower import run_on_grid
    from fedhist.server.ledger.runs import charged

__all__ = ["charged", "run_on_grid"]

_HOME_OF = {"charged": "ledger.runs", "run_on_grid": "flower"}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
