"""A deployed node starts a process for every message, so what a message loads is what it costs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from local_grid import RUN_ID, LocalGrid, Node, run_server_app

from fedhist.client_app import app
from tests.builders import ROOT, python

NODES = 3
USERS = 20
ITEMS = ("tea", "coffee", "milk")
FILES, MASKS = "fedhist.client.files.read", "fedhist.client.masked_device"
WATCHED = {
    *("polars", "scipy", "narwhals", "pandas", "pyarrow", "matplotlib", "dp_accounting", "numpy.random"),
    *("fedhist.server", "fedhist.simulations", FILES, MASKS),
}
PLAN = {"users": NODES * USERS, "epsilon": 8.0, "delta": 1e-6, "minimum_cohort": 2}
CLOSED = PLAN | {"items": len(ITEMS), "epsilon_select": 0.1}
MASKED = CLOSED | {"masking": "secagg", "participants": NODES}

# What Flower's own process has loaded before it loads an app is not ours.
ANSWER = """
import pickle, sys
from flwr.clientapp import ClientApp

message, context = pickle.loads(open(sys.argv[1], "rb").read())
before = set(sys.modules)
from fedhist.client_app import app

reply = app(message, context)
open(sys.argv[2], "wb").write(pickle.dumps((reply, context.state, set(sys.modules) - before)))
"""


class Deployed(Node):
    """A node with a configuration of its own."""

    def __init__(self, node_id: int, config: dict[str, Any]) -> None:
        super().__init__(app, node_id)
        self.context = Context(RUN_ID, node_id, config, RecordDict(), {})


class Fresh(Deployed):
    """A node that answers the first message of each kind in a new process, and notes what that loaded."""

    def __init__(self, node_id: int, config: dict[str, Any], folder: Path) -> None:
        super().__init__(node_id, config)
        self.folder = folder
        self.loaded: dict[str, set[str]] = {}

    def answer(self, message: Message) -> Message:
        kind = message.metadata.message_type.removeprefix("query.")
        if kind in self.loaded:
            return super().answer(message)
        asked, replied = self.folder / "asked", self.folder / "replied"
        asked.write_bytes(pickle.dumps((message, self.context)))
        python("-c", ANSWER, str(asked), str(replied), cwd=ROOT)
        reply, self.context.state, loaded = pickle.loads(replied.read_bytes())  # noqa: S301 - our own
        assert reply.content.config_records["fedhist"]["status"] == "answer"
        self.loaded[kind] = WATCHED & loaded
        return reply


@pytest.fixture
def configs(tmp_path: Path) -> list[dict[str, Any]]:
    (tmp_path / "items.txt").write_text("\n".join(ITEMS), encoding="utf-8")
    found = []
    for node in range(NODES):
        rows = [f"u{node}-{user},{item},{1 + user % 4}" for user in range(USERS) for item in ITEMS]
        data = tmp_path / f"{node}.csv"
        data.write_text("\n".join(["user,item,count", *rows]), encoding="utf-8")
        found.append(
            {
                "data-path": str(data),
                "items-path": str(tmp_path / "items.txt"),
                "memory-path": str(tmp_path / f"{node}.memory"),
            }
        )
    return found


def loaded_by(configs: list[dict[str, Any]], plan: dict[str, Any], folder: Path) -> dict[str, set[str]]:
    """What each kind of message of a whole run loads on one of the nodes."""
    fresh = Fresh(100, configs[0], folder)
    others = {101 + place: Deployed(101 + place, config) for place, config in enumerate(configs[1:])}
    items = {} if "domain" in plan else {"items_file": str(folder / "items.txt")}
    run_server_app(LocalGrid({100: fresh, **others}), plan | items | {"minimum_nodes": NODES})
    return fresh.loaded


def test_an_answer_without_masks_loads_what_reads_the_file(
    configs: list[dict[str, Any]], tmp_path: Path
) -> None:
    reads = {"polars", FILES}
    assert loaded_by(configs, CLOSED, tmp_path) == {"select": reads, "release": reads}


def test_only_the_stage_that_masks_a_nodes_data_reads_it(
    configs: list[dict[str, Any]], tmp_path: Path
) -> None:
    loaded = loaded_by(configs, MASKED, tmp_path)
    assert loaded.pop("masking") == {"polars", FILES, MASKS}
    assert {"advertising", "sharing", "checking", "unmasking"} == set(loaded)
    assert all(names == {MASKS} for names in loaded.values())
