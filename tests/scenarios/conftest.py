"""Builders for runs on a Flower grid in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message
from flwr.clientapp import ClientApp
from local_grid import RUN_ID, Fault, LocalGrid, Node

from fedhist.client.app import mount
from fedhist.client.policy import Policy
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource

UNLIMITED = Policy()


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
        """The app of a virtual node; it draws from the operating system without a seed."""
        source: Source = SystemSource() if seed is None else SeededSource(seed)
        return mount(
            ClientApp(),
            lambda context: population,
            policy=policy,
            source=lambda context: source,
            simulated=lambda context: True,
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
        parts = (self.part(whole, place, nodes) for place in range(nodes))
        return LocalGrid.of((self.app(part, seed=seed, policy=policy) for part in parts), faults)

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

    def changed(self, change: Callable[[bytes], bytes]) -> Fault:
        """A node whose answers have other bytes in them."""

        def fault(message: Message, node: Node) -> list[Message]:
            reply = node.answer(message)
            return [self.with_data(reply, change(self.data(reply)))]

        return fault

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
