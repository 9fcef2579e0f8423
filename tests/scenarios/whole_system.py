"""The whole system as a model: nodes with data, memory and a limit, a grid with faults, and servers that come and go.

A scenario is a list of operations. Each names an exchange (the grid's n-th delivery of a run) and a node, and says what
goes wrong there. `System.run` runs a plan through them and notes what honest nodes did; `check` compares what came out
with the sum over exactly those.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from flwr.app import Message
from flwr.clientapp import ClientApp
from local_grid import LocalGrid, Node, context_of, data_of, error_reply
from system_checks import check_device, check_outcome, error_texts
from system_data import COUNT, FIRST, LABELS, NODES, SECRETS, SEED, part, public_line
from tampering import corrupted_bytes, corrupted_request, status, with_bad_field

from fedhist import BudgetExceeded, BudgetFile, Limit, Plan, Release, RoundFailed, SeededSource, SystemSource
from fedhist.client import Policy, mount
from tests.support.api import (
    RECORD,
    Envelope,
    GridSettings,
    Round,
    RunRecord,
    new_run_name,
    numbered_identities,
    planned_charges,
    run_settings,
    server_app_module,
)


class _Repeated(SeededSource):
    """What the server draws from, so that a release can be compared: a source that does not say that it is seeded."""

    seeded = False

    def __init__(self) -> None:
        super().__init__(SEED)


def _new_name(*, source: SeededSource) -> str:
    return new_run_name(source=SystemSource())


class Crash(BaseException):
    """The server's process ends in the middle of an exchange."""


@dataclass(frozen=True)
class Operation:
    """Something that happens to one node, or to all, in one exchange of a run.

    Args:
        kind: what, see `Delivery`.
        exchange: in which exchange of the run, from 0.
        node: to which node, by its place.
        seed: for what the operation draws.
    """

    kind: str
    exchange: int
    node: int
    seed: int


KINDS = (
    "drop reply", "drop request", "error reply", "duplicate reply", "request twice", "reorder", "corrupt bytes",
    "corrupt field", "corrupt request", "replay reply", "replay request", "old reply besides", "restart device",
    "leave", "join", "crash",
)  # fmt: skip


@dataclass
class Outcome:
    """What a run came to, and what honest nodes had to do with it.

    Args:
        release: None if the run ended in `error`.
        error: the error.
        included: by round, the nodes whose own answer reached the server first and whole.
        doubtful: the rounds in which something was corrupt that a server may not be able to see.
        folder: where the result would be.
        record: the run in the ledger; None if it was refused there.
    """

    plan: Plan
    release: Release | None
    error: BaseException | None
    included: dict[Round, set[int]]
    doubtful: set[Round]
    folder: Path
    record: RunRecord | None


def _delta_of(epsilon: float) -> float:
    """The delta of a limit: ten runs' for one that is to be met, and plenty beside plenty."""
    return 1e-5 if epsilon < 1e3 else 0.5


class Device(Node):
    """A node that remembers in a file, and of which we note all that it ever answered."""

    def __init__(self, place: int, folder: Path, limit: float) -> None:
        self.place, self.memory = place, folder / f"memory-{place}.db"
        self.policy = Policy(max_epsilon=limit, max_delta=_delta_of(limit), minimum_masking="none")
        identities = numbered_identities(SECRETS)
        app = mount(
            ClientApp(),
            lambda context: part(place),
            policy=self.policy,
            source=lambda context: SeededSource(SEED),
            memory=lambda context: self.memory,
            identity=lambda context: identities[place],
            # What is released is compared with what a seed makes of it, which no node with real users answers.
            simulated=lambda context: True,
        )
        super().__init__(app, FIRST + place)
        self.answered: list[tuple[str, Envelope]] = []

    def restart(self) -> None:
        """The process ends: what Flower kept of the node is gone, its memory file is not."""
        self.context = context_of(node=FIRST + self.place)

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        fields = reply.content.config_records[RECORD]
        if fields["status"] == "answer":
            request = Envelope.from_fields(message.content.config_records[RECORD])
            self.answered.append((message.metadata.message_type, request))
        return reply


