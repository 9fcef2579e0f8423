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
from tests.builders import rows_in_any_order
from tests.support.api import (
    FILE_KEYS,
    KEYS,
    POLICY_KEYS,
    ItemOrigin,
    NodeSettings,
    item_totals,
    labels_of,
    origin_of,
    read_node_config,
)
from tests.support.api import NodeConfigKind as Kind

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
    ("config", "said"),
    [
        ({"max-epsilom": 1.0}, r"unknown key max-epsilom; allowed: data-path, .*; write max-epsilon if"),
        ({"minimum-participant": 9}, "write minimum-participants if you meant that"),
        ({"require-masking": True}, "unknown key require-masking"),
        ({"xyzzy": 1}, "leave it out"),
        ({"max-epsilon": "2"}, "max-epsilon in the node's configuration is '2'; allowed: a number"),
        ({"max-epsilon": True}, "allowed: a number"),
        ({"minimum-cohort": 2.5}, "allowed: a whole number"),
        ({"noise-from-devices": "yes"}, "allowed: true or false"),
        ({"minimum-masking": "signed"}, '"secagg-signed"'),
        ({"minimum-masking": True}, '"secagg-signed"'),
        ({"data-path": 7}, "a path in quotes"),
        ({"max-epsilon": -1.0}, "the limit is epsilon -1"),
        ({"max-delta": 1e-5}, "max-delta and no max-epsilon; allowed: both"),
        ({"max-plan-delta": 1.0}, "largest delta of one plan is 1"),
        ({"identity-path": "k"}, "both, or neither"),
        ({"db-url": "sqlite:///d.db"}, "only one of db-url and query; allowed: both"),
        ({"query": "SELECT 1"}, "only one of db-url and query"),
        (
            {"data-path": "d.csv", "db-url": "sqlite:///d.db", "query": "SELECT 1"},
            "both a data-path and a db-url",
        ),
        ({"db-url": 5, "query": "SELECT 1"}, "an address in quotes"),
        ({"user-colum": "who"}, "write user-column if you meant that"),
        ({"user-column": ""}, 'allowed: a text in quotes, as in "customer"'),
        ({"bins": "10"}, "bins have fewer than two edges"),
        ({"bins": "ten"}, "^bins is 'ten'; allowed: rising numbers"),
        ({"bins": 7}, "edges in quotes"),
        ({"normalise": "upper"}, '"nfc", "casefold"'),
    ],
)
def test_what_is_wrong_is_said(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        _ = read_node_config(config).columns


def test_no_error_shows_an_address() -> None:
    for name in ("data-path", "memory-path", "db-ulr"):
        with pytest.raises(InvalidInput) as error:
            read_node_config({name: "postgresql://me:hunter2@127.0.0.1/x"})
        assert "hunter2" not in str(error.value)


def test_an_app_of_ones_own_may_have_keys_for_itself() -> None:
    config = {"model-path": "m.bin", "max-epsilon": 2.0}
    assert read_node_config(config, besides=["model-path"]).policy.max_epsilon == 2.0
    with pytest.raises(InvalidInput, match="unknown key model-path"):
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

    def test_numbers_are_counted_in_public_bins(
        self, orders: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        found = read_node_config(orders | {"bins": "0,10,20,inf"}).population()
        assert labels_of(found) == ("[0, 10)", "[10, 20)", "[20, inf)")
        assert origin_of(found) is ItemOrigin.PUBLIC
        # One row has no user, one no number; -3 is outside, and bob stays.
        assert rows_in_any_order(found) == [[0, 0, 0], [1, 0, 2]]
        assert "2 rows of" in caplog.text
        assert "nothing" not in caplog.text

    def test_bins_are_the_list_of_items(self, orders: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "items.txt").write_text("[0, 10)\n")
        both = orders | {"bins": "0,10,20,inf", "items-path": str(tmp_path / "items.txt")}
        with pytest.raises(InvalidInput, match="bins together with another choice of items"):
            read_node_config(both).population()

    def test_names_may_be_written_alike(self, tmp_path: Path) -> None:
        (tmp_path / "d.csv").write_text("user,item\na,Tea\na,TEA\nb,tea\n")
        (tmp_path / "items.txt").write_text("tea\n")
        config = {"data-path": str(tmp_path / "d.csv"), "items-path": str(tmp_path / "items.txt")}
        assert item_totals(read_node_config(config | {"normalise": "casefold"}).population()).tolist() == [3]
        assert item_totals(read_node_config(config).population()).tolist() == [1]

    def test_a_little_memory_is_enough(self, orders: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match="--memory is 1KB"):
            read_node_config(orders | {"memory": "1KB"}).population()
        assert read_node_config(orders | {"memory": "300MB"}).population().users == 2
