"""A node that contributed nothing spent nothing, and its operator and the server's know why."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from local_grid import (
    Reports,
    at,
    context_of,
    data_of,
    message_of,
    outcome,
    run_server_app,
    silent,
)

from fedhist import Plan, RoundFailed
from fedhist.client import Policy
from fedhist.server import run_on_grid
from tests.asking import select_request
from tests.builders import population_of
from tests.support.api import Envelope, MemoryFile, Refusal, Refused, Round, TooFewSurvivors, items_digest
from tests.support.api import app_module as client_app
from tests.support.api import round_handlers_module as round_handlers
from tests.support.refusals import refused

PLAN = Plan(users=9, items=2, max_threshold=60)
MASKED = Plan(users=60, items=6, masking="secagg", participants=12, dropout_share=0.2)
NAMES = ["a", "b"]


@pytest.fixture
def node(tmp_path: Path) -> dict[str, Any]:
    """The configuration of a good node."""
    (tmp_path / "d.csv").write_text("user,item\nann,a\nann,b\nbob,b\n")
    (tmp_path / "items.txt").write_text("a\nb\n")
    return {
        "data_path": str(tmp_path / "d.csv"),
        "items_path": str(tmp_path / "items.txt"),
        "memory_path": str(tmp_path / "m.db"),
        "max_epsilon": 5.0,
    }


def asked(run: str = "one", plan: Plan = PLAN) -> Message:
    envelope = Envelope(run=run, request=select_request(plan), items_digest=items_digest(NAMES))
    return message_of(envelope, "advertising" if plan.is_masked else None)


def spent(node: dict[str, Any]) -> float:
    memory = Path(node["memory_path"])
    return MemoryFile(memory).read().spent.epsilon if memory.exists() else 0.0


def missing_data(node: dict[str, Any]) -> None:
    Path(node["data_path"]).unlink()


def missing_items(node: dict[str, Any]) -> None:
    Path(node["items_path"]).unlink()


def other_items(node: dict[str, Any]) -> None:
    Path(node["items_path"]).write_text("b\na\n")


def no_table(node: dict[str, Any]) -> None:
    Path(node["data_path"]).write_text("name,page\nann,a\n")


def an_open_quote(node: dict[str, Any]) -> None:
    Path(node["data_path"]).write_text('user,item\nann,"a\nbob,b\n')


def no_users(node: dict[str, Any]) -> None:
    Path(node["data_path"]).write_text("user,item\n")


def no_budget(node: dict[str, Any]) -> None:
    node["max_epsilon"] = 0.5


def no_data(node: dict[str, Any]) -> None:
    del node["data_path"]


WRONG: dict[Callable[[dict[str, Any]], None], tuple[str, str, str]] = {
    missing_data: ("failed", "missing-file", "d.csv"),
    missing_items: ("failed", "missing-file", "items.txt"),
    other_items: ("refused", "other-items", "items.txt"),
    no_table: ("failed", "bad-file", "d.csv"),
    an_open_quote: ("failed", "bad-file", "d.csv"),
    no_users: ("refused", "no-users", "d.csv"),
    no_budget: ("refused", "over-budget", "m.db"),
    no_data: ("failed", "bad-configuration", "data-path"),
}


class TestANode:
    @pytest.mark.parametrize("wrong", WRONG)
    def test_it_says_why_in_its_log_and_spends_nothing(
        self, node: dict[str, Any], caplog: pytest.LogCaptureFixture, wrong: Any
    ) -> None:
        status, reason, file = WRONG[wrong]
        wrong(node)
        for run in ("one", "two", "three"):
            reply = client_app.app(asked(run), context_of(**node))
            assert outcome(reply) == (status, reason)
            line = caplog.records[-1].getMessage()
            assert f"run {run}, round select: {status}, {reason}: {Refusal(reason).in_words}" in line
            assert file in line
            assert file not in repr(dict(reply.content.config_records["fedhist"]))
        assert len(caplog.records) == 3
        assert spent(node) == 0

    def test_reading_does_not_depend_on_the_request(self, node: dict[str, Any]) -> None:
        """A file that can't be read fails with the same words, whatever is asked: one bit, and always the same."""
        no_table(node)
        plans = [
            Plan(users=9, items=2, max_threshold=most, epsilon=epsilon, selector=selector)
            for most in (60, 600)
            for epsilon in (0.1, 2.0)
            for selector in ("weighted-quantile", "output-perturbation")
        ]
        replies = [
            client_app.app(asked(str(number), plan), context_of(**node)) for number, plan in enumerate(plans)
        ]
        assert {outcome(reply) for reply in replies} == {("failed", "bad-file")}
        seen = [dict(reply.content.config_records["fedhist"]) for reply in replies]
        assert {tuple(sorted(set(fields) - {"run", "plan-digest"})) for fields in seen} == {
            ("reason", "round", "status", "version")
        }
        assert spent(node) == 0

    def test_what_fails_when_data_and_request_have_met_is_charged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It might depend on somebody's data. The same request is then answered without a second charge."""
        app = client_app.mount(
            ClientApp(), lambda context: population_of([[1, 2]]), memory=lambda context: tmp_path / "m.db"
        )
        message = message_of(Envelope(run="one", request=select_request(PLAN)))
        with monkeypatch.context() as patched:
            patched.setattr(round_handlers, "clear_answer", _out_of_memory)
            assert outcome(app(deepcopy(message), context_of())) == ("failed", "failed")
        assert MemoryFile(tmp_path / "m.db").read().spent.epsilon == PLAN.epsilon_select
        assert outcome(app(deepcopy(message), context_of())) == ("answer", "")
        assert MemoryFile(tmp_path / "m.db").read().spent.epsilon == PLAN.epsilon_select

    def test_a_loader_that_makes_up_a_reason_sends_none_of_it(self, caplog: pytest.LogCaptureFixture) -> None:
        def load(context: Context) -> Any:
            raise Refused("ann-visited-the-clinic") from ValueError("ann-visited-the-clinic")

        reply = client_app.mount(ClientApp(), load)(asked(), context_of())
        assert outcome(reply) == ("refused", "failed")
        assert "clinic" not in caplog.text


