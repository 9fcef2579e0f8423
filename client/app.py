"""The Flower side of a device: a query handler for each round, and one for each step of a masked round.

`app` is the ClientApp of a SuperNode that reads its own file:

    flower-supernode ... --node-config 'data-path="visits.csv" memory-path="memory.db" max-epsilon=2.0'

`mount` puts the same handlers on a ClientApp of your own, with your own function that returns the node's users: a data
frame, a matrix, a path or a population.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedhist.client.answered_windows import check_has_window
from fedhist.client.device import clear_answer
from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.memory_file import MAX_ANSWERS, MemoryFile
from fedhist.client.node_config import NodeSettings, read_node_config
from fedhist.client.node_log import line_of, outcome_of
from fedhist.client.policy import Memory, Policy, admit, answered, begin, charge, check, request_key
from fedhist.client.populations import Label
from fedhist.display.log_lines import TIMED, log_shown
from fedhist.protocol.errors import DecodeError, InvalidInput, Refused, UnusableMemory
from fedhist.protocol.histograms import Integers, Labels, Population, labels_of
from fedhist.protocol.labels.item_list import read_items
from fedhist.protocol.labels.item_origin import origin_of
from fedhist.protocol.plan.window import Window, window_in
from fedhist.protocol.plugins.loading import load_file_once
from fedhist.protocol.privacy.randomness import SECRET_BYTES, Source, SystemSource, new_secret
from fedhist.protocol.rounds import Round
from fedhist.protocol.wire.envelope import (
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

if TYPE_CHECKING:
    from fedhist.protocol.masking.device_states import DeviceState, Prepared
    from fedhist.protocol.masking.keys import Identity

log = logging.getLogger("fedhist")
Load = Callable[[Context], Any]
"""Returns a node's users, as whatever `fedhist.histogram` takes for data."""


def mount(
    app: ClientApp,
    load: Load,
    *,
    columns: Columns = USUAL_COLUMNS,
    items: Sequence[Label] | Callable[[Context], Labels | None] | None = None,
    policy: Policy | Callable[[Context], Policy] = Policy(),  # noqa: B008 - frozen
    source: Callable[[Context], Source] = lambda context: SystemSource(),
    memory: Callable[[Context], Path | None] = lambda context: None,
    identity: Callable[[Context], Identity | None] = lambda context: None,
    simulated: Callable[[Context], bool] = lambda context: False,
    plugins: Callable[[Context], None] = lambda context: None,
) -> ClientApp:
    """Let an app answer both rounds: message types `query.select` and `query.release`, and those of masked rounds.

    Args:
        app: your ClientApp; its other handlers stay as they are.
        load: the node's users: a data frame of pandas, polars or pyarrow, anything with an Arrow stream, a
            `datasets.Dataset`, a scipy matrix of users by items, a path or a population. Called once for each round,
            after the request was checked and before it is charged: what it raises costs nothing. It must not depend on
            what the server sends. Rows that break a rule are left out and counted in the node's log.
        columns: of a table or frame, those of the user, the item and the count, and bins for numbers. With a column
            of the time the node answers plans with a window, and no others; it selects the rows of the window itself,
            and answers each day once (`Policy.window_runs`). Data without times is no answer to such a plan.
        items: the public list of a closed domain, the same everywhere, or a function of the node's Context that returns
            it, for a `load` that knows it as well. Requests for another list are refused before data is read. Bins are
            such a list themselves, and a population has its own.
        policy: what the node refuses, or a function of its Context that returns it.
        source: where the node's draws come from. Anything but the default is for simulations.
        memory: a file in which the node remembers what it was asked, what that cost, and its masking sessions. A limit
            on cost and masked rounds need one. With None, the rest is kept in the node's Context, for one Flower run.
        identity: for signed masking, the node's own key and the directory of all keys. The server must not have had a
            hand in either.
        simulated: True for a virtual node, whose users are not real and which needs no memory file: `is_virtual`. No
            node is taken for one by default: people start real nodes with a partition-id, too.
        plugins: loads the methods from outside that the node has, before each request is read. A plan that uses others,
            or other code of the same name, is refused.
    """
    listed = items if callable(items) else None if items is None else tuple(items)

    def users(context: Context, window: Window | None) -> Population:
        from fedhist.client.files.data_kinds import is_population
        from fedhist.client.files.node_data import node_users

        data, read = load(context), columns
        if isinstance(data, NodeSettings):
            data = data.population(window)
        elif window is not None and not simulated(context):
            if is_population(data) or columns.time is None:
                raise Refused(Refusal.NO_WINDOW, local="its users come without times")
            read = replace(columns, window=window)
        return node_users(data, columns=read, items=None if callable(listed) else listed)

    def has_times(context: Context) -> bool:
        return columns.time is not None or "time-column" in context.node_config

    def public(context: Context) -> Labels | None:
        return listed(context) if callable(listed) else listed

    node = _Node(users, policy, source, memory, identity, simulated, plugins, public, has_times)
    for round_ in Round:
        app.query(round_.value)(_Handler(node, round_))
    for stage in MASKED_STAGES:
        app.query(stage)(_MaskedHandler(node, stage))
    return app


