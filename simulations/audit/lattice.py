"""Audit of the outputs' form: every released value is a whole multiple of the grid's step, whatever was drawn.

Noise in floating point would leave low-order bits that only one of two neighbours can have produced (Mironov 2012).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedhist.protocol.plan import Plan
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.findings import Finding, Setting, exact
from fedhist.simulations.audit.worlds import Replay, User, crafted, release_of

_OTHERS: list[User] = [[(0, 7), (1, 2)], [(1, 9), (2, 4)], [(3, 40)]]


def lattice(setting: Setting) -> Finding:
    """Releases of all mechanisms, with users who are clipped to no whole count."""
    values = off = 0
    for release in _releases(setting):
        before = release.item_release
        shown = release.histogram if before is None else before.clipped
        steps = np.ldexp(shown, release.plan.grid_bits)
        values += len(shown)
        off += int(np.count_nonzero(steps != np.rint(steps)))
    return exact(setting.name, passed=off == 0, detail=f"{off:,} of {values:,} values off the grid")


def _releases(setting: Setting) -> Iterator[Release]:
    items, source = min(setting.effort.canaries, 4_000), setting.mechanism()
    users, labels = len(_OTHERS), [f"key {item}" for item in range(items)]
    plans = [
        Plan(
            users=users,
            items=items,
            mechanism=mechanism,
            selector="fixed",
            threshold=2.7,
            max_threshold=8.0,
            debias=debias,
        )
        for mechanism in ("gaussian", "laplace")
        for debias in (None, "poisson")
    ]
    plans += [
        Plan(
            users=users,
            domain="open",
            selector="fixed",
            threshold=3.0,
            max_threshold=8.0,
            epsilon=8.0,
            delta=0.4,
            release=release,
        )
        for release in ("truncated-laplace", "laplace-threshold")
    ]
    for number, plan in enumerate(plans):
        population = crafted(_OTHERS, items, labels if plan.is_open else None)
        draws = source.fork(number)
        yield release_of(plan, Replay(population, draws.fork("cohort")), source=draws)