def _out_of_memory(*arguments: Any, **named: Any) -> bytes:
    raise MemoryError


class Killed(BaseException):
    """Not an Exception, so that nothing on the way up stops it."""


STEPS = [(MemoryFile, "given"), (MemoryFile, "admit"), (round_handlers, "clear_answer"), (MemoryFile, "note")]


class TestKilled:
    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize(("owner", "name"), STEPS, ids=[name for _, name in STEPS])
    def test_at_any_moment_one_answer_leaves_for_one_charge(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
    ) -> None:
        """Killed before the charge: nothing is spent. Asked again after a restart: one answer, charged once."""
        step, memory = getattr(owner, name), tmp_path / "m.db"

        def killed(*arguments: Any, **named: Any) -> Any:
            if after:
                step(*arguments, **named)
            raise Killed

        app = client_app.mount(
            ClientApp(), lambda context: population_of([[3, 4], [50, 9]]), memory=lambda context: memory
        )
        message = message_of(Envelope(run="one", request=select_request(PLAN)))
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, killed)
            with pytest.raises(Killed):
                app(deepcopy(message), context_of())
        charged = (name, after) not in {("given", False), ("given", True), ("admit", False)}
        before = MemoryFile(memory).read().spent.epsilon if memory.exists() else 0.0
        assert before == (PLAN.epsilon_select if charged else 0)
        replies = [app(deepcopy(message), context_of()) for _ in range(2)]
        assert [outcome(reply)[0] for reply in replies] == ["answer", "answer"]
        assert data_of(replies[0]) == data_of(replies[1])
        assert MemoryFile(memory).read().spent.epsilon == PLAN.epsilon_select

    @pytest.mark.parametrize("moment", ["advertising", "sharing", "checking", "reading"])
    def test_a_masking_session_that_ends_before_its_vector_costs_nothing(
        self, lab: Any, tmp_path: Path, moment: str
    ) -> None:
        """It was given up by the server, or killed, or its data could not be read."""
        memory = tmp_path / "m.db"

        def load(context: Context) -> Any:
            raise Killed

        def die(message: Message, node: Any) -> list[Message]:
            with suppress(Killed):
                node.answer(message)
            return []

        grid = lab.grid(lab.population(), 12)
        victim = client_app.mount(ClientApp(), load, memory=lambda context: memory)
        stage = "masking" if moment == "reading" else moment
        grid.nodes[103].app, grid.nodes[103].fault = victim, at(stage, die)
        run_on_grid(grid, MASKED)
        assert MemoryFile(memory).read().spent.epsilon == 0
        assert len(MemoryFile(memory).read().requests) == 2


