"""What a run is: its fields, their checks, and what they mean for masks and tables.

`Plan` loads when it is first used: the declaration of its fields is read without numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedhist.protocol.plan.plan import Plan

__all__ = ["Plan"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedhist.protocol.plan import plan

    return getattr(plan, name)
