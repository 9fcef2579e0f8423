"""Kill runs at random moments, look at what they left, and count what is wrong with it.

    python benchmarks/crashes.py                        # 100 kills, a few of them in a real deployment
    python benchmarks/crashes.py --kills 20 --flower 0 --deployment 0

Every victim is a process that dies by SIGKILL. Most are forks of this one, which has loaded all that they need: a
`fedhist run`, and a coordinator with its ledger, its result folder and three devices with memory files. Every second
one dies at a line of our code drawn at random, the others by the clock, which also hits them inside SQLite and fsync.
A few are `fedhist run --engine flower-simulation`, and parts of a SuperLink with SuperNodes. After each kill the
ledger, the folder and the memories are looked at as a restart would find them, and half of the killed runs are closed.
The exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from checks.aftermath import ledger_faults, memory_faults, run_faults

from fedhist.client.device import answer_population
from fedhist.client.memory_file import MemoryFile
from fedhist.client.policy import DEFAULT_MAX_DELTA, Policy
from fedhist.client.populations import SparsePopulation
from fedhist.commands import run as run_command  # noqa: F401 - loaded once, for all forks
from fedhist.commands.cli import main as fedhist
from fedhist.protocol.errors import FedhistError, Refused, RoundFailed
from fedhist.protocol.grid import Threshold
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.round_costs import run_cost
from fedhist.protocol.privacy.ledger import Ledger, Limit
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.protocol.rounds import Request, Total
from fedhist.protocol.wire.envelope import Envelope, Status, encode, new_run_name
from fedhist.server.collection import Collector, LabelTable
from fedhist.server.coordinator import run_rounds
from fedhist.server.folder import recorded_run
from fedhist.server.ledger.file import BudgetFile, RunRecord
from fedhist.server.report import release_document
from fedhist.server.selection import Selection
from fedhist.server.steps import release_request, select_request
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise

DEVICES, USERS, ITEMS = 3, 30, 40
# The files whose lines may be the last one: everything that touches a disk.
STORAGE = (
    "ledger/runs.py",
    "ledger/file.py",
    "server/folder.py",
    "server/disk.py",
    "client/memory_file.py",
)
MOST_VISITS = 3
LIMIT_SECONDS = 120.0
ANNOUNCED = "written"
REFUSED = "all devices refused"
VISITS = "visits="


@dataclass
class Tally:
    """What happened, by kind of victim."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def note(self, kind: str, *what: str) -> None:
        """Count what happened to one victim."""
        self.counts.setdefault(kind, Counter()).update(what)

    def wrong(self, kind: str, faults: Sequence[str]) -> None:
        """Count and keep faults."""
        self.note(kind, *["wrong"] * len(faults))
        self.faults += [f"{kind}: {fault}" for fault in faults]

    def print(self) -> None:
        """The table, and each fault in a line."""
        names = (
            "runs", "killed", "no entry", "open", "released", "failed", "folder", "announced", "partial", "wrong",
        )  # fmt: skip
        print("".join([f"{'victim':<22}", *(f"{name:>10}" for name in names)]))
        for kind, counts in self.counts.items():
            print("".join([f"{kind:<22}", *(f"{counts[name]:>10}" for name in names)]))
        for fault in self.faults:
            print(f"WRONG {fault}")


@dataclass
class Victim:
    """A fork: what it printed, whether the kill ended it, and the lines that it visited."""

    said: str
    died: bool
    seconds: float
    visits: dict[Place, int] = field(default_factory=dict)


Place = tuple[str, int]


class Lines:
    """Counts the visits of lines of our storage code, and kills the process at one of them."""

    def __init__(
        self,
        last: Place | None = None,
        visit: int = 1,
        *,
        files: Sequence[str] = STORAGE,
        ending: int = signal.SIGKILL,
    ) -> None:
        self.last, self.visit, self.files, self.ending = last, visit, files, ending
        self.visits: Counter[Place] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Lines | None:
        """The trace function: Python calls it for every function and line."""
        name = "/".join(frame.f_code.co_filename.rsplit("/", 2)[-2:])
        if name not in self.files:
            return None
        if event == "line":
            place = name, frame.f_lineno
            self.visits[place] += 1
            if place == self.last and self.visits[place] == self.visit:
                os.kill(os.getpid(), self.ending)
        return self


