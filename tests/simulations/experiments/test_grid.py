"""The grid of a comparison: what goes together, what is left out, and why."""

from __future__ import annotations

from typing import Any

import pytest

from fedhist import InvalidInput
from tests.support.api import SIZED, SYNTHETIC, Combinations, Grid, UserSet, combinations, grid_of
from tests.support.refusals import refused

USERS = UserSet(kind="poisson", name="poisson", users=500, items=20)


def found(selectors: str | None = None, users: int = 500, **settings: Any) -> Combinations:
    listed = None if selectors is None else selectors.split(",")
    return combinations(grid_of(selectors=listed, settings=settings), [USERS], {USERS.key: (users, 20)})


def kinds(of: Combinations) -> list[tuple[str, str]]:
    return [(plan.selector, plan.mechanism) for plan in of.plans.values()]


def test_selectors_that_nobody_named_are_those_that_fit_each_mechanism() -> None:
    grid = found(mechanism=["gaussian", "laplace", "auto"])
    assert kinds(grid) == [
        ("weighted-quantile", "gaussian"), ("oracle", "gaussian"), ("dpsgd", "gaussian"),
        ("m-quantile", "gaussian"), ("output-perturbation", "gaussian"), ("weighted-quantile", "laplace"),
        ("quantile", "laplace"), ("oracle", "laplace"), ("weighted-quantile", "auto"),
    ]  # fmt: skip
    assert grid.note is None


def test_named_ones_that_do_not_go_together_are_left_out_and_counted() -> None:
    grid = found("weighted-quantile,quantile", mechanism=["gaussian", "laplace"], debias=["none", "poisson"])
    assert [plan.debias for plan in grid.plans.values()] == [None, "poisson", None, None, "poisson"]
    assert sum(grid.left_out.values()) == 3
    assert grid.note is not None and grid.note.startswith("3 of 8 combinations")
    assert "quantile does not go with the gaussian mechanism" in grid.note


def test_an_epsilon_that_one_mechanism_refuses_stays_with_the_other() -> None:
    grid = found(
        "weighted-quantile", mechanism=["gaussian", "laplace"], epsilon=[0.5, 2], release="classic-gaussian"
    )
    assert [(plan.mechanism, plan.epsilon) for plan in grid.plans.values()] == [
        ("gaussian", 0.5), ("laplace", 0.5), ("laplace", 2.0),
    ]  # fmt: skip
    assert "classic-gaussian was asked for epsilon" in (grid.note or "")


def test_masked_ones_have_participants_and_noise_from_devices_needs_masks() -> None:
    grid = found("weighted-quantile", users=40, masking=["none", "secagg"], noise_from=["server", "devices"])
    assert [(plan.masking, plan.noise_from, plan.participants) for plan in grid.plans.values()] == [
        ("none", "server", None), ("secagg", "server", 40), ("secagg", "devices", 40),
    ]  # fmt: skip
    assert "1 of 4" in (grid.note or "")


@pytest.mark.parametrize(
    ("selectors", "settings", "told"),
    [
        (None, {"noise_from": "devices"}, ("masking-settings-unused", "--masking")),
        ("exponential-v", {}, ("selector-does-not-fit", "exponential-v")),
        ("exponential-v,median", {}, ("no-combination", "exponential-v")),
        ("weighted-quantil", {}, ("unknown-selector", "weighted-quantil")),
        ("oracle", {"mechanism": "cauchy"}, ("bad-value", "cauchy", "mechanism")),
        ("oracle", {"debias": "binomial"}, ("bad-value", "binomial")),
        ("oracle", {"epsilons": 1.0}, ("unknown-setting", "epsilons")),
        ("oracle", {"candidates": [3, 4]}, ("several-values", "candidates")),
        ("fixed", {}, ("no-threshold",)),
        ("oracle", {"total_delta": 1e-6}, ("total-delta-alone", "total-delta", "total-epsilon")),
        ("oracle", {"epsilon": [1 + n / 1e5 for n in range(10_001)]}, ("too-many-combinations", "10,001")),
    ],
)  # fmt: skip
def test_what_leaves_nothing_is_refused_with_the_reason(
    selectors: str | None, settings: dict[str, Any], told: tuple[str, ...]
) -> None:
    with refused(InvalidInput, *told):
        found(selectors, **settings)


def test_help_lists_the_populations_that_have_sizes() -> None:
    assert SIZED == SYNTHETIC


def test_no_delta_alone_asks_for_the_mechanism_that_needs_none() -> None:
    assert {plan.mechanism for plan in found("oracle", delta=0.0).plans.values()} == {"laplace"}
    assert isinstance(grid_of(selectors="oracle", settings={}), Grid)
