"""What every engine must do: the same plan and seed give the same release, for every measurement there is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedhist import HeavyTailedPopulation, Ledger, Plan, Population, Release, SeededSource, run_rounds
from fedhist.testing import PLANS, Contract
from tests.support.api import EngineType as Engine
from tests.support.api import Round, RoundReport, Total, by_label, engine_named, require, variant

SEED = 8
PARTICIPANTS = 10
"""Of masked plans: enough of them for some to drop out."""
USERS = HeavyTailedPopulation(users=300, items=12, seed=2)

ENGINE_PLANS = PLANS | {"signed": Plan.from_json(PLANS["masked"].to_json() | {"masking": "secagg-signed"})}
"""One small plan of each kind, and of each kind of masks."""

ENGINE: Contract[EngineRuns] = Contract("engine")


@dataclass(frozen=True, eq=False)
class EngineRun:
    """What came of one plan."""

    release: Release = field(repr=False)
    totals: Mapping[Round, Total] = field(repr=False)
    reports: Mapping[Round, RoundReport] = field(repr=False)
    bytes_per_user: Mapping[Round, int] = field(repr=False)


@dataclass(frozen=True, eq=False)
class EngineRuns:
    """What came of the plans, by name, on the engine under test and on the one it is compared with."""

    here: Mapping[str, EngineRun]
    there: Mapping[str, EngineRun]


def plans_for(population: Population, plans: Mapping[str, Plan] = ENGINE_PLANS) -> dict[str, Plan]:
    """The plans for the users and items of a population."""
    items = population.domain_size
    changed = {
        name: variant(
            plan,
            users=population.users,
            **({"items": items, "sparsity": items} if plan.items else {}),
            **({"participants": PARTICIPANTS} if plan.participants else {}),
            **({"max_items": 2 * items} if plan.has_table else {}),
        )
        for name, plan in plans.items()
    }
    return {name: plan for name, plan in changed.items() if plan is not None}


def run_plans(engine: Engine, population: Population, plans: Mapping[str, Plan]) -> dict[str, EngineRun]:
    """All plans on an engine that is opened once: to start one may take long."""
    runs = {}
    with engine(population, seed=SEED) as transport:
        for name, plan in plans.items():
            release = run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(SEED))
            runs[name] = EngineRun(
                release, dict(transport.totals), dict(transport.reports), dict(transport.bytes_per_user)
            )
            transport.totals.clear()
    return runs


def compared(
    engine: Engine,
    *,
    population: Population = USERS,
    plans: Mapping[str, Plan] = ENGINE_PLANS,
    reference: Engine | None = None,
) -> EngineRuns:
    """What an engine and the reference make of the plans, over a population."""
    fitted = plans_for(population, plans)
    there = run_plans(reference or engine_named("in-process"), population, fitted)
    return EngineRuns(run_plans(engine, population, fitted), there)


def check_engine(
    engine: Engine,
    *,
    population: Population = USERS,
    plans: Mapping[str, Plan] = ENGINE_PLANS,
    reference: Engine | None = None,
    skip: Collection[str] = (),
) -> None:
    """Run all checks on an engine.

    Args:
        engine: opens a transport over a population.
        population: whose users it asks.
        plans: by name; they are made to fit the population.
        reference: the engine to compare with; in-process when left out. It must drop out the same participants.
        skip: names of checks that it can't pass.
    """
    ENGINE.run_all(compared(engine, population=population, plans=plans, reference=reference), skip)


@ENGINE.check
def the_same_plan_and_seed_give_the_same_release(runs: EngineRuns) -> None:
    """To the bit, with the same threshold, keys, errors and charges."""
    for name, one in runs.here.items():
        here, there = one.release, runs.there[name].release
        require(here.threshold == there.threshold, f"{name}: the threshold is another")
        require(np.array_equal(here.histogram, there.histogram), f"{name}: the histogram is another")
        require(_listed(here.labels) == _listed(there.labels), f"{name}: the labels are others")
        require(here.mechanism == there.mechanism, f"{name}: the mechanism is another")
        require(here.discovery_share == there.discovery_share, f"{name}: the discovery took another share")
        require(here.standard_error == there.standard_error, f"{name}: the standard error is another")
        require(here.charges == there.charges, f"{name}: the charges are others")


@ENGINE.check
def the_exact_totals_are_those_of_all_users(runs: EngineRuns) -> None:
    """In every round that the plan has, whatever hid them on the way."""
    for name, one in runs.here.items():
        totals, expected = one.totals, runs.there[name].totals
        require(set(totals) == set(expected), f"{name}: the rounds are {sorted(totals)}")
        for round_, total in totals.items():
            other = expected[round_]
            require(total.users == other.users, f"{name}, {round_}: {total.users} users, not {other.users}")
            require(np.array_equal(total.values, other.values), f"{name}, {round_}: the sum is another")
            same = by_label(total.keyed, 1, None) == by_label(other.keyed, 1, None)
            require(same, f"{name}, {round_}: the keys' sums are others")


@ENGINE.check
def every_round_is_reported(runs: EngineRuns) -> None:
    """With the users in its sum, and the bytes that a device sends."""
    for name, one in runs.here.items():
        for round_, total in one.totals.items():
            require(round_ in one.reports, f"{name}: there is no report of round {round_}")
            users = one.reports[round_].users
            require(users == total.users, f"{name}, {round_}: {users} users are reported, not {total.users}")
            require(one.bytes_per_user.get(round_, 0) > 0, f"{name}, {round_}: a device sends no bytes")


def _listed(labels: object) -> object:
    return None if labels is None else list(labels)  # type: ignore[call-overload]  # labels are a sequence
