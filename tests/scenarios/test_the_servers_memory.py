"""The server's memory does not grow with the nodes: it adds answers up as they come, and lets requests go."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any
from weakref import WeakSet

import pytest
from flwr.app import Message
from local_grid import LocalGrid, Node

from fedhist import Plan
from fedhist.server import run_on_grid

NODES = 100
AT_ONCE = 64


class Forgetful(Node):
    """A node that keeps nothing of what it answered."""

    def answer(self, message: Message) -> Message:
        return self.app(deepcopy(message), self.context)


class CountingGrid(LocalGrid):
    """Answers when it is asked for the answers, and counts the messages that are alive outside of it."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        super().__init__(nodes)
        self.parked: dict[str, Message] = {}
        self.requests: WeakSet[Message] = WeakSet()
        self.replies: WeakSet[Message] = WeakSet()
        self.most_requests = self.most_replies = self.answered = 0

    def deliver(self, messages: list[Message]) -> list[Message]:
        self.requests.update(messages)
        self.most_requests = max(self.most_requests, len(self.requests))
        for message in messages:
            self.parked[message.metadata.message_id] = deepcopy(message)
        return []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        asked = [self.parked.pop(name) for name in message_ids if name in self.parked]
        found = [self.nodes[message.metadata.dst_node_id].answer(message) for message in asked]
        self.answered += len(found)
        self.replies.update(found)
        self.most_replies = max(self.most_replies, len(self.replies))
        return found


@pytest.mark.parametrize("masking", ["none", "secagg"])
def test_a_server_holds_no_more_messages_at_a_time_than_it_fetches(lab: Any, masking: str) -> None:
    whole = lab.population(users=2 * NODES)
    masked = {} if masking == "none" else {"masking": masking, "participants": NODES}
    plan = Plan(users=whole.users, items=6, epsilon=1.0, epsilon_select=0.1, delta=1e-6, **masked)
    grid = lab.grid(whole, NODES)
    counting = CountingGrid({number: Forgetful(node.app, number) for number, node in grid.nodes.items()})
    run_on_grid(counting, plan)
    assert counting.answered >= 2 * NODES
    # One more: the reply that is being added up while the next ones are fetched.
    assert counting.most_replies <= AT_ONCE + 1
    assert counting.most_requests <= AT_ONCE + 1