@dataclass(frozen=True)
class _InContext:
    """What a MemoryFile does, in the node's Context, which Flower stores after the answer has left, for one Flower run.

    A virtual node computes its answers anew: many such nodes share one machine, and their data does not change.
    """

    context: Context
    virtual: bool

    def given(self, policy: Policy, envelope: Envelope) -> bytes | None:
        check(policy, recall(self.context), envelope)
        if self.virtual or request_key(envelope) not in recall(self.context).answers:
            return None
        kept = self.context.state.config_records.get(ANSWER)
        answer = None if kept is None else kept.get(request_key(envelope))
        if not isinstance(answer, bytes):
            raise Refused(Refusal.SECOND_REQUEST)
        return answer

    def admit(self, policy: Policy, envelope: Envelope) -> bytes:
        return self._remember(admit(policy, recall(self.context), envelope))

    def note(self, envelope: Envelope, answer: bytes) -> bytes:
        self._remember(answered(recall(self.context), envelope, answer))
        if not self.virtual:
            records = self.context.state.config_records
            kept = {**records.get(ANSWER, {}), request_key(envelope): answer}
            records[ANSWER] = ConfigRecord(dict(list(kept.items())[-MAX_ANSWERS:]))
        return answer

    def begin(self, policy: Policy, envelope: Envelope) -> None:
        self._remember(begin(policy, recall(self.context), envelope))

    def charge(self, policy: Policy, envelope: Envelope) -> None:
        self._remember(charge(policy, recall(self.context), envelope))

    def _remember(self, memory: Memory) -> bytes:
        """Keep the memory; the node's secret, made when it is first needed."""
        records = self.context.state.config_records
        secret = records[RECORD].get("secret") if RECORD in records else None
        if not (isinstance(secret, bytes) and len(secret) == SECRET_BYTES):
            secret = new_secret()
        records[RECORD] = ConfigRecord({"memory": memory.to_text(), "secret": secret})
        return secret

    def take(self, run: str, resume: Callable[[bytes], DeviceState | Prepared]) -> DeviceState | Prepared:
        record = self.context.state.config_records.get(MASKING)
        state = None if record is None else record.get("state")
        if not isinstance(state, bytes):
            raise Refused(Refusal.NO_SESSION)
        session = resume(state)
        self.context.state.config_records.pop(MASKING)
        return session

    def keep(self, run: str, state: bytes) -> None:
        self.context.state.config_records[MASKING] = ConfigRecord({"state": state})


_Memory = MemoryFile | _InContext


@dataclass(frozen=True)
class _Node:
    """What `mount` was given."""

    load: Callable[[Context, Window | None], Population]
    policy: Policy | Callable[[Context], Policy]
    source: Callable[[Context], Source]
    memory: Callable[[Context], Path | None]
    identity: Callable[[Context], Identity | None]
    simulated: Callable[[Context], bool]
    plugins: Callable[[Context], None]
    items: Callable[[Context], Labels | None]
    has_times: Callable[[Context], bool]

    def memory_of(self, context: Context) -> _Memory:
        """Where this node remembers."""
        file = self.memory(context)
        return _InContext(context, self.simulated(context)) if file is None else MemoryFile(file)

    def has_safe_memory(self, context: Context) -> bool:
        """Whether what this node remembers survives, or nothing real is at stake."""
        return self.memory(context) is not None or self.simulated(context)

    def limits(self, context: Context) -> Policy:
        """The node's policy as it was given."""
        policy = self.policy if isinstance(self.policy, Policy) else self.policy(context)
        if policy.is_limited and not self.has_safe_memory(context):
            raise InvalidInput(
                "the node limits what runs may cost and has no file in which to remember the cost",
                allowed="max-epsilon and max-delta together with a memory-path",
                advice="add a memory-path to the node's configuration, or memory= to mount; in simulations, simulated=",
            )
        return policy

    def standing(self, context: Context, *, signed: bool) -> tuple[Policy, Identity | None]:
        """The node's policy, and its identity where the round is signed or the policy asks for one."""
        policy = self.limits(context)
        identity = self.identity(context) if signed or policy.minimum_masking is None else None
        return policy.for_device(directory=0 if identity is None else len(identity.directory)), identity

    def check_items(self, envelope: Envelope, context: Context) -> None:
        """Refuse a request about other items than those of the node's public list, if it has one."""
        items = None if envelope.request.plan.items is None else self.items(context)
        if items is not None and items_digest(items) != envelope.items_digest:
            raise _other_items(envelope, len(items))

    def check_window(self, envelope: Envelope, context: Context) -> None:
        """Refuse what `check_has_window` does. The users of a virtual node are what the simulation says they are."""
        if self.simulated(context):
            return
        check_has_window(
            envelope.request.plan.window,
            times=self.has_times(context),
            memory=self.memory(context) is not None,
        )

    def population(self, envelope: Envelope, context: Context) -> Population:
        """The node's users, if its items are those of the request.

        Of the request, only the window decides what is read, and a window is answered once.
        """
        self.check_window(envelope, context)
        population = self.load(context, window_in(envelope.request.plan.window))
        if envelope.request.plan.items is None:
            return population
        if envelope.request.plan.items != population.domain_size:
            raise _other_items(envelope, population.domain_size)
        # Two nodes that number the items each in their own way would add apples to pears. Items that were read off the
        # data are never those of the request: an answer would show that a guess at them was right.
        labels, from_data = labels_of(population), origin_of(population).tells("closed")
        if labels is not None and (from_data or items_digest(labels) != envelope.items_digest):
            raise _other_items(envelope, population.domain_size, from_data=from_data)
        return population


