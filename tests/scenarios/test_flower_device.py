"""A node that is asked: what it answers, what it refuses, and that no error takes data along."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from local_grid import context_of, data_of, message_of, outcome

from fedhist import Plan
from fedhist.client import Policy
from fedhist.client_app import app as our_app
from tests.asking import release_at, select_request
from tests.support.api import Envelope, Threshold, decode, items_digest, recall
from tests.support.api import app_module as client_app

PLAN = Plan(users=60, items=6, max_threshold=60, candidates=16)
PRIVATE_TEXT = "alice-visited-the-clinic"


def select(run: str = "one", plan: Plan = PLAN) -> Envelope:
    return Envelope(run=run, request=select_request(plan))


def release(run: str = "one", steps: int | None = None) -> Envelope:
    threshold = Threshold(steps=steps or PLAN.step_range[0], bits=PLAN.grid_bits)
    return Envelope(run=run, request=release_at(PLAN, threshold))


class TestRefusals:
    def test_a_second_different_request_also_after_a_restart(self, lab: Any) -> None:
        context = context_of()
        lab.app(lab.population())(message_of(release()), context)
        restarted = context_of(deepcopy(context.state))
        app = lab.app(lab.population())
        reply = app(message_of(release(steps=PLAN.step_range[0] + 1)), restarted)
        assert outcome(reply) == ("refused", "second-request")
        assert outcome(app(message_of(release()), restarted))[0] == "answer"

    def test_a_refused_request_never_touches_the_data(self) -> None:
        def load(context: Context) -> Any:
            raise AssertionError("the data was read")

        app = client_app.mount(
            ClientApp(), load, policy=Policy(max_epsilon=0.5), simulated=lambda context: True
        )
        reply = app(message_of(select()), context_of())
        assert outcome(reply) == ("refused", "over-budget")
        assert not reply.content.array_records

    @pytest.mark.parametrize(
        "changes",
        [{"plan_digest": b"\0" * 32}, {"round": "release"}, {"version": 9}, {"plan": "{}"}],
        ids=str,
    )
    def test_what_is_no_request(self, lab: Any, changes: dict[str, Any]) -> None:
        reply = lab.app(lab.population())(message_of(select(), "select", **changes), context_of())
        assert outcome(reply) == ("refused", "malformed")

    def test_a_message_without_our_record(self, lab: Any) -> None:
        message = Message(RecordDict(), 5, "query.select")
        assert outcome(lab.app(lab.population())(message, context_of())) == ("refused", "malformed")


class TestErrors:
    @pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError, MemoryError, ZeroDivisionError])
    def test_nothing_of_an_error_leaves_the_device_and_nothing_is_spent(
        self, kind: type[Exception], caplog: pytest.LogCaptureFixture
    ) -> None:
        def load(context: Context) -> Any:
            raise kind(PRIVATE_TEXT)

        context = context_of()
        reply = client_app.mount(ClientApp(), load)(message_of(select()), context)
        assert outcome(reply) == ("failed", "failed")
        assert PRIVATE_TEXT not in repr(reply) + caplog.text
        assert kind.__name__ in caplog.text
        assert recall(context).spent.epsilon == 0

    def test_a_damaged_memory_is_an_error_and_not_a_fresh_start(self, lab: Any) -> None:
        context = context_of(RecordDict({"fedhist": ConfigRecord({"memory": PRIVATE_TEXT})}))
        reply = lab.app(lab.population())(message_of(select()), context)
        assert outcome(reply) == ("failed", "bad-memory")
        assert PRIVATE_TEXT not in repr(reply)

    def test_another_number_of_items_is_refused_and_costs_nothing(self, lab: Any) -> None:
        context = context_of()
        reply = lab.app(lab.population(items=7))(message_of(select()), context)
        assert outcome(reply) == ("refused", "other-items")
        assert recall(context).spent.epsilon == 0


class TestTheNodesOwnFile:
    CLOSED, OPEN = (
        Plan(users=9, items=2, max_threshold=60),
        Plan(users=9, domain="open", release="truncated-laplace", max_threshold=60),
    )

    @pytest.fixture
    def data(self, tmp_path: Path) -> str:
        (tmp_path / "d.csv").write_text("user,item\nann,b\nann,a\nbob,b\n")
        return str(tmp_path / "d.csv")

    @pytest.fixture
    def items(self, tmp_path: Path) -> str:
        (tmp_path / "items.txt").write_text("a\nb\n")
        return str(tmp_path / "items.txt")

    def ask(self, envelope: Envelope, **node_config: Any) -> Message:
        return client_app.app(message_of(envelope), context_of(**node_config))

    @pytest.mark.parametrize("digest", [b"", items_digest(["b", "a"])], ids=["unknown", "guessed"])
    def test_items_read_off_the_data_are_refused_over_a_closed_domain(self, data: str, digest: bytes) -> None:
        """Nodes would number them each in its own way. An answer to a server that has guessed them would show that."""
        envelope = Envelope(run="r", request=select_request(self.CLOSED), items_digest=digest)
        assert outcome(self.ask(envelope, data_path=data)) == ("refused", "other-items")

    @pytest.mark.parametrize("bins", [False, True])
    def test_another_list_is_refused_when_keys_are_asked_for_and_no_data_is_read(
        self, items: str, tmp_path: Path, bins: bool
    ) -> None:
        """The app that `flwr run` sends read the data first, unlike the one that it is a copy of."""
        plan = Plan(users=60, items=2, masking="secagg", participants=3)
        envelope = Envelope("r", select_request(plan), items_digest(["b", "a"]))
        config = {"bins": "0,10,20"} if bins else {"items_path": items}
        config |= {"data_path": str(tmp_path / "not-there.csv"), "memory_path": str(tmp_path / "m.db")}
        for app in (client_app.app, our_app):
            reply = app(message_of(envelope, "advertising"), context_of(**config))
            assert outcome(reply) == ("refused", "other-items")

    def test_a_limit_without_a_memory_file_is_an_error(
        self, data: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It held for one Flower run, and every run began anew."""
        reply = self.ask(select(plan=self.OPEN), data_path=data, max_epsilon=9.0)
        assert outcome(reply) == ("failed", "bad-configuration")
        assert "memory-path" in caplog.text

    def test_a_virtual_node_may_have_a_limit_without_one(self, lab: Any) -> None:
        app = lab.app(lab.population(), policy=Policy(max_epsilon=9.0))
        assert outcome(app(message_of(select()), context_of()))[0] == "answer"


