"""What killed runs leave behind, compared with what must hold at whatever moment they died.

A folder is there whole or not at all; what was announced is there; what was released was charged before; a device's
memory counts every round that it answered, once. Each check returns sentences: none, if all is well.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from fedhist.client.memory_file import MemoryFile
from fedhist.client.policy import Policy, round_cost
from fedhist.protocol.errors import FedhistError
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Spending
from fedhist.protocol.rounds import Round
from fedhist.server.ledger.file import BudgetFile, RunRecord

_NEAR = 1e-9


def folder_faults(folder: Path) -> list[str]:
    """What is wrong with a result folder that is there: a missing file, one that can't be read, one cut short."""
    try:
        document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        plan = Plan.from_json(json.loads((folder / "plan.json").read_text(encoding="utf-8")))
        with (folder / "histogram.csv").open(newline="", encoding="utf-8") as file:
            values = [float(row["value"]) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, TypeError, FedhistError) as problem:
        return [f"{folder.name} is not whole: {type(problem).__name__}"]
    faults = []
    if document.get("plan") != plan.to_json():
        faults.append(f"{folder.name}: result.json and plan.json tell different plans")
    if plan.items is not None and len(values) != plan.items:
        faults.append(f"{folder.name}: histogram.csv has {len(values)} rows of {plan.items}")
    return faults


def run_faults(record: RunRecord | None, folder: Path, *, announced: bool) -> list[str]:
    """What is wrong between a run's entry in the ledger, its folder, and what its process said.

    Args:
        record: the entry; None if the process died before it had one.
        folder: where the result was to go.
        announced: whether the process had said that the result is written.
    """
    faults = folder_faults(folder) if folder.exists() else []
    there = folder.exists()
    status = "unknown to the ledger" if record is None else record.status
    if announced and not (there and status == "released"):
        faults.append(f"{folder.name} was announced: {_there(there)}, and its run is {status}")
    if there and status not in {"open", "released"}:
        faults.append(f"{folder.name} is there and its run is {status}")
    if not there and status == "released":
        faults.append(f"{folder.name} is not there and its run is released")
    if record is not None:
        charged, reserved = record.charged, record.reserved
        if charged.epsilon > reserved.epsilon * (1 + _NEAR) or charged.delta > reserved.delta * (1 + _NEAR):
            faults.append(f"run {record.id} charged more than it reserved")
        if there and not math.isclose(charged.epsilon, reserved.epsilon, rel_tol=_NEAR):
            faults.append(f"{folder.name} is there and run {record.id} has not charged all of it")
    return faults


def ledger_faults(path: Path) -> list[str]:
    """What is wrong with a ledger: it can't be read, forgets an open run's reservation, or is above its limit."""
    try:
        ledger = BudgetFile.open(path, create=False)
        runs, spent, reserved, limit = ledger.runs(), ledger.spent(), ledger.reserved(), ledger.limit
    except FedhistError as problem:
        return [f"the ledger can't be used: {problem}"]
    faults = []
    held = _together(run.reserved for run in runs if run.status == "open")
    charged = _together(run.counted for run in runs if run.status != "open")
    if not math.isclose(held, reserved.epsilon, rel_tol=_NEAR, abs_tol=_NEAR):
        faults.append(f"open runs reserved epsilon {held:g}, and the ledger holds {reserved.epsilon:g}")
    if not math.isclose(charged, spent.epsilon, rel_tol=_NEAR, abs_tol=_NEAR):
        faults.append(f"runs that ended count epsilon {charged:g}, and the ledger counts {spent.epsilon:g}")
    if limit is not None and not limit.admits(Spending(), spent + reserved):
        faults.append("the ledger is above its limit")
    return faults


def _together(parts: Iterable[Spending]) -> float:
    """The epsilon of all of them."""
    return math.fsum(cost.epsilon for cost in parts)


def memory_faults(path: Path, plan: Plan, policy: Policy, answered: Iterable[str] = ()) -> list[str]:
    """What is wrong with a device's memory, if it was asked for runs of this plan only.

    Args:
        path: the memory; a device that was never asked has none.
        plan: all that it was asked for.
        policy: its limits.
        answered: the `run/round` of each answer that left the device.
    """
    if not path.exists():
        return [f"{path.name} is missing, and the device has answered"] if any(answered) else []
    try:
        memory = MemoryFile(path).read()
    except FedhistError as problem:
        return [f"{path.name} can't be used: {problem}"]
    faults = [f"{path.name} does not know of {key}" for key in answered if key not in memory.charged]
    due = math.fsum(_costs(memory.charged | memory.prepaid, plan))
    if not math.isclose(memory.spent.epsilon, due, rel_tol=_NEAR, abs_tol=_NEAR):
        faults.append(f"{path.name} counts epsilon {memory.spent.epsilon:g} for rounds that cost {due:g}")
    if not policy.has_room(memory.spent):
        faults.append(f"{path.name} is above the device's limit")
    return faults


def _costs(charged: Collection[str], plan: Plan) -> Iterator[float]:
    for key in charged:
        run, _, round_ = key.rpartition("/")
        yield round_cost(plan, Round(round_), paid=f"{run}/{Round.DISCOVER.value}" in charged).epsilon


def _there(there: bool) -> str:
    return "it is there" if there else "it is not there"
