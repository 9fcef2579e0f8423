"""Processes of our own: started with a log each, waited for by state, and stopped with all that they started.

SuperLinks and SuperNodes start processes in turn, some of them in sessions of their own, where no signal to a group
finds them. So the descendants are noted by number and starting time, and those that are left are ended by number.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from fedhist.protocol.errors import RoundFailed

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Identity:
    """A process: its number may be given again, but not with the same starting time."""

    pid: int
    started: str


@dataclass
class Program:
    """A process that we started and what it says."""

    name: str
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it with no chance to say goodbye, as a power cut would."""
        self.process.kill()
        self.process.wait()


@dataclass
class Programs:
    """Everything that was started and has to be stopped.

    Args:
        folder: where the logs go.
        polite_seconds: the time that a process has to end when it is asked to; after that it is killed.
    """

    folder: Path
    polite_seconds: float = 10.0
    started: list[Program] = field(default_factory=list)
    _family: set[Identity] = field(default_factory=set, repr=False)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Program:
        """Start a program. It gets a session of its own: a Ctrl-C on our terminal is ours to pass on."""
        log = self.folder / f"{name}.log"
        with deferred_interrupts(), log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - the command is made here, from paths and numbers
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
            program = Program(name, log, process)
            self.started.append(program)
        return program

    def note_descendants(self) -> None:
        """Remember the descendants of our programs while they can still be seen."""
        self._family |= descendants(one.pid for one in self.started if one.running)

    def kill(self, program: Program) -> None:
        """End one program as a power cut would; what it started is stopped with the rest."""
        self.note_descendants()
        program.kill()

    def stop(self) -> None:
        """Stop all programs and whatever they started. A second Ctrl-C waits until then.

        The first one, to which the others want to say goodbye, is stopped last.
        """
        with deferred_interrupts():
            self.note_descendants()
            for group in (self.started[1:], self.started[:1]):
                for program in group:
                    program.process.terminate()
                for program in group:
                    self._end(program)
            until = monotonic() + self.polite_seconds
            while (left := self._family & set(_table())) and monotonic() < until:
                sleep(_POLL_SECONDS)
            for one in left:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)

    def _end(self, program: Program) -> None:
        until = monotonic() + self.polite_seconds
        while program.running and monotonic() < until:
            self.note_descendants()
            sleep(_POLL_SECONDS)
        if program.running:
            program.kill()

    def wait_until(
        self, state: Callable[[], bool], what: str, *, seconds: float, pause: float = _POLL_SECONDS
    ) -> None:
        """Wait for a state. RoundFailed if it does not come in time, or can't since a program has ended.

        Args:
            state: called until it returns True.
            what: completes "waited in vain for ...".
            seconds: the limit.
            pause: seconds between two calls.
        """
        until = monotonic() + seconds
        watched = [one for one in self.started if one.running]
        while not state():
            for one in watched:
                if not one.running:
                    raise RoundFailed(
                        f"{one.name} ended with code {one.process.returncode} before {what}; "
                        f"nothing was released. Its last words: {last_words(one.log)}"
                    )
            if monotonic() >= until:
                raise RoundFailed(f"waited {seconds:g} seconds in vain for {what}; nothing was released")
            sleep(pause)


def last_words(log: Path) -> str:
    """The last five lines of a log, in one."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return " | ".join(line.strip() for line in text[-5:]) or "none"


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface on which nothing listens at the moment."""
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            listener.bind(("127.0.0.1", 0))
            ports.append(int(listener.getsockname()[1]))
        return ports


def descendants(roots: Iterable[int]) -> set[Identity]:
    """All processes that descend from these and run, without them."""
    table = _table()
    found: set[int] = set()
    front = set(roots)
    while front:
        front = {one.pid for one, parent in table.items() if parent in front} - found
        found |= front
    return {one for one in table if one.pid in found}


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """A Ctrl-C or polite kill in here takes effect at the end, so that nothing is started and forgotten.

    Ignoring signals would be simpler, but a program that is started meanwhile would ignore them too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _table() -> dict[Identity, int]:
    """The parent of each process that runs. One that has ended and waits for its parent does not."""
    proc = Path("/proc")
    if (proc / "self" / "stat").exists():
        return dict(_read_proc(proc))
    return dict(_read_ps())


def _read_proc(proc: Path) -> Iterator[tuple[Identity, int]]:
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            # It ended while we looked.
            continue
        # The name stands in brackets and may hold anything. After it: state, parent, ..., starting time.
        state, parent, *others = text.rpartition(")")[2].split()
        if state not in ("Z", "X"):
            yield Identity(int(folder.name), others[17]), int(parent)


def _read_ps() -> Iterator[tuple[Identity, int]]:
    command = ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    done = subprocess.run(  # noqa: S603 - a constant
        command, check=True, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}
    )
    for line in done.stdout.splitlines():
        pid, parent, state, started = line.split(None, 3)
        if not state.startswith("Z"):
            yield Identity(int(pid), started), int(parent)