class TestTheServersReport:
    def grid(self, lab: Any) -> Any:
        """Six nodes: one over its budget, one whose file is missing, one silent."""
        whole = lab.population()
        grid = lab.grid(whole, faults={4: silent})
        grid.nodes[101].app = lab.app(lab.part(whole, 1, 6), policy=Policy(max_epsilon=0.01))
        grid.nodes[102].app = client_app.app
        grid.nodes[102].context = context_of(node=102, data_path="/nowhere/visits.csv")
        return grid

    def test_lines_and_documents_say_why(
        self, lab: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "fedhist")
        config = {"users": 60, "items": 6, "max_threshold": 60, "candidates": 16, "timeout": 5}
        run_server_app(self.grid(lab), config | {"out": str(tmp_path / "r")})
        lines = [record.getMessage() for record in caplog.records]
        (first,) = [line for line in lines if line.startswith("round select: 3 of 6 nodes")]
        assert first.endswith("dropped: 1 failed (missing-file), 1 no-answer, 1 refused (over-budget)")
        (second,) = [line for line in lines if line.startswith("round release: 3 of 4 nodes")]
        assert second.endswith("dropped: 1 no-answer; not asked again: missing-file 102; over-budget 101")
        assert f"over-budget, nodes 101: {Refusal.OVER_BUDGET.in_words}" in lines
        rounds = json.loads((tmp_path / "r" / "result.json").read_text())["rounds"]
        assert rounds["select"]["reasons"] == {"missing-file": 1, "over-budget": 1}
        assert rounds["select"]["dropped"] == {
            "missing-file": [102],
            "no-answer": [104],
            "over-budget": [101],
        }
        assert rounds["release"]["reasons"] == {}
        assert rounds["release"]["not_asked"] == {"missing-file": [102], "over-budget": [101]}

    def test_who_declined_is_not_asked_again_in_this_run_but_in_the_next(self, lab: Any) -> None:
        grid = self.grid(lab)
        for run in (1, 2):
            grid.asked.clear()
            run_on_grid(grid, Plan(users=60, items=6, max_threshold=60))
            to = [message.metadata.dst_node_id for message in grid.asked]
            assert sorted(node for node in to if node in {101, 102}) == [101, 102], run
            assert to.count(104) == 2

    def test_too_few_that_did_not_refuse_end_the_run(self, lab: Any) -> None:
        grid = lab.grid(lab.population(), 12)
        grid.nodes[100].app = lab.app(lab.population(items=7))

        def leave(report: Any) -> None:
            del grid.nodes[101], grid.nodes[102]

        plan = Plan(users=60, items=6, masking="secagg", participants=12, dropout_share=0.2)
        with refused(RoundFailed, "too-few-nodes", "10", "other-items", "100"):
            run_on_grid(grid, plan, node_timeout=0.01, on_report=leave)

    def test_what_is_about_one_session_is_asked_again(self, lab: Any) -> None:
        """A node that lost its session in round 1 can take part in round 2."""

        def forget(message: Message, node: Any) -> list[Message]:
            if message.content.config_records["fedhist"]["round"] == "select":
                node.context.state.config_records.pop("fedhist-masking", None)
            return [node.answer(message)]

        grid, reports = lab.grid(lab.population(), 12, faults={3: at("masking", forget)}), Reports()
        run_on_grid(grid, MASKED, on_report=reports)
        assert reports[Round.SELECT].reasons == {Refusal.NO_SESSION: (103,)}
        assert reports[Round.RELEASE].answered == 12

    def test_a_masked_round_that_fails_says_who_answered_each_stage(self, lab: Any) -> None:
        grid = lab.grid(lab.population(), 12, faults={4: at("masking", silent), 5: at("sharing", silent)})
        grid.nodes[100].app = lab.app(lab.part(lab.population(), 0, 12), policy=Policy(max_epsilon=0.01))
        reports = Reports()
        with pytest.raises(TooFewSurvivors) as failure:
            run_on_grid(grid, MASKED, on_report=reports)
        words = str(failure.value)
        assert "advertising: 11 of 12 (101, 102, 103, 104, 105, 106, 107, 108, 109, 110 and 1 more)" in words
        assert "over-budget 100" in words and "sharing: 10 of 11" in words
        assert "masking: 9 of 10 (101, 102, 103, 106, 107, 108, 109, 110, 111), no-answer 104" in words
        stages = reports[Round.SELECT].stages
        assert stages["masking"].heard == (101, 102, 103, 106, 107, 108, 109, 110, 111)
        assert stages["advertising"].to_json(truth=False)["dropped"] == {"over-budget": [100]}


def test_a_reply_can_carry_no_reason_but_the_known_ones(lab: Any) -> None:
    """A node that sends other words in place of a reason is counted, and the words go nowhere."""

    def talkative(message: Message, node: Any) -> list[Message]:
        reply = node.answer(message)
        record = reply.content.config_records["fedhist"]
        record["status"], record["reason"] = "refused", "ann-visited-the-clinic"
        return [reply]

    grid, reports = lab.grid(lab.population(), faults={0: talkative}), Reports()
    run_on_grid(grid, Plan(users=60, items=6, max_threshold=60), on_report=reports)
    report = reports[Round.SELECT]
    assert reports.faults(Round.SELECT) == {"refused": 1}
    assert "clinic" not in report.in_words() + json.dumps(report.to_json(truth=False))


def test_the_documents_list_every_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "deployment-failures.md").read_text()
    _, table = page.split("### Why a node did not answer")
    rows = [line for line in table.split("\n## ")[0].splitlines() if line.startswith("| `")]
    assert rows == [f"| `{reason.value}` | {reason.in_words} |" for reason in Refusal]


def test_a_report_does_not_tell_in_which_order_nodes_declined(lab: Any) -> None:
    grid, reports = lab.grid(lab.population(), policy=Policy(max_epsilon=0.01)), Reports()
    grid.nodes = dict(reversed(grid.nodes.items()))
    grid.nodes[100].app = lab.app(lab.part(lab.population(), 0, 6))
    deliver = grid.deliver
    grid.deliver = lambda messages: deliver(messages)[::-1]
    run_on_grid(grid, Plan(users=60, items=6, max_threshold=60), on_report=reports)
    document = reports[Round.SELECT].to_json(truth=False)
    assert document["dropped"] == {"over-budget": [101, 102, 103, 104, 105]}
