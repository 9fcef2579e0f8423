"""A node's configuration: every key that it may have, and what is said about others."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fedhist import Columns, InvalidInput
from fedhist.client import Policy
from tests.support.api import (
    FILE_KEYS,
    KEYS,
    POLICY_KEYS,
    NodeSettings,
    item_totals,
    read_node_config,
)
from tests.support.api import NodeConfigKind as Kind
from tests.support.refusals import refused

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "node-settings.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_every_setting_has_a_key_and_every_key_a_setting() -> None:
    # What `for_device` fills in, and what is for the process that starts the node to say.
    given = {field.name for field in fields(Policy)} - {"directory", "simulated"}
    assert {key.field for key in POLICY_KEYS} == given
    assert {key.field for key in FILE_KEYS} == {field.name for field in fields(NodeSettings)} - {"policy"}
    assert len({key.name for key in KEYS}) == len(KEYS)


def test_the_documentation_has_the_same_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert ROW.findall(text[: text.index("\n## ")]) == [(key.name, key.kind.value, key.help) for key in KEYS]


def test_all_of_it() -> None:
    files = {key.name: f"{key.name}.txt" for key in FILE_KEYS if key.kind in (Kind.PATH, Kind.PATHS)}
    texts = {
        "user-column": "who",
        "item-column": "what",
        "count-column": "n",
        "time-column": "when",
        "separator": ";",
        "memory": "1GB",
    }
    read = texts | {"bins": "0,10,inf", "normalise": "nfc"}
    assert files.keys() | read.keys() | {"db-url", "query"} == {key.name for key in FILE_KEYS}
    limits = {
        "max-epsilon": 2, "max-delta": 1e-5, "max-plan-delta": 1e-6, "minimum-cohort": 100,
        "minimum-masking": "secagg-signed",
        "minimum-participants": 50, "minimum-corrupt-share": 0.1, "noise-from-devices": True,
        "window-runs": 2,
    }  # fmt: skip
    settings = read_node_config(files | read | limits | {"partition-id": 3, "num-partitions": 10})
    assert settings.memory_path == Path("memory-path.txt")
    assert settings.columns == Columns("who", "what", "n", ";", [0, 10, math.inf], time="when")
    assert (settings.normalise, settings.memory) == ("nfc", "1GB")
    assert limits.keys() == {key.name for key in POLICY_KEYS}
    assert settings.policy == Policy(**{key.field: limits[key.name] for key in POLICY_KEYS})


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"max-epsilom": 1.0}, ("unknown-key", "max-epsilom", "data-path", "max-epsilon")),
        ({"minimum-participant": 9}, ("unknown-key", "minimum-participants")),
        ({"require-masking": True}, ("unknown-key", "require-masking")),
        ({"xyzzy": 1}, ("unknown-key", "xyzzy")),
        ({"max-epsilon": "2"}, ("bad-value", "max-epsilon", "node's configuration")),
        ({"max-epsilon": True}, ("bad-value", "max-epsilon")),
        ({"minimum-cohort": 2.5}, ("bad-value", "minimum-cohort")),
        ({"noise-from-devices": "yes"}, ("bad-value", "noise-from-devices")),
        ({"minimum-masking": "signed"}, ("bad-value", "secagg-signed")),
        ({"minimum-masking": True}, ("bad-value", "secagg-signed")),
        ({"data-path": 7}, ("bad-value", "data-path")),
        ({"max-epsilon": -1.0}, ("bad-limit", "-1")),
        ({"max-delta": 1e-5}, ("delta-without-epsilon", "max-delta", "max-epsilon")),
        ({"max-plan-delta": 1.0}, ("bad-largest-delta",)),
        ({"identity-path": "k"}, ("half-given",)),
        ({"db-url": "sqlite:///d.db"}, ("half-given", "db-url", "query")),
        ({"query": "SELECT 1"}, ("half-given", "db-url", "query")),
        (
            {"data-path": "d.csv", "db-url": "sqlite:///d.db", "query": "SELECT 1"},
            ("two-sources-of-data", "data-path", "db-url"),
        ),
        ({"db-url": 5, "query": "SELECT 1"}, ("bad-value", "db-url")),
        ({"user-colum": "who"}, ("unknown-key", "user-column")),
        ({"user-column": ""}, ("bad-value", "user-column")),
        ({"bins": "10"}, ("too-few-edges",)),
        ({"bins": "ten"}, ("bad-bins", "ten", "bins")),
        ({"bins": 7}, ("bad-value", "bins")),
        ({"normalise": "upper"}, ("bad-value", "normalise")),
    ],
)
def test_what_is_wrong_is_said(config: dict[str, Any], told: tuple[str, ...]) -> None:
    with refused(InvalidInput, *told):
        _ = read_node_config(config).columns


def test_no_error_shows_an_address() -> None:
    for name in ("data-path", "memory-path", "db-ulr"):
        with pytest.raises(InvalidInput) as error:
            read_node_config({name: "postgresql://me:hunter2@127.0.0.1/x"})
        assert "hunter2" not in str(error.value)


def test_an_app_of_ones_own_may_have_keys_for_itself() -> None:
    config = {"model-path": "m.bin", "max-epsilon": 2.0}
    assert read_node_config(config, besides=["model-path"]).policy.max_epsilon == 2.0
    with refused(InvalidInput, "unknown-key", "model-path"):
        read_node_config(config)


class TestColumns:
    """The same rows under other names are the same users."""

    @pytest.fixture
    def orders(self, tmp_path: Path) -> dict[str, Any]:
        path = tmp_path / "orders.csv"
        path.write_text("customer;price;pieces\nann;8.15;1\nann;22.1;2\nbob;nothing;1\nbob;-3;1\n;9;1\n")
        return {
            "data-path": str(path),
            "user-column": "customer",
            "item-column": "price",
            "count-column": "pieces",
            "separator": ";",
        }

    def test_bins_are_the_list_of_items(self, orders: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "items.txt").write_text("[0, 10)\n")
        both = orders | {"bins": "0,10,20,inf", "items-path": str(tmp_path / "items.txt")}
        with refused(InvalidInput, "bins-with-other-items"):
            read_node_config(both).population()

    def test_names_may_be_written_alike(self, tmp_path: Path) -> None:
        (tmp_path / "d.csv").write_text("user,item\na,Tea\na,TEA\nb,tea\n")
        (tmp_path / "items.txt").write_text("tea\n")
        config = {"data-path": str(tmp_path / "d.csv"), "items-path": str(tmp_path / "items.txt")}
        assert item_totals(read_node_config(config | {"normalise": "casefold"}).population()).tolist() == [3]
        assert item_totals(read_node_config(config).population()).tolist() == [1]

    def test_a_little_memory_is_enough(self, orders: dict[str, Any]) -> None:
        with refused(InvalidInput, "bad-memory-limit", "--memory"):
            read_node_config(orders | {"memory": "1KB"}).population()
        assert read_node_config(orders | {"memory": "300MB"}).population().users == 2
