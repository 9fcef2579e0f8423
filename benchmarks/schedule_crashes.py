"""Kill a schedule at every point of it, call it again, and count what is wrong with what is left.

    python benchmarks/schedule_crashes.py                # every line that touches a disk, once
    python benchmarks/schedule_crashes.py --every 12     # one in twelve of them, as the test does
    python benchmarks/schedule_crashes.py --operators 8  # also that many processes that all run it at once

A schedule of two windows, both due, over a small table. For each line of our storage code that a whole run visits a
fork of this process runs the schedule and dies by SIGKILL there. Then the schedule is called again, as an operator
would, and once more with --again for a window that is lost. Looked at after each step:

- a folder is a whole release or is not there, and a release never changes;
- every release is charged, and every charge of a killed run stays counted;
- a window is released at most once, and one that was charged is not run again unasked;
- in the end both windows are released, and the ledger holds the charges of all attempts and nothing else.

The making of a schedule is killed likewise: its folder is whole or not there. The exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from checks.aftermath import ledger_faults
from crashes import STORAGE, Lines, Place, fork, say

from fedhist.protocol.errors import FedhistError, HeldByAnother
from fedhist.protocol.privacy.ledger import Spending
from fedhist.server.ledger.file import BudgetFile, RunRecord
from fedhist.server.schedule import windows_in
from fedhist.simulations.workbench.schedule import Schedule
from fedhist.simulations.workbench.watching import Watcher

FILES = (*STORAGE, "server/schedule.py")
WINDOWS = windows_in(["2020-W40x2"])
SHOPS = ("bakery", "cinema")
MOST_VISITS = 2


TABLE = "".join(
    ["user,item,when\n"]
    + [f"u{user},{SHOPS[user % 2]},{day}\n" for user in range(30) for day in ("2020-09-28", "2020-10-05")]
)
"""Thirty people, who go somewhere in both weeks."""


@dataclass
class Scene:
    """One schedule in a folder of its own."""

    folder: Path
    faults: list[str] = field(default_factory=list)
    seen: dict[str, bytes] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        """The schedule's folder."""
        return self.folder / "autumn"

    @property
    def ledger(self) -> Path:
        """Its ledger."""
        return self.folder / "ledger.db"

    def make(self) -> None:
        """Make the schedule, with room to run both windows twice more."""
        (self.folder / "visits.csv").write_text(TABLE)
        Schedule.new(
            self.place, windows="2020-W40x2", items=SHOPS, ledger=self.ledger, epsilon=8, time="when", spare=4
        )

    def run(self, again: tuple[str, ...] = ()) -> None:
        """Run what is due."""
        schedule = Schedule(self.place, watcher=Watcher())
        schedule.run(self.folder / "visits.csv", again=again, workers=1)

    def run_aside(self, again: tuple[str, ...] = ()) -> None:
        """The same in a process of its own: one that has read a table has threads, and can't be forked."""
        if fork(partial(self.run, again)).died:
            self.wrong("a run that nobody killed died")

    def runs(self) -> list[RunRecord]:
        """The windows' runs in the ledger."""
        return [one for one in BudgetFile.open(self.ledger, create=False).runs() if "kind" not in one.plan]

    def wrong(self, fault: str) -> None:
        """Keep a fault."""
        self.faults.append(fault)

    def released(self) -> set[str]:
        """The windows whose folder is there."""
        return {window.text for window in WINDOWS if (self.place / window.text).exists()}

    def charged(self) -> Counter[str]:
        """How many attempts of each window charged anything."""
        return Counter(str(one.plan["window"]) for one in self.runs() if one.charges)

    def look(self) -> None:
        """What has to hold at any moment."""
        self.faults += ledger_faults(self.ledger)
        for name in self.released():
            files = {path.name for path in (self.place / name).iterdir()}
            if not {"result.json", "histogram.csv", "plan.json"} <= files:
                self.wrong(f"half a folder: {name} has {sorted(files)}")
            if not self.charged()[name]:
                self.wrong(f"{name} is released and was not charged")
        now = {
            str(path): path.read_bytes() for name in self.released() for path in (self.place / name).iterdir()
        }
        if not self.seen.items() <= now.items():
            self.wrong("a release has changed, or has gone")
        self.seen = now

    def recover(self) -> None:
        """Call it again, and once more for what broke off; look after each."""
        self.look()
        released, charged = self.released(), self.charged()
        broken = {name for name in charged if name not in released}
        counted = Spending.total(one.charged for one in self.runs())
        self.run_aside()
        self.look()
        if (
            Spending.total(one.charged for one in self.runs()[: len(charged)]).epsilon
            < counted.epsilon * 0.999
        ):
            self.wrong("a charge of a killed run is gone")
        if self.released() & broken or any(
            self.charged()[name] > charged[name] for name in broken | released
        ):
            self.wrong("a window that was charged was run again unasked")
        if self.released() != {window.text for window in WINDOWS} - broken:
            self.wrong(f"due, and not released: only {sorted(self.released())}, broken {sorted(broken)}")
        if broken:
            self.run_aside(again=tuple(sorted(broken)))
            self.look()
        self._end(charged, broken)

    def _end(self, charged: Counter[str], broken: set[str]) -> None:
        Schedule(self.place).show()
        runs = self.runs()
        if self.released() != {window.text for window in WINDOWS}:
            self.wrong("not all windows are released in the end")
        attempts = {window.text: 2 if window.text in broken else 1 for window in WINDOWS}
        if self.charged() != attempts:
            self.wrong(f"attempts that charged: {dict(self.charged())}, where {attempts} were made")
        if any(one.status == "open" for one in runs):
            self.wrong("a run is still open")
        if list(self.place.glob(".*.partial")):
            self.wrong("what a killed run had begun to write is still there")
        if not (self.place / "index.html").exists():
            self.wrong("there is no page")


