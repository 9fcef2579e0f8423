"""Masked rounds after the first begin with keys that came with the last answers of the round before."""

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
from local_grid import Fault, LocalGrid, Reports, changed, data_of, dead, outcome, silent, with_data

import fedhist
from fedhist import Plan, RoundFailed, SeededSource, simulate
from fedhist.client import Policy, mount
from fedhist.server import run_on_grid
from tests.asking import select_request
from tests.support.api import (
    HEADER_BYTES,
    MASKING,
    RECORD,
    DroppedOut,
    Envelope,
    Event,
    Identity,
    MemoryFile,
    Prepared,
    Round,
    Shared,
    numbered_identities,
    recall,
)
from tests.support.api import restore_state as restore
from tests.support.refusals import refused

NODES = 6
AHEAD = HEADER_BYTES + 96
"""The bytes of an advertisement without a signature."""
SIGNED_AHEAD = AHEAD + 64
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


class TestTheNumberOfExchanges:
    @pytest.mark.parametrize(
        ("settings", "count"),
        [
            ({}, 9),
            ({"masking": "secagg-signed"}, 11),
            ({"noise_from": "devices"}, 9),
            ({"selector": "fixed", "threshold": 50.0}, 5),
            (FOUND, 13),
            (FOUND | {"masking": "secagg-signed"}, 16),
            (FOUND | {"selector": "fixed", "threshold": 50.0}, 9),
        ],
        ids=str,
    )
    def test_each_round_after_the_first_has_one_less(
        self, lab: Any, settings: dict[str, Any], count: int
    ) -> None:
        grid = grid_of(lab, named="domain" in settings)
        reports = run(grid, plan_of(**settings))
        assert len(exchanges(grid)) == count
        assert [stage for _, stage, _ in exchanges(grid)].count("advertising") == 1
        assert {report.answered for report in reports.values()} == {NODES}
        first, *later = (list(report.stages) for report in reports.values())
        assert later == [first[1:]] * len(later)
        assert not any(report.faults for report in reports.values())

    @pytest.mark.parametrize("settings", [{}, {"masking": "secagg-signed"}, FOUND], ids=str)
    def test_the_release_is_that_of_the_engine_in_one_process_to_the_bit(
        self, lab: Any, settings: dict[str, Any]
    ) -> None:
        """Which asks for keys in every round."""
        plan, named = plan_of(**settings), "domain" in settings
        directory = IDENTITIES[0].directory if plan.is_signed else None
        grid = grid_of(lab, named=named, source=lambda context: SeededSource(5))
        there = run_on_grid(grid, plan, source=SeededSource(5), directory=directory)
        here = simulate(lab.population(named=named), plan, seed=5).release
        assert (there.threshold, there.histogram.tolist()) == (here.threshold, here.histogram.tolist())
        assert list(map(str, there.labels or ())) == list(map(str, here.labels or ()))

    def test_the_last_round_makes_no_keys(self, lab: Any) -> None:
        grid = grid_of(lab)
        run(grid)
        assert not any(isinstance(kept(node), Prepared) for node in grid.nodes.values())

    def test_of_more_nodes_than_participants_the_same_are_asked_again(self, lab: Any) -> None:
        grid = grid_of(lab)
        run(grid, plan_of(participants=5))
        assert len(exchanges(grid)) == 9
        asked = {
            round_: {m.metadata.dst_node_id for m in grid.asked if m.metadata.group_id == round_}
            for round_ in ("select", "release")
        }
        assert asked["select"] == asked["release"] and len(asked["select"]) == 5


