"""Faults of a simulation: who is struck, what the server makes of it, and what the run says that it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhist import (
    HeavyTailedPopulation,
    Histograms,
    InvalidInput,
    Ledger,
    Plan,
    Result,
    RoundFailed,
    SeededSource,
    SparsePopulation,
    run_rounds,
    simulate,
    true_histogram,
)
from tests.support.api import (
    FAULTY,
    Asking,
    Cast,
    Fault,
    FaultKind,
    Request,
    Round,
    answer_population,
    engine_named,
    faults_of,
    materialise,
    others,
    read_faulty,
)

NODES, SEED = 20, 8
USERS = materialise(HeavyTailedPopulation(users=410, items=12, seed=2))
CLOSED = Plan(users=410, items=12)
L1 = Plan(users=410, items=12, mechanism="laplace")
OPEN = Plan(users=410, domain="open", max_threshold=60)
KEPT = Plan(users=410, domain="open", release="truncated-laplace", max_threshold=60)
DEBIASED = Plan(users=410, items=12, debias="poisson")
MASKED = Plan(users=410, items=12, masking="secagg", participants=NODES)
NAMES = [f"item {number}" for number in range(12)]
PLANS = {"closed": CLOSED, "l1": L1, "found": OPEN, "kept": KEPT, "debiased": DEBIASED}
ALL = {"slow": 0.05, "fail": 0.1, "malformed": 0.15, "out-of-bounds": 0.1, "inflate": 0.1}
COUNTED = {Fault.NO_ANSWER: 3, Fault.ERROR: 2, Fault.MALFORMED: 3, Fault.OUT_OF_BOUNDS: 2}


class InShards:
    """Users without parts, a few at a time."""

    users, domain_size, labels = 410, 12, NAMES

    def __init__(self, histograms: Histograms) -> None:
        self._histograms = histograms

    def shards(self) -> Iterator[Histograms]:
        for start in range(0, self.users, 37):
            yield self._histograms.rows(start, min(start + 37, self.users))


def run(plan: Plan, *, seed: int | None = SEED, truth: bool = True, **settings: Any) -> Result:
    engine = engine_named("in-process", nodes=NODES, **settings)
    return simulate(USERS, plan, seed=seed, evaluate=truth, engine=engine)


def cast(dropout: float = 0.0, faulty: dict[str, float] | None = None, *, seed: int = SEED) -> Cast:
    return Cast.drawn(faults_of(dropout, faulty), NODES, USERS.users, source=SeededSource(seed))


class TestWhoIsStruck:
    def test_shares_are_exact_and_no_node_is_struck_twice(self) -> None:
        drawn = cast(0.25, ALL)
        for round_ in Round:
            struck = drawn.missing(round_, masked=False) | drawn.lying(round_, masked=False)
            counts = {kind: list(struck.values()).count(kind) for kind in FaultKind}
            assert counts == {
                "dropout": 5,
                "slow": 1,
                "fail": 2,
                "malformed": 3,
                "out-of-bounds": 2,
                "inflate": 2,
            }

    def test_drop_outs_are_others_in_each_round_and_liars_are_the_same(self) -> None:
        drawn = cast(0.25, {"inflate": 0.1})
        assert len(set(drawn.dropped.values())) == len(Round)
        assert len({tuple(drawn.lying(round_, masked=False)) for round_ in Round}) == 1

    def test_a_seed_repeats_them_and_another_draws_others(self) -> None:
        assert cast(0.25, ALL) == cast(0.25, ALL)
        assert cast(0.25, ALL).faulty != cast(0.25, ALL, seed=9).faulty

    def test_every_user_has_one_node(self) -> None:
        drawn = cast()
        some, rest = drawn.places([3, 4, 19]), others(drawn.places([3, 4, 19]), USERS.users)
        held = [user for start, stop in (*some, *rest) for user in range(start, stop)]
        assert sorted(held) == list(range(USERS.users))
        assert others((), 5) == ((0, 5),)
        assert others(((0, 5),), 5) == ()


class TestWhatTheServerMakesOfIt:
    @pytest.mark.parametrize("name", PLANS)
    def test_each_kind_is_counted_for_what_it_is_and_only_lies_within_bounds_stay(self, name: str) -> None:
        result = run(PLANS[name], dropout=0.1, faulty=ALL)
        assert result.rounds
        for report in result.rounds.values():
            assert report.faults == COUNTED
            assert (report.nodes, report.answered) == (NODES, NODES - 10)
            assert report.users == USERS.users - cast(0.1, ALL).users_of(
                cast(0.1, ALL).missing(report.round, masked=False)
            )

    @pytest.mark.parametrize("kind", [kind.value for kind in FAULTY if kind is not FaultKind.INFLATE])
    def test_what_is_dropped_leaves_the_sum_of_the_others(self, kind: str) -> None:
        result = run(CLOSED, faulty={kind: 0.2})
        gone = cast(faulty={kind: 0.2}).missing(Round.RELEASE, masked=False)
        kept = [user for user in range(USERS.users) if not any(a <= user < b for a, b in cast().places(gone))]
        assert result.users["release"] == len(kept)
        assert exact(result, kept) == pytest.approx(0, abs=1e-9)

    @pytest.mark.parametrize("name", PLANS)
    def test_the_release_is_the_same_in_several_processes(self, name: str) -> None:
        alone, three = (run(PLANS[name], dropout=0.1, faulty=ALL, workers=workers) for workers in (1, 3))
        assert np.array_equal(alone.release.histogram, three.release.histogram)
        assert alone.faults == three.faults
        assert alone.diagnostics == three.diagnostics

    @pytest.mark.parametrize("name", PLANS)
    def test_users_are_the_same_however_a_population_reads_them(self, name: str) -> None:
        """In shards of any size, under numbers that begin anywhere, with names or without, and without parts."""
        later = replace(USERS.histograms, first_user=1_000)
        settings: dict[str, Any] = {"nodes": NODES, "dropout": 0.1, "faulty": ALL}
        releases = []
        for population in (SparsePopulation(later), SparsePopulation(later, labels=NAMES), InShards(later)):
            engine = engine_named("in-process", **settings)
            result = simulate(population, PLANS[name], seed=SEED, engine=engine)
            releases.append((result.release.histogram.tolist(), result.faults, result.users))
        assert releases[0] == releases[1] == releases[2]

    def test_charges_are_those_of_a_run_without_faults(self) -> None:
        with_faults, without = run(CLOSED, dropout=0.1, faulty=ALL), run(CLOSED)
        assert with_faults.tight == without.tight
        assert [c.name for c in with_faults.release.charges] == [c.name for c in without.release.charges]

    def test_too_few_fail_the_round_and_the_error_says_why(self) -> None:
        with pytest.raises(RoundFailed) as failed:
            run(Plan(users=410, items=12, minimum_cohort=400), dropout=0.1, faulty={"fail": 0.1})
        assert "plan asks for at least 400" in str(failed.value)
        assert "Of 20 nodes 16 are in the sum; dropped: 2 error, 2 no-answer" in str(failed.value)


def exact(result: Result, users: list[int]) -> float:
    """How far the diagnosed noise is from the release less the clipped sum of these users alone."""
    request = release_request(result.release.plan, result.threshold)
    values = np.zeros(12)
    for user in users:
        one = answer_population(request, USERS.part(user, user + 1), source=SeededSource(SEED))
        values += np.ldexp(one.values[:12], -request.round_plan.grid_bits)
    assert result.diagnostics is not None
    noise = np.abs(result.release.histogram - values).sum() / true_histogram(USERS).sum()
    return float(noise - result.diagnostics.noise_error)


def release_request(plan: Plan, threshold: float) -> Request:
    """What round 2 asks for at this threshold."""
    asked: list[Request] = []
    fixed = Plan.from_json(plan.to_json() | {"selector": "fixed", "threshold": threshold})
    with engine_named("in-process")(USERS, seed=SEED) as transport:
        run_rounds(
            fixed, transport, ledger=Ledger(), source=SeededSource(SEED),
            on_state=lambda state: asked.append(state.request) if isinstance(state, Asking) else None,
        )  # fmt: skip
    return asked[-1]


class TestWhatItSaysOfTheEffect:
    @pytest.mark.parametrize("name", PLANS)
    def test_the_run_without_faults_is_that_very_run(self, name: str) -> None:
        effect = run(PLANS[name], dropout=0.1, faulty=ALL).faults.effect
        without = run(PLANS[name])
        assert effect.loss_without_faults == pytest.approx(without.relative_loss, rel=1e-12)
        assert effect.threshold_without_faults == without.threshold
        assert without.faults is None

    @pytest.mark.parametrize("name", ["closed", "l1"])
    def test_lies_move_the_sum_by_what_is_reported(self, name: str) -> None:
        """Counted by hand: each liar's users have the last item alone, cut to the threshold, in l2 rounded below it."""
        plan = PLANS[name]
        result = run(plan, faulty={"inflate": 0.1})
        request = release_request(plan, result.threshold)
        drawn = cast(faulty={"inflate": 0.1})
        liars = drawn.lying(Round.RELEASE, masked=False)
        shift = np.zeros(12)
        for start, stop in drawn.places(liars):
            honest = answer_population(request, USERS.part(start, stop), source=SeededSource(SEED))
            shift -= np.ldexp(honest.values, -request.round_plan.grid_bits)
            shift[-1] += (stop - start) * result.threshold
        assert result.faults.effect.lies == pytest.approx(
            np.abs(shift).sum() / true_histogram(USERS).sum(), rel=1e-3 if name == "closed" else 1e-12
        )
        assert result.faults.effect.missing == 0
        assert result.faults.rounds["release"].users_lying == drawn.users_of(liars) == 42

    def test_the_sum_itself_moves_by_as_much(self) -> None:
        plan = Plan(users=410, items=12, selector="fixed", threshold=20)
        sums = []
        for faulty in ({}, {"inflate": 0.1}):
            with engine_named("in-process", nodes=NODES, faulty=faulty)(USERS, seed=SEED) as transport:
                run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(SEED))
                sums.append(transport.totals[Round.RELEASE].values)
        moved = np.ldexp(np.abs(sums[1] - sums[0]).sum(), -plan.grid_bits)
        effect = run(plan, faulty={"inflate": 0.1}).faults.effect
        assert effect.lies * true_histogram(USERS).sum() == pytest.approx(moved)
        assert 0 < (sums[1] - sums[0])[-1] <= np.ldexp(42 * 20, plan.grid_bits)

    @pytest.mark.parametrize("plan", [CLOSED, L1, KEPT], ids=["closed", "l1", "kept"])
    def test_missing_users_are_weighed_by_what_they_would_have_added(self, plan: Plan) -> None:
        """At a threshold above which there is nobody, that is all that they have."""
        unclipped = {"selector": "fixed", "threshold": 10_000, "max_threshold": 10_000}
        plan = Plan.from_json(plan.to_json() | unclipped)
        result, without = run(plan, dropout=0.25), run(plan)
        gone = cast(0.25).places(cast(0.25).missing(Round.RELEASE, masked=False))
        held = sum(true_histogram(USERS.part(*place)).sum() for place in gone)
        assert result.faults.effect.missing == pytest.approx(held / true_histogram(USERS).sum(), rel=1e-12)
        assert result.faults.effect.lies == 0
        # Clipping is measured on all users, as if nobody were missing.
        assert result.diagnostics.clipping_error == without.diagnostics.clipping_error == 0

    def test_the_loss_against_those_who_answered(self) -> None:
        result = run(CLOSED, dropout=0.25)
        gone = cast(0.25).places(cast(0.25).missing(Round.RELEASE, masked=False))
        answered = true_histogram(USERS) - sum(true_histogram(USERS.part(*place)) for place in gone)
        error = np.abs(result.release.histogram - answered).sum() / answered.sum()
        assert result.faults.effect.loss_of_answered == pytest.approx(error)

    def test_without_the_truth_there_are_counts_alone(self) -> None:
        document = run(CLOSED, dropout=0.1, faulty={"inflate": 0.1}, truth=False).to_json()
        assert set(document["faults"]) == {"nodes", "shares", "rounds"}
        assert document["faults"]["rounds"]["release"]["missing"] == {"dropout": 2}
        assert document["relative_loss"] is None
        assert "faults" not in document.get("not_private", [])

    def test_made_up_answers_are_no_release_and_drop_outs_are(self) -> None:
        lies, honest = (
            run(CLOSED, seed=None, truth=False, **kind)
            for kind in ({"faulty": {"inflate": 0.1}}, {"dropout": 0.1})
        )
        assert lies.to_json()["simulation_only"] is True
        assert "simulation only: 2 of 20 nodes made their answers up (--faulty)" in lies.notes
        assert honest.to_json()["simulation_only"] is False