def points(work: Callable[[], None], only: str | None) -> list[tuple[Place, int]]:
    """Every line of the storage code, or of one file of it, that this work visits, at its first visits."""
    whole = fork(work, lines=Lines(files=FILES))
    if whole.died or not whole.visits:
        raise RuntimeError(f"a run that nobody killed did not end: {whole.said}")
    return [
        (place, visit)
        for place, visits in sorted(whole.visits.items())
        if only in (None, place[0])
        for visit in range(1, min(visits, MOST_VISITS) + 1)
    ]


def kill_runs(
    folder: Path, every: int, start: int, *, only: str | None, ending: int
) -> tuple[int, int, list[str]]:
    """Kill a run at these points; how many died, how many lost a window, and what was wrong."""
    first = Scene(folder / "first")
    first.folder.mkdir()
    first.make()
    places = points(first.run, only)[start::every]
    died, broke, faults = 0, 0, list[str]()
    for number, (place, visit) in enumerate(places):
        scene = Scene(folder / f"run-{number}")
        scene.folder.mkdir()
        scene.make()
        victim = fork(scene.run, lines=Lines(place, visit, files=FILES, ending=ending))
        died += victim.died or ending == signal.SIGINT
        broke += any(name not in scene.released() for name in scene.charged())
        scene.recover()
        faults += [f"killed at {place[0]}:{place[1]}, visit {visit}: {fault}" for fault in scene.faults]
    return died, broke, faults


def kill_makings(folder: Path, every: int, start: int) -> tuple[int, list[str]]:
    """Kill the making of a schedule at these points."""
    first = Scene(folder / "made-first")
    first.folder.mkdir()
    places = points(first.make, None)[start::every]
    died, faults = 0, list[str]()
    for number, (place, visit) in enumerate(places):
        scene = Scene(folder / f"made-{number}")
        scene.folder.mkdir()
        died += fork(scene.make, lines=Lines(place, visit, files=FILES)).died
        where = f"killed at {place[0]}:{place[1]}, visit {visit}"
        if not scene.place.exists():
            scene.make()
        scene.run_aside()
        scene.look()
        if scene.released() != {window.text for window in WINDOWS} or scene.faults:
            faults.append(f"{where}: the schedule can't be run: {scene.faults}")
    return died, faults


def race(folder: Path, operators: int) -> list[str]:
    """Several processes that run one schedule at once: each window is charged and released once."""
    scene = Scene(folder / "race")
    scene.folder.mkdir()
    scene.make()
    children = []
    for _ in range(operators):
        child = os.fork()
        if child == 0:
            try:
                scene.run()
                os._exit(0)
            except HeldByAnother:
                os._exit(3)
            except FedhistError:
                os._exit(4)
            finally:
                os._exit(5)
        children.append(child)
    codes = Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    scene.look()
    faults = scene.faults
    if set(codes) - {0, 3} or not codes[0]:
        faults.append(f"operators ended with {dict(codes)}")
    if scene.charged() != {window.text: 1 for window in WINDOWS} or len(scene.released()) != len(WINDOWS):
        faults.append(f"{operators} operators at once: charged {dict(scene.charged())}")
    say(
        f"race: {codes[0]} of {operators} operators ran it or found it done, {codes[3]} were told that it is held"
    )
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, help="kill at one in this many of the points")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--only", choices=FILES, help="kill runs at lines of this file, and no makings")
    parser.add_argument("--operators", type=int, default=4, help="that run one schedule at once")
    parser.add_argument("--interrupt", action="store_true", help="runs end by Ctrl-C instead of SIGKILL")
    arguments = parser.parse_args()
    ending = signal.SIGINT if arguments.interrupt else signal.SIGKILL
    # In the background a shell has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="fedhist-schedules-") as name, redirect_stdout(sys.stderr):
        folder = Path(name)
        every, start = arguments.every, arguments.start
        faults = race(folder, arguments.operators) if arguments.operators else []
        made, of_makings = (0, []) if arguments.only else kill_makings(folder, every, start)
        died, broke, of_runs = kill_runs(folder, every, start, only=arguments.only, ending=ending)
        faults += of_makings + of_runs
    print(f"{made} makings and {died} runs were killed; {broke} runs lost a window")
    for fault in faults:
        print(f"WRONG {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
