"""Lists of operations over the whole system: whatever happens, a release is right and paid for, or there is none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from system_checks import check_values
from system_data import NODES, PLANS
from whole_system import KINDS, Crash, Operation, Outcome, System

from fedhist import BudgetExceeded, RoundFailed
from tests.support.api import Round

LONG = os.environ.get("FEDHIST_LONG") == "1"
PLENTY = 1e9
UNMASKED = [name for name, plan in PLANS.items() if not plan.is_masked]
MASKED = [name for name, plan in PLANS.items() if plan.is_masked]
# The scenarios of a short run are the same each time.
SHORT = {
    "deadline": None,
    "derandomize": not LONG,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate),
    "print_blob": True,
}
# Memories and ledgers sync every charge to disk; in memory that takes no time.
FOLDERS = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - made by tempfile


def operations(exchanges: int, most: int) -> st.SearchStrategy[list[Operation]]:
    operation = st.builds(
        Operation,
        kind=st.sampled_from(KINDS),
        exchange=st.integers(0, exchanges - 1),
        node=st.integers(0, NODES - 1),
        seed=st.integers(0, 2**16),
    )
    return st.lists(operation, max_size=most)


def play(
    runs: Sequence[tuple[str, Sequence[Operation]]], *, limit: float = PLENTY, budget: float = PLENTY
) -> list[Outcome]:
    """Run after run on the same nodes, with the same ledger; then everything that must hold is checked."""
    with tempfile.TemporaryDirectory(dir=FOLDERS) as folder:
        system = System(Path(folder), limit, budget)
        for name, chosen in runs:
            system.run(PLANS[name], chosen)
        system.check()
    return system.outcomes


def scenarios(names: list[str], exchanges: int) -> st.SearchStrategy[list[tuple[str, list[Operation]]]]:
    run = st.tuples(st.sampled_from(names), operations(exchanges, 4))
    return st.lists(run, min_size=1, max_size=2)


limits = st.sampled_from([PLENTY, PLENTY, 7.0, 13.0])


class TestGoodRuns:
    @pytest.mark.parametrize("name", PLANS)
    def test_each_kind_of_plan_is_released_and_right(self, name: str) -> None:
        (outcome,) = play([(name, [])])
        assert outcome.release is not None
        assert all(len(places) == NODES for places in outcome.included.values())


class TestScenarios:
    @given(runs=scenarios(UNMASKED, 2), limit=limits, budget=limits)
    @settings(max_examples=1000 if LONG else 40, **SHORT)
    def test_without_masks(
        self, runs: list[tuple[str, list[Operation]]], limit: float, budget: float
    ) -> None:
        play(runs, limit=limit, budget=budget)

    @given(runs=scenarios(MASKED, 10), limit=limits, budget=limits)
    @settings(max_examples=500 if LONG else 12, **SHORT)
    def test_with_masks(self, runs: list[tuple[str, list[Operation]]], limit: float, budget: float) -> None:
        play(runs, limit=limit, budget=budget)

    @given(
        names=st.permutations(list(PLANS)),
        chosen=operations(4, 2),
        order=st.lists(st.integers(0, 1), max_size=16),
        limit=limits,
    )
    @settings(max_examples=200 if LONG else 8, **SHORT)
    def test_two_runs_at_once_on_the_same_nodes(
        self, names: list[str], chosen: list[Operation], order: list[int], limit: float
    ) -> None:
        with tempfile.TemporaryDirectory(dir=FOLDERS) as folder:
            system = System(Path(folder), limit, PLENTY)
            system.run_two([PLANS[name] for name in names[:2]], chosen, order)
            system.check()
            assert len(system.outcomes) == 2


def at(kind: str, exchange: int, *places: int) -> list[Operation]:
    return [Operation(kind, exchange, place, seed=1) for place in places]


class TestTheModel:
    """The operations do what they say, so that scenarios are not all of good runs."""

    @pytest.mark.parametrize("kind", ["drop reply", "drop request", "error reply", "corrupt field", "leave"])
    @pytest.mark.parametrize("name", ["closed", "masked"])
    def test_a_node_that_is_lost_is_not_in_the_sum(self, name: str, kind: str) -> None:
        (outcome,) = play([(name, at(kind, 0, 2))])
        assert outcome.release is not None
        assert outcome.included[Round.SELECT] == set(range(NODES)) - {2}

    def test_a_crash_ends_the_run_and_the_next_one_goes_well(self) -> None:
        crashed, again = play([("closed", at("crash", 1, 0)), ("closed", [])])
        assert isinstance(crashed.error, Crash)
        assert again.release is not None

    def test_a_budget_stops_the_second_run(self) -> None:
        _, second = play([("closed", []), ("closed", [])], budget=7.0)
        assert isinstance(second.error, BudgetExceeded)

    def test_devices_limits_stop_the_second_run(self) -> None:
        _, second = play([("closed", []), ("closed", [])], limit=7.0)
        assert isinstance(second.error, RoundFailed)

    def test_a_wrong_value_would_be_seen(self) -> None:
        """One node too many in what is expected, and the comparison fails."""
        (outcome,) = play([("closed", at("drop reply", 1, 2))])
        assert outcome.release is not None
        assert outcome.included[Round.RELEASE] == set(range(NODES)) - {2}
        check_values(outcome.release, outcome)
        outcome.included[Round.RELEASE].add(2)
        with pytest.raises(AssertionError):
            check_values(outcome.release, outcome)