class TestUnderMasks:
    def test_the_server_cannot_see_lies_of_any_size(self) -> None:
        within, beyond = (run(MASKED, faulty={kind: 0.1}) for kind in ("inflate", "out-of-bounds"))
        for result in (within, beyond):
            assert all(report.answered == NODES and not report.faults for report in result.rounds.values())
        # 42 users within the bounds add 42 times the threshold at most; out of bounds, that much for each item.
        assert beyond.faults.effect.lies > 5 * within.faults.effect.lies > 0
        assert beyond.relative_loss > 1

    def test_lies_within_the_bounds_are_those_without_masks(self) -> None:
        plain, masked = (run(plan, faulty={"inflate": 0.1}) for plan in (CLOSED, MASKED))
        assert np.array_equal(plain.release.histogram, masked.release.histogram)
        assert plain.faults == masked.faults

    def test_drop_outs_have_an_effect_too(self) -> None:
        result = run(MASKED, dropout=0.1)
        assert result.faults.rounds["release"].missing == {"dropout": 2}
        assert result.faults.effect.loss_without_faults == pytest.approx(run(MASKED).relative_loss)


class TestBadShares:
    @pytest.mark.parametrize(
        ("dropout", "faulty", "words"),
        [
            (1.0, {}, "--dropout is 1.0; allowed: a number from 0 to below 1"),
            (float("nan"), {}, "--dropout is nan"),
            (True, {}, "--dropout is True"),
            (0.0, {"lazy": 0.1}, "no kind 'lazy'.*slow, fail, malformed, out-of-bounds, inflate"),
            (0.0, {"dropout": 0.1}, "--dropout is an option of its own"),
            (0.0, {"slow": -0.1}, "--faulty slow=-0.1"),
            (0.0, {"slow": "0.1"}, "--faulty slow=0.1; allowed"),
            (0.0, ["slow"], "--faulty is"),
            (0.5, {"slow": 0.3, "fail": 0.2}, "are 1 of the nodes together; allowed: less than 1"),
        ],
    )
    def test_is_refused(self, dropout: Any, faulty: Any, words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            faults_of(dropout, faulty)

    @pytest.mark.parametrize(
        "texts", [["slow"], ["slow=many"], ["slow=.1", "slow=.2"], ["=.1"], ["slow=inf"]]
    )
    def test_a_text_that_is_no_share(self, texts: list[str]) -> None:
        with pytest.raises(InvalidInput, match="--faulty"):
            read_faulty(texts)
        assert read_faulty(["slow=.1", "fail=0.25"]) == {"slow": 0.1, "fail": 0.25}

    def test_more_nodes_than_users(self) -> None:
        with (
            pytest.raises(InvalidInput, match="410 users can't be spread over 411 nodes"),
            engine_named("in-process", nodes=411, dropout=0.1)(USERS, seed=1),
        ):
            pass
