"""Audit of the lattice: every released value is a whole multiple of the grid's step, whatever was drawn.

Floating-point noise would leave low-order bits that only one of two neighbours can have produced (Mironov 2012).
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from fedhist.protocol.plan import Plan
from fedhist.simulations.audit.findings import Finding, Setting, none_wrong
from fedhist.simulations.audit.worlds import Replay, User, crafted, release_of

_OTHERS: list[User] = [[(0, 7), (1, 2)], [(1, 9), (2, 4)], [(3, 40)]]


def lattice(setting: Setting) -> Finding:
    """Releases of all mechanisms, with users whose clipped counts are not whole."""
    items, source = min(setting.effort.canaries, 4_000), setting.mechanism()
    population = crafted(_OTHERS, items, [f"key {item}" for item in range(items)])
    usual: dict[str, Any] = {"users": len(_OTHERS), "selector": "fixed", "max_threshold": 8.0}
    plans = [
        Plan(items=items, mechanism=mechanism, threshold=2.7, debias=debias, **usual)
        for mechanism, debias in product(("gaussian", "laplace"), (None, "poisson"))
    ]
    plans += [
        Plan(domain="open", threshold=3.0, epsilon=8.0, delta=0.4, release=release, **usual)
        for release in ("truncated-laplace", "laplace-threshold")
    ]
    values = off = 0
    for number, plan in enumerate(plans):
        draws = source.fork(number)
        release = release_of(plan, Replay(population, draws.fork("cohort")), source=draws)
        before = release.item_release
        shown = release.histogram if before is None else before.clipped
        steps = np.ldexp(shown, plan.grid_bits)
        values += len(shown)
        off += int(np.count_nonzero(steps != np.rint(steps)))
    return none_wrong(setting, off, values, "values off the grid")