def _other_items(envelope: Envelope, number: int, *, from_data: bool = False) -> Refused:
    what = f"the node has {number} items and the plan {envelope.request.plan.items}"
    if from_data:
        what = "the node has no public list and took the items from its data"
    return Refused(Refusal.OTHER_ITEMS, local=what)


@dataclass(frozen=True)
class _Answering(ABC):
    """Answers a message. Never raises: what a handler raises is sent to the server with its text."""

    node: _Node

    def __call__(self, message: Message, context: Context) -> Message:
        envelope = None
        with log_shown(TIMED):
            try:
                self.node.plugins(context)
                envelope = _envelope_in(message)
                data = self.answer(envelope, message, context)
            except Exception as error:
                status, reason = outcome_of(error)
                asked = message.metadata.message_type.removeprefix("query.")
                line = line_of(
                    error, envelope, asked=asked, flower_run=context.run_id, config=context.node_config
                )
                log.error("%s", line)
                return _reply_to(message, envelope, status, reason)
        return _reply_to(message, envelope, Status.ANSWER, data=data)

    @abstractmethod
    def answer(self, envelope: Envelope, message: Message, context: Context) -> bytes:
        """The bytes of the answer. Raises Refused instead of answering."""


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
        policy, _ = self.node.standing(context, signed=False)
        memory = self.node.memory_of(context)
        # Not computed anew: whether it comes out the same would tell whether the data has changed.
        answer = memory.given(policy, envelope)
        if answer is None:
            population = self.node.population(envelope, context)
            # A node without users keeps that as its answer, too, and nothing is charged for it.
            answer = b""
            if population.users:
                secret, source = memory.admit(policy, envelope), self.node.source(context)
                answer = clear_answer(envelope, population, secret=secret, source=source)
            answer = memory.note(envelope, answer)
        if not answer:
            raise Refused(Refusal.NO_USERS)
        return answer


