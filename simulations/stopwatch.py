"""How long the phases of a run take."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from fedhist.protocol.events import Observer, PhaseEnded
from fedhist.server.coordinator import Asking, Planned, Released, State


class Stopwatch:
    """Seconds by phase, from the coordinator's states."""

    def __init__(self, on_phase: Callable[[str], None], observe: Observer) -> None:
        self.seconds: dict[str, float] = {}
        self._on_phase, self._observe = on_phase, observe
        self._phase: str | None = None
        self._since = perf_counter()

    def state(self, state: State) -> None:
        """The phase of a state of the coordinator begins."""
        match state:
            case Planned():
                self.begin("plan")
            case Asking(request=request):
                self.begin(request.round.value)
            case Released():
                self.stop()

    def begin(self, phase: str) -> None:
        """The phase of this name begins, and the one before ends."""
        self.stop()
        self._phase, self._since = phase, perf_counter()
        self._on_phase(phase)

    def stop(self) -> None:
        """The phase ends."""
        if self._phase is not None:
            spent = perf_counter() - self._since
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + spent
            self._observe(PhaseEnded(phase=self._phase, seconds=spent))
            self._phase = None
