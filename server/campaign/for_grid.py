"""What a ServerApp runs for one window of a campaign: the run-config names the campaign's folder, and how to wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.window import Window
from fedhist.server.campaign.definition import ITEMS_FILE, Definition
from fedhist.server.campaign.running import WindowRun
from fedhist.server.grid_settings import FOR_NODES, GridSettings, Value, running_settings

FOLDER_KEY, AGAIN_KEY = "campaign-folder", "campaign-again"
_BESIDE = ("users", "directory", "timeout", "minimum_nodes", "node_timeout", "trace", "plugin")
"""What a run-config may say beside the folder."""


def check_for_grid(definition: Definition, config: Mapping[str, Value]) -> dict[str, Any]:
    """What the run-config says beside the folder; an InvalidInput for what the campaign says itself, or nodes can't."""
    given = {
        name.replace("-", "_"): value
        for name, value in config.items()
        if value != "" and name not in (FOLDER_KEY, AGAIN_KEY) and not name.startswith(FOR_NODES)
    }
    said = sorted(name.replace("_", "-") for name in given if name not in _BESIDE)
    if said:
        raise InvalidInput(
            f"the run-config has {FOLDER_KEY} together with {', '.join(said)}",
            allowed=f"{FOLDER_KEY} with {', '.join(name.replace('_', '-') for name in _BESIDE)}",
            advice="the campaign's own definition says the rest",
            code="unknown-key",
        )
    if definition.discover == "first":
        raise InvalidInput(
            "a campaign with --discover first on nodes of Flower, which have no list of the items that were found",
            allowed="--discover each",
            code="list-of-found-items",
        )
    users = given.pop("users", definition.plan.get("users"))
    if users is None:
        raise InvalidInput(
            "the campaign and the run-config have no users",
            allowed="the public size of the cohort",
            advice="add users=1000 to the run-config, or make the campaign with --users",
            code="no-users",
        )
    return running_settings(given) | {"users": users}


def windows_again(config: Mapping[str, Value]) -> list[Window]:
    """The windows that broke off and are to be charged and run once more, with commas between them."""
    return [Window.parse(text.strip()) for text in str(config.get(AGAIN_KEY, "")).split(",") if text.strip()]


def settings_of(window: WindowRun, definition: Definition, beside: Mapping[str, Any]) -> GridSettings:
    """How a ServerApp runs this window."""
    how = dict(beside)
    sizes = {"users": how.pop("users")}
    if window.items is not None:
        sizes["items"] = len(window.items)
    plan = Plan(**dict(window.fields) | sizes)
    window.check(plan)
    return GridSettings(
        plan=plan,
        out=window.target,
        ledger=window.ledger,
        items_file=None if window.items is None else definition.place / ITEMS_FILE,
        bins=definition.reading.get("bins"),
        **how,
    )