@dataclass(frozen=True)
class _MaskedHandler(_Answering):
    """A step of a masked round. The session's secrets lie in the node's memory until the next step and no longer.

    Keys, masks and noise are the operating system's, never drawn from the node's lasting secret: somebody who reads
    that one day must not be able to take old masks off.

    A round is admitted in its first step: when keys are asked for or, where the node advertised them with its last
    answer in the round before, when it is shown the others' keys. Either way once for each run and round, so there is
    one session in a round whatever is asked in which order.

    What masks is loaded here alone: a node starts a process for every message, and most have no masks.
    """

    stage: str

    def answer(self, envelope: Envelope, message: Message, context: Context) -> bytes:
        from fedhist.client.masked_device import begin as begin_session
        from fedhist.client.masked_device import join, proceed, resume
        from fedhist.protocol.masking.device_states import Prepared
        from fedhist.protocol.masking.masked_vector import next_session, terms_of

        if not envelope.request.plan.is_masked:
            raise Refused(Refusal.MALFORMED)
        if not self.node.has_safe_memory(context):
            advice = "add a memory-path to the node's configuration, or memory= to mount"
            raise Refused(Refusal.NO_MEMORY, local=advice)
        memory = self.node.memory_of(context)
        source = self.node.source(context).fork(
            "masking", context.node_id, envelope.request.round.value, self.stage
        )
        if self.stage == MASKED_STAGES[0]:
            me, identity, fewest = self._admitted(envelope, context, memory)
            state, answer = begin_session(envelope, me=me, source=source, identity=identity, fewest=fewest)
            answer = me.to_bytes(PARTICIPANT_BYTES, "little") + answer
        else:
            sent = message.content.config_records[RECORD].get(MASKING)
            if not isinstance(sent, bytes):
                raise Refused(Refusal.MALFORMED)
            # Gone before it is used, so that a step that fails half way is not repeated. A message of another round,
            # late or sent again, does not end the session of this one.
            session = memory.take(envelope.run, partial(resume, terms_of(envelope)))
            if isinstance(session, Prepared):
                me, identity, fewest = self._admitted(envelope, context, memory)
                session = join(envelope, session, me=me, identity=identity, fewest=fewest)
            vector = partial(self._vector, envelope, context, memory)
            following = next_session(envelope)
            state, answer = proceed(session, sent, vector=vector, source=source, following=following)
        memory.keep(envelope.run, state)
        if not answer:
            raise Refused(Refusal.UNSAFE)
        return answer

    def _admitted(
        self, envelope: Envelope, context: Context, memory: _Memory
    ) -> tuple[int, Identity | None, int]:
        """The participant's number, its identity in a signed round, and its floor. Raises Refused, or charges."""
        from fedhist.protocol.masking.identities import participant_number

        signed = envelope.request.plan.masks.signed
        policy, identity = self.node.standing(context, signed=signed)
        if signed and identity is None:
            advice = "add an identity-path and a directory-path to its configuration, or identity= to mount"
            raise Refused(Refusal.NO_IDENTITY, local=advice)
        self.node.check_items(envelope, context)
        self.node.check_window(envelope, context)
        memory.begin(policy, envelope)
        if not signed:
            identity = None
        me = context.node_id if identity is None else participant_number(identity.public)
        return me, identity, policy.fewest

    def _vector(self, envelope: Envelope, context: Context, memory: _Memory) -> Integers:
        from fedhist.client.masked_device import participant_vector

        population, source = self.node.population(envelope, context), self.node.source(context)
        memory.charge(self.node.limits(context), envelope)
        # Virtual nodes draw from one seed: their number in the simulation keeps their shares of noise apart.
        number = int(context.node_config.get("partition-id", context.node_id))
        own = source.fork("masking", envelope.request.round.value, "noise", number)
        return participant_vector(envelope.request, population, source=source, own=own)


def recall(context: Context) -> Memory:
    """What this node remembers of earlier requests."""
    if RECORD not in context.state.config_records:
        return Memory()
    text = context.state.config_records[RECORD].get("memory")
    if not isinstance(text, str):
        raise _damaged()
    try:
        return Memory.from_text(text)
    except DecodeError:
        raise _damaged() from None


def _damaged() -> UnusableMemory:
    return UnusableMemory("the node's memory in Flower's state is damaged", allowed="what fedhist wrote")


def _envelope_in(message: Message) -> Envelope:
    try:
        return Envelope.from_fields(message.content.config_records[RECORD])
    except (DecodeError, KeyError):
        raise Refused(Refusal.MALFORMED) from None


def _reply_to(
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


def node_population(context: Context) -> NodeSettings:
    """The node's own configuration, for `mount` to read the users in its file or database, with or without a window.

    The server has no say in what is read, but for the window of its plan.
    """
    return read_node_config(context.node_config)


def node_items(context: Context) -> Labels | None:
    """The public list that the node's own configuration names as `items-path`."""
    path = read_node_config(context.node_config).items_path
    return None if path is None else read_items(path)


def node_policy(context: Context) -> Policy:
    """The limits in the node's own configuration."""
    return read_node_config(context.node_config).policy


def node_memory(context: Context) -> Path | None:
    """The file that the node's own configuration names as `memory-path`."""
    return read_node_config(context.node_config).memory_path


def node_identity(context: Context) -> Identity | None:
    """The key and the directory that the node's own configuration names; None if it names none."""
    return read_node_config(context.node_config).identity()


def node_plugins(context: Context) -> None:
    """Load the files that the node's own configuration names as `plugin`. The server has no say in them."""
    for path in read_node_config(context.node_config).plugin:
        load_file_once(path)


app = mount(
    ClientApp(),
    node_population,
    policy=node_policy,
    memory=node_memory,
    identity=node_identity,
    plugins=node_plugins,
    items=node_items,
)
