"""A Flower grid in this process: the public Grid interface over ClientApps that get copies of messages.

Beside it what the scenarios have in common: messages to one node, what a node says, faults, and reports by round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from time import monotonic
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from tests.support.api import Envelope, Round, RoundReport, grid_messages_module, server_app

RUN_ID = 77
Fault = Callable[[Message, "Node"], "list[Message]"]


def be_a_server() -> None:
    """A ServerApp's process knows which task it is, and Flower's Message asks for it. There is no public way."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN_ID, 1, 1


def dashed(settings: dict[str, Any]) -> dict[str, Any]:
    """Names as Flower's configurations spell them."""
    return {name.replace("_", "-"): value for name, value in settings.items()}


def message_of(envelope: Envelope, kind: str | None = None, **changes: Any) -> Message:
    """The request as a message to one node."""
    content = RecordDict({"fedhist": ConfigRecord(envelope.to_fields() | dashed(changes))})
    message = Message(content, 5, f"query.{kind or envelope.request.round.value}")
    message.metadata.__dict__["_message_id"] = "m"
    return message


def context_of(state: RecordDict | None = None, *, node: int = 5, **node_config: Any) -> Context:
    """A node's Context, a fresh one unless it has a state."""
    return Context(RUN_ID, node, dashed(node_config), RecordDict() if state is None else state, {})


def outcome(reply: Message) -> tuple[str, str]:
    """The reply's status and the reason for it."""
    fields = reply.content.config_records["fedhist"]
    return fields["status"], fields["reason"]


def data_of(reply: Message) -> bytes | None:
    """The bytes of an answer; None for a reply without one."""
    record = reply.content.array_records.get("fedhist-answer")
    return None if record is None else record["answer"].data


def with_data(reply: Message, data: bytes, dtype: str = "uint8") -> Message:
    """The reply with other bytes in it."""
    array = Array(dtype=dtype, shape=(len(data),), stype="bytes", data=data)
    reply.content.array_records["fedhist-answer"] = ArrayRecord({"answer": array})
    return reply


def with_field(reply: Message, **fields: Any) -> Message:
    """The reply with other fields in its record."""
    record = dict(reply.content.config_records["fedhist"])
    reply.content.config_records["fedhist"] = ConfigRecord(record | dashed(fields))
    return reply


def error_reply(message: Message) -> Message:
    """An error reply as a SuperLink makes it for a dead node: from itself."""
    reply = Message(Error(code=3, reason="Node unavailable"), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = 1
    return reply


def run_server_app(grid: Grid, config: dict[str, Any]) -> None:
    """The ServerApp with this run-config; None leaves a key out."""
    given = {name: value for name, value in dashed(config).items() if value is not None}
    server_app(grid, Context(RUN_ID, 1, {}, RecordDict(), given))


class Reports(dict[Round, RoundReport]):
    """The report of each round, for `on_report`."""

    def __call__(self, report: RoundReport) -> None:
        self[report.round] = report

    def faults(self, round_: Round) -> dict[str, int]:
        return {fault.value: count for fault, count in self[round_].faults.items()}


def silent(message: Message, node: Node) -> list[Message]:
    """A node that never answers."""
    return []


def changed(change: Callable[[bytes], bytes]) -> Fault:
    """A node whose answers have other bytes in them."""

    def fault(message: Message, node: Node) -> list[Message]:
        reply = node.answer(message)
        return [with_data(reply, change(data_of(reply) or b""))]

    return fault


def dead(message: Message, node: Node) -> list[Message]:
    """A node of which the SuperLink says that it is gone."""
    return [error_reply(message)]


def at(stage: str, wrong: Fault) -> Fault:
    """A node that is as it should be but for one kind of message."""

    def fault(message: Message, node: Node) -> list[Message]:
        return (
            wrong(message, node)
            if message.metadata.message_type == f"query.{stage}"
            else [node.answer(message)]
        )

    return fault


class Node:
    """A virtual node: an app, a context that lives on between messages, and maybe something wrong with it."""

    def __init__(self, app: ClientApp, node_id: int, fault: Fault | None = None) -> None:
        self.app = app
        self.context = Context(RUN_ID, node_id, {}, RecordDict(), {})
        self.fault = fault
        self.replies: list[Message] = []

    def handle(self, message: Message) -> list[Message]:
        mine = deepcopy(message)
        if self.fault is not None:
            return self.fault(mine, self)
        return [self.answer(mine)]

    def answer(self, message: Message) -> Message:
        reply = deepcopy(self.app(message, self.context))
        self.replies.append(reply)
        return reply


class Clock:
    """The server's clock. Who waits for a reply that never comes need not wait in a test."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __call__(self) -> float:
        return monotonic() + self.passed

    def pass_time(self) -> None:
        """More than any round's time limit in a test."""
        self.passed += 1000.0


CLOCK = Clock()
grid_messages_module.monotonic = CLOCK


class LocalGrid(Grid):
    """Delivers at once; a fault that returns no reply is a node that never answers."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes = nodes
        self.asked: list[Message] = []
        self.came: list[Message] = []
        self.kind = "flwr-simulation"

    @classmethod
    def of(cls, apps: Iterable[ClientApp], faults: dict[int, Fault] | None = None) -> LocalGrid:
        """Nodes numbered 100, 101, ... with these apps; faults by place."""
        return cls(
            {100 + place: Node(app, 100 + place, (faults or {}).get(place)) for place, app in enumerate(apps)}
        )

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        return SimpleNamespace(primary_task_type=self.kind)

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        asked = list(messages)
        for message in asked:
            message.metadata.__dict__["_message_id"] = uuid4().hex  # as Flower's own grids do
        self.came += self.deliver(asked)
        return [message.metadata.message_id for message in asked]

    def deliver(self, messages: list[Message]) -> list[Message]:
        """The replies that come."""
        self.asked += messages
        return [
            reply
            for message in messages
            for reply in self.nodes[message.metadata.dst_node_id].handle(message)
        ]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        if not self.came:
            CLOCK.pass_time()
        came, self.came = self.came, []
        return came

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        self.push_messages(messages)
        return self.pull_messages(())
