"""Plans that choose their mechanism: what one user moves, what is charged, and which norm is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhist import Plan, simulate
from tests.builders import population_of
from tests.support.api import (
    NOTHING,
    Bound,
    ClippedSum,
    DecodeError,
    Envelope,
    InvalidPlan,
    NormTailsMeasurement,
    OutOfBounds,
    Request,
    Settled,
    Summed,
    UnexpectedMessage,
    WeightedNorms,
    basic_total,
    norm_pairs,
    planned_charges,
    read_statistic,
    score_sensitivity,
    selector_for,
    tight_total,
    total_of,
)
from tests.support.refusals import refused

ITEMS = 100
MASKS = {"masking": "secagg", "participants": 5}


def auto(**settings):
    return Plan(
        **{"users": 400, "items": ITEMS, "mechanism": "auto", "candidates": 24, "delta": 1e-4} | settings
    )


def spread(count: int, items: int) -> np.ndarray:
    row = np.zeros(ITEMS, dtype=np.int64)
    row[:items] = count
    return row


def telling_users() -> np.ndarray:
    """One to all items, from one count to far above every bound: all ratios of norms that there are."""
    counts = (1, 2, 5, 17, 60, 400, 10**6)
    return np.array([spread(c, k) for c in counts for k in (1, 2, 4, 8, 9, 15, 16, 17, 40, ITEMS)])


def scores_of(plan: Plan, rows: np.ndarray, lie: np.ndarray | int = 0) -> np.ndarray:
    total = total_of(NormTailsMeasurement(plan, NOTHING), rows)
    return (
        WeightedNorms().choice(plan, read_statistic(plan, replace(total, values=total.values + lie))).scores
    )


def spans(plan: Plan, others: np.ndarray, lie: np.ndarray | int = 0) -> np.ndarray:
    """The span of the moves of all scores, for each user who is added, or replaces a user without any item."""
    users = telling_users()
    with_each = np.array([scores_of(plan, np.vstack([others, row]), lie) for row in users])
    if plan.neighbours == "replace-one":
        moves = with_each[:, None] - with_each[None, ::3]
    else:
        moves = with_each - scores_of(plan, others, lie)
    return np.ptp(moves, axis=-1)


def crowds() -> dict[str, np.ndarray]:
    """Others whose tails meet the target at different candidates, or nowhere."""
    some = np.random.Generator(np.random.Philox(5))
    return {
        "nobody": np.zeros((1, ITEMS), dtype=np.int64),
        "alike": np.array([spread(3, 20)] * 60),
        "single": np.array([spread(size, 1) for size in range(1, 200)]),
        "a gap that is cut": np.array([spread(1, ITEMS)] * 395),
        "a gap that is cut the other way": np.array([spread(40, 1)] * 395),
        "mixed": np.array([spread(int(c), int(k)) for c, k in some.integers(1, 40, size=(150, 2))]),
    }


@pytest.mark.parametrize("sparsity", [1, 4, 16, ITEMS])
@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_one_user_moves_the_scores_by_no_more_than_their_span(neighbours, sparsity):
    # A large epsilon' cuts gaps that these few users can reach.
    plan = auto(neighbours=neighbours, sparsity=sparsity, epsilon_select=1.0)
    worst = max(spans(plan, others).max() for others in crowds().values())
    assert worst <= 2 * score_sensitivity(plan)
    if neighbours == "zero-out":
        assert worst >= 1.9 * score_sensitivity(plan), "the bound is met, up to rounding"


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_liars_under_masks_do_not_make_one_user_move_them_further(neighbours):
    plan = auto(neighbours=neighbours, **MASKS)
    source = np.random.Generator(np.random.Philox(7))
    length = NormTailsMeasurement(plan, NOTHING).shape.length
    for _ in range(6):
        lie = source.integers(-(2**63), 2**63, size=length)
        assert spans(plan, crowds()["mixed"], lie).max() <= 2 * score_sensitivity(plan)


def test_pairs_have_the_same_noise_and_stay_in_the_public_range():
    for plan in (
        auto(),
        auto(min_threshold=7.5, max_threshold=9.0),
        auto(epsilon=20.0),
        auto(max_threshold=1e6),
    ):
        pairs, ways = norm_pairs(plan), plan.ways
        for steps, way in ((pairs.l2, ways["gaussian"]), (pairs.l1, ways["laplace"])):
            lowest, highest = way.step_range
            assert ((lowest <= steps) & (steps <= highest)).all()
    pairs, ways = norm_pairs(auto()), auto().ways
    noises = [
        way.noise_price * np.ldexp(steps.astype(float), -way.grid_bits)
        for steps, way in ((pairs.l2, ways["gaussian"]), (pairs.l1, ways["laplace"]))
    ]
    np.testing.assert_allclose(noises[0], noises[1], rtol=1e-3)


def test_the_gap_is_the_mass_that_one_norm_keeps_and_the_other_does_not():
    plan = auto(sparsity=ITEMS)
    rows = crowds()["mixed"]
    pairs, tails = norm_pairs(plan), read_statistic(plan, total_of(NormTailsMeasurement(plan, NOTHING), rows))
    totals, norms = rows.sum(axis=1)[:, None], np.sqrt((rows**2).sum(axis=1))[:, None]
    a = np.ldexp(pairs.l2.astype(float), -plan.ways["gaussian"].grid_bits)
    b = np.ldexp(pairs.l1.astype(float), -plan.ways["laplace"].grid_bits)
    kept = np.minimum(totals, totals / norms * a) - np.minimum(totals, b)
    np.testing.assert_allclose(tails.gap / pairs.one, (kept / a).sum(axis=0), atol=0.2)


@pytest.mark.parametrize(("held", "mechanism"), [(1, "laplace"), (60, "gaussian")])
def test_users_of_one_item_get_laplace_noise_and_users_of_many_gaussian(held, mechanism):
    source = np.random.Generator(np.random.Philox(held))
    rows = np.array([spread(int(c), held) for c in 5 * (1 + source.pareto(1.3, 3000))])
    rows = source.permuted(rows, axis=1)
    plan = auto(users=len(rows), epsilon_select=2.0)
    result = simulate(population_of(rows), plan, seed=4)
    release = result.release
    assert (release.mechanism, release.plan) == (mechanism, plan)
    assert release.round_plan == plan.ways[mechanism]
    named = simulate(population_of(rows), plan.ways[mechanism], seed=4).release
    assert release.standard_error / release.threshold == pytest.approx(named.standard_error / named.threshold)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_what_is_charged_does_not_tell_and_is_what_was_planned(mechanism):
    rows = np.array([spread(9, 1 if mechanism == "laplace" else 60)] * 2000)
    plan = auto(users=len(rows), epsilon_select=5.0)
    release = simulate(population_of(rows), plan, seed=1).release
    assert release.mechanism == mechanism
    planned = planned_charges(plan)
    assert [(c.cost, c.loss) for c in release.charges] == [(c.cost, c.loss) for c in planned]
    assert basic_total(planned).delta == plan.delta
    assert tight_total(planned).epsilon <= plan.epsilon + plan.epsilon_select
    assert tight_total(planned).epsilon >= tight_total(planned_charges(plan.ways["gaussian"])).epsilon


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"debias": "poisson"}, "auto-mechanism"),
        ({**MASKS, "noise_from": "devices"}, "auto-mechanism"),
        ({"selector": "fixed", "threshold": 3.0}, "auto-mechanism"),
        ({"domain": "open", "items": None, "release": "truncated-laplace"}, "auto-mechanism"),
    ],
)
def test_runs_that_do_not_choose_by_norms_must_name_a_mechanism(settings, code):
    with refused(InvalidPlan, code):
        auto(**settings)


def test_other_selectors_must_have_a_mechanism_named():
    with refused(InvalidPlan, "selector-does-not-fit", "weighted-quantile"):
        selector_for(auto(selector="dpsgd"))


def test_what_is_not_settled_has_no_norm():
    for ask in ("norm", "unit_noise", "noise_price", "tail_cap"):
        with pytest.raises(LookupError):
            getattr(auto(), ask)
    with pytest.raises(LookupError):
        Plan(users=3, items=2).ways  # noqa: B018
    with pytest.raises(UnexpectedMessage):
        ClippedSum(auto(), Bound(auto().at_steps(4096)))


def fields_of(plan: Plan, settled: Settled) -> dict[str, object]:
    way = settled.plan_for(plan)
    given = Bound(way.one_way.at_steps(4096))
    return dict(Envelope("run", Request(plan, "clipped-sum", given, settled)).to_fields())


def test_a_device_takes_a_mechanism_with_the_release_alone_and_from_plans_that_leave_it_open():
    right = fields_of(auto(), Settled(mechanism="laplace"))
    assert Envelope.from_fields(right).request.round_plan == auto().ways["laplace"]
    early = Envelope("run", Request(auto(), "norm-tails")).to_fields() | {"mechanism": "laplace"}
    named = fields_of(Plan(users=400, items=ITEMS), Settled()) | {"mechanism": "laplace"}
    unsettled = {name: value for name, value in right.items() if name != "mechanism"}
    for wrong in (early, named, unsettled, right | {"mechanism": "none"}, right | {"mechanism": "auto"}):
        with pytest.raises(DecodeError):
            Envelope.from_fields(wrong)


def test_a_participant_cannot_carry_the_gap_around() -> None:
    """A mass in every bin that one bin alone may have: beyond 2^64 in all, where the gap would fall as it rises."""
    plan = auto(users=2 * 10**9, candidates=1000, max_threshold=1e5, sparsity=ITEMS)
    measurement = NormTailsMeasurement(plan, NOTHING)
    pairs, users, bins = measurement.pairs, plan.users - 1, len(measurement.pairs.l2)
    values = np.zeros(measurement.shape.length, dtype=np.int64)
    masses, counts = values[2 * bins + 2 : 3 * bins + 2], values[3 * bins + 2 : 4 * bins + 3]
    counts[0], masses[-1] = users, users * pairs.l2_totals[-1]
    measurement.check(Summed(values), users)
    masses[:] = users * pairs.l2_totals
    assert int(pairs.rates[-1]) * sum(masses.tolist()) > 2**61
    with refused(OutOfBounds, "out-of-bounds"):
        measurement.check(Summed(values), users)


def test_what_passes_the_check_stays_where_the_gap_is_read_as_it_is() -> None:
    """The weight of all users in the last bin and their mass in the first ones: twice what honest users have."""
    for plan in (auto(users=2**31, sparsity=ITEMS), auto(users=2**31, items=2**20, sparsity=2**20)):
        pairs = norm_pairs(plan)
        weight = plan.users * pairs.largest
        mass = max(int(rate) * int(most) for rate, most in zip(pairs.rates, pairs.l2_totals, strict=True))
        assert weight + plan.users * mass < 2**60 + 2**59
        assert plan.users * int(pairs.ratios.max()) < 2**60
