"""Warnings are true just where they begin, and silent just before; what is said after a run is right in each case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhist import Plan, Release, plan_warnings, simulate
from tests.builders import population_of
from tests.support.api import release_advice, selector_for

CLOSED: dict[str, Any] = {"users": 50_000, "items": 1_000}
ONE_RELEASE: dict[str, Any] = {"domain": "open", "release": "truncated-laplace"}
FIXED: dict[str, Any] = {"selector": "fixed", "threshold": 3.0}


def needed(plan: Plan) -> int:
    """The users that the plan's choice needs."""
    return int(np.ceil(selector_for(plan).resolution(plan)))


class TestNoise:
    @pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
    def test_it_exceeds_an_item_when_users_over_items_fall_below_the_standard_error(
        self, mechanism: str
    ) -> None:
        settings = {"items": 2_000, "mechanism": mechanism, "selector": "fixed", "threshold": 3.0}
        error = Plan(users=1, **settings).unit_noise * (1.0 if mechanism == "gaussian" else 2**0.5)
        enough = int(np.ceil(error * 2_000))
        assert plan_warnings(Plan(users=enough, **settings)) == {}
        warning = plan_warnings(Plan(users=enough - 1, **settings))["noise"]
        assert f"ask at least {enough:,} users" in warning

    def test_the_standard_error_is_that_of_the_release(self) -> None:
        plan = Plan(users=40, items=30, selector="fixed", threshold=8.0)
        release = simulate(population_of([[1] * 30] * 40), plan, seed=1).release
        assert f"{release.standard_error / 8:.3g} C" in plan_warnings(plan)["noise"]


class TestChoice:
    @pytest.mark.parametrize(
        "settings",
        [
            {"items": 10},
            {"items": 10, "mechanism": "laplace"},
            {"items": 10, "mechanism": "auto"},
            {"items": 10, "mechanism": "laplace", "selector": "quantile"},
            {"items": 3, "debias": "poisson"},
        ],
    )
    def test_it_is_close_to_chance_with_fewer_users_than_it_resolves(self, settings: dict[str, Any]) -> None:
        least = needed(Plan(users=1, **settings))
        assert plan_warnings(Plan(users=least, **settings)) == {}
        warning = plan_warnings(Plan(users=least - 1, **settings))["choice"]
        assert "Raise --epsilon-select" in warning
        assert ("--sparsity" in warning) == (
            settings.get("mechanism") != "laplace" and "debias" not in settings
        )