class Turns:
    """Lets two runs exchange messages in the order of a list; when it is used up, or one has ended, as they come."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order, self._ended = list(order), set[int]()
        self._changed = threading.Condition()

    def take(self, run: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._next() in (None, run), timeout=60)
            if self._order:
                self._order.pop(0)
            self._changed.notify_all()

    def end(self, run: int) -> None:
        with self._changed:
            self._ended.add(run)
            self._changed.notify_all()

    def _next(self) -> int | None:
        while self._order and self._order[0] in self._ended:
            self._order.pop(0)
        return self._order[0] if self._order else None


class Delivery(LocalGrid):
    """The grid of one run: delivers each exchange through its operations and notes who was honestly heard."""

    def __init__(
        self, system: System, plan: Plan, operations: Sequence[Operation], on_exchange: Callable[[], None]
    ) -> None:
        super().__init__({FIRST + device.place: device for device in system.devices})
        self.system, self.plan, self.operations = system, plan, operations
        self.on_exchange = on_exchange
        self.exchange = -1
        self.absent = {op.node for op in operations if op.kind == "join"}
        self.included: dict[Round, set[int]] = {}
        self.doubtful: set[Round] = set()

    def get_node_ids(self) -> Iterable[int]:
        # A round looks for nodes before its first exchange.
        self._come_and_go(self.exchange + 1)
        return [node for node in self.nodes if node - FIRST not in self.absent]

    def deliver(self, messages: list[Message]) -> list[Message]:
        self.on_exchange()
        with self.system.lock:
            return self._deliver(messages)

    def _deliver(self, messages: list[Message]) -> list[Message]:
        self.exchange += 1
        self._come_and_go(self.exchange)
        if self._now("crash"):
            raise Crash
        replies: list[tuple[Message, str]] = []
        for message in messages[:1]:
            self.system.check_charged_before(message, self.plan)
        for message in messages:
            replies += self._handled(message)
            self.system.requests.setdefault(message.metadata.dst_node_id, []).append(deepcopy(message))
        for operation in self._now("reorder"):
            Random(operation.seed).shuffle(replies)
        self._note(messages, replies)
        return [reply for reply, _ in replies]

    def _come_and_go(self, exchange: int) -> None:
        for operation in self.operations:
            if operation.exchange == exchange and operation.kind == "leave":
                self.absent.add(operation.node)
            elif operation.exchange <= exchange and operation.kind == "join":
                self.absent.discard(operation.node)

    def _now(self, kind: str, place: int | None = None) -> list[Operation]:
        return [
            op
            for op in self.operations
            if op.kind == kind and op.exchange == self.exchange and (place is None or op.node == place)
        ]

    def _handled(self, message: Message) -> list[tuple[Message, str]]:
        """What the server gets for this message, each with its kind: honest, bad (never taken) or corrupt."""
        device = self.system.devices[message.metadata.dst_node_id - FIRST]
        place, earlier = device.place, list(device.replies)
        if self._now("restart device", place):
            device.restart()
        for operation in self._now("replay request", place):
            old = self.system.requests.get(message.metadata.dst_node_id, [])
            if old:
                device.answer(deepcopy(Random(operation.seed).choice(old)))
        if place in self.absent or self._now("drop request", place):
            return []
        kind, request = "honest", deepcopy(message)
        for operation in self._now("corrupt request", place):
            kind, request = "corrupt", corrupted_request(request, operation.seed)
        replies = [(device.answer(request), kind)]
        if self._now("request twice", place):
            # The network repeats a request: unmasked it gets the same answer, masked a refusal.
            replies.append((device.answer(deepcopy(request)), kind))
        return self._tampered(message, replies, earlier, place)

    def _tampered(
        self, message: Message, replies: list[tuple[Message, str]], earlier: list[Message], place: int
    ) -> list[tuple[Message, str]]:
        for operation in self._now("corrupt bytes", place):
            replies[0] = corrupted_bytes(deepcopy(replies[0][0]), operation.seed), "corrupt"
        for operation in self._now("corrupt field", place):
            replies[0] = with_bad_field(deepcopy(replies[0][0]), operation.seed), "bad"
        for operation in self._now("replay reply", place):
            if earlier:
                old = deepcopy(Random(operation.seed).choice(earlier))
                old.metadata.__dict__["_reply_to_message_id"] = message.metadata.message_id
                replies[0] = old, "bad"
        for operation in self._now("old reply besides", place):
            if earlier:
                replies.append((deepcopy(Random(operation.seed).choice(earlier)), "bad"))
        if self._now("duplicate reply", place):
            replies.append((deepcopy(replies[0][0]), replies[0][1]))
        if self._now("error reply", place):
            replies = [(error_reply(message), "bad")]
        return [] if self._now("drop reply", place) else replies

    def _note(self, messages: list[Message], replies: list[tuple[Message, str]]) -> None:
        """Who is in the sum if the server takes the first reply to each message and nothing else."""
        if not messages:
            return
        round_ = Round(str(messages[0].content.config_records[RECORD]["round"]))
        counted = not self.plan.is_masked or messages[0].metadata.message_type == "query.masking"
        node_of = {message.metadata.message_id: message.metadata.dst_node_id for message in messages}
        for reply, kind in replies:
            node = node_of.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if kind == "corrupt":
                self.doubtful.add(round_)
                if messages[0].metadata.message_type == "query.unmasking":
                    # Keys for the next round come with it.
                    self.doubtful.update(itertools.dropwhile(lambda earlier: earlier is not round_, Round))
            elif kind == "honest" and counted and status(reply) == "answer":
                self.included.setdefault(round_, set()).add(node - FIRST)


@dataclass
class System:
    """Nodes, a ledger, and all that was said.

    Args:
        folder: for the memories, the ledger and the results.
        limit: the epsilon that each device may spend in all.
        budget: the epsilon that the ledger may.
    """

    folder: Path
    limit: float
    budget: float
    requests: dict[int, list[Message]] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.devices = [Device(place, self.folder, self.limit) for place in range(NODES)]
        self.ledger = self.folder / "ledger.db"
        BudgetFile.open(self.ledger, create=True).set_limit(Limit(self.budget, _delta_of(self.budget)))
        self.heard = _Heard()
        self.items = self.folder / "items.txt"
        self.items.write_text("\n".join(LABELS))
        self.directory = self.folder / "directory"
        self.directory.write_bytes(b"\n".join(map(public_line, SECRETS)) + b"\n")

    def run(
        self,
        plan: Plan,
        operations: Sequence[Operation],
        on_exchange: Callable[[], None] = lambda: None,
        name: str = "",
    ) -> Outcome:
        """One run of the server, to its end."""
        folder = self.folder / f"result-{len(self.outcomes)}{name}"
        grid = Delivery(self, plan, operations, on_exchange)
        settings = GridSettings(
            plan=plan,
            out=folder,
            ledger=self.ledger,
            items_file=None if plan.is_open else self.items,
            directory=self.directory if plan.is_signed else None,
            timeout=5.0,
            node_timeout=1e-9,
        )
        release, error = None, None
        try:
            with (
                mock.patch.object(server_app_module, "SystemSource", _Repeated),
                # Names of runs are never repeated, or a second run would be the first to its nodes.
                mock.patch.object(server_app_module, "new_run_name", _new_name),
            ):
                release = run_settings(grid, settings)
        except (RoundFailed, BudgetExceeded, Crash) as problem:
            error = problem
        runs = BudgetFile.open(self.ledger, create=True).runs()
        mine = [run for run in runs if run.plan_hash == plan.digest.hex()]
        known = {run.record.id for run in self.outcomes if run.record is not None}
        record = next((run for run in mine if run.id not in known), None)
        outcome = Outcome(plan, release, error, grid.included, grid.doubtful, folder, record)
        with self.lock:
            self.outcomes.append(outcome)
        return outcome

    def run_two(self, plans: Sequence[Plan], operations: Sequence[Operation], order: Sequence[int]) -> None:
        """Two servers at once on the same nodes, their exchanges in this order; the operations happen to the first."""
        turns, problems = Turns(order), list[BaseException]()

        def serve(number: int) -> None:
            try:
                chosen = operations if number == 0 else ()
                self.run(plans[number], chosen, lambda: turns.take(number), f"-{number}")
            except BaseException as problem:
                problems.append(problem)
            finally:
                turns.end(number)

        threads = [threading.Thread(target=serve, args=(number,), daemon=True) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a run hangs"
        if problems:
            raise problems[0]

    def check_charged_before(self, message: Message, plan: Plan) -> None:
        """What devices answer with noise of their own is a result: it is charged before they are asked."""
        runs = BudgetFile.open(self.ledger, create=False).runs()
        charges = [run.charges for run in runs if run.status == "open" and run.plan_hash == plan.digest.hex()]
        asked = Round(str(message.content.config_records[RECORD]["round"]))
        rounds = set(itertools.takewhile(lambda earlier: earlier is not asked, Round))
        first = Round.DISCOVER if plan.discovers else Round.RELEASE
        if plan.noise_by_devices or (plan.has_table and asked is first):
            rounds.add(asked)
        rounds &= {Round(charge.round) for charge in planned_charges(plan)}
        assert any(rounds <= {charge.round for charge in run} for run in charges)

    def check(self) -> None:
        """Everything that must hold whatever happened."""
        for outcome in self.outcomes:
            check_outcome(outcome)
        for device in self.devices:
            check_device(device)
        self._check_secrets()

    def _check_secrets(self) -> None:
        texts = [*self.heard.stop(), *(text for run in self.outcomes for text in error_texts(run.error))]
        wanted = [*LABELS, str(COUNT), f"{COUNT:,}", *(secret.hex() for secret in SECRETS)]
        assert not [word for word in wanted for text in texts if word in text]
        masked = all(run.plan.is_masked for run in self.outcomes)
        for device in self.devices:
            for reply in device.replies:
                fields = repr(dict(reply.content.config_records[RECORD]))
                assert not [word for word in wanted if word in fields]
                data = data_of(reply) or b""
                assert not [secret for secret in SECRETS if secret in data]
                assert not (masked and b"marker-ZQX" in data)


class _Heard(logging.Handler):
    """All that is logged by anybody while the system lives."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._texts: list[str] = []
        self._root = logging.getLogger()
        self._ours = logging.getLogger("fedhist")
        self._level = self._ours.level
        self._root.addHandler(self)
        self._ours.setLevel(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(self.format(record))

    def stop(self) -> list[str]:
        self._root.removeHandler(self)
        self._ours.setLevel(self._level)
        return self._texts
