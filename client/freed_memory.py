"""Memory that was given out once stays with the process, and loaded modules are not searched for garbage."""

from __future__ import annotations

import gc
from functools import cache

import numpy as np

# Just below the largest block from which glibc learns, 32 MB.
_FREED_BYTES = 31 << 20


@cache
def keep_freed_memory() -> None:
    """Let this process keep the memory of temporary arrays for the next ones.

    Until a large array has been freed once, glibc returns a megabyte to the system whenever it is freed, and fetches it
    again page by page: rounds then take four times as long. This array is never filled, so it costs nothing.
    """
    np.empty(_FREED_BYTES, dtype=np.uint8)


@cache
def spare_loaded_modules() -> None:
    """Let the garbage collector leave alone what is loaded by now, for good.

    Loading more modules, such as polars, makes it search all objects of the process. Those of Flower's modules are many
    and live as long as the process does. A node starts a process for every message, and would search them every time.
    """
    gc.freeze()