class TestNodesThatComeAndGo:
    def test_one_that_leaves_between_the_rounds_is_not_asked(self, lab: Any) -> None:
        grid = grid_of(lab)
        ids = grid.get_node_ids
        grid.get_node_ids = lambda: [
            node for node in ids() if node != 103 or ("select", "unmasking", NODES) not in exchanges(grid)
        ]
        reports = run(grid)
        assert [(report.nodes, report.answered) for report in reports.values()] == [(6, 6), (5, 5)]
        assert len(exchanges(grid)) == 9 and not reports.faults(Round.RELEASE)

    @pytest.mark.parametrize("masking", ["secagg", "secagg-signed"])
    def test_one_that_is_silent_from_the_second_round_on_is_a_drop_out(self, lab: Any, masking: str) -> None:
        grid = grid_of(lab)
        grid.nodes[103].fault = when("release", "sharing", silent)
        reports = run(grid, plan_of(masking=masking))
        assert [report.answered for report in reports.values()] == [6, 5]
        assert reports.faults(Round.RELEASE) == {"no-answer": 1}

    @pytest.mark.parametrize("masking", ["secagg", "secagg-signed"])
    @pytest.mark.parametrize("how", ["silent", "answer lost", "dead", "restarted"])
    def test_one_that_misses_the_unmasking_is_asked_for_keys_alone(
        self, lab: Any, tmp_path: Path, masking: str, how: str
    ) -> None:
        """Also one that has made keys for the round, if the server never saw them."""

        def lost(message: Message, node: Any) -> list[Message]:
            assert outcome(node.answer(message))[0] == "answer"
            return []

        def restarted(message: Message, node: Any) -> list[Message]:
            with closing(sqlite3.connect(tmp_path / "3.db")) as database:
                database.execute("DELETE FROM session")
                database.commit()
            return [node.answer(message)]

        fault = {"silent": silent, "answer lost": lost, "dead": dead, "restarted": restarted}[how]
        grid = grid_of(lab, tmp_path)
        grid.nodes[103].fault = when("select", "unmasking", fault)
        reports = run(grid, plan_of(masking=masking))
        assert [report.answered for report in reports.values()] == [6, 6]
        assert ("release", "advertising", 1) in exchanges(grid)
        assert reports[Round.RELEASE].stages["advertising"].asked == 1
        assert not reports.faults(Round.RELEASE)
        assert MemoryFile(tmp_path / "3.db").read().spent.epsilon == pytest.approx(1.1)

    def test_one_that_joins_between_the_rounds_takes_part(self, lab: Any) -> None:
        grid = grid_of(lab)
        ids = grid.get_node_ids
        grid.get_node_ids = lambda: [
            node for node in ids() if node != 103 or ("select", "unmasking", NODES - 1) in exchanges(grid)
        ]
        reports = run(grid)
        assert [report.answered for report in reports.values()] == [5, 6]
        assert ("release", "advertising", 1) in exchanges(grid)

    def test_one_that_lost_its_keys_is_a_drop_out_of_the_second_round(self, lab: Any) -> None:
        grid = grid_of(lab)

        def forget(message: Message, node: Any) -> None:
            node.context.state.config_records.pop(MASKING)

        grid.nodes[103].fault = when("release", "sharing", before(forget))
        reports = run(grid)
        assert [report.answered for report in reports.values()] == [6, 5]
        assert outcome(grid.nodes[103].replies[-1]) == ("refused", "no-session")

    def test_one_that_refused_is_not_asked_again(self, lab: Any) -> None:
        grid = grid_of(lab)
        refusing = grid_of(lab, policy=Policy(minimum_masking="none", max_epsilon=0.5)).nodes[103]
        grid.nodes[103] = refusing
        reports = run(grid)
        assert [(report.nodes, report.answered) for report in reports.values()] == [(6, 5), (5, 5)]
        assert len(exchanges(grid)) == 9 and len(refusing.replies) == 1


def kept(node: Any) -> Any:
    """What the node keeps of its masking session."""
    (state,) = node.context.state.config_records[MASKING].values()
    return restore(state)


