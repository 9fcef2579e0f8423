"""A device's memory under requests, failures and crashes in any order: what is spent is what left, to the round."""

from __future__ import annotations

import math
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fedhist import Plan, Spending
from fedhist.client import Policy
from tests.asking import release_at, select_request
from tests.support.api import MAX_SESSIONS, Envelope, MemoryFile, Refused, Round, request_key

CLEAR = Plan(users=10, items=2, epsilon=1.0, epsilon_select=0.25)
MASKED = Plan(users=10, items=2, epsilon=1.0, epsilon_select=0.25, masking="secagg", participants=3)
LIMIT = 3.0
RUNS = st.sampled_from(["a", "b", "c", "d"])
ROUNDS = st.sampled_from([Round.SELECT, Round.RELEASE])
COSTS = {Round.SELECT: 0.25, Round.RELEASE: 1.0}


def envelope_of(run: str, round_: Round, plan: Plan, *, above: int = 0) -> Envelope:
    if round_ is Round.SELECT:
        return Envelope(run=run, request=select_request(plan))
    return Envelope(run=run, request=release_at(plan, plan.at_steps(plan.step_range[0] + above)))


class Device(RuleBasedStateMachine):
    """What a handler does with the memory, cut off at any place. Each process has a MemoryFile of its own.

    `left` has the rounds of which something may have left: an answer that was noted, or a vector whose state was kept.
    `computing` are processes that have charged and may yet answer, or die.
    """

    POLICY = Policy(max_epsilon=LIMIT)

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "m.db"
        self.policy = self.POLICY
        self.left: dict[str, Round] = {}
        self.computing: list[tuple[Envelope, bytes]] = []
        self.died: dict[str, Round] = {}
        self.sent: dict[str, bytes] = {}

    def teardown(self) -> None:
        self._folder.cleanup()

    @property
    def memory(self) -> MemoryFile:
        return MemoryFile(self.path)

    @rule(run=RUNS, round_=ROUNDS, above=st.integers(0, 1), readable=st.booleans())
    def asked_without_masks(self, run: str, round_: Round, above: int, readable: bool) -> None:
        envelope = envelope_of(f"clear {run}", round_, CLEAR, above=above)
        with suppress(Refused):
            stored = self.memory.given(self.policy, envelope)
            if stored is not None:
                assert self.sent[request_key(envelope)] == stored
            elif readable:
                secret = self.memory.admit(self.policy, envelope)
                self.computing.append((envelope, secret + bytes([len(self.computing)])))

    @rule(run=RUNS, round_=ROUNDS)
    def a_session_begins(self, run: str, round_: Round) -> None:
        envelope = envelope_of(f"masked {run}", round_, MASKED)
        with suppress(Refused):
            self.memory.begin(self.policy, envelope)
            self.memory.keep(envelope.run, request_key(envelope).encode())

    @rule(run=RUNS, round_=ROUNDS, readable=st.booleans())
    def the_vector_is_due(self, run: str, round_: Round, readable: bool) -> None:
        envelope = envelope_of(f"masked {run}", round_, MASKED)

        def resume(state: bytes) -> bytes:
            if state != request_key(envelope).encode():
                raise Refused("no-session")
            return state

        with suppress(Refused):
            self.memory.take(envelope.run, resume)
            if readable:
                self.memory.charge(self.policy, envelope)
                self.computing.append((envelope, b"masked"))

    @rule(data=st.data())
    def a_process_answers(self, data: st.DataObject) -> None:
        if not self.computing:
            return
        envelope, answer = self.computing.pop(data.draw(st.integers(0, len(self.computing) - 1)))
        key = request_key(envelope)
        if envelope.request.plan.is_masked:
            self.memory.keep(envelope.run, b"masked")
            assert key not in self.left, "two vectors left in one round"
        else:
            answer = self.memory.note(envelope, answer)
            assert self.sent.setdefault(key, answer) == answer, "two views left in one round"
        self.left[key] = envelope.request.round

    @rule(data=st.data())
    def a_process_dies(self, data: st.DataObject) -> None:
        if self.computing:
            envelope, _ = self.computing.pop(data.draw(st.integers(0, len(self.computing) - 1)))
            self.died[request_key(envelope)] = envelope.request.round

    @invariant()
    def what_is_spent_is_what_left_or_may_leave(self) -> None:
        if not self.path.exists():
            return
        memory = self.memory.read()
        under_way = {request_key(envelope): envelope.request.round for envelope, _ in self.computing}
        assert memory.charged == {*self.left, *self.died, *under_way}
        rounds = [key.rpartition("/") for key in memory.charged | memory.prepaid]
        assert memory.spent.epsilon == pytest.approx(
            math.fsum(COSTS[Round(round_)] for _, _, round_ in rounds)
        )
        if self.policy.limit is None:
            assert not memory.prepaid
            assert memory.spent.epsilon <= LIMIT
        else:
            assert self.policy.limit.admits(Spending(), memory.spent)
            # What was paid ahead is of one run, beside which there is no other.
            assert not memory.prepaid or len({run for run, _, _ in rounds}) == 1


class CountingDevice(Device):
    """Under a limit with room for several runs, more than add up to it."""

    POLICY = Policy(max_epsilon=LIMIT, max_delta=1e-5)


class DeviceOfOneRun(Device):
    """Under a limit of exactly one run."""

    POLICY = Policy(max_epsilon=1.25, max_delta=2e-6)


TestDevice, TestCountingDevice, TestDeviceOfOneRun = (
    Device.TestCase,
    CountingDevice.TestCase,
    DeviceOfOneRun.TestCase,
)
for _case in (TestDevice, TestCountingDevice, TestDeviceOfOneRun):
    _case.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
assert MAX_SESSIONS >= 4
