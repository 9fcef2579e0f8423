"""A Flower grid in this process: the public Grid interface over ClientApps that get copies of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any
from uuid import uuid4

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

RUN_ID = 77
Fault = Callable[[Message, "Node"], "list[Message]"]


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


class LocalGrid(Grid):
    """Delivers at once; a fault that returns no reply is a node that never answers."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes = nodes
        self.asked: list[Message] = []
        self.timeouts: list[float | None] = []

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        self.timeouts.append(timeout)
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = uuid4().hex  # as Flower's own grids do
            self.asked.append(message)
            replies += self.nodes[message.metadata.dst_node_id].handle(message)
        return replies
