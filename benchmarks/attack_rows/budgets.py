"""Limits of nodes and ledgers: stepped around by what a server asks, and by what can be done to their files."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attack_rows import attack
from fedhist import BudgetFile, Charge, FedhistError, Limit, Plan, Spending
from fedhist.client import Policy
from tests.asking import release_at, select_request
from tests.support.api import Envelope, MemoryFile, PolicyMemory, Refused, admit, epsilon_at, planned_charges

LIMIT, DELTA, PLAN_DELTA = 2.0, 1e-4, 1e-5
NOBODY = 65534
PLAN = Plan(users=10, items=2, epsilon=0.5, epsilon_select=0.1)


def some_plan(dice: random.Random) -> Plan:
    """What a server may ask for that wants more than a node's limit, in a field where it may go unnoticed."""
    usual: dict[str, Any] = {"users": 100, "items": 3, "epsilon": 0.1, "epsilon_select": 0.01}
    moved: dict[str, Any] = dice.choice(
        [
            {"epsilon": 1e-6, "delta": dice.choice([0.49, 1e-2, 1.1e-5, 9e-6])},
            {
                "epsilon": 1e-6,
                "delta": 6e-6,
                "delta_select": 6e-6,
                "selector": "quantile",
                "mechanism": "laplace",
            },
            {"epsilon_select": dice.choice([1.0, 5.0, 50.0])},
            {"epsilon": dice.choice([1e-6, 1e-3, 5.0, 1e3])},
            {"users": 10**9, "max_threshold": 1e6},
            {"users": 1, "minimum_cohort": 1, "delta": 0.1},
            {"selector": "oracle"},
            {"mechanism": "laplace", "epsilon": 1e-3, "candidates": 2},
            {"mechanism": "auto", "epsilon": dice.choice([0.01, 3.0])},
            {"items": None, "domain": "open", "known_items": "a\nb\nc"},
            {"items": None, "domain": "open", "release": "truncated-laplace", "delta": 9e-6},
            {"neighbours": "replace-one"},
            {"selector": "fixed", "threshold": 1500.0, "epsilon": dice.choice([0.5, 2.5])},
        ]
    )
    return Plan(**(usual | moved))


@attack(
    "a server asks run after run for more than a node's limit, in another field each time: delta, the choice of the "
    "threshold, users, known items, thresholds, methods without noise"
)
def moved_fields(quick: bool) -> tuple[int, int]:
    dice, tries, successes = random.Random(1), 0, 0
    policy = Policy(max_epsilon=LIMIT)
    for server in range(3 if quick else 20):
        memory, answered = PolicyMemory(), list[Charge]()
        for run in range(30):
            try:
                plan = some_plan(dice)
                requests = [select_request(plan)] if plan.selector != "fixed" else []
                requests += [] if plan.is_open else [release_at(plan, plan.at_steps(plan.step_range[1]))]
            except FedhistError:
                continue
            charges = planned_charges(plan)
            for request in requests:
                tries += 1
                try:
                    memory = admit(policy, memory, Envelope(run=f"{server} {run}", request=request))
                except Refused:
                    continue
                due = [charge for charge in charges if charge.round == request.round]
                answered += due
                successes += not all(charge.private for charge in due)
                successes += sum(charge.delta for charge in due) > PLAN_DELTA
        # What a node admitted is counted anew, by the tight composition and not by the node's own arithmetic.
        successes += bool(answered) and epsilon_at(answered, DELTA) > LIMIT
    return tries, successes


def spend_memory(path: Path, run: int) -> None:
    MemoryFile(path).admit(
        Policy(max_epsilon=1e6, max_delta=0.5), Envelope(f"run {run}", select_request(PLAN))
    )


def spend_ledger(path: Path, run: int) -> None:
    charges = planned_charges(PLAN)
    ledger, cost = BudgetFile.open(path, create=True), Spending.of(charges)
    entry = ledger.begin(PLAN.digest.hex(), PLAN.to_json(), cost, label=f"run {run}", now=datetime.now(UTC))
    for charge in charges:
        entry.record(charge)
    entry.released()