class TestOneUsersOddRow:
    """What a node answers about its other users must not depend on it."""

    PLAN = Plan(users=9, items=2, max_threshold=60)

    def answer(self, folder: Path, rows: str) -> tuple[tuple[str, str], int | None]:
        (folder / "d.csv").write_text("user,item,count\n" + rows)
        (folder / "items.txt").write_text("a\nb\n")
        envelope = Envelope(run="r", request=select_request(self.PLAN), items_digest=items_digest(["a", "b"]))
        config = {"data_path": str(folder / "d.csv"), "items_path": str(folder / "items.txt")}
        reply = client_app.app(message_of(envelope), context_of(**config))
        if outcome(reply)[0] != "answer":
            return outcome(reply), None
        return outcome(reply), decode(data_of(reply), envelope.request)[0].users

    @pytest.mark.parametrize(
        "odd",
        ["eve,a,many", "eve,a,-3", "eve,a,1.5", "eve,a,", "eve,,3", ",a,3", "eve,a,inf", "eve,a,4000000000",
         "eve,a,2000000000\neve,b,2000000000", "eve,unlisted,3", f"eve,{'x' * 5000},3"],
    )  # fmt: skip
    def test_the_others_are_answered_for(self, tmp_path: Path, odd: str) -> None:
        answered, users = self.answer(tmp_path, f"ann,a,1\n{odd}\nbob,b,2\n")
        assert answered == ("answer", "")
        assert users == (3 if "eve" in odd else 2), "how many users there are must not tell what eve has"

    def test_a_node_whose_only_user_is_odd_answers_like_that_of_an_empty_one(self, tmp_path: Path) -> None:
        answers = {self.answer(tmp_path, f"eve,a,{count}\n") for count in ("many", "0", "7", "3000000000")}
        assert answers == {(("answer", ""), 1)}

    def test_a_table_without_users_is_a_node_without_users(self, tmp_path: Path) -> None:
        assert self.answer(tmp_path, "") == (("refused", "no-users"), None)
        assert self.answer(tmp_path, ",a,1\n") == (("refused", "no-users"), None)
