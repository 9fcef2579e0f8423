"""Masked rounds on nodes: who is asked, what a malicious server gets, and what lies in a node's memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from copy import deepcopy
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from local_grid import Fault, LocalGrid, Reports, changed, dead, outcome, silent, with_data

from fedhist import Plan, RoundFailed
from fedhist.client import Policy, mount
from fedhist.server import run_on_grid
from tests.asking import select_request
from tests.support.api import (
    MASKING,
    RECORD,
    DroppedOut,
    Envelope,
    Event,
    MemoryFile,
    Round,
    Shared,
    numbered_identities,
    recall,
)
from tests.support.api import restore_state as restore
from tests.support.refusals import refused

NODES = 6
IDENTITIES = numbered_identities([bytes([number]) * 32 for number in range(NODES)])
FOUND: dict[str, Any] = {
    "domain": "open",
    "mechanism": "gaussian",
    "max_threshold": 60,
    "epsilon": 8.0,
    "items": None,
    "max_items": 9,
}


def plan_of(**settings: Any) -> Plan:
    """Sixty users on six nodes, of which one may vanish."""
    usual = {"users": 60, "items": 6, "masking": "secagg", "participants": NODES, "dropout_share": 0.2}
    return Plan(**(usual | settings))


def grid_of(
    lab: Any, folder: Path | None = None, *, real: Collection[int] = (3,), named: bool = False, **options: Any
) -> Any:
    """Nodes with identities, which refuse no masking. In a folder the real ones have memory files."""
    whole = lab.population(named=named)
    usual: dict[str, Any] = {"policy": Policy(minimum_masking="none")}

    def app(place: int) -> ClientApp:
        settings = usual | {"identity": lambda context: IDENTITIES[place]} | options
        return mount(
            ClientApp(),
            lambda context: lab.part(whole, place, NODES),
            memory=lambda context: folder / f"{place}.db" if folder is not None and place in real else None,
            simulated=lambda context: folder is None or place not in real,
            **settings,
        )

    return LocalGrid.of(map(app, range(NODES)))


def run(grid: Any, plan: Plan | None = None, **options: Any) -> Reports:
    """The reports of a run."""
    reports, plan = Reports(), plan or plan_of()
    directory = IDENTITIES[0].directory if plan.is_signed else None
    run_on_grid(grid, plan, directory=directory, on_report=reports, timeout=5.0, **options)
    return reports


def exchanges(grid: Any) -> list[tuple[str, str, int]]:
    """Round, stage and number of nodes of each exchange."""
    named = [(m.metadata.group_id, m.metadata.message_type.removeprefix("query.")) for m in grid.asked]
    return [(*name, len(list(messages))) for name, messages in groupby(named)]


def stage_of(message: Message) -> tuple[str, str]:
    return str(message.metadata.group_id), message.metadata.message_type.removeprefix("query.")


def when(round_: str, stage: str, wrong: Fault) -> Fault:
    """A node that is as it should be but for one stage of one round."""

    def fault(message: Message, node: Any) -> list[Message]:
        return wrong(message, node) if stage_of(message) == (round_, stage) else [node.answer(message)]

    return fault


def before(action: Callable[[Message, Any], None]) -> Fault:
    """A node to which something happens before it answers."""

    def fault(message: Message, node: Any) -> list[Message]:
        action(message, node)
        return [node.answer(message)]

    return fault


def with_request(message: Message, **fields: Any) -> Message:
    """The message with other fields in its request."""
    copy = deepcopy(message)
    record = dict(copy.content.config_records[RECORD])
    copy.content.config_records[RECORD] = ConfigRecord(record | fields)
    return copy


def as_stage(message: Message, stage: str) -> Message:
    """The request of a message, as a request for another stage without a payload."""
    copy = Message(deepcopy(message.content), message.metadata.dst_node_id, f"query.{stage}")
    record = dict(copy.content.config_records[RECORD])
    record.pop(MASKING, None)
    copy.content.config_records[RECORD] = ConfigRecord(record)
    return copy


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 10),
        ({"masking": "secagg-signed"}, 12),
        ({"noise_from": "devices"}, 10),
        ({"selector": "fixed", "threshold": 50.0}, 5),
        (FOUND, 15),
        (FOUND | {"masking": "secagg-signed"}, 18),
    ],
    ids=str,
)
def test_every_round_takes_the_same_exchanges(lab: Any, settings: dict[str, Any], count: int) -> None:
    grid = grid_of(lab, named="domain" in settings)
    reports = run(grid, plan_of(**settings))
    assert len(exchanges(grid)) == count
    assert {report.answered for report in reports.values()} == {NODES}
    assert len({tuple(report.stages) for report in reports.values()}) == 1
    assert not any(report.faults for report in reports.values())


class TestWhoIsAsked:
    def test_of_more_nodes_than_participants_the_same_are_asked_again(self, lab: Any) -> None:
        grid = grid_of(lab)
        run(grid, plan_of(participants=5))
        asked = {
            round_: {m.metadata.dst_node_id for m in grid.asked if m.metadata.group_id == round_}
            for round_ in ("select", "release")
        }
        assert asked["select"] == asked["release"] and len(asked["select"]) == 5

    def test_one_that_leaves_between_the_rounds_is_not_asked(self, lab: Any) -> None:
        grid = grid_of(lab)
        ids = grid.get_node_ids
        grid.get_node_ids = lambda: [
            node for node in ids() if node != 103 or ("select", "unmasking", NODES) not in exchanges(grid)
        ]
        reports = run(grid)
        assert [(report.nodes, report.answered) for report in reports.values()] == [(6, 6), (5, 5)]
        assert not reports.faults(Round.RELEASE)

    def test_one_that_joins_between_the_rounds_takes_part(self, lab: Any) -> None:
        grid = grid_of(lab)
        ids = grid.get_node_ids
        grid.get_node_ids = lambda: [
            node for node in ids() if node != 103 or ("select", "unmasking", NODES - 1) in exchanges(grid)
        ]
        reports = run(grid)
        assert [report.answered for report in reports.values()] == [5, 6]

    @pytest.mark.parametrize("masking", ["secagg", "secagg-signed"])
    @pytest.mark.parametrize("how", ["silent", "dead", "restarted"])
    def test_one_that_misses_the_unmasking_takes_part_in_the_next_round(
        self, lab: Any, tmp_path: Path, masking: str, how: str
    ) -> None:
        def restarted(message: Message, node: Any) -> list[Message]:
            with closing(sqlite3.connect(tmp_path / "3.db")) as database:
                database.execute("DELETE FROM session")
                database.commit()
            return [node.answer(message)]

        grid = grid_of(lab, tmp_path)
        grid.nodes[103].fault = when(
            "select", "unmasking", {"silent": silent, "dead": dead, "restarted": restarted}[how]
        )
        reports = run(grid, plan_of(masking=masking))
        assert [report.answered for report in reports.values()] == [6, 6]
        assert not reports.faults(Round.RELEASE)
        assert MemoryFile(tmp_path / "3.db").read().spent.epsilon == pytest.approx(1.1)

    def test_one_that_refused_is_not_asked_again(self, lab: Any) -> None:
        grid = grid_of(lab)
        refusing = grid_of(lab, policy=Policy(minimum_masking="none", max_epsilon=0.5)).nodes[103]
        grid.nodes[103] = refusing
        reports = run(grid)
        assert [(report.nodes, report.answered) for report in reports.values()] == [(6, 5), (5, 5)]
        assert len(refusing.replies) == 1

    def test_those_that_failed_are_replaced_by_others(self, lab: Any) -> None:
        """Five of six take part. One of these sends nonsense, and the sixth takes its place."""
        grid, chosen = grid_of(lab), list[int]()

        def lie(message: Message, node: Any) -> list[Message]:
            reply = node.answer(message)
            first = node.context.node_id == min(asked_first(grid))
            if stage_of(message) == ("select", "checking") and first:
                chosen.append(node.context.node_id)
                return [with_data(reply, b"nonsense")]
            return [reply]

        for node in grid.nodes.values():
            node.fault = lie
        reports = run(grid, plan_of(participants=5))
        assert [(report.nodes, report.answered) for report in reports.values()] == [(5, 4), (5, 5)]
        asked = [m.metadata.dst_node_id for m in grid.asked if m.metadata.group_id == "release"]
        assert chosen and chosen[0] not in asked

    @pytest.mark.parametrize("data", [b"", b"x", bytes(96)], ids=len)
    def test_an_answer_without_shares_is_left_out_of_the_next_round(self, lab: Any, data: bytes) -> None:
        grid = grid_of(lab)
        grid.nodes[103].fault = when("select", "unmasking", changed(lambda _: data))
        reports = run(grid)
        assert [report.nodes for report in reports.values()] == [6, 5]
        assert reports.faults(Round.SELECT) == {"malformed": 1}


def asked_first(grid: Any) -> Sequence[int]:
    return [m.metadata.dst_node_id for m in grid.asked if stage_of(m) == ("select", "advertising")]


def kept(node: Any) -> Any:
    """What the node keeps of its masking session."""
    (state,) = node.context.state.config_records[MASKING].values()
    return restore(state)


class TestAMaliciousServer:
    """It asks a node for more than the protocol has."""

    def test_a_second_session_in_a_round_is_refused(self, lab: Any) -> None:
        def after(message: Message, node: Any) -> list[Message]:
            reply = node.answer(deepcopy(message))
            second = node.answer(as_stage(message, "advertising"))
            assert outcome(second) == ("refused", "second-request")
            assert isinstance(kept(node), Shared)
            return [reply]

        grid = grid_of(lab)
        grid.nodes[103].fault = when("release", "sharing", after)
        assert [report.answered for report in run(grid).values()] == [6, 6]
        assert recall(grid.nodes[103].context).spent.epsilon == pytest.approx(1.1)

    @pytest.mark.parametrize("change", ["run", "round", "plan", "threshold"])
    def test_keys_are_for_one_request(self, lab: Any, change: str) -> None:
        """A message of another is refused, charges nothing, and leaves the keys where they are."""
        other_plan = plan_of(epsilon=2.0)

        def ask(message: Message, node: Any) -> None:
            record = message.content.config_records[RECORD]
            changes: dict[str, dict[str, Any]] = {
                "run": {"run": "another"},
                "round": select_request(plan_of()).given.to_fields() | {"round": "select", "asks": "tail"},
                "plan": {"plan": json.dumps(other_plan.to_json()), "plan-digest": other_plan.digest},
                "threshold": {"threshold-steps": int(record["threshold-steps"]) + 1},
            }
            spent, state = recall(node.context).spent, kept(node)
            other = with_request(message, **changes[change])
            if change == "round":
                del other.content.config_records[RECORD]["threshold-steps"]
            assert outcome(node.answer(other)) == ("refused", "no-session")
            assert recall(node.context).spent == spent and kept(node) == state

        grid = grid_of(lab)
        grid.nodes[103].fault = when("release", "sharing", before(ask))
        assert run(grid)[Round.RELEASE].answered == 6

    def test_another_threshold_for_one_node_leaves_it_out(self, lab: Any) -> None:
        """It takes the first request of the round for the request, and answers no other."""

        def lie(message: Message, node: Any) -> list[Message]:
            threshold = message.content.config_records[RECORD]["threshold-steps"]
            other = with_request(message, **{"threshold-steps": int(threshold) + 1})
            assert outcome(node.answer(other))[0] == "answer"
            assert outcome(node.answer(message)) == ("refused", "second-request")
            return []

        grid = grid_of(lab)
        grid.nodes[103].fault = when("release", "advertising", lie)
        assert [report.answered for report in run(grid).values()] == [6, 5]

    def test_the_unmasking_twice_is_answered_once(self, lab: Any) -> None:
        def twice(message: Message, node: Any) -> list[Message]:
            reply = node.answer(deepcopy(message))
            assert outcome(node.answer(message)) == ("refused", "unsafe")
            return [reply]

        grid = grid_of(lab)
        grid.nodes[103].fault = when("select", "unmasking", twice)
        assert [report.answered for report in run(grid).values()] == [6, 6]

    def test_a_message_of_a_later_stage_does_not_mask_anything(self, lab: Any) -> None:
        """The keys are gone, and the node is out."""

        def skip(message: Message, node: Any) -> None:
            payload = message.content.config_records[RECORD][MASKING]
            early = with_request(as_stage(message, "masking"), **{MASKING: payload})
            assert outcome(node.answer(early))[0] == "answer"
            assert isinstance(kept(node), Shared)

        grid = grid_of(lab)
        grid.nodes[103].fault = when("release", "sharing", before(skip))
        assert run(grid)[Round.RELEASE].answered == 5


class TestTheNodesOwnLimits:
    def test_a_budget_that_another_run_has_used_is_refused_when_the_round_begins(
        self, lab: Any, tmp_path: Path
    ) -> None:
        """With its reason, before anything is shared."""
        policy, file = Policy(minimum_masking="none", max_epsilon=1.2), MemoryFile(tmp_path / "3.db")
        grid = grid_of(lab, tmp_path, policy=policy)
        events = list[Event]()

        def spend(message: Message, node: Any) -> None:
            other = with_request(message, run="another")
            assert outcome(node.answer(other))[0] == "answer"
            file.charge(policy, Envelope.from_fields(other.content.config_records[RECORD]))

        grid.nodes[103].fault = when("release", "advertising", before(spend))
        reports = run(grid, observe=events.append)
        assert [report.answered for report in reports.values()] == [6, 5]
        assert DroppedOut("release", "advertising", "node 4", "refused", "over-budget") in events
        memory = file.read()
        assert memory.spent.epsilon == pytest.approx(1.1) and len(memory.requests) == 2

    def test_a_floor_that_was_raised_between_the_rounds_holds(self, lab: Any) -> None:
        floor = [0]
        grid = grid_of(
            lab, policy=lambda context: Policy(minimum_masking="none", minimum_participants=floor[0])
        )

        def insist(message: Message, node: Any) -> None:
            floor[0] = NODES

        grid.nodes[100].fault = when("select", "unmasking", before(insist))
        with refused(RoundFailed, "too-few-survivors"):
            run(grid)
        assert {outcome(node.replies[-1]) for node in grid.nodes.values()} == {
            ("refused", "few-participants")
        }

    def test_used_keys_are_not_in_the_file_any_more(self, lab: Any, tmp_path: Path) -> None:
        """The secret that opens boxes is of no use once they are sealed."""
        secrets = list[bytes]()

        def look(message: Message, node: Any) -> list[Message]:
            with closing(sqlite3.connect(tmp_path / "3.db")) as database:
                ((state,),) = database.execute("SELECT state FROM session").fetchall()
            secrets.append(restore(state).box_pair.secret)
            assert secrets[0] in (tmp_path / "3.db").read_bytes()
            reply = node.answer(message)
            assert secrets[0] not in (tmp_path / "3.db").read_bytes()
            return [reply]

        grid = grid_of(lab, tmp_path)
        grid.nodes[103].fault = when("release", "sharing", look)
        run(grid)
        assert secrets


def test_no_data_is_read_before_the_peers_are_known(lab: Any) -> None:
    grid, read = grid_of(lab), list[tuple[str, str]]()

    def load(context: Context) -> Any:
        read.append(now[-1])
        return lab.part(lab.population(), 3, NODES)

    now = list[tuple[str, str]]()
    grid.nodes[103].app = mount(ClientApp(), load, simulated=lambda context: True)
    grid.nodes[103].fault = before(lambda message, node: now.append(stage_of(message)))
    run(grid)
    assert read == [("select", "masking"), ("release", "masking")]
