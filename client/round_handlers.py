"""The handlers of our messages on a node: one for a round without masks, one for a step of a masked round."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Message

from fedhist.client.answered_windows import check_has_window
from fedhist.client.context_memory import ContextMemory
from fedhist.client.device import clear_answer
from fedhist.client.memory_file import MemoryFile
from fedhist.client.node_replies import answered, not_answered
from fedhist.client.policy import Policy
from fedhist.display.log_lines import TIMED, log_shown
from fedhist.protocol.errors import DecodeError, InvalidInput, Refused
from fedhist.protocol.histograms import Integers, Labels, Population, labels_of
from fedhist.protocol.labels.item_origin import origin_of
from fedhist.protocol.plan.window import Window, window_in
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Round
from fedhist.protocol.wire.envelope import (
    MASKED_STAGES,
    MASKING,
    RECORD,
    Envelope,
    Refusal,
    items_digest,
)

if TYPE_CHECKING:
    from fedhist.protocol.masking.keys import Identity

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
                return not_answered(error, message, context, envelope, about=about)
        return answered(message, envelope, data)

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
        signed = envelope.request.plan.masks.signed
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
