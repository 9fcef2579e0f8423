"""A trial under masks reads what a masked round would have summed, without the masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist import HeavyTailedPopulation, Plan, SeededSource
from tests.support.api import exact_total, masked_round, select_request, unmasked_total

POPULATION = HeavyTailedPopulation(users=60, items=8, seed=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"items": 8},
        {"items": 8, "noise_from": "devices"},
        {"items": 8, "mechanism": "laplace", "noise_from": "devices"},
    ],
)
def test_it_is_the_masked_total_to_the_bit(settings: dict[str, Any]) -> None:
    plan = Plan(users=60, masking="secagg", participants=7, **settings)
    request = select_request(plan)
    masked = masked_round(request, POPULATION, source=SeededSource(5)).total
    total = unmasked_total(request, POPULATION, source=SeededSource(5))
    assert (total.users, total.shares, total.width) == (masked.users, masked.shares, masked.width)
    assert np.array_equal(total.values, masked.values)
    exact = exact_total(request, POPULATION, source=SeededSource(5))
    assert np.array_equal(total.values, exact.values) == (plan.noise_from == "server")