class TestAMaliciousServer:
    """It holds a node's keys for the next round, and asks the node for more than the protocol has."""

    def first_of_release(self, lab: Any, action: Callable[[Message, Any], None], **options: Any) -> Any:
        """Something happens to node 103 when it gets the first message of the release."""
        grid, seen = grid_of(lab, **options), list[Message]()

        def attack(message: Message, node: Any) -> None:
            seen.append(message)
            assert isinstance(kept(node), Prepared)
            action(message, node)

        grid.nodes[103].fault = when("release", "sharing", before(attack))
        grid.reports = run(grid)
        assert seen
        return grid

    def test_a_session_by_keys_on_request_after_one_by_keys_ahead_is_refused(self, lab: Any) -> None:
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

    def test_keys_on_request_take_the_place_of_keys_ahead(self, lab: Any) -> None:
        """So the roster with the keys ahead leads nowhere: the others' boxes for these do not open."""
        ahead: list[Any] = []

        def ask(message: Message, node: Any) -> None:
            ahead.append(kept(node))
            assert outcome(node.answer(as_stage(message, "advertising")))[0] == "answer"
            assert kept(node).box_pair != ahead[0].box_pair
            assert outcome(node.answer(as_stage(message, "advertising"))) == ("refused", "second-request")

        grid = self.first_of_release(lab, ask)
        report = grid.reports[Round.RELEASE]
        assert report.answered == 5 and report.left_out == {"bad-boxes": (103,)}
        # It never sent a vector of this round.
        assert recall(grid.nodes[103].context).spent.epsilon == pytest.approx(0.1)

    @pytest.mark.parametrize("change", ["run", "round", "plan"])
    def test_keys_are_for_one_round_of_one_run_of_one_plan(self, lab: Any, change: str) -> None:
        """A message of another is refused, charges nothing, and leaves the keys where they are."""
        other_plan = plan_of(epsilon=2.0)
        changes: dict[str, dict[str, Any]] = {
            "run": {"run": "another"},
            "round": select_request(plan_of()).given.to_fields() | {"round": "select", "asks": "tail"},
            "plan": {"plan": json.dumps(other_plan.to_json()), "plan-digest": other_plan.digest},
        }

        def ask(message: Message, node: Any) -> None:
            spent, state = recall(node.context).spent, kept(node)
            other = with_request(message, **changes[change])
            if change == "round":
                record = dict(other.content.config_records[RECORD])
                given = {name for name in record if name.startswith("threshold")}
                other.content.config_records[RECORD] = ConfigRecord(
                    {name: value for name, value in record.items() if name not in given}
                )
            assert outcome(node.answer(other)) == ("refused", "no-session")
            assert recall(node.context).spent == spent and kept(node) == state

        grid = self.first_of_release(lab, ask)
        assert grid.reports[Round.RELEASE].answered == 6

    def test_another_threshold_for_one_node_leaves_it_out(self, lab: Any) -> None:
        """It takes the first request of the round for the request, finds no box to open, and answers no other."""

        def lie(message: Message, node: Any) -> list[Message]:
            threshold = message.content.config_records[RECORD]["threshold-steps"]
            other = with_request(message, **{"threshold-steps": int(threshold) + 1})
            assert outcome(node.answer(other)) == ("refused", "unsafe")
            assert outcome(node.answer(message))[0] == "refused"
            assert outcome(node.answer(as_stage(message, "advertising"))) == ("refused", "second-request")
            return []

        grid = grid_of(lab)
        grid.nodes[103].fault = when("release", "sharing", lie)
        assert [report.answered for report in run(grid).values()] == [6, 5]

    def test_a_wrong_list_of_the_dead_gets_no_keys(self, lab: Any) -> None:
        def lie(message: Message, node: Any) -> list[Message]:
            payload = bytes(message.content.config_records[RECORD][MASKING])
            strangers = payload[:HEADER_BYTES] + (1).to_bytes(4, "little") + (7).to_bytes(8, "little")
            reply = node.answer(with_request(message, **{MASKING: strangers}))
            assert outcome(reply) == ("refused", "unsafe") and data_of(reply) is None
            assert not isinstance(kept(node), Prepared)
            return [reply]

        grid = grid_of(lab)
        grid.nodes[103].fault = when("select", "unmasking", lie)
        assert [report.answered for report in run(grid).values()] == [6, 6]

    def test_the_unmasking_twice_gets_keys_once(self, lab: Any) -> None:
        def twice(message: Message, node: Any) -> list[Message]:
            reply = node.answer(deepcopy(message))
            keys = kept(node)
            assert outcome(node.answer(message)) == ("refused", "no-session")
            assert kept(node) == keys
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

        grid = self.first_of_release(lab, skip)
        assert grid.reports[Round.RELEASE].answered == 5


