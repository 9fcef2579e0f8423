"""Two processes of a device that answer at once: every order of their steps gives one view of the data, paid for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import pytest

from fedhist import Plan
from fedhist.client import Policy
from tests.asking import release_at
from tests.support.api import Envelope, MemoryFile, Refused, request_key

PLAN = Plan(users=10, items=2, epsilon=1.0, epsilon_select=0.25)
STEPS = 3
ORDERS = list(combinations(range(2 * STEPS), STEPS))
"""At which of all steps the first process makes its own."""
Sent = list[tuple[str, bytes]]


def asked(run: str, *, above: int = 0) -> Envelope:
    return Envelope(run=run, request=release_at(PLAN, PLAN.at_steps(PLAN.step_range[0] + above)))


def answering(file: Path, envelope: Envelope, data: bytes, policy: Policy, sent: Sent) -> Iterator[None]:
    """What a handler does with the memory, stopped after each of its transactions. Without data there are no users."""
    memory = MemoryFile(file)
    with suppress(Refused):
        answer = memory.given(policy, envelope)
        yield
        if answer is None:
            if data:
                memory.admit(policy, envelope)
            yield
            answer = memory.note(envelope, data)
        sent.append((request_key(envelope), answer))


@pytest.mark.parametrize("data", [(b"one", b"two"), (b"one", b""), (b"", b"two")])
@pytest.mark.parametrize(
    ("second", "limit"),
    [(asked("a"), 1.0), (asked("a", above=1), 2.0), (asked("b"), 1.0), (asked("b"), 2.0)],
    ids=["same", "other-threshold", "other-run-beyond-the-limit", "other-run"],
)
def test_two_processes_in_any_order(
    tmp_path: Path, second: Envelope, limit: float, data: tuple[bytes, bytes]
) -> None:
    envelopes, policy = (asked("a"), second), Policy(max_epsilon=limit)
    for number, order in enumerate(ORDERS):
        file, sent = tmp_path / f"{number}.db", Sent()
        both = [answering(file, *one, policy, sent) for one in zip(envelopes, data, strict=True)]
        for step in range(2 * STEPS):
            next(both[step not in order], None)
        memory = MemoryFile(file).read()
        assert sent, "one of two processes has its answer sent"
        assert all(len({answer for key, answer in sent if key == one}) == 1 for one, _ in sent), "one view"
        assert memory.charged >= {key for key, answer in sent if answer}, (
            "nothing leaves that was not charged"
        )
        assert memory.spent.epsilon == len(memory.charged) * PLAN.epsilon
        assert memory.spent.epsilon <= limit
