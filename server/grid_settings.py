"""What the run-config of a Flower app says: the plan's fields, and how to run it.

Flower lets a user override only keys that pyproject.toml lists, and a key there has to have a value, so the
empty text stands for "not given". `known-items` names a file on the server; its names are in the plan. With
`campaign-folder` a schedule says all of that, and the run-config only how to wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.protocol.labels.intervals import bin_labels, checked_edges, edges_of
from fedhist.protocol.labels.item_list import read_items
from fedhist.protocol.masking.identities import MAX_KEY_FILE_BYTES, parse_directory
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.plugins import load_file
from fedhist.server.totals import planned

Value = bool | float | int | str

FOLDER_KEY, AGAIN_KEY = "campaign-folder", "campaign-again"
"""The folder of a schedule, and windows of it that are lost and are to be charged and run once more."""
FOR_NODES = "synthetic-"
"""Keys that begin with it shape the data of virtual nodes; the server leaves them alone."""

_BESIDE_SCHEDULE = ("users", "directory", "timeout", "minimum_nodes", "node_timeout", "trace", "plugin")


@dataclass(frozen=True, kw_only=True)
class GridSettings:
    """How a ServerApp runs a plan.

    Args:
        plan: what to run.
        out: a new folder for the result; None writes none.
        ledger: a persistent ledger; None keeps none.
        items_file: the public list of a closed domain's items, equal to that of the nodes.
        bins: in its place, the edges of bins, equal to those of the nodes; they are the items.
        directory: for signed masking, the file of the participants' public keys, equal to that of the nodes.
        seed: makes a simulation repeatable; None draws from the operating system.
        timeout: seconds that a round waits for answers.
        minimum_nodes: how many nodes a run waits for before it begins.
        node_timeout: seconds that it waits for them.
        trace: also write what happened into the folder, see docs/trace.md.
        plugin: files with methods from outside, with a colon between them.
        total_epsilon, total_delta: the budget of all rounds together that the plan was made for, if it was.
    """

    plan: Plan
    out: Path | None = None
    ledger: Path | None = None
    items_file: Path | None = None
    bins: str | None = None
    directory: Path | None = None
    seed: int | None = None
    timeout: float = 600.0
    minimum_nodes: int = 1
    node_timeout: float = 60.0
    trace: bool = False
    plugin: str | None = None
    total_epsilon: float | None = None
    total_delta: float | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "node_timeout"):
            if not getattr(self, name) > 0:
                raise InvalidInput(
                    f"{_key(name)} is {getattr(self, name)}",
                    allowed="a positive number of seconds",
                    code="bad-timeout",
                )
        if self.minimum_nodes < 1:
            raise InvalidInput(
                f"minimum-nodes is {self.minimum_nodes}",
                allowed="a whole number, 1 or more",
                code="bad-minimum",
            )
        if self.bins is not None and self.items_file is not None:
            raise InvalidInput(
                "bins together with an items-file",
                allowed="one of the two",
                advice="the bins are the list of items, so leave the file out",
                code="bins-with-other-items",
            )
        if self.trace and self.out is None:
            raise InvalidInput(
                "trace without out",
                allowed="trace=true with a folder to write it into",
                code="trace-without-out",
            )
        if self.plan.is_signed != (self.directory is not None):
            raise InvalidInput(
                "signed masking and a directory of keys do not go together",
                allowed="a directory with masking secagg-signed, and only there",
                code="directory-without-signatures",
            )


def read_settings(config: Mapping[str, Value]) -> GridSettings:
    """The settings in a run-config. Keys are the fields' names with dashes; others are an error."""
    given = {
        name.replace("-", "_"): value
        for name, value in config.items()
        if value != "" and not name.startswith(FOR_NODES)
    }
    own = {f.name for f in fields(GridSettings)} - {"plan"}
    unknown = sorted(_key(name) for name in given if name not in FIELDS and name not in own)
    if unknown:
        raise InvalidInput(
            f"the run-config has the unknown keys {', '.join(unknown)}",
            allowed="the keys that pyproject.toml lists",
            code="unknown-key",
        )
    if "users" not in given:
        raise InvalidInput(
            "the run-config has no users",
            allowed="the public size of the cohort",
            advice="add users=1000",
            code="no-users",
        )
    if "plugin" in given:
        # Before the plan, which may name what they hold.
        for path in str(given["plugin"]).split(":"):
            load_file(path)
    chosen: dict[str, Any] = {name: value for name, value in given.items() if name in FIELDS}
    if isinstance(known := chosen.get("known_items"), str):
        chosen["known_items"] = "\n".join(read_items(Path(known)))
    running = running_settings({name: value for name, value in given.items() if name in own})
    if "bins" in running:
        chosen.setdefault("items", len(_bins(running["bins"])))
    totals = {name: running.get(name) for name in ("total_epsilon", "total_delta")}
    return GridSettings(plan=planned(**chosen, **totals), **running)


def running_settings(given: Mapping[str, Value]) -> dict[str, Any]:
    """These settings beside the plan, each of the type that it has."""
    return {name: _convert(name, value) for name, value in given.items()}


def beside_schedule(config: Mapping[str, Value], users: int | None) -> tuple[Value, dict[str, Any]]:
    """The number of users, and what a run-config says beside the folder of a schedule that may know the number."""
    given = {
        name.replace("-", "_"): value
        for name, value in config.items()
        if value != "" and name not in (FOLDER_KEY, AGAIN_KEY) and not name.startswith(FOR_NODES)
    }
    if said := sorted(name.replace("_", "-") for name in given if name not in _BESIDE_SCHEDULE):
        raise InvalidInput(
            f"the run-config has {FOLDER_KEY} together with {', '.join(said)}",
            allowed=f"{FOLDER_KEY} with {', '.join(name.replace('_', '-') for name in _BESIDE_SCHEDULE)}",
            advice="the schedule's own file says the rest",
            code="unknown-key",
        )
    number = given.pop("users", users)
    if number is None:
        raise InvalidInput(
            "the schedule and the run-config have no users",
            allowed="the public size of the cohort",
            advice="add users=1000 to the run-config, or to [plan] in the schedule's file",
            code="no-users",
        )
    return number, running_settings(given)


def listed_items(settings: GridSettings) -> list[str] | None:
    """The items in the file that the settings name, or the bins; None if they name none."""
    if settings.bins is not None:
        return _bins(settings.bins)
    path = settings.items_file
    if path is None:
        return None
    return read_items(path)


def listed_keys(settings: GridSettings) -> Mapping[int, bytes] | None:
    """The public keys in the file that the settings name; None if they name none."""
    path = settings.directory
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return parse_directory(file.read(MAX_KEY_FILE_BYTES + 1), name=str(path))
    except OSError:
        raise InvalidFile(f"{path} can't be read", allowed="a file of public keys") from None


def _bins(edges: str) -> list[str]:
    return bin_labels(checked_edges(edges_of(edges, name="bins")))


def _convert(name: str, value: Value) -> Path | int | float | bool | str:
    if name in ("plugin", "bins") and isinstance(value, str):
        return value
    if name == "trace" and isinstance(value, bool):
        return value
    if name in ("out", "ledger", "items_file", "directory") and isinstance(value, str):
        return Path(value)
    if (
        name in ("timeout", "node_timeout", "total_epsilon", "total_delta")
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    ):
        return float(value)
    if name in ("seed", "minimum_nodes") and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise InvalidInput(
        f"{_key(name)} is of the wrong type",
        allowed="text for paths and bins, true or false for trace, numbers for the others",
        code="bad-value",
    )


def _key(name: str) -> str:
    return name.replace("_", "-")
