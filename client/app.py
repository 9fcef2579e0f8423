"""The Flower side of a device: a query handler for each round, and one for each step of a masked round.

`app` is the ClientApp of a SuperNode that reads its own file:

    flower-supernode ... --node-config 'data-path="visits.csv" memory-path="memory.db" max-epsilon=2.0'

`mount` puts the same handlers on a ClientApp of your own, with your own function that returns the node's users.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedhist.client.device import answer_population
from fedhist.client.masked_device import begin, participant_vector, proceed, resume
from fedhist.client.memory_file import admit_in_file
from fedhist.client.policy import Memory, Policy, admit
from fedhist.client.records import read_items, read_population
from fedhist.protocol.codec import encode
from fedhist.protocol.envelope import (
    ANSWER,
    ENVELOPE_VERSION,
    MASKED_STAGES,
    MASKING,
    PARTICIPANT_BYTES,
    RECORD,
    Envelope,
    Field,
    Refusal,
    Status,
    items_digest,
)
from fedhist.protocol.errors import DecodeError, InvalidFile, InvalidInput, Refused
from fedhist.protocol.histograms import Integers, Population, labels_of
from fedhist.protocol.identities import MAX_KEY_FILE_BYTES, parse_identity, participant_number
from fedhist.protocol.masking.keys import Identity
from fedhist.protocol.privacy.randomness import Source, SystemSource
from fedhist.protocol.rounds import Round

log = logging.getLogger("fedhist")
Load = Callable[[Context], Population]


def mount(
    app: ClientApp,
    load: Load,
    *,
    policy: Policy | Callable[[Context], Policy] = Policy(),  # noqa: B008 - frozen
    source: Callable[[Context], Source] = lambda context: SystemSource(),
    memory: Callable[[Context], Path | None] = lambda context: None,
    identity: Callable[[Context], Identity | None] = lambda context: None,
) -> ClientApp:
    """Let an app answer both rounds: message types `query.select` and `query.release`, and those of masked rounds.

    Args:
        app: your ClientApp; its other handlers stay as they are.
        load: the node's users. Called once for each round, after the request was admitted.
        policy: what the node refuses, or a function of its Context that says so.
        source: where the node's draws come from. Anything but the default is for simulations.
        memory: a file in which the node remembers what it was asked and what that cost. None keeps it in the node's
            Context, which Flower keeps for one Flower run: a limit on the cost of several needs a file.
        identity: for signed masking, the node's own key and the directory of all keys. The server must not have had a
            hand in either.
    """
    node = _Node(load, policy, source, memory, identity)
    for round_ in Round:
        app.query(round_.value)(_Handler(node, round_))
    for stage in MASKED_STAGES:
        app.query(stage)(_MaskedHandler(node, stage))
    return app


@dataclass(frozen=True)
class _Node:
    """What `mount` was told."""

    load: Load
    policy: Policy | Callable[[Context], Policy]
    source: Callable[[Context], Source]
    memory: Callable[[Context], Path | None]
    identity: Callable[[Context], Identity | None]

    def admit(self, envelope: Envelope, context: Context) -> None:
        """Remember the request, or refuse it, before any data is looked at."""
        policy = self.policy if isinstance(self.policy, Policy) else self.policy(context)
        file = self.memory(context)
        if file is None:
            remember(context, admit(policy, recall(context), envelope))
        else:
            admit_in_file(file, policy, envelope)

    def population(self, envelope: Envelope, context: Context) -> Population:
        """The node's users, if its items are those of the request."""
        population = self.load(context)
        named = not envelope.request.plan.is_open and labels_of(population) is not None
        if named and items_digest(labels_of(population)) != envelope.items_digest:
            # Two nodes that number the items each in their own way would add apples to pears.
            raise Refused(Refusal.OTHER_ITEMS)
        return population


@dataclass(frozen=True)
class _Answering(ABC):
    """Answers a message. Never raises: what a handler raises is sent to the server with its text."""

    node: _Node

    def __call__(self, message: Message, context: Context) -> Message:
        envelope = None
        try:
            envelope = _read(message)
            data = self.answer(envelope, message, context)
        except Refused as refusal:
            return _reply(message, envelope, Status.REFUSED, refusal.reason)
        except Exception as error:
            if isinstance(error, InvalidInput):
                # The node's own files: its operator must know, and the server learns no more than the kind.
                log.error("%s", error)
            return _reply(message, envelope, Status.FAILED, type(error).__name__)
        return _reply(message, envelope, Status.ANSWER, data=data)

    @abstractmethod
    def answer(self, envelope: Envelope, message: Message, context: Context) -> bytes:
        """The bytes of the answer; Refused if there is none."""


