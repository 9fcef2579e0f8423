"""A node's memory in its Flower Context, for one Flower run: of virtual nodes, or real ones without limits and masks.

Flower stores a Context after the answer has left. What must not be lost is in a `MemoryFile`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ConfigRecord, Context

from fedhist.client.memory_file import MAX_ANSWERS, Session
from fedhist.client.policy import Memory, Policy, admit, answered, begin, charge, check, request_key
from fedhist.protocol.errors import DecodeError, Refused, UnusableMemory
from fedhist.protocol.privacy.randomness import SECRET_BYTES, new_secret
from fedhist.protocol.wire.envelope import ANSWER, MASKING, RECORD, Envelope, Refusal


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
        raise _damaged()
    try:
        return Memory.from_text(text)
    except DecodeError:
        raise _damaged() from None


def _damaged() -> UnusableMemory:
    return UnusableMemory("the node's memory in Flower's state is damaged", allowed="what fedhist wrote")
