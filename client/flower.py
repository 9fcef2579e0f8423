"""A node's memory in its Flower Context, for one Flower run: of virtual nodes, or real ones without limits and masks.

Flower stores a Context after the answer has left. What must not be lost is in a `MemoryFile`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedhist.client.config import (
    Load,
    NodeSettings,
    node_identity,
    node_items,
    node_memory,
    node_plugins,
    node_policy,
    node_population,
)
from fedhist.client.device import clear_answer
from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.freed_memory import spare_loaded_modules
from fedhist.client.memory_file import MAX_ANSWERS, MemoryFile, Session
from fedhist.client.policy import (
    Memory,
    Policy,
    admit,
    answered,
    begin,
    charge,
    check,
    check_has_window,
    request_key,
)
from fedhist.client.populations import Label
from fedhist.display.text import TIMED, block, line, log_shown, visible
from fedhist.protocol.errors import (
    DecodeError,
    InvalidFile,
    InvalidInput,
    InvalidPopulation,
    MissingFile,
    Refused,
    UnusableMemory,
)
from fedhist.protocol.histograms import Integers, Labels, Population, labels_of
from fedhist.protocol.item_lists import origin_of
from fedhist.protocol.plan.window import Window, window_in
from fedhist.protocol.privacy.randomness import SECRET_BYTES, Source, SystemSource, new_secret
from fedhist.protocol.rounds import Round
from fedhist.protocol.wire.envelope import (
    ANSWER,
    ENVELOPE_VERSION,
    MASKED_STAGES,
    MASKING,
    RECORD,
    Envelope,
    Field,
    Refusal,
    Status,
    items_digest,
)

if TYPE_CHECKING:
    from fedhist.protocol.masking.crypto import Identity


@dataclass(frozen=True)
class ContextMemory:
    """What a MemoryFile does, in the node's Context.

    A virtual node computes its answers anew: many such nodes share one machine, and their data does not change.
    """

    context: Context
    virtual: bool

    def given(self, policy: Policy, envelope: Envelope) -> bytes | None:
        """The answer that was given to a request without masks; None if there was none."""
        check(policy, recall(self.context), envelope)
        if self.virtual or request_key(envelope) not in recall(self.context).answers:
            return None
        answer = self._record(ANSWER).get(request_key(envelope))
        if not isinstance(answer, bytes):
            raise Refused(Refusal.SECOND_REQUEST)
        return answer

    def admit(self, policy: Policy, envelope: Envelope) -> bytes:
        """Charge a request without masks; the node's secret."""
        return self._remember(admit(policy, recall(self.context), envelope))

    def note(self, envelope: Envelope, answer: bytes) -> bytes:
        """Remember the answer, which is the one to send."""
        self._remember(answered(recall(self.context), envelope, answer))
        if not self.virtual:
            kept = {**self._record(ANSWER), request_key(envelope): answer}
            newest = dict(list(kept.items())[-MAX_ANSWERS:])
            self.context.state.config_records[ANSWER] = ConfigRecord(newest)
        return answer

    def begin(self, policy: Policy, envelope: Envelope) -> None:
        """Note that a masking session begins."""
        self._remember(begin(policy, recall(self.context), envelope))

    def charge(self, policy: Policy, envelope: Envelope) -> None:
        """Charge a masked round."""
        self._remember(charge(policy, recall(self.context), envelope))

    def keep(self, run: str, state: bytes) -> None:
        """Keep a masking session's state, in place of any other: there is one at a time."""
        self.context.state.config_records[MASKING] = ConfigRecord({run: state})

    def take(self, run: str, resume: Callable[[bytes], Session]) -> Session:
        """The session of this run, which the Context has forgotten on return."""
        state = self._record(MASKING).get(run)
        if not isinstance(state, bytes):
            raise Refused(Refusal.NO_SESSION)
        session = resume(state)
        self.context.state.config_records.pop(MASKING)
        return session

    def _record(self, name: str) -> ConfigRecord:
        return self.context.state.config_records.get(name, ConfigRecord())

    def _remember(self, memory: Memory) -> bytes:
        """Keep the memory; the node's secret, made when it is first needed."""
        secret = self._record(RECORD).get("secret")
        if not (isinstance(secret, bytes) and len(secret) == SECRET_BYTES):
            secret = new_secret()
        self.context.state.config_records[RECORD] = ConfigRecord(
            {"memory": memory.to_text(), "secret": secret}
        )
        return secret


