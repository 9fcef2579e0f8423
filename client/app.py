"""The Flower side of a device: two query handlers over `device.answer_population`.

`app` is the ClientApp of a SuperNode that reads its own file:

    flower-supernode ... --node-config 'data-path="visits.csv" memory-path="memory.db" max-epsilon=2.0'

`mount` puts the same handlers on a ClientApp of your own, with your own function that returns the node's users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedhist.client.device import answer_population
from fedhist.client.memory_file import admit_in_file
from fedhist.client.policy import Memory, Policy, admit
from fedhist.client.records import read_items, read_population
from fedhist.protocol.codec import encode
from fedhist.protocol.envelope import (
    ANSWER,
    ENVELOPE_VERSION,
    RECORD,
    Envelope,
    Field,
    Refusal,
    Status,
    items_digest,
)
from fedhist.protocol.errors import DecodeError, InvalidInput, Refused
from fedhist.protocol.histograms import Population, labels_of
from fedhist.protocol.privacy.randomness import Source, SystemSource
from fedhist.protocol.rounds import Round

Load = Callable[[Context], Population]


def mount(
    app: ClientApp,
    load: Load,
    *,
    policy: Policy | Callable[[Context], Policy] = Policy(),  # noqa: B008 - frozen
    source: Callable[[Context], Source] = lambda context: SystemSource(),
    memory: Callable[[Context], Path | None] = lambda context: None,
) -> ClientApp:
    """Let an app answer both rounds: message types `query.select` and `query.release`.

    Args:
        app: your ClientApp; its other handlers stay as they are.
        load: the node's users. Called once for each round, after the request was admitted.
        policy: what the node refuses, or a function of its Context that says so.
        source: where the node's draws come from. Anything but the default is for simulations.
        memory: a file in which the node remembers what it was asked and what that cost. None keeps it in the node's
            Context, which Flower keeps for one Flower run: a limit on the cost of several needs a file.
    """
    for round_ in Round:
        app.query(round_.value)(_Handler(round_, load, policy, source, memory))
    return app


@dataclass(frozen=True)
class _Handler:
    """Answers one round. Never raises: what a handler raises is sent to the server with its text."""

    round: Round
    load: Load
    policy: Policy | Callable[[Context], Policy]
    source: Callable[[Context], Source]
    memory: Callable[[Context], Path | None]

    def __call__(self, message: Message, context: Context) -> Message:
        envelope = None
        try:
            envelope = _read(message, self.round)
            data = self._answer(envelope, context)
        except Refused as refusal:
            return _reply(message, envelope, Status.REFUSED, refusal.reason)
        except Exception as error:
            return _reply(message, envelope, Status.FAILED, type(error).__name__)
        return _reply(message, envelope, Status.ANSWER, data=data)

    def _answer(self, envelope: Envelope, context: Context) -> bytes:
        policy = self.policy if isinstance(self.policy, Policy) else self.policy(context)
        file = self.memory(context)
        if file is None:
            remember(context, admit(policy, recall(context), envelope))
        else:
            admit_in_file(file, policy, envelope)
        population = self.load(context)
        request = envelope.request
        if population.users == 0:
            raise Refused(Refusal.NO_USERS)
        named = not request.plan.is_open and labels_of(population) is not None
        if named and items_digest(labels_of(population)) != envelope.items_digest:
            # Two nodes that number the items each in their own way would add apples to pears.
            raise Refused(Refusal.OTHER_ITEMS)
        contribution = answer_population(request, population, source=self.source(context))
        return encode(contribution, request, labels_of(population))


def recall(context: Context) -> Memory:
    """What this node remembers of earlier requests."""
    if RECORD not in context.state.config_records:
        return Memory()
    text = context.state.config_records[RECORD].get("memory")
    if not isinstance(text, str):
        raise DecodeError("the device's memory is damaged")
    return Memory.from_text(text)


def remember(context: Context, memory: Memory) -> None:
    """Keep the memory where Flower keeps it for the node's next message in this Flower run."""
    context.state.config_records[RECORD] = ConfigRecord({"memory": memory.to_text()})


def node_population(context: Context) -> Population:
    """The users in the file that the node's own configuration names: `data-path`, and `items-path` if closed.

    The server has no say in which file is read.
    """
    items = None
    if (listed := _node_text(context, "items-path")) is not None:
        items = read_items(Path(listed))
    path = _node_text(context, "data-path")
    if path is None:
        raise InvalidInput("the node has no data", allowed="a data-path in its --node-config")
    return read_population(Path(path), items=items)


def node_policy(context: Context) -> Policy:
    """The limits in the node's own configuration: `max-epsilon`, `max-delta`, `minimum-cohort`."""
    config = context.node_config
    limits = Policy()
    return Policy(
        max_epsilon=float(config.get("max-epsilon", limits.max_epsilon)),
        max_delta=float(config.get("max-delta", limits.max_delta)),
        minimum_cohort=int(config.get("minimum-cohort", limits.minimum_cohort)),
    )


def node_memory(context: Context) -> Path | None:
    """The file that the node's own configuration names as `memory-path`."""
    path = _node_text(context, "memory-path")
    return None if path is None else Path(path)


def _node_text(context: Context, name: str) -> str | None:
    value = context.node_config.get(name)
    return None if value is None else str(value)


def _read(message: Message, round_: Round) -> Envelope:
    try:
        envelope = Envelope.from_fields(message.content.config_records[RECORD])
    except (DecodeError, KeyError):
        raise Refused(Refusal.MALFORMED) from None
    if envelope.request.round is not round_:
        raise Refused(Refusal.MALFORMED)
    return envelope


def _reply(
    message: Message, envelope: Envelope | None, status: Status, reason: str = "", data: bytes | None = None
) -> Message:
    fields: dict[str, Field] = {"version": ENVELOPE_VERSION, "status": status.value, "reason": str(reason)}
    if envelope is not None:
        fields = envelope.reply_fields(status, str(reason))
    content = RecordDict({RECORD: ConfigRecord({**fields})})
    if data is not None:
        array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
        content.array_records[ANSWER] = ArrayRecord({"answer": array})
    return Message(content, reply_to=message)


app = mount(ClientApp(), node_population, policy=node_policy, memory=node_memory)
