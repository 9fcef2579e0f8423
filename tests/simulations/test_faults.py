"""Faults of a simulation: who is struck, what the server makes of it, and what the run says that it did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from tests.asking import release_at
from tests.support.api import (
    Fault,
    FaultAssignment,
    FaultKind,
    Floats,
    Request,
    Round,
    answer_population,
    engine_named,
    faults_of,
    materialise,
)
from tests.support.refusals import refused

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
ALL = {"fail": 0.25, "inflate": 0.1}
COUNTED = {Fault.NO_ANSWER: 2, Fault.ERROR: 5}


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


def cast(
    dropout: float = 0.0, faulty: dict[str, float] | None = None, *, seed: int = SEED
) -> FaultAssignment:
    return FaultAssignment.drawn(faults_of(dropout, faulty), NODES, USERS.users, source=SeededSource(seed))


def users_of(node: int) -> range:
    """The users of a node, by place."""
    return range(node * USERS.users // NODES, (node + 1) * USERS.users // NODES)


class TestWhoIsStruck:
    def test_shares_are_exact_and_no_node_is_struck_twice(self) -> None:
        drawn = cast(0.25, ALL)
        for round_ in Round:
            struck = drawn.struck(round_, masked=False)
            counts = {kind: list(struck.values()).count(kind) for kind in FaultKind}
            assert counts == {"dropout": 5, "fail": 5, "inflate": 2}
            assert {
                **drawn.missing(round_, masked=False),
                **dict.fromkeys(drawn.lying(round_, masked=False)),
            }.keys() == struck.keys()

    def test_under_masks_a_node_that_fails_sends_nothing_from_the_first_stage_on(self) -> None:
        drawn = cast(0.2, ALL)
        for round_ in Round:
            failing = {node for node, kind in drawn.faulty.items() if kind is FaultKind.FAIL}
            assert failing <= drawn.unheard(round_, "advertising") <= drawn.unheard(round_, "unmasking")
            assert (
                sum(map(len, drawn.silent[round_].values())) == len(drawn.unheard(round_, "unmasking")) == 9
            )
            assert failing <= drawn.missing(round_, masked=True).keys()
            assert not drawn.lying(round_, masked=True) & drawn.missing(round_, masked=True).keys()

    def test_drop_outs_are_others_in_each_round_liars_are_the_same_and_a_seed_repeats_them(self) -> None:
        drawn = cast(0.25, ALL)
        assert len({frozenset(nodes) for nodes in drawn.dropped.values()}) == len(Round)
        assert len({tuple(drawn.lying(round_, masked=False)) for round_ in Round}) == 1
        assert cast(0.25, ALL) == drawn
        assert cast(0.25, ALL, seed=9).faulty != drawn.faulty

    def test_every_user_has_one_node(self) -> None:
        held = [user for node in range(NODES) for user in users_of(node)]
        assert held == list(range(USERS.users))
        assert cast().users_of([3, 4, 19]) == sum(len(users_of(node)) for node in (3, 4, 19))


class TestWhatTheServerMakesOfIt:
    @pytest.mark.parametrize("name", PLANS)
    def test_each_kind_is_counted_for_what_it_is_and_only_lies_within_bounds_stay(self, name: str) -> None:
        result = run(PLANS[name], dropout=0.1, faulty=ALL)
        assert result.rounds
        for report in result.rounds.values():
            assert report.faults == COUNTED
            assert (report.nodes, report.answered) == (NODES, NODES - 7)
            gone = cast(0.1, ALL).missing(report.round, masked=False)
            assert report.users == USERS.users - cast(0.1, ALL).users_of(gone)

    @pytest.mark.parametrize("shares", [{"dropout": 0.2}, {"faulty": {"fail": 0.2}}], ids=["dropout", "fail"])
    def test_what_is_dropped_leaves_the_sum_of_the_others(self, shares: dict[str, Any]) -> None:
        result = run(CLOSED, **shares)
        gone = cast(**shares).missing(Round.RELEASE, masked=False)
        kept = [user for node in range(NODES) if node not in gone for user in users_of(node)]
        assert result.users["release"] == len(kept)
        request = release_at(CLOSED, CLOSED.at_steps(round(result.threshold * 2**CLOSED.grid_bits)))
        noise = np.abs(result.release.histogram - clipped_sum_of(kept, request)).sum()
        assert noise / true_histogram(USERS).sum() == pytest.approx(result.diagnostics.noise_error, abs=1e-9)

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


def clipped_sum_of(users: Iterable[int], request: Request) -> Floats:
    """Of these users alone, one after another."""
    values = np.zeros(12)
    for user in users:
        one = answer_population(request, USERS.part(user, user + 1), source=SeededSource(SEED))
        values += np.ldexp(one.values[:12], -request.round_plan.grid_bits)
    return values


class TestWhatItSaysOfTheEffect:
    @pytest.mark.parametrize("name", PLANS)
    def test_the_run_without_faults_is_that_very_run(self, name: str) -> None:
        effect = run(PLANS[name], dropout=0.1, faulty=ALL).faults
        without = run(PLANS[name])
        assert effect.loss_without_faults == pytest.approx(without.relative_loss, rel=1e-12)
        assert effect.threshold_without_faults == without.threshold
        assert without.faults is None

    def test_a_lie_adds_what_the_users_of_liars_can_add_at_most_and_to_the_last_item(self) -> None:
        """Counted by hand: each liar's users have the last item alone, cut to the threshold."""
        plan = Plan(users=410, items=12, mechanism="laplace", selector="fixed", threshold=20)
        sums = []
        for faulty in ({}, {"inflate": 0.1}):
            with engine_named("in-process", nodes=NODES, faulty=faulty)(USERS, seed=SEED) as transport:
                run_rounds(plan, transport, ledger=Ledger(), source=SeededSource(SEED))
                sums.append(np.ldexp(transport.totals[Round.RELEASE].values, -plan.grid_bits))
        liars = [
            user
            for node in cast(faulty={"inflate": 0.1}).lying(Round.RELEASE, masked=False)
            for user in users_of(node)
        ]
        honest = clipped_sum_of(liars, release_at(plan, plan.at_steps(20 * 2**plan.grid_bits)))
        claimed = np.zeros(12)
        claimed[-1] = len(liars) * 20
        assert len(liars) == 42
        assert sums[1] - sums[0] == pytest.approx(claimed - honest, abs=1e-9)

    def test_clipping_is_measured_on_all_users_as_if_nobody_were_missing(self) -> None:
        unclipped = {"selector": "fixed", "threshold": 10_000, "max_threshold": 10_000}
        for plan in (Plan.from_json(one.to_json() | unclipped) for one in (CLOSED, L1, KEPT)):
            result, without = run(plan, dropout=0.25), run(plan)
            assert result.diagnostics.clipping_error == without.diagnostics.clipping_error == 0
            assert result.users["release"] < without.users["release"]

    def test_without_the_truth_there_are_counts_alone(self) -> None:
        document = run(CLOSED, dropout=0.1, faulty={"inflate": 0.1}, truth=False).to_json()
        assert set(document["faults"]) == {"nodes", "shares", "rounds"}
        assert document["faults"]["rounds"]["release"] == {"dropout": 2, "inflate": 2}
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
    def test_the_server_cannot_see_lies(self) -> None:
        result = run(MASKED, faulty={"inflate": 0.1})
        assert all(report.answered == NODES and not report.faults for report in result.rounds.values())

    def test_a_node_that_fails_drops_out_before_it_sends_anything(self) -> None:
        result = run(MASKED, faulty={"fail": 0.1})
        assert all(report.stages["advertising"].answered == NODES - 2 for report in result.rounds.values())
        assert result.faults.rounds["release"] == {"fail": 2}
        plain = run(CLOSED, faulty={"fail": 0.1})
        assert np.array_equal(result.release.histogram, plain.release.histogram)


class TestBadShares:
    @pytest.mark.parametrize(
        ("dropout", "faulty", "told"),
        [
            (1.0, {}, ("bad-dropout", "--dropout", "1.0")),
            (float("nan"), {}, ("bad-dropout", "--dropout")),
            (True, {}, ("bad-dropout", "--dropout")),
            (0.0, {"lazy": 0.1}, ("unknown-fault", "lazy")),
            (0.0, {"dropout": 0.1}, ("unknown-fault", "--dropout")),
            (0.0, {"fail": -0.1}, ("bad-share", "--faulty")),
            (0.0, {"fail": "0.1"}, ("bad-share", "--faulty", "0.1")),
            (0.0, ["fail"], ("bad-faulty", "--faulty")),
            (0.5, {"fail": 0.3, "inflate": 0.2}, ("no-honest-node",)),
        ],
    )
    def test_is_refused(self, dropout: Any, faulty: Any, told: tuple[str, ...]) -> None:
        with refused(InvalidInput, *told):
            faults_of(dropout, faulty)

    def test_more_nodes_than_users(self) -> None:
        with (
            refused(InvalidInput, "bad-nodes", "410", "411"),
            engine_named("in-process", nodes=411, dropout=0.1)(USERS, seed=1),
        ):
            pass