class TestTheNodesOwnLimits:
    def test_a_budget_that_another_run_has_used_is_refused_when_the_round_begins(
        self, lab: Any, tmp_path: Path
    ) -> None:
        """With its reason, before anything is shared."""
        policy, file = Policy(minimum_masking="none", max_epsilon=1.2), MemoryFile(tmp_path / "3.db")
        grid = grid_of(lab, tmp_path, policy=policy)
        events = list[Event]()

        def spend(message: Message, node: Any) -> None:
            other = with_request(as_stage(message, "advertising"), run="another")
            assert outcome(node.answer(other))[0] == "answer"
            file.charge(policy, Envelope.from_fields(other.content.config_records[RECORD]))

        grid.nodes[103].fault = when("release", "sharing", before(spend))
        reports = run(grid, observe=events.append)
        assert [report.answered for report in reports.values()] == [6, 5]
        assert DroppedOut("release", "sharing", "node 4", "refused", "over-budget") in events
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

    def test_keys_of_an_identity_that_was_replaced_are_not_used(self, lab: Any) -> None:
        mine = [IDENTITIES[3]]
        grid = grid_of(lab)
        grid.nodes[103] = grid_of(lab, identity=lambda context: mine[0]).nodes[103]

        def replaced(message: Message, node: Any) -> None:
            mine[0] = Identity(b"\xee" * 32, IDENTITIES[3].directory)

        grid.nodes[103].fault = when("release", "sharing", before(replaced))
        reports = run(grid, plan_of(masking="secagg-signed"))
        assert [report.answered for report in reports.values()] == [6, 5]
        assert outcome(grid.nodes[103].replies[-1]) == ("refused", "no-session")

    def test_keys_that_nobody_used_for_a_day_are_gone(self, lab: Any, tmp_path: Path) -> None:
        grid = grid_of(lab, tmp_path)

        def wait(message: Message, node: Any) -> None:
            with closing(sqlite3.connect(tmp_path / "3.db")) as database:
                database.execute("UPDATE session SET kept = kept - 1.01")
                database.commit()

        grid.nodes[103].fault = when("release", "sharing", before(wait))
        assert [report.answered for report in run(grid).values()] == [6, 5]
        assert outcome(grid.nodes[103].replies[-1]) == ("refused", "no-session")

    def test_used_keys_are_not_in_the_file_any_more(self, lab: Any, tmp_path: Path) -> None:
        """The secret that opens boxes is of no use once they are sealed."""
        secrets = list[bytes]()

        def look(message: Message, node: Any) -> list[Message]:
            with closing(sqlite3.connect(tmp_path / "3.db")) as database:
                ((state,),) = database.execute("SELECT state FROM session").fetchall()
            prepared = restore(state)
            assert isinstance(prepared, Prepared)
            secrets.append(prepared.box_pair.secret)
            assert secrets[0] in (tmp_path / "3.db").read_bytes()
            reply = node.answer(message)
            assert secrets[0] not in (tmp_path / "3.db").read_bytes()
            return [reply]

        grid = grid_of(lab, tmp_path)
        grid.nodes[103].fault = when("release", "sharing", look)
        run(grid)
        assert secrets


def advertised(change: Callable[[bytes], bytes], size: int) -> Fault:
    """A node that changes the keys in its last answer of round 1, and nothing else."""
    return when("select", "unmasking", changed(lambda data: change(data[:size]) + data[size:]))


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


class TestAMaliciousParticipant:
    """It sends other keys than it should. Nobody else suffers, and the sum that it helped to unmask has it."""

    @pytest.mark.parametrize(
        "change",
        [flipped(0), flipped(3), flipped(20), lambda data: bytes(AHEAD)],
        ids=["magic", "kind", "session", "zeros"],
    )
    def test_what_is_no_advertisement_leaves_it_out_of_the_next_round(self, lab: Any, change: Any) -> None:
        grid = grid_of(lab)
        grid.nodes[103].fault = advertised(change, AHEAD)
        reports = run(grid)
        assert [report.answered for report in reports.values()] == [6, 5]
        assert reports.faults(Round.RELEASE) == {"malformed": 1}
        assert ("release", "advertising", 1) not in exchanges(grid)

    @pytest.mark.parametrize("place", [HEADER_BYTES, HEADER_BYTES + 64, AHEAD, SIGNED_AHEAD - 1])
    def test_a_signature_that_does_not_fit_leaves_it_out(self, lab: Any, place: int) -> None:
        grid = grid_of(lab)
        grid.nodes[103].fault = advertised(flipped(place), SIGNED_AHEAD)
        reports = run(grid, plan_of(masking="secagg-signed"))
        assert [report.answered for report in reports.values()] == [6, 5]
        assert reports.faults(Round.RELEASE) == {"malformed": 1}

    @pytest.mark.parametrize("masking", ["secagg", "secagg-signed"])
    def test_keys_of_another_run_are_none_of_this_one(self, lab: Any, masking: str) -> None:
        """Its own, and validly signed."""
        size = AHEAD if masking == "secagg" else SIGNED_AHEAD
        old, seen = grid_of(lab), list[bytes]()

        def noted(data: bytes) -> bytes:
            seen.append(data)
            return data

        old.nodes[103].fault = advertised(noted, size)
        run(old, plan_of(masking=masking))
        for header in (seen[0][:HEADER_BYTES], None):
            grid = grid_of(lab)
            grid.nodes[103].fault = advertised(
                lambda data, header=header: (header or data[:HEADER_BYTES]) + seen[0][HEADER_BYTES:], size
            )
            reports = run(grid, plan_of(masking=masking))
            out = reports[Round.RELEASE]
            assert out.answered == 5
            # Without signatures the server takes keys under a header of this session; the boxes give them away.
            if masking == "secagg" and header is None:
                assert out.left_out == {"bad-boxes": (103,)}
            else:
                assert reports.faults(Round.RELEASE) == {"malformed": 1}

    def test_another_node_s_keys_are_not_its_own(self, lab: Any) -> None:
        """In signed mode: it sends the advertisement of a node that answered before it."""
        seen, grid = list[bytes](), grid_of(lab)

        def copied(data: bytes) -> bytes:
            seen.append(data)
            return seen[0]

        for node in (102, 103):
            grid.nodes[node].fault = advertised(copied, SIGNED_AHEAD)
        reports = run(grid, plan_of(masking="secagg-signed"))
        assert [report.answered for report in reports.values()] == [6, 5]

    @pytest.mark.parametrize("data", [b"", b"x", bytes(AHEAD), bytes(AHEAD + 7)], ids=len)
    def test_an_answer_without_shares_is_left_out_with_its_keys(self, lab: Any, data: bytes) -> None:
        grid = grid_of(lab)
        grid.nodes[103].fault = when("select", "unmasking", changed(lambda _: data))
        reports = run(grid)
        assert [report.nodes for report in reports.values()] == [6, 5]
        assert reports.faults(Round.SELECT) == {"malformed": 1}

    def test_bad_shares_with_good_keys_are_not_trusted_in_the_next_round(self, lab: Any) -> None:
        grid = grid_of(lab)
        grid.nodes[103].fault = when(
            "select", "unmasking", changed(lambda data: data[:AHEAD] + b"none" + data[AHEAD + 4 :])
        )
        reports = run(grid)
        assert [report.nodes for report in reports.values()] == [6, 5]

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
        assert ("release", "advertising", 1) in exchanges(grid)


