"""The events of a masked round in one process: stages, messages and drop-outs."""

from __future__ import annotations

from time import perf_counter

from fedhist.protocol.events import (
    TO_DEVICE,
    DroppedOut,
    MessageSent,
    Observer,
    RoundAsked,
    ignore,
)
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.protocol.wire.envelope import Envelope
from fedhist.server.collection import (
    Fault,
    RoundReport,
    StageReport,
    envelope_size,
    plan_name,
    tell_left_out,
    tell_round,
    tell_stage,
)


class MaskedWatch:
    """One masked round over participants 0 to P - 1.

    Args:
        observe: called with the events.
        envelope: the request.
        participants: P.
    """

    def __init__(
        self,
        observe: Observer,
        envelope: Envelope,
        participants: int,
    ) -> None:
        self._observe, self._envelope = observe, envelope
        self._round, self._plan = envelope.request.round.value, plan_name(envelope.request.plan)
        self._began = self._since = perf_counter()
        self._stage: str | None = None
        self._asked: set[int] = set()
        self._answered: set[int] = set()
        self._size = 0
        self._participants = participants
        self.stages: dict[str, StageReport] = {}
        self._enter(MaskingStage.ADVERTISING)
        for device in range(participants):
            self._sent(TO_DEVICE, device, envelope_size(envelope))
            self._asked.add(device)

    def message(self, stage: str, to: str, device: int, data: bytes) -> None:
        """A message of this stage, to the device or to the server."""
        if stage != self._stage:
            self._enter(stage)
        if to == TO_DEVICE:
            self._asked.add(device)
        else:
            self._answered.add(device)
            self._size += len(data)
        self._sent(to, device, len(data))

    def close(self) -> None:
        """End the last stage, whether it succeeded or failed."""
        if (name := self._stage) is None:
            return
        for device in sorted(self._asked - self._answered) if self._observe is not ignore else ():
            self._observe(DroppedOut(self._round, name, _name(device), Fault.NO_ANSWER.value, None))
        report = StageReport(len(self._asked), len(self._answered), self._size, perf_counter() - self._since)
        self.stages[name] = report
        tell_stage(self._observe, self._round, name, report)
        self._stage = None

    def report(self, run: MaskedSum, *, users: int) -> RoundReport:
        """The report of the whole round, which the observer gets too."""
        names = {number: _name(number) for number in range(self._participants)}
        tell_left_out(self._observe, self._envelope, run.left_out, names)
        silent = sum(stage.asked - stage.answered for stage in self.stages.values())
        report = RoundReport(
            round=self._envelope.request.round,
            nodes=self._participants,
            answered=len(run.included),
            users=users,
            faults={Fault.NO_ANSWER: silent} if silent else {},
            size=sum(stage.size for stage in self.stages.values()),
            seconds=perf_counter() - self._began,
            stages=self.stages,
            left_out=run.left_out,
            complaints=run.complaints,
        )
        tell_round(self._observe, report)
        return report

    def _enter(self, stage: str) -> None:
        self.close()
        self._asked, self._answered, self._size = set(), set(), 0
        self._stage, self._since = stage, perf_counter()
        self._observe(RoundAsked(self._round, stage, None, self._plan))

    def _sent(self, to: str, device: int, size: int) -> None:
        if self._observe is not ignore and self._stage is not None:
            self._observe(MessageSent(self._round, self._stage, to, _name(device), size, self._plan))


def _name(device: int) -> str:
    return f"participant {device + 1}"