def fork(work: Callable[[], None], *, lines: Lines | None = None, seconds: float | None = None) -> Victim:
    """Do the work in a process of its own, which dies at its last line, after these seconds, or not at all."""
    ours, theirs = os.pipe()
    sys.stdout.flush()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _work_and_exit(work, theirs, lines)
    os.close(theirs)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    said = b""
    while part := os.read(ours, 65536):
        said += part
    os.close(ours)
    _, status = os.waitpid(child, 0)
    text = said.decode(errors="replace")
    text, _, counted = text.partition(VISITS)
    return Victim(
        said=text,
        died=os.WIFSIGNALED(status),
        seconds=time.monotonic() - started,
        visits={(name, line): count for name, line, count in json.loads(counted or "[]")},
    )


def _work_and_exit(work: Callable[[], None], out: int, lines: Lines | None) -> None:
    """Run in the child, which never returns into the parent's code."""
    signal.alarm(int(LIMIT_SECONDS))
    os.dup2(out, 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.settrace(lines)
    try:
        work()
    except (FedhistError, SystemExit):
        pass
    finally:
        sys.settrace(None)
        sys.stdout.flush()
        if lines is not None:
            visits = [[name, line, count] for (name, line), count in lines.visits.items()]
            os.write(1, f"{VISITS}{json.dumps(visits)}".encode())
        os._exit(0)


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


@dataclass
class Scene:
    """One folder with a ledger that all victims share."""

    folder: Path
    kind: str
    chance: random.Random
    tally: Tally
    only: str | None = None
    number: int = 0

    @property
    def ledger(self) -> Path:
        """The ledger of all victims."""
        return self.folder / "ledger.db"

    @property
    def out(self) -> Path:
        """The result folder of this victim."""
        return self.folder / f"result-{self.number}"

    def begin(self) -> None:
        """A ledger with a limit that the runs together do not reach."""
        self.folder.mkdir()
        BudgetFile.open(self.ledger, create=True).set_limit(Limit(1e5, 0.5))

    def runs(self) -> list[RunRecord]:
        """The runs in the ledger."""
        return BudgetFile.open(self.ledger, create=False).runs()

    def look(self, known: int, victim: Victim) -> RunRecord | None:
        """Check what a victim left, as a restart finds it, and return its entry in the ledger."""
        faults = ledger_faults(self.ledger)
        new = [] if faults else self.runs()[known:]
        record = new[0] if new else None
        announced = ANNOUNCED in victim.said
        faults += run_faults(record, self.out, announced=announced)
        if len(new) > 1:
            faults.append(f"{len(new)} runs in the ledger where one began")
        by_itself = REFUSED in victim.said
        if victim.died and record is not None and record.status == "failed" and not by_itself:
            faults.append(f"run {record.id} was killed and is shown as failed")
        what = ["runs", "no entry" if record is None else record.status]
        what += ["killed"] * victim.died + ["folder"] * self.out.exists() + ["announced"] * announced
        what += ["partial"] * len(list(self.folder.glob(".*.partial")))
        for left in self.folder.glob(".*.partial"):
            left.rename(self.folder / f"seen-{self.number}")
        self.tally.note(self.kind, *what)
        self.tally.wrong(self.kind, faults)
        if record is not None and record.status == "open" and self.chance.random() < 0.5:
            self._close(record)
        return record

    def _close(self, record: RunRecord) -> None:
        """Check that closing returns the part of the reservation that was not charged, and nothing else."""
        ledger = BudgetFile.open(self.ledger, create=False)
        before = ledger.reserved().epsilon
        ledger.close(record.id)
        if abs(before - ledger.reserved().epsilon - record.reserved.epsilon) > 1e-9:
            self.tally.wrong(self.kind, [f"run {record.id} did not hold its reservation until it was closed"])

    def last_line(self, visits: dict[Place, int]) -> Lines:
        """Any line that a whole run visits, at one of its first visits."""
        places = sorted(place for place in visits if self.only in {None, place[0]})
        place = self.chance.choice(places or sorted(visits))
        return Lines(place, self.chance.randint(1, min(visits[place], MOST_VISITS)))

    def kill_many(self, kills: int, work: Callable[[], None], look: Callable[[Victim], None]) -> None:
        """Let a run live, to learn its duration and lines; then kill runs, by line and by clock in turn."""
        whole = fork(work, lines=Lines())
        look(whole)
        if whole.died or ANNOUNCED not in whole.said:
            raise RuntimeError(f"a run that nobody killed did not end: {whole.said}")
        self.number += 1
        swift = fork(work)
        look(swift)
        died = 0
        while died < kills:
            self.number += 1
            if self.number % 2 and self.only is None:
                victim = fork(work, seconds=self.chance.uniform(0, swift.seconds))
            else:
                victim = fork(work, lines=self.last_line(whole.visits))
            look(victim)
            died += victim.died


def kill_fedhist_run(scene: Scene, kills: int) -> None:
    """`fedhist run` in one process."""
    scene.begin()
    known = 0

    def work() -> None:
        where = ["--ledger", str(scene.ledger), "--out", str(scene.out)]
        fedhist(["run", "--users", "200", "--items", str(ITEMS), "--no-evaluate", *where])

    def look(victim: Victim) -> None:
        nonlocal known
        scene.look(known, victim)
        known = len(scene.runs())

    scene.kill_many(kills, work, look)


@dataclass
class Devices:
    """A transport to devices that each have a memory file, as a node of a deployment has."""

    plan: Plan
    policy: Policy
    memories: Sequence[Path]
    populations: Sequence[SparsePopulation]
    run: str
    simulated: bool = False

    def total(self, request: Request) -> Total:
        """Ask each device in turn. An answer is printed before the server gets it."""
        envelope = Envelope(run=self.run, request=request)
        collector = Collector(envelope, LabelTable())
        for number, (memory, population) in enumerate(zip(self.memories, self.populations, strict=True)):
            try:
                MemoryFile(memory).admit(self.policy, envelope)
            except Refused as refusal:
                collector.add(envelope.reply_fields(Status.REFUSED, refusal.reason), None)
                continue
            data = encode(answer_population(request, population, source=SystemSource()), request, None)
            say(f"answer {number} {self.run}/{request.round.value}")
            collector.add(envelope.reply_fields(Status.ANSWER), data)
        try:
            return collector.total()
        except RoundFailed:
            # Printed before the ledger is written: after a later kill it is clear that the run failed by itself.
            say(REFUSED)
            raise


def kill_coordinator(scene: Scene, kills: int) -> None:
    """The server's side, with devices that have memories and reach their limits before the end."""
    scene.begin()
    plan = Plan(users=DEVICES * USERS, items=ITEMS)
    enough = run_cost(plan).times(math.ceil(0.6 * (kills + 2)))
    policy = Policy(max_epsilon=Limit(0, DEFAULT_MAX_DELTA).claimed(enough))
    memories = [scene.folder / f"device-{number}.memory" for number in range(DEVICES)]
    whole = materialise(HeavyTailedPopulation(users=plan.users, items=ITEMS, seed=1))
    populations = [
        SparsePopulation(whole.histograms.rows(start, start + USERS)) for start in range(0, plan.users, USERS)
    ]
    answered: dict[int, set[str]] = {number: set() for number in range(DEVICES)}
    known = 0

    def work() -> None:
        devices = Devices(plan, policy, memories, populations, new_run_name(source=SystemSource()))
        with recorded_run(
            plan,
            target=scene.out,
            labels=None,
            ledger=scene.ledger,
            label="crash",
            trace=False,
            engine="",
            simulated=False,
        ) as run:
            ledger = Ledger(journal=run.journal)
            release = run_rounds(plan, devices, ledger=ledger, source=SystemSource())
            document = release_document(
                release,
                total=ledger.basic(),
                tight=ledger.tight(),
                seed=None,
                bytes_per_user={},
                seconds={},
                notes=(),
                users={},
            )
            run.write(scene.out, document, release, None)
        say(ANNOUNCED)

    def look(victim: Victim) -> None:
        nonlocal known
        for line in victim.said.splitlines():
            if line.startswith("answer "):
                _, number, key = line.split()
                answered[int(number)].add(key)
        for number, memory in enumerate(memories):
            scene.tally.wrong(scene.kind, memory_faults(memory, plan, policy, answered[number]))
            scene.tally.wrong(scene.kind, second_request_faults(memory, plan, policy))
        scene.look(known, victim)
        known = len(scene.runs())

    scene.kill_many(kills, work, look)
    limit = Limit(policy.max_epsilon, policy.max_delta)
    spent = sum(limit.claimed(MemoryFile(memory).read().spent) for memory in memories)
    print(f"{scene.kind}: devices spent epsilon {spent:.1f} of {DEVICES * policy.max_epsilon:.1f}, added up")


def second_request_faults(memory: Path, plan: Plan, policy: Policy) -> list[str]:
    """Ask a device again what it was asked last: the same is not charged again, and anything else is refused."""
    if not memory.exists() or not (before := MemoryFile(memory).read()).requests:
        return []
    run, _, name = list(before.requests)[-1].rpartition("/")
    faults = []
    if name == "select":
        MemoryFile(memory).admit(policy, Envelope(run=run, request=select_request(plan)))
    else:
        highest = plan.step_range[1]
        taken = 0
        for steps in (highest, highest - 1):
            threshold = Threshold(steps, plan.grid_bits)
            request = release_request(plan, Selection(threshold), source=SystemSource())
            try:
                MemoryFile(memory).admit(policy, Envelope(run=run, request=request))
                taken += 1
            except Refused:
                pass
        if taken > 1:
            faults.append(f"{memory.name} admitted two thresholds in one round")
    if MemoryFile(memory).read().spent != before.spent:
        faults.append(f"{memory.name} was charged twice for a round")
    return faults


def kill_flower_simulation(scene: Scene, kills: int) -> None:
    """`fedhist run` on Flower's Simulation Engine, by the clock: half of them once it has reserved its budget."""
    scene.begin()
    known = 0
    for turn in range(kills):
        scene.number += 1
        command = [sys.executable, "-c", "from fedhist.commands.cli import main; main()", "run"]
        command += [
            "--engine",
            "flower-simulation",
            "--nodes",
            "2",
            "--users",
            "40",
            "--items",
            "5",
            "--no-evaluate",
        ]
        command += ["--ledger", str(scene.ledger), "--out", str(scene.out)]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"TMPDIR": str(scene.folder)},
        ) as process:
            until = time.monotonic() + LIMIT_SECONDS
            while len(scene.runs()) == known and process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            try:
                process.wait(scene.chance.uniform(0, 10 if turn % 2 else 25))
            except subprocess.TimeoutExpired:
                process.kill()
            said, _ = process.communicate()
        victim = Victim(said=said, died=process.returncode == -signal.SIGKILL, seconds=0)
        scene.look(known, victim)
        known = len(scene.runs())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, default=100, help="in all; a run that survives by luck is not counted"
    )
    parser.add_argument("--flower", type=int, default=2, help="of them in Flower simulations")
    parser.add_argument("--deployment", type=int, default=8, help="of them in a deployment")
    parser.add_argument("--only", choices=STORAGE, help="kill at lines of this file, and not by the clock")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    forks = max(arguments.kills - arguments.flower - arguments.deployment, 0)
    chance, tally = random.Random(arguments.seed), Tally()  # noqa: S311 - moments, not noise
    started = datetime.now()
    with tempfile.TemporaryDirectory(prefix="fedhist-crashes-") as name:
        folder = Path(name)
        scenes = {
            "fedhist run": (kill_fedhist_run, forks - forks // 2),
            "coordinator": (kill_coordinator, forks // 2),
            "flower simulation": (kill_flower_simulation, arguments.flower),
        }
        for place, (kind, (work, kills)) in enumerate(scenes.items()):
            if kills:
                work(Scene(folder / str(place), kind, chance, tally, arguments.only), kills)
        if arguments.deployment:
            from deployment_crashes import kill_deployment  # that script imports this one

            kill_deployment(folder / "deployment", arguments.deployment, chance, tally)
    tally.print()
    print(f"{(datetime.now() - started).total_seconds():.0f} s, seed {arguments.seed}")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