def asked_first(grid: Any) -> Sequence[int]:
    return [m.metadata.dst_node_id for m in grid.asked if stage_of(m) == ("select", "advertising")]


def test_two_runs_with_keys_ahead_at_once_do_not_mix_them(lab: Any, tmp_path: Path) -> None:
    """A node keeps the keys of each run apart."""
    grid, plan, begun = grid_of(lab, tmp_path, real=range(3)), plan_of(participants=3), list[Reports]()
    grid.nodes = {node: grid.nodes[node] for node in (100, 101, 102)}

    def another(message: Message, node: Any) -> None:
        if not begun:
            begun.append(Reports())
            begun.append(run(grid, plan))

    grid.nodes[100].fault = when("release", "sharing", before(another))
    begun.append(run(grid, plan))
    assert [[report.answered for report in reports.values()] for reports in begun[1:]] == [[3, 3]] * 2


def test_no_data_is_read_before_the_peers_are_known(lab: Any) -> None:
    """Also in a round that begins with sharing."""
    grid, read = grid_of(lab), list[tuple[str, str]]()

    def load(context: Context) -> Any:
        read.append(now[-1])
        return lab.part(lab.population(), 3, NODES)

    now = list[tuple[str, str]]()
    grid.nodes[103].app = mount(ClientApp(), load, simulated=lambda context: True)
    grid.nodes[103].fault = before(lambda message, node: now.append(stage_of(message)))
    run(grid)
    assert read == [("select", "masking"), ("release", "masking")]


SELECTOR = """
import fedhist
from fedhist.server.selection.contract import Selection, Selector


@fedhist.register
class Lowest(Selector):
    name = "lowest"

    def charges(self, plan):
        return ()

    def select(self, plan, statistic, *, source):
        return Selection(plan.at_steps(plan.step_range[0]))
"""


@pytest.mark.usefixtures("no_plugins")
def test_keys_for_a_round_that_does_not_come_are_for_no_other(lab: Any, tmp_path: Path) -> None:
    """A discovery is followed by a choice, but for a selector from outside that asks for nothing."""
    (tmp_path / "lowest.py").write_text(SELECTOR)
    fedhist.load_plugin(tmp_path / "lowest.py")
    grid = grid_of(lab, named=True)
    reports = run(grid, plan_of(**FOUND, selector="lowest"))
    assert {round_: report.answered for round_, report in reports.items()} == {
        Round.DISCOVER: 6,
        Round.RELEASE: 6,
    }
    assert ("release", "advertising", 6) in exchanges(grid)
    assert not any(report.faults for report in reports.values())
