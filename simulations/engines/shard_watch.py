"""Tells an observer of a round in one process, where every shard of users is one participant."""

from __future__ import annotations

from fedhist.protocol.codec import encode
from fedhist.protocol.envelope import Envelope
from fedhist.protocol.events import (
    TO_DEVICE,
    TO_SERVER,
    WHOLE_ROUND,
    MessageSent,
    Observer,
    RoundAsked,
    ignore,
)
from fedhist.protocol.rounds import Contribution, Labels, Request
from fedhist.server.collection import RoundReport
from fedhist.server.round_watch import envelope_size, plan_name, tell_round

# A run's name has as many characters in a real message.
_RUN_NAME = "0" * 32
_NAMED_MEASURED = 3


class ShardWatch:
    """One round over the shards.

    No message is really sent, so sizes are those of the messages that the shards would send. Where names travel, to
    write one costs as much as to answer, so only the first few are measured.

    Args:
        observe: who is told.
        request: what is asked.
        labels: what the items are called.
    """

    def __init__(self, observe: Observer, request: Request, labels: Labels | None) -> None:
        self._observe, self._request, self._labels = observe, request, labels
        self._round, self._plan = request.round.value, plan_name(request.plan)
        self._parts = self._users = 0
        self._size: int | None = 0
        if observe is not ignore:
            self._asked = envelope_size(Envelope(run=_RUN_NAME, request=request))
            observe(RoundAsked(self._round, WHOLE_ROUND, None, self._plan))

    def part(self, contribution: Contribution) -> None:
        """A shard has answered."""
        self._parts += 1
        self._users += contribution.users
        if self._observe is ignore:
            self._size = None
            return
        written = not self._request.keyed_columns or self._parts <= _NAMED_MEASURED
        size = len(encode(contribution, self._request, self._labels)) if written else None
        self._size = None if self._size is None or size is None else self._size + size
        name = f"shard {self._parts}"
        self._observe(MessageSent(self._round, WHOLE_ROUND, TO_DEVICE, name, self._asked, self._plan))
        self._observe(MessageSent(self._round, WHOLE_ROUND, TO_SERVER, name, size, self._plan))

    def end(self, seconds: float) -> RoundReport:
        """The round is over."""
        report = RoundReport(
            round=self._request.round,
            nodes=self._parts,
            answered=self._parts,
            users=self._users,
            faults={},
            size=self._size,
            seconds=seconds,
        )
        tell_round(self._observe, report)
        return report
