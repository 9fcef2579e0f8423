"""The events of a masked round in one process: stages, messages, drop-outs, and both sides of one message."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from fedhist.protocol.events import (
    TO_DEVICE,
    VALUES_SHOWN,
    DroppedOut,
    MessageSent,
    Observer,
    RoundAsked,
    Viewed,
    ignore,
)
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.encoding import read_residues, to_integers
from fedhist.protocol.masking.recovery import MaskedSum
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.terms import MaskingTerms
from fedhist.protocol.masking.wire import masked_body
from fedhist.protocol.rounds import Labels, Round
from fedhist.protocol.wire.envelope import Envelope
from fedhist.server.collection import RoundReport, StageReport
from fedhist.server.drop_outs import Fault
from fedhist.server.round_watch import envelope_size, plan_name, tell_left_out, tell_round, tell_stage


class MaskedWatch:
    """One masked round over participants 0 to P - 1.

    Args:
        observe: called with the events.
        envelope: the request.
        terms: of the masking session.
        participants: P.
        offset: where the request's values begin in the masked vector.
    """

    def __init__(
        self,
        observe: Observer,
        envelope: Envelope,
        terms: MaskingTerms,
        participants: int,
        *,
        offset: int = 0,
    ) -> None:
        self._offset = offset
        self._observe, self._envelope, self._terms = observe, envelope, terms
        self._round, self._plan = envelope.request.round.value, plan_name(envelope.request.plan)
        self._began = self._since = perf_counter()
        self._stage: str | None = None
        self._asked: set[int] = set()
        self._answered: set[int] = set()
        self._size = 0
        self._participants = participants
        self.stages: dict[str, StageReport] = {}
        self._shown: tuple[int, Integers] | None = None
        self._seen: bytes | None = None
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
            if stage == MaskingStage.MASKING and self._shown is not None and device == self._shown[0]:
                self._seen = data
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

    def show(self, device: int, vector: Integers) -> None:
        """Keep what this participant has, without its noise, to show it beside what the server will see of it."""
        self._shown = (device, vector)

    def view(self, labels: Labels) -> None:
        """Show the observer what one participant had, without its noise, and what the server saw of it."""
        if self._shown is None or self._seen is None or self._observe is ignore:
            return
        device, had = self._shown
        seen = to_integers(read_residues(masked_body(self._seen, self._terms), self._terms.width))
        places = np.flatnonzero(had)[:VALUES_SHOWN]
        request = self._envelope.request
        labels = request.settled.names(labels)
        named = request.round is Round.RELEASE and request.measurement.masked_length == len(labels)
        self._observe(
            Viewed(
                round=self._round,
                participant=_name(device),
                places=[_place(place, labels if named else None) for place in places.tolist()],
                data=None,
                had=had[places].astype(np.float64).tolist(),
                seen=seen[self._offset + places].astype(np.float64).tolist(),
                masked=True,
            )
        )

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


def _place(place: int, labels: Labels | None) -> str:
    """The name of a value in the masked vector; the first is the number of users."""
    if place == 0:
        return "users"
    return f"value {place}" if labels is None else str(labels[place - 1])
