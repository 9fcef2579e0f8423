"""Every released value is a whole multiple of the grid's step, whatever was drawn.

Floating-point noise would leave low-order bits that only one of two neighbours can have produced (Mironov 2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist import Ledger, Plan, SeededSource
from tests.support.api import Replay, crafted, run_rounds

ITEMS = 100
OTHERS = [[(0, 7), (1, 2)], [(1, 9), (2, 4)], [(3, 40)], *[[(4, 2), (5, 3)]] * 30]
"""Users whose clipped counts are not whole."""
CLOSED: list[dict[str, Any]] = [
    {"items": ITEMS, "mechanism": mechanism, "threshold": 2.7, "debias": debias}
    for mechanism in ("gaussian", "laplace")
    for debias in (None, "poisson")
]
OPEN: list[dict[str, Any]] = [
    {"domain": "open", "threshold": 3.0, "epsilon": 8.0, "delta": 0.4, "release": release}
    for release in ("truncated-laplace", "laplace-threshold")
]


@pytest.mark.parametrize("settings", CLOSED + OPEN)
def test_released_values_are_whole_multiples_of_the_step(settings: dict[str, Any]) -> None:
    plan = Plan(users=len(OTHERS), selector="fixed", max_threshold=8.0, **settings)
    population = crafted(OTHERS, ITEMS, [f"key {item}" for item in range(ITEMS)])
    cohort, shown = Replay(population, SeededSource(1)), []
    for seed in range(8):
        release = run_rounds(plan, cohort, ledger=Ledger(), source=SeededSource(seed))
        own = release.item_release
        shown.append(release.histogram if own is None else own.clipped)
    steps = np.ldexp(np.concatenate(shown), plan.grid_bits)
    assert len(steps)
    assert np.array_equal(steps, np.rint(steps))