def charge_all(
    spend: Callable[[Path, int], None], path: Path, runs: Iterable[int], finished: list[int]
) -> None:
    for run in runs:
        spend(path, run)
        finished.append(run)


def runs_of_memory(path: Path) -> int:
    return len(MemoryFile(path).read().plans)


def runs_of_ledger(path: Path) -> int:
    return len(BudgetFile.open(path, create=False).runs())


FILES: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], int]]] = {
    "memory": (spend_memory, runs_of_memory),
    "ledger": (spend_ledger, runs_of_ledger),
}


@attack(
    "a ledger or a node's memory is copied while runs are charged, and the copy is used: it may not hold fewer runs"
)
def copied_while_used(quick: bool) -> tuple[int, int]:
    tries = successes = 0
    for spend, count in FILES.values():
        with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as pool:
            place = Path(name)
            file, runs = place / "file", 10 if quick else 60
            spend(file, 0)
            finished, copies = [0], list[tuple[int, Path]]()
            charging = pool.submit(charge_all, spend, file, range(1, runs), finished)
            while not charging.done():
                before = len(finished)
                # As a backup does it that knows nothing of SQLite: file by file, with whatever journal lies beside.
                copies.append((before, shutil.copyfile(file, place / f"copy-{len(copies)}")))
            charging.result()
            for before, copy in copies:
                tries += 1
                with suppress(FedhistError):  # torn, and refused
                    successes += count(copy) < before
            successes += count(file) != runs
    return tries, successes


@attack("many runs ask a ledger or a node with room for three at the same moment")
def all_at_once(quick: bool) -> tuple[int, int]:
    tries = successes = 0
    room = Policy(max_epsilon=0.35, max_delta=1e-4)
    for _ in range(2 if quick else 10):
        with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(8) as pool:
            place = Path(name)
            BudgetFile.open(place / "ledger", create=True).set_limit(Limit(3 * 0.6 + 0.01, 1e-4))

            def ask_node(run: int, place: Path = place) -> bool:
                try:
                    MemoryFile(place / "memory").admit(room, Envelope(f"run {run}", select_request(PLAN)))
                except Refused:
                    return False
                return True

            def ask_ledger(run: int, place: Path = place) -> bool:
                try:
                    spend_ledger(place / "ledger", run)
                except FedhistError:
                    return False
                return True

            tries += 24
            admitted = sum(pool.map(ask_node, range(12)))
            successes += epsilon_at(admitted * planned_charges(PLAN)[:1], room.max_delta) > room.max_epsilon
            charged = sum(pool.map(ask_ledger, range(12)))
            successes += epsilon_at(charged * planned_charges(PLAN), 1e-4) > 3 * 0.6 + 0.01
    return tries, successes


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, which may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@attack(
    "a node's memory or a ledger can no longer be written, or is locked by another program, and runs go on asking"
)
def read_only(quick: bool) -> tuple[int, int]:
    tries = successes = 0
    for what, (spend, count) in FILES.items():
        for lock in ("file", "folder", "both"):
            with tempfile.TemporaryDirectory() as name:
                place = Path(name)
                os.chown(place, NOBODY, NOBODY) if os.geteuid() == 0 else None
                place.chmod(0o700)
                with as_nobody():
                    folder = place / "own"
                    folder.mkdir()
                    spend(folder / what, 0)
                    (folder / what).chmod(0o400 if lock != "folder" else 0o600)
                    folder.chmod(0o500 if lock != "file" else 0o700)
                    answered = 1
                    for run in range(1, 3 if quick else 9):
                        tries += 1
                        with suppress(FedhistError):
                            spend(folder / what, run)
                            answered += 1
                    folder.chmod(0o700)
                    (folder / what).chmod(0o600)
                    # Answers that left, and are in no file.
                    successes += answered - count(folder / what)
    return tries, successes