@dataclass(frozen=True)
class _Handler(_Answering):
    """A round without masks."""

    round: Round

    def answer(self, envelope: Envelope, message: Message, context: Context) -> bytes:
        request = envelope.request
        if request.round is not self.round:
            raise Refused(Refusal.MALFORMED)
        if request.plan.is_masked:
            raise Refused(Refusal.NOT_MASKED)
        self.node.admit(envelope, context)
        population = self.node.population(envelope, context)
        if population.users == 0:
            raise Refused(Refusal.NO_USERS)
        contribution = answer_population(request, population, source=self.node.source(context))
        return encode(contribution, request, labels_of(population))


@dataclass(frozen=True)
class _MaskedHandler(_Answering):
    """A step of a masked round. The session's secrets lie in the node's Context until the next step and no longer."""

    stage: str

    def answer(self, envelope: Envelope, message: Message, context: Context) -> bytes:
        if not envelope.request.plan.is_masked:
            raise Refused(Refusal.MALFORMED)
        source = self.node.source(context).fork(
            "masking", context.node_id, envelope.request.round.value, self.stage
        )
        if self.stage == MASKED_STAGES[0]:
            self.node.admit(envelope, context)
            identity = self.node.identity(context) if envelope.request.plan.is_signed else None
            me = context.node_id if identity is None else participant_number(identity.public)
            state, advertisement = begin(envelope, me=me, source=source, identity=identity)
            answer = me.to_bytes(PARTICIPANT_BYTES, "little") + advertisement
        else:
            # A message of another round, late or sent again, must not end the session of this one.
            session = resume(envelope, _session(context))
            # Gone before it is used: a step that fails half way is not repeated.
            context.state.config_records.pop(MASKING, None)
            state, answer = proceed(
                session,
                _message_bytes(message),
                vector=lambda: self._vector(envelope, context),
                source=source,
            )
        context.state.config_records[MASKING] = ConfigRecord({"state": state})
        if not answer:
            raise Refused(Refusal.UNSAFE)
        return answer

    def _vector(self, envelope: Envelope, context: Context) -> Integers:
        population, source = self.node.population(envelope, context), self.node.source(context)
        # Virtual nodes draw from one seed: their number in the simulation keeps their shares of noise apart.
        number = int(context.node_config.get("partition-id", context.node_id))
        own = source.fork("masking", envelope.request.round.value, "noise", number)
        return participant_vector(envelope.request, population, source=source, own=own)


def _session(context: Context) -> bytes:
    record = context.state.config_records.get(MASKING)
    state = None if record is None else record.get("state")
    if not isinstance(state, bytes):
        raise Refused(Refusal.NO_SESSION)
    return state


def _message_bytes(message: Message) -> bytes:
    value = message.content.config_records[RECORD].get(MASKING)
    if not isinstance(value, bytes):
        raise Refused(Refusal.MALFORMED)
    return value


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
    """The limits in the node's own configuration: `max-epsilon`, `max-delta`, `minimum-cohort`, `require-masking`."""
    config = context.node_config
    limits = Policy()
    return Policy(
        max_epsilon=float(config.get("max-epsilon", limits.max_epsilon)),
        max_delta=float(config.get("max-delta", limits.max_delta)),
        minimum_cohort=int(config.get("minimum-cohort", limits.minimum_cohort)),
        require_masking=bool(config.get("require-masking", limits.require_masking)),
    )


def node_memory(context: Context) -> Path | None:
    """The file that the node's own configuration names as `memory-path`."""
    path = _node_text(context, "memory-path")
    return None if path is None else Path(path)


def node_identity(context: Context) -> Identity | None:
    """The key in the file `identity-path` and the keys in `directory-path`, for signed masking."""
    key, directory = _node_text(context, "identity-path"), _node_text(context, "directory-path")
    if key is None or directory is None:
        raise InvalidInput(
            "the node has no identity", allowed="an identity-path and a directory-path in its --node-config"
        )
    return parse_identity(_node_file(key), _node_file(directory), key_name=key, directory_name=directory)


def _node_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError:
        raise InvalidFile(f"{path} can't be read", allowed="a file of keys") from None


def _node_text(context: Context, name: str) -> str | None:
    value = context.node_config.get(name)
    return None if value is None else str(value)


def _read(message: Message) -> Envelope:
    try:
        return Envelope.from_fields(message.content.config_records[RECORD])
    except (DecodeError, KeyError):
        raise Refused(Refusal.MALFORMED) from None


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


app = mount(ClientApp(), node_population, policy=node_policy, memory=node_memory, identity=node_identity)