def recall(context: Context) -> Memory:
    """What this node remembers of earlier requests."""
    if RECORD not in context.state.config_records:
        return Memory()
    text = context.state.config_records[RECORD].get("memory")
    if not isinstance(text, str):
        raise _damaged_memory()
    try:
        return Memory.from_text(text)
    except DecodeError:
        raise _damaged_memory() from None


def _damaged_memory() -> UnusableMemory:
    return UnusableMemory("the node's memory in Flower's state is damaged", allowed="what fedhist wrote")


# Why a node did not answer: the reason that the server gets, and the line in the node's own log.
#
# The reason is one of a closed list. The line is for the node's operator: it names files, and for our own errors says
# what is wrong with them and in which line, and never what somebody wrote there. Of other errors it has the class
# alone.

# The first that fits.
_REASONS: tuple[tuple[type[Exception], Refusal], ...] = (
    (UnusableMemory, Refusal.BAD_MEMORY),
    (MissingFile, Refusal.MISSING_FILE),
    (InvalidFile, Refusal.BAD_FILE),
    (InvalidPopulation, Refusal.BAD_FILE),
    (InvalidInput, Refusal.BAD_CONFIGURATION),
)
# The key of the node's configuration that names the file which decided.
_DECIDING_FILES = {
    Refusal.OTHER_ITEMS: "items-path",
    Refusal.NO_USERS: "data-path",
    Refusal.OVER_BUDGET: "memory-path",
    Refusal.SECOND_REQUEST: "memory-path",
    Refusal.OTHER_PLAN: "memory-path",
    Refusal.ANSWERED_WINDOW: "memory-path",
}


def _outcome_of(error: Exception) -> tuple[Status, Refusal]:
    """What the server is sent in place of an answer."""
    if isinstance(error, Refused):
        return Status.REFUSED, next((known for known in Refusal if known == error.reason), Refusal.FAILED)
    return Status.FAILED, next(
        (reason for kind, reason in _REASONS if isinstance(error, kind)), Refusal.FAILED
    )


def line_of(error: Exception, *, about: Sequence[str], config: Mapping[str, object]) -> str:
    """The line for the node's log.

    Whatever the server wrote, such as the name of a run, neither begins a line of its own nor talks to a terminal.

    Args:
        error: why there is no answer.
        about: what was asked: the run, the round and the stage, in words.
        config: the node's configuration.
    """
    status, reason = _outcome_of(error)
    words = [f"{', '.join(map(visible, about))}: {status.value}, {reason.value}: {reason.in_words}"]
    if isinstance(error, Refused):
        words += [line(error.local)] if error.local else []
        words += [line(error.__cause__)] if isinstance(error.__cause__, InvalidInput) else []
    else:
        words.append(
            block(str(error)) if isinstance(error, InvalidInput) else f"the error is {type(error).__name__}"
        )
    file = config.get(_DECIDING_FILES.get(reason, ""))
    if file is not None:
        words.append(f"see {file}")
    return "; ".join(word.rstrip(".") for word in words) + "."


# A node's replies: an answer, or the reason why there is none, with a line in the node's own log.


def _replied(message: Message, envelope: Envelope, data: bytes) -> Message:
    """The reply with the answer's bytes."""
    reply = _reply(message, envelope.reply_fields(Status.ANSWER))
    array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    reply.content.array_records[ANSWER] = ArrayRecord({"answer": array})
    return reply


