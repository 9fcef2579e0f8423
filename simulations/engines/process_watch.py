"""Reports a round in one process, which is one participant that holds all users, to an observer.

The number of shards that the population is read in stays here: a shard is full at a number of entries, so it depends on
the data.
"""

from __future__ import annotations

from collections import Counter

from fedhist.protocol.events import (
    TO_DEVICE,
    TO_SERVER,
    WHOLE_ROUND,
    MessageSent,
    Observer,
    RoundAsked,
    ignore,
)
from fedhist.protocol.rounds import Contribution, Request, Total
from fedhist.protocol.wire.envelope import Envelope, encode
from fedhist.server.collection import RoundReport, envelope_size, plan_name, tell_round
from fedhist.simulations.faults import FaultAssignment

PROCESS = "process 1"
# A run's name has as many characters in a real message.
_RUN_NAME = "0" * 32
_NAMED_MEASURED = 100_000


class ProcessWatch:
    """One round in this process.

    No message is really sent, so sizes are those of the message that would be sent for all users together. Where names
    travel, to write one costs as much as to answer, so one with many rows is not measured.

    Args:
        observe: called with each event.
        request: what is asked.
    """

    def __init__(self, observe: Observer, request: Request) -> None:
        self._observe, self._request = observe, request
        self._round, self._plan = request.round.value, plan_name(request.plan)
        if observe is not ignore:
            asked = envelope_size(Envelope(run=_RUN_NAME, request=request))
            observe(RoundAsked(self._round, WHOLE_ROUND, None, self._plan))
            observe(MessageSent(self._round, WHOLE_ROUND, TO_DEVICE, PROCESS, asked, self._plan))

    def end(self, total: Total, seconds: float, assignment: FaultAssignment | None = None) -> RoundReport:
        """Report the end of the round, with this sum; of one with faults as the server of these nodes would."""
        size = None if self._observe is ignore else self._size(total)
        if self._observe is not ignore:
            self._observe(MessageSent(self._round, WHOLE_ROUND, TO_SERVER, PROCESS, size, self._plan))
        nodes = 1 if assignment is None else assignment.nodes
        missing = {} if assignment is None else assignment.missing(self._request.round, masked=False)
        report = RoundReport(
            round=self._request.round,
            nodes=nodes,
            answered=nodes - len(missing),
            users=total.users,
            faults=Counter(kind.seen_as for kind in missing.values()),
            size=size,
            seconds=seconds,
        )
        tell_round(self._observe, report)
        return report

    def _size(self, total: Total) -> int | None:
        if total.keyed is not None and len(total.keyed.keys) > _NAMED_MEASURED:
            return None
        whole = Contribution(
            self._request.round,
            self._request.plan.digest,
            self._request.plan.most_users,
            total.values,
            keyed=total.keyed,
        )
        return len(encode(whole, self._request, total.labels))
