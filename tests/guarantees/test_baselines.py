"""The paper's baselines that draw noise step by step: all steps together cost what is charged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedhist import Neighbours, Plan, SeededSource
from tests.support.api import (
    COUNTED,
    SELECTORS,
    WEIGHT_BITS,
    Noise,
    Tail,
    gaussian_epsilon,
    tail_count,
    tail_weight,
)


@pytest.mark.parametrize("neighbours", COUNTED)
@pytest.mark.parametrize("selector", ["dpsgd", "m-quantile"])
def test_all_steps_together_have_the_noise_that_their_budget_asks_for(
    selector: str, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many Gaussian steps are one of as many times the precision, exactly."""
    plan = Plan(
        users=500, items=4, sparsity=1, max_threshold=64.0, candidates=16, mechanism="gaussian", selector=selector,
        epsilon_select=0.5, delta_select=1e-6, neighbours=neighbours,
    )  # fmt: skip
    drawn: list[tuple[Noise, int]] = []
    draw = Noise.draw

    def watched(noise: Noise, size: int, **named: Any) -> Any:
        drawn.append((noise, size))
        return draw(noise, size, **named)

    monkeypatch.setattr(Noise, "draw", watched)
    falling = np.linspace(500, 0, 16).astype(np.int64)
    tail = Tail(counts=falling, weights=falling << WEIGHT_BITS, users=500, width=64)
    SELECTORS.with_installed()[selector].select(plan, tail, source=SeededSource(1))
    ((noise, steps),) = drawn
    moved = {
        "dpsgd": tail_weight(plan.tail_cap, neighbours=neighbours),
        "m-quantile": tail_count(neighbours=neighbours),
    }[selector]
    assert steps > 10
    spent = gaussian_epsilon(noise.standard_deviation / moved.value / math.sqrt(steps), plan.delta_select)
    assert 0.49 < spent <= 0.5