def _not_answered(
    error: Exception,
    message: Message,
    context: Context,
    envelope: Envelope | None,
    *,
    about: Sequence[str],
) -> Message:
    """The reply with the reason, which stands in the node's log too.

    Args:
        error: why there is no answer.
        message: what is replied to.
        context: the node's.
        envelope: what was asked; None if it could not be read.
        about: the same in words, for the log.
    """
    words = (f"Flower run {context.run_id}", *about)
    log.error("%s", line_of(error, about=words, config=context.node_config))
    status, reason = _outcome_of(error)
    if envelope is None:
        return _reply(message, {"version": ENVELOPE_VERSION, "status": status.value, "reason": reason.value})
    return _reply(message, envelope.reply_fields(status, reason.value))


def _reply(message: Message, fields: dict[str, Field]) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord({**fields})}), reply_to=message)


# The handlers of our messages on a node: one for a round without masks, one for a step of a masked round.

log = logging.getLogger("fedhist")
NodeMemory = MemoryFile | ContextMemory


@dataclass(frozen=True)
class Node:
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

    def memory_of(self, context: Context) -> NodeMemory:
        """Where this node remembers."""
        file = self.memory(context)
        return ContextMemory(context, self.simulated(context)) if file is None else MemoryFile(file)

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
        return replace(policy, simulated=True) if self.simulated(context) else policy

    def standing(self, context: Context, *, signed: bool) -> tuple[Policy, Identity | None]:
        """The node's policy, and its identity where the round is signed or the policy asks for one."""
        policy = self.limits(context)
        if not (policy.is_limited or policy.simulated):
            log.warning(
                "this node has no max-epsilon: it answers any number of runs, whatever they cost together"
            )
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
        plan, closed = envelope.request.plan, envelope.request.plan.items is not None
        population = self.load(context, window_in(plan.window))
        # An answer over items that were inferred from the data would show that a guess at them was right; of the most
        # frequent ones, over an open domain too, what one user has decides which of the others' items count.
        if origin_of(population).tells("closed" if closed else "open"):
            raise _other_items(envelope, population.domain_size, from_data=True)
        if closed and plan.items != population.domain_size:
            raise _other_items(envelope, population.domain_size)
        # Two nodes that number the items each in their own way would add apples to pears.
        labels = labels_of(population) if closed else None
        if labels is not None and items_digest(labels) != envelope.items_digest:
            raise _other_items(envelope, population.domain_size)
        return population


def _other_items(envelope: Envelope, number: int, *, from_data: bool = False) -> Refused:
    asked = envelope.request.plan.items
    what = f"the node's list has {number} items and the server's {asked}"
    if number == asked:
        what = f"both lists have {number} items, and not the same ones in the same order"
    if from_data:
        what = "the node has no public list and took the items from its data"
    return Refused(Refusal.OTHER_ITEMS, local=what)


@dataclass(frozen=True)
class _Answering(ABC):
    """Answers a message. Never raises: what a handler raises is sent to the server with its text."""

    node: Node

    def __call__(self, message: Message, context: Context) -> Message:
        envelope, about = None, [message.metadata.message_type.removeprefix("query.")]
        with log_shown(TIMED):
            try:
                self.node.plugins(context)
                envelope = _envelope_in(message)
                about = _in_words(envelope, asked=about[0])
                data = self.answer(envelope, message, context)
            except Exception as error:
                return _not_answered(error, message, context, envelope, about=about)
        return _replied(message, envelope, data)

    @abstractmethod
    def answer(self, envelope: Envelope, message: Message, context: Context) -> bytes:
        """The bytes of the answer. Raises Refused instead of answering."""


