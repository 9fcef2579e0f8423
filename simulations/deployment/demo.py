"""The demonstration: example data on every node, both rounds over a real deployment, and the release."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.client.policy import DEFAULT_MAX_DELTA
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.masking_terms import MIN_PARTICIPANTS
from fedhist.server.totals import planned
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise
from fedhist.simulations.deployment.certificates import make_identity
from fedhist.simulations.deployment.federation import Value, open_federation, write_app
from fedhist.simulations.report.run_data import RunData, read_run

ITEMS = ("bread", "milk", "apples", "rice", "cheese", "coffee", "tea", "honey")
MAX_NODES = 20
MAX_USERS = 100_000
_SEED = 0
_SPARE_USERS = 100
# What the plan of a demonstration costs, unless it is for a total.
_EPSILON, _EPSILON_SELECT, _DELTA = 1.0, 0.1, 1e-6
_DIRECTORY = "directory.pub"


@dataclass(frozen=True)
class Demo:
    """The size of a demonstration.

    Args:
        nodes: the number of SuperNodes.
        users: the number of people in the file of each.
        seconds: the time that the run may take once it was submitted.
        masking: as in a plan; the nodes are the participants.
        total_epsilon, total_delta: a budget for all rounds together; None for the demonstration's own.
    """

    nodes: int = 3
    users: int = 2000
    seconds: float = 300.0
    masking: str = "none"
    total_epsilon: float | None = None
    total_delta: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise InvalidInput(
                f"the number of nodes is {self.nodes}", allowed=f"1 to {MAX_NODES}", advice="choose --nodes"
            )
        if not 1 <= self.users <= MAX_USERS:
            raise InvalidInput(
                f"the number of users on a node is {self.users}",
                allowed=f"1 to {MAX_USERS}",
                advice="choose --users",
            )
        if self.masking != "none" and self.nodes < MIN_PARTICIPANTS:
            raise InvalidInput(
                f"{self.nodes} nodes are too few for masking",
                allowed=f"{MIN_PARTICIPANTS} nodes or more",
                advice="choose --nodes",
            )
        if not self.seconds > 0:
            raise InvalidInput(f"the time limit is {self.seconds:g}", allowed="a positive number of seconds")
        # Refused here, before anything is started, if there is no such plan.
        _ = self.plan

    @property
    def plan(self) -> Plan:
        """What is run."""
        fields: dict[str, Any] = self.plan_fields
        return planned(**fields)

    @property
    def plan_fields(self) -> dict[str, Value]:
        """Its fields, or a total in the place of its budgets: for all users, going on with half of them."""
        users = self.nodes * self.users
        masked: dict[str, Value] = {}
        if self.masking != "none":
            masked = {"masking": self.masking, "participants": self.nodes}
        budget: dict[str, Value | None] = {
            "epsilon": _EPSILON,
            "epsilon_select": _EPSILON_SELECT,
            "delta": _DELTA,
        }
        if self.total_epsilon is not None or self.total_delta is not None:
            budget = {"total_epsilon": self.total_epsilon, "total_delta": self.total_delta}
        given = {name: value for name, value in budget.items() if value is not None}
        return masked | given | {"users": users, "items": len(ITEMS), "minimum_cohort": (users + 1) // 2}

    @property
    def node_limit(self) -> float:
        """The limit that each node sets itself: one run, by addition."""
        return round(self.plan.epsilon + self.plan.epsilon_select, 6)


def run_demo(demo: Demo, folder: Path, *, out: Path, tell: Callable[[str], None]) -> RunData:
    """Start everything, run both rounds, stop everything; what the ServerApp wrote.

    Args:
        demo: its size.
        folder: an empty folder for data, keys and logs.
        out: a new folder for the result.
        tell: called with each step.
    """
    configs = write_data(demo, folder)
    settings = run_settings(demo, items_file=folder / "items.txt", out=out)
    app = write_app(folder / "app", settings)
    with open_federation(folder, configs, tell=tell) as federation:
        tell("submitting the run")
        run = federation.submit(app)
        tell(f"run {run}: two rounds over {demo.nodes} nodes, a process for every answer")
        federation.wait(run, seconds=demo.seconds)
        tell("the run has completed")
    return read_run(out)


def run_settings(demo: Demo, *, items_file: Path, out: Path) -> dict[str, Value]:
    """The run-config."""
    signed = demo.masking == "secagg-signed"
    directory: dict[str, Value] = {"directory": str(items_file.parent / _DIRECTORY)} if signed else {}
    plan = {name.replace("_", "-"): value for name, value in demo.plan_fields.items()}
    return (
        directory
        | plan
        | {
            "items-file": str(items_file),
            # Both rounds have to fit into the time, also when each waits for a node that has died.
            "timeout": demo.seconds / 3,
            "out": str(out),
        }
    )


def write_data(demo: Demo, folder: Path) -> list[dict[str, Value]]:
    """Each node's file of synthetic purchases and the public list of items; the node configurations."""
    wanted = demo.nodes * demo.users
    drawn = HeavyTailedPopulation(users=wanted + wanted // 4 + _SPARE_USERS, items=len(ITEMS), seed=_SEED)
    everybody = materialise(drawn).histograms
    # A user without any item has no row in a file, and would not be there.
    users = replace(everybody, offsets=np.unique(everybody.offsets)[: wanted + 1])
    (folder / "items.txt").write_text("\n".join(ITEMS) + "\n", encoding="utf-8")
    configs: list[dict[str, Value]] = []
    for number in range(demo.nodes):
        start = number * demo.users
        rows = users.rows(start, start + demo.users)
        offsets = rows.offsets - rows.offsets[0]
        owners = np.repeat(np.arange(demo.users), np.diff(offsets))
        entries = slice(int(rows.offsets[0]), int(rows.offsets[-1]))
        path = folder / f"node-{number}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["user", "item", "count"])
            table = zip(
                owners.tolist(), rows.items[entries].tolist(), rows.counts[entries].tolist(), strict=True
            )
            writer.writerows((f"u{start + owner}", ITEMS[item], count) for owner, item, count in table)
        configs.append(
            {
                "data-path": str(path),
                "items-path": str(folder / "items.txt"),
                "memory-path": str(folder / f"node-{number}.memory"),
                "max-epsilon": demo.node_limit,
                "max-delta": DEFAULT_MAX_DELTA,
                "minimum-cohort": 2,
                "minimum-masking": demo.masking,
            }
        )
    if demo.masking == "secagg-signed":
        keys = [make_identity(folder, f"identity-{number}") for number in range(demo.nodes)]
        (folder / _DIRECTORY).write_bytes(b"".join(key.public.read_bytes() + b"\n" for key in keys))
        for config, key in zip(configs, keys, strict=True):
            config |= {"identity-path": str(key.private), "directory-path": str(folder / _DIRECTORY)}
    return configs
