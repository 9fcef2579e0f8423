"""A Flower grid in this process: the public Grid interface over ClientApps that get copies of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedhist.client.app import mount
from fedhist.client.policy import Policy
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.privacy.randomness import SeededSource

RUN_ID = 77
UNLIMITED = Policy()
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


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    """A ServerApp's process knows which task it is, and Flower's Message asks for it."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN_ID, 1, 1
    yield


class Lab:
    """Builders for the scenarios."""

    Node = Node
    LocalGrid = LocalGrid

    def population(
        self, users: int = 60, items: int = 6, seed: int = 3, named: bool = False
    ) -> SparsePopulation:
        random = np.random.default_rng(seed)
        table = random.poisson(2.0, (users, items)) * random.integers(1, 9, (users, 1))
        from scipy.sparse import csr_array

        labels = [f"item-{i}" for i in range(items)] if named else None
        return SparsePopulation.from_scipy(csr_array(table), labels=labels)

    def part(self, whole: SparsePopulation, number: int, parts: int) -> SparsePopulation:
        start, stop = number * whole.users // parts, (number + 1) * whole.users // parts
        return SparsePopulation(whole.histograms.rows(start, stop), labels=whole.labels)

    def app(
        self, population: SparsePopulation, *, seed: int | None = None, policy: Policy = UNLIMITED
    ) -> ClientApp:
        if seed is None:
            return mount(ClientApp(), lambda context: population, policy=policy)
        return mount(
            ClientApp(), lambda context: population, policy=policy, source=lambda context: SeededSource(seed)
        )

    def grid(
        self,
        whole: SparsePopulation,
        nodes: int = 6,
        *,
        seed: int | None = None,
        faults: dict[int, Fault] | None = None,
        policy: Policy = UNLIMITED,
    ) -> LocalGrid:
        """The population over nodes numbered 100, 101, ...; faults by place."""
        return LocalGrid(
            {
                100 + place: Node(
                    self.app(self.part(whole, place, nodes), seed=seed, policy=policy),
                    100 + place,
                    (faults or {}).get(place),
                )
                for place in range(nodes)
            }
        )

    def with_data(self, reply: Message, data: bytes, dtype: str = "uint8") -> Message:
        """The reply with other bytes in it."""
        array = Array(dtype=dtype, shape=(len(data),), stype="bytes", data=data)
        reply.content.array_records["fedhist-answer"] = ArrayRecord({"answer": array})
        return reply

    def with_field(self, reply: Message, **fields: Any) -> Message:
        """The reply with other fields in its record."""
        record = dict(reply.content.config_records["fedhist"])
        record |= {name.replace("_", "-"): value for name, value in fields.items()}
        reply.content.config_records["fedhist"] = ConfigRecord(record)
        return reply

    def data(self, reply: Message) -> bytes:
        return reply.content.array_records["fedhist-answer"]["answer"].data

    def error(self, message: Message, sender: int) -> Message:
        """An error reply as a SuperLink makes it for a dead node: from itself."""
        reply = Message(Error(code=3, reason="Node unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = sender
        return reply


@pytest.fixture
def lab() -> Lab:
    return Lab()