class TestRange:
    @pytest.mark.parametrize(
        "settings",
        [
            ONE_RELEASE,
            ONE_RELEASE | {"selector": "exponential-sharp"},
            {"items": 5, "selector": "output-perturbation"},
        ],
    )
    def test_a_largest_threshold_that_makes_the_choice_chance_is_to_be_lowered(
        self, settings: dict[str, Any]
    ) -> None:
        least = needed(Plan(users=1, **settings))
        assert plan_warnings(Plan(users=least, **settings)) == {}
        warning = plan_warnings(Plan(users=least // 2, **settings))["range"]
        advised = float(warning.split("to about ")[1].split(",")[0])
        assert plan_warnings(Plan(users=least // 2, max_threshold=advised * 0.98, **settings)) == {}
        assert plan_warnings(Plan(users=least // 2, max_threshold=advised * 1.1, **settings))


class TestOneUser:
    @pytest.mark.parametrize(
        "settings", [{"items": 5}, {"items": 5, "epsilon": 9.0}, {"domain": "open"}, ONE_RELEASE]
    )
    def test_a_cohort_of_one_is_warned_of_at_every_budget_and_of_nothing_else(
        self, settings: dict[str, Any]
    ) -> None:
        plan = Plan(users=1, **settings)
        assert list(plan_warnings(plan)) == ["users"]
        assert f"{plan.releasing.one_way.unit_error:.3g} C" in plan_warnings(plan)["users"]
        assert "users" not in plan_warnings(replace(plan, users=2))


class TestPromises:
    @pytest.mark.parametrize(
        ("enough", "weak"),
        [
            ({"epsilon": 10.0}, {"epsilon": 11.0}),
            ({"epsilon": 5.0, "epsilon_select": 5.0}, {"epsilon": 8.0, "epsilon_select": 8.0}),
            ({"epsilon_select": 10.0}, {"epsilon_select": 11.0}),
            ({"epsilon": 11.0, **FIXED}, {"epsilon": 11.1, **FIXED}),
            (
                {"epsilon": 10.8, "epsilon_select": 0.2, "mechanism": "laplace"},
                {"epsilon": 10.8, "epsilon_select": 0.21, "mechanism": "laplace"},
            ),
            (
                {"epsilon": 10.0, "items": None, "domain": "open"},
                {"epsilon": 11.0, "items": None, "domain": "open"},
            ),
        ],
    )
    def test_an_epsilon_of_all_rounds_that_protects_nobody(
        self, enough: dict[str, Any], weak: dict[str, Any]
    ) -> None:
        assert plan_warnings(Plan(**CLOSED | enough)) == {}
        warnings = plan_warnings(Plan(**CLOSED | weak))
        assert list(warnings) == ["epsilon"]
        assert "Lower --epsilon" in warnings["epsilon"]

    @pytest.mark.parametrize(
        ("field", "settings"),
        [("delta", {}), ("delta_select", {"selector": "dpsgd"}), ("delta", ONE_RELEASE)],
    )
    def test_a_delta_that_lets_a_user_go_entirely(self, field: str, settings: dict[str, Any]) -> None:
        plan = {"users": 100_000, **({} if "domain" in settings else {"items": 10}), **settings}
        assert plan_warnings(Plan(**plan, **{field: 1e-6})) == {}
        warning = plan_warnings(Plan(**plan, **{field: 1.1e-6}))["delta"]
        assert warning.startswith("delta 1.1e-06 is above 1/(10 users)")
        assert f"Lower --{field.replace('_', '-')} to 1e-06 or less" in warning

    @pytest.mark.parametrize("users", [1, 1_000, 100_000, 100_001, 3_000_000, 2**31])
    def test_the_delta_of_a_plan_that_names_none_is_small_enough_for_its_users(self, users: int) -> None:
        plan = Plan(users=users, items=10, selector="dpsgd")
        assert plan.delta == plan.delta_select == min(1e-6, 1 / (10 * users))
        assert "delta" not in plan_warnings(plan)


class TestBar:
    def test_a_key_of_all_users_does_not_pass_it(self) -> None:
        settings = ONE_RELEASE | {"selector": "fixed", "threshold": 3.0}
        (noise,) = Plan(users=1, **settings).open_noises(np.array([3]))
        least = noise.bar // 3 + 1
        assert plan_warnings(Plan(users=least, **settings)) == {}
        assert list(plan_warnings(Plan(users=noise.bar // 3, **settings))) == ["bar"]

    def test_nothing_is_found_by_so_few(self) -> None:
        settings = {"domain": "open", "selector": "fixed", "threshold": 3.0}
        terms = Plan(users=1, **settings).discovery
        most = terms.bars[-1] >> terms.bits
        assert list(plan_warnings(Plan(users=most, **settings))) == ["bar"]
        assert plan_warnings(Plan(users=most + 1, **settings)) == {}
        assert plan_warnings(Plan(users=most, known_items="park", **settings)) == {}


@pytest.mark.parametrize(
    "settings",
    [
        CLOSED,
        CLOSED | {"mechanism": "laplace"},
        CLOSED | {"masking": "secagg", "participants": 100, "noise_from": "devices"},
        {"users": 5_000, "items": 100},
        {"users": 6_000, "items": 8},
        {"users": 2_000, "items": 20},
        {"users": 20_000, "items": 1, "mechanism": "laplace", "debias": "poisson", "max_threshold": 4.0},
        {"users": 50_000, "domain": "open"},
        {"users": 50_000, "domain": "open", "masking": "secagg", "participants": 100},
        {"users": 10_000, "items": 200, "delta": 5e-6},
        {"users": 10_000, "delta": 5e-6} | ONE_RELEASE,
    ],
)
def test_the_documented_runs_are_not_warned_of(settings: dict[str, Any]) -> None:
    assert plan_warnings(Plan(**settings)) == {}


class TestEndsOfTheRange:
    plan = Plan(users=5_000, items=4, max_threshold=50.0)
    little = plan.noise_price * 50 / 4

    @pytest.mark.parametrize(
        ("changes", "threshold", "value", "words"),
        [
            ({}, 50.0, 9e4, ("if hardly any is, the range is wide enough", "if many users are above it")),
            ({}, 50.0, 0.9 * little, ("lower --max-threshold",)),
            ({}, 50.0, 1.1 * little, ("a higher --max-threshold loses less",)),
            ({"users": 50}, 50.0, 9e4, ("close to chance",)),
            ({"users": 50}, 1.0, 9e4, ("close to chance",)),
            ({}, 1.0, 1.0, ("raise --epsilon",)),
            ({}, 1.0, 1_000.0, ()),
            ({"min_threshold": 8.0}, 8.0, 1_000.0, ("a lower --min-threshold may lose less",)),
            ({}, 20.0, 1.0, ()),
            ({"selector": "fixed", "threshold": 50.0}, 50.0, 1.0, ()),
        ],
    )
    def test_a_threshold_at_an_end_says_what_it_may_mean_and_no_other_does(
        self, changes: dict[str, Any], threshold: float, value: float, words: tuple[str, ...]
    ) -> None:
        plan = replace(self.plan, **changes)
        values = np.full(4, value)
        notes = release_advice(Release(plan, threshold, values, 1.0, charges=(), private=True, seeded=False))
        assert len(notes) == bool(words)
        assert all(one in notes[0] for one in words)

    def test_the_rule_behind_it_holds_for_the_exact_sums_of_clipped_users(self) -> None:
        """Counts that are left are at least C times the weight above C, whoever the users are."""
        generator = np.random.Generator(np.random.Philox(3))
        rows = generator.pareto(1.2, size=(200, 4)) * 10
        norms = np.sqrt((rows**2).sum(axis=1))
        for bound in (5.0, 20.0, 80.0):
            left = (rows * np.minimum(1, bound / norms)[:, None]).sum()
            weight = (rows.sum(axis=1) / norms)[norms > bound].sum()
            assert left >= bound * weight

    @pytest.mark.parametrize("settings", [{}, {"release": "truncated-laplace"}])
    def test_nothing_released_names_what_it_takes(self, settings: dict[str, Any]) -> None:
        plan = Plan(users=12, domain="open", max_threshold=20.0, **settings)
        (note,) = release_advice(simulate(population_of([[3, 0], [0, 2]] * 6), plan, seed=1).release)
        assert note.startswith("nothing was released")
        assert "Ask more users" in note
