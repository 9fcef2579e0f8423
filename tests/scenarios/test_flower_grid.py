"""Both rounds over Flower messages: what a good cohort releases, and what each kind of bad node changes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from local_grid import (
    Fault,
    Reports,
    at,
    changed,
    data_of,
    dead,
    run_server_app,
    silent,
    with_data,
    with_field,
)

from fedhist import BudgetFile, InvalidInput, Plan, RoundFailed, SeededSource, simulate
from fedhist.server import run_on_grid
from tests.support.api import Round, RoundReport, read_settings, run_settings
from tests.support.refusals import refused

HEADER = 45
MODES: dict[str, dict[str, Any]] = {
    "gaussian": {"items": 6, "max_threshold": 60},
    "laplace": {"items": 6, "max_threshold": 60, "mechanism": "laplace"},
    "debiased": {"items": 6, "max_threshold": 60, "debias": "poisson", "mechanism": "laplace"},
    "discovered": {"domain": "open", "max_threshold": 60, "epsilon": 8.0},
    "discovered laplace": {"domain": "open", "max_threshold": 60, "epsilon": 8.0, "mechanism": "laplace"},
    "discovered auto": {"domain": "open", "max_threshold": 60, "epsilon": 8.0, "mechanism": "auto"},
    "discovered, some known": {
        "domain": "open",
        "max_threshold": 60,
        "epsilon": 8.0,
        "known_items": "1\nword 2",
    },
    "open": {"domain": "open", "release": "truncated-laplace", "max_threshold": 60, "epsilon": 5.0},
}


def plan_of(mode: str = "gaussian", users: int = 60, **changes: Any) -> Plan:
    return Plan(users=users, **(MODES[mode] | {"candidates": 16} | changes))


class TestAGoodCohort:
    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("mode", MODES)
    def test_it_releases_what_the_in_process_engine_does(self, lab: Any, mode: str, named: bool) -> None:
        whole, plan = lab.population(named=named), plan_of(mode)
        there = run_on_grid(
            lab.grid(whole, seed=5),
            plan,
            source=SeededSource(5),
            labels=None if plan.is_open else whole.labels,
        )
        here = simulate(whole, plan, seed=5).release
        assert there.threshold == here.threshold
        assert np.array_equal(there.histogram, here.histogram)
        assert there.labels == here.labels
        assert there.discovery_share == here.discovery_share
        assert there.charges == here.charges
        assert there.keys is here.keys is None

    def test_noise_comes_from_the_operating_system_unless_told_otherwise(self, lab: Any) -> None:
        whole = lab.population()
        one, other = (run_on_grid(lab.grid(whole), plan_of()) for _ in range(2))
        assert not one.seeded
        assert not np.array_equal(one.histogram, other.histogram)

    def test_reports_tell_cohorts_and_no_values(self, lab: Any, caplog: pytest.LogCaptureFixture) -> None:
        reports = Reports()
        caplog.set_level("INFO", "fedhist")
        grid = lab.grid(lab.population())
        run_on_grid(grid, plan_of(), on_report=reports, timeout=9.0)
        assert [(r.nodes, r.answered, r.users) for r in reports.values()] == [(6, 6, 60)] * 2
        assert all(message.metadata.ttl == 9.0 for message in grid.asked)
        assert [record.message.split(",")[0] for record in caplog.records] == [
            "round select: asking 6 nodes",
            "round select: 6 of 6 nodes",
            "round release: asking 6 nodes",
            "round release: 6 of 6 nodes",
        ]

    def test_a_server_app_logs_the_warnings_and_the_split_before_it_asks(
        self, lab: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "fedhist")
        config = {"users": 60, "items": 6, "total-epsilon": 1.1, "minimum-cohort": 10}
        run_settings(lab.grid(lab.population()), read_settings(config))
        first, second, third = (record.message for record in caplog.records[:3])
        assert first.startswith("total epsilon 1.1: ")
        assert second.startswith("the choice of the threshold will be close to chance")
        assert third == "round select: asking 6 nodes"


def unasked(message: Message, node: Any) -> list[Message]:
    message.metadata.__dict__["_message_id"] = "another"
    return [node.answer(message)]


def for_another(message: Message, node: Any) -> list[Message]:
    reply = node.answer(message)
    reply.metadata.__dict__["_src_node_id"] = 105
    return [reply]


def floats(message: Message, node: Any) -> list[Message]:
    reply = node.answer(message)
    return [with_data(reply, data_of(reply), dtype="float64")]


def without_bytes(message: Message, node: Any) -> list[Message]:
    reply = node.answer(message)
    del reply.content.array_records["fedhist-answer"]
    return [reply]


def beyond_the_norm(message: Message, node: Any) -> list[Message]:
    """Every value is one that the users might have, but not all of them at once."""
    fields = message.content.config_records["fedhist"]
    largest = 10 * fields["threshold-steps"] if fields["round"] == "release" else 10

    def change(data: bytes) -> bytes:
        return data[:HEADER] + np.full((len(data) - HEADER) // 4, largest, dtype="<i4").tobytes()

    return changed(change)(message, node)


def other_field(**fields: Any) -> Fault:
    return lambda message, node: [with_field(node.answer(message), **fields)]


FAULTS: dict[str, tuple[Fault, dict[str, int]]] = {
    "silent": (silent, {"no-answer": 1}),
    "dead": (dead, {"error": 1}),
    "unasked": (unasked, {"stranger": 1, "no-answer": 1}),
    "for another": (for_another, {"stranger": 1, "no-answer": 1}),
    "of an older run": (other_field(run="older"), {"other-run": 1}),
    "of another plan": (other_field(plan_digest=bytes(32)), {"other-plan": 1}),
    "another plan inside": (changed(lambda data: data[:4] + bytes(32) + data[36:]), {"malformed": 1}),
    "too short": (changed(lambda data: data[:-1]), {"malformed": 1}),
    "too long": (changed(lambda data: data + bytes(4)), {"malformed": 1}),
    "floats": (floats, {"malformed": 1}),
    "without bytes": (without_bytes, {"malformed": 1}),
    "empty": (lambda message, node: [Message(RecordDict(), reply_to=message)], {"malformed": 1}),
    "beyond a value": (
        changed(lambda data: data[:-4] + (2**31 - 1).to_bytes(4, "little")),
        {"out-of-bounds": 1},
    ),
    "beyond the norm": (beyond_the_norm, {"out-of-bounds": 1}),
}


class TestOneBadNode:
    @pytest.mark.parametrize("mode", ["gaussian", "laplace"])
    @pytest.mark.parametrize("fault", FAULTS)
    def test_it_is_dropped_and_counted_and_the_rest_is_released(
        self, lab: Any, fault: str, mode: str
    ) -> None:
        """The release is the one of a cohort in which the node does not take part."""
        whole, plan, reports = lab.population(), plan_of(mode), Reports()
        change, counted = FAULTS[fault]
        grid = lab.grid(whole, seed=5, faults={2: change})
        release = run_on_grid(grid, plan, source=SeededSource(5), on_report=reports)
        without = lab.grid(whole, seed=5)
        del without.nodes[102]
        expected = run_on_grid(without, plan, source=SeededSource(5))
        assert np.array_equal(release.histogram, expected.histogram)
        for round_ in (Round.SELECT, Round.RELEASE):
            assert reports.faults(round_) == counted
            assert (reports[round_].answered, reports[round_].users) == (5, 50)

    @pytest.mark.parametrize("round_", Round)
    def test_one_that_misses_a_round_of_a_discovery_is_in_the_others(self, lab: Any, round_: Round) -> None:
        reports = Reports()
        grid = lab.grid(lab.population(), faults={2: at(round_.value, silent)})
        run_on_grid(grid, plan_of("discovered"), on_report=reports)
        assert {one: reports[one].users for one in Round} == dict.fromkeys(Round, 60) | {round_: 50}

    def test_one_that_declares_more_users_than_the_plan_has(self, lab: Any) -> None:
        reports = Reports()
        grid = lab.grid(lab.population(), faults={0: changed(partial(declaring, 61))})
        run_on_grid(grid, plan_of(), on_report=reports)
        assert reports.faults(Round.RELEASE) == {"out-of-bounds": 1}


def declaring(users: int, data: bytes) -> bytes:
    """The answer with another number of users in its header."""
    return data[:36] + users.to_bytes(4, "little") + data[40:]


class TestACohortThatIsTooSmall:
    def test_more_users_than_planned_fail(self, lab: Any) -> None:
        with refused(RoundFailed, "too-many-users", "60", "59"):
            run_on_grid(lab.grid(lab.population()), plan_of(users=59))

    def test_too_few_nodes_fail(self, lab: Any) -> None:
        grid = lab.grid(lab.population())
        with refused(RoundFailed, "too-few-nodes"):
            run_on_grid(grid, plan_of(), minimum_nodes=7, node_timeout=0.01)
        assert grid.asked == []

    def test_a_node_that_leaves_between_the_rounds_is_left_out(self, lab: Any) -> None:
        grid, reports = lab.grid(lab.population()), Reports()
        gone = next(iter(grid.nodes))

        def leave(report: RoundReport) -> None:
            reports(report)
            grid.nodes.pop(gone, None)

        run_on_grid(grid, plan_of(minimum_cohort=50), minimum_nodes=6, node_timeout=0.01, on_report=leave)
        assert [report.answered for report in reports.values()] == [6, 5]


CONFIG = {"users": 60, "items": 6, "max_threshold": 60, "candidates": 16, "mechanism": "", "timeout": 5}


class TestServerApp:
    def run(self, grid: Any, **config: Any) -> None:
        run_server_app(grid, CONFIG | config)

    def test_it_writes_the_result_folder_and_charges_the_ledger(self, lab: Any, tmp_path: Path) -> None:
        whole = lab.population()
        self.run(lab.grid(whole, seed=4), seed=4, out=str(tmp_path / "r"))
        self.run(lab.grid(whole), ledger=str(tmp_path / "l.db"))
        document = json.loads((tmp_path / "r" / "result.json").read_text())
        plan = Plan(users=60, items=6, max_threshold=60, candidates=16)
        expected = simulate(whole, plan, seed=4).release
        written = np.loadtxt(tmp_path / "r" / "histogram.csv", delimiter=",", skiprows=1)[:, 1]
        assert np.array_equal(written, expected.histogram)
        assert document["plan_digest"] == plan.digest.hex()
        assert document["simulation_only"] is True
        assert document["rounds"]["release"]["users"] == 60
        assert [run.status for run in BudgetFile.open(tmp_path / "l.db", create=False).runs()] == ["released"]

    def test_a_failed_run_writes_nothing_and_the_ledger_says_so(self, lab: Any, tmp_path: Path) -> None:
        grid = lab.grid(lab.population(), faults={0: at("release", silent)})
        with pytest.raises(RoundFailed):
            self.run(grid, minimum_cohort=60, out=str(tmp_path / "r"), ledger=str(tmp_path / "l.db"))
        (run,) = BudgetFile.open(tmp_path / "l.db", create=False).runs()
        assert (run.status, run.reason, len(run.charges)) == ("failed", "RoundFailed", 1)
        assert {path.name for path in tmp_path.iterdir()} == {"l.db"}

    @pytest.mark.parametrize(
        ("config", "code"),
        [
            ({"colour": 1}, "unknown-key"),
            ({"users": ""}, "no-users"),
            ({"timeout": 0}, "bad-timeout"),
            ({"seed": "x"}, "bad-value"),
            ({"minimum_nodes": 0}, "bad-minimum"),
        ],
    )
    def test_a_bad_run_config_asks_nobody(self, lab: Any, config: dict[str, Any], code: str) -> None:
        grid = lab.grid(lab.population())
        with refused(InvalidInput, code):
            self.run(grid, **config)
        assert grid.asked == []

    def test_names_of_items_come_from_the_public_list(self, lab: Any, tmp_path: Path) -> None:
        whole = lab.population(named=True)
        (tmp_path / "items.txt").write_text("\n".join(whole.labels))
        self.run(lab.grid(whole), out=str(tmp_path / "r"), items_file=str(tmp_path / "items.txt"))
        lines = (tmp_path / "r" / "histogram.csv").read_text().splitlines()
        assert [line.split(",")[0] for line in lines[1:]] == list(whole.labels)