@dataclass(frozen=True)
class PlainHandler(_Answering):
    """A round without masks."""

    round: Round

    def answer(self, envelope: Envelope, message: Message, context: Context) -> bytes:
        """The answer, once and the same for each request."""
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
class MaskedHandler(_Answering):
    """A step of a masked round. The session's secrets lie in the node's memory until the next step and no longer.

    Keys, masks and noise are the operating system's, never drawn from the node's lasting secret: somebody who reads
    that one day must not be able to take old masks off.

    A round begins once for each run, whatever is asked in which order, so there is one session in it.

    What masks is loaded here alone: a node starts a process for every message, and most have no masks.
    """

    stage: str

    def answer(self, envelope: Envelope, message: Message, context: Context) -> bytes:
        """The answer of the session's next step."""
        from fedhist.client.masked_device import step
        from fedhist.protocol.masking.masked_vector import terms_of

        if not envelope.request.plan.is_masked:
            raise Refused(Refusal.MALFORMED)
        if not self.node.has_safe_memory(context):
            advice = "add a memory-path to the node's configuration, or memory= to mount"
            raise Refused(Refusal.NO_MEMORY, local=advice)
        memory = self.node.memory_of(context)
        try:
            terms = terms_of(envelope)
        except InvalidInput as problem:
            # The plan's own fault, such as a vector that is too long: not that of the node's configuration.
            raise Refused(Refusal.MALFORMED) from problem
        return step(
            envelope.run,
            terms,
            message.content.config_records[RECORD].get(MASKING),
            begins=self.stage == MASKED_STAGES[0],
            sessions=memory,
            node=context.node_id,
            admitted=partial(self._admitted, envelope, context, memory),
            vector=partial(self._vector, envelope, context, memory),
            source=self.node.source(context).fork(
                "masking", context.node_id, envelope.request.round.value, self.stage
            ),
        )

    def _admitted(
        self, envelope: Envelope, context: Context, memory: NodeMemory
    ) -> tuple[Identity | None, int]:
        """The node's identity in a signed round, and its floor. Raises Refused, or notes that the round begins."""
        signed = envelope.request.plan.is_signed
        policy, identity = self.node.standing(context, signed=signed)
        if signed and identity is None:
            advice = "add an identity-path and a directory-path to its configuration, or identity= to mount"
            raise Refused(Refusal.NO_IDENTITY, local=advice)
        self.node.check_items(envelope, context)
        self.node.check_window(envelope, context)
        memory.begin(policy, envelope)
        return identity if signed else None, policy.fewest

    def _vector(self, envelope: Envelope, context: Context, memory: NodeMemory) -> Integers:
        from fedhist.client.masked_device import participant_vector

        population, source = self.node.population(envelope, context), self.node.source(context)
        memory.charge(self.node.limits(context), envelope)
        # Virtual nodes draw from one seed: their number in the simulation keeps their shares of noise apart.
        number = int(context.node_config.get("partition-id", context.node_id))
        own = source.fork("masking", envelope.request.round.value, "noise", number)
        return participant_vector(envelope.request, population, source=source, own=own)


def _envelope_in(message: Message) -> Envelope:
    try:
        return Envelope.from_fields(message.content.config_records[RECORD])
    except (DecodeError, KeyError):
        raise Refused(Refusal.MALFORMED) from None


def _in_words(envelope: Envelope, *, asked: str) -> list[str]:
    """What was asked, for the node's log; `asked` is the round, or the stage of a masked one."""
    round_ = envelope.request.round.value
    stage = [] if asked == round_ else [asked]
    return [f"run {envelope.run}", f"round {round_}", *stage]


# The Flower side of a device: a query handler for each round, and one for each step of a masked round.
#
# `app` is the ClientApp of a SuperNode that reads its own file:
#
#     flower-supernode ... --node-config 'data-path="visits.csv" memory-path="memory.db" max-epsilon=2.0 max-delta=1e-4'
#
# `mount` puts the same handlers on a ClientApp of your own, with your own function that returns the node's users: a
# data frame, a matrix, a path or a population.


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
    spare_loaded_modules()
    listed = items if callable(items) else None if items is None else tuple(items)

    def users(context: Context, window: Window | None) -> Population:
        from fedhist.client.files.read import is_population, node_users

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

    node = Node(users, policy, source, memory, identity, simulated, plugins, public, has_times)
    for round_ in Round:
        app.query(round_.value)(PlainHandler(node, round_))
    for stage in MASKED_STAGES:
        app.query(stage)(MaskedHandler(node, stage))
    return app


app = mount(
    ClientApp(),
    node_population,
    policy=node_policy,
    memory=node_memory,
    identity=node_identity,
    plugins=node_plugins,
    items=node_items,
)
