"""A node's configuration: every key that it may have, and what is said about others."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fedhist.client.node_config import FILE_KEYS, KEYS, POLICY_KEYS, NodeSettings, read_node_config
from fedhist.client.policy import Policy
from fedhist.protocol.errors import InvalidInput

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "deployment.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_every_setting_has_a_key_and_every_key_a_setting() -> None:
    assert {key.field for key in POLICY_KEYS} == {field.name for field in fields(Policy)}
    assert {key.field for key in FILE_KEYS} == {field.name for field in fields(NodeSettings)} - {"policy"}
    assert len({key.name for key in KEYS}) == len(KEYS)


def test_the_documentation_has_the_same_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## A node's configuration") :]
    section = section[: section.index("\n## ")]
    assert ROW.findall(section) == [(key.name, key.kind.value, key.help) for key in KEYS]


def test_all_of_it() -> None:
    files = {key.name: f"{key.name}.txt" for key in FILE_KEYS}
    limits = {
        "max-epsilon": 2, "max-delta": 1e-5, "minimum-cohort": 100, "minimum-masking": "secagg-signed",
        "minimum-participants": 50, "minimum-corrupt-share": 0.1, "noise-from-devices": True,
    }  # fmt: skip
    settings = read_node_config(files | limits | {"partition-id": 3, "num-partitions": 10})
    assert settings.memory_path == Path("memory-path.txt")
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
        ({"max-epsilon": -1.0}, "negative"),
        ({"identity-path": "k"}, "both, or neither"),
    ],
)
def test_what_is_wrong_is_said(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_node_config(config)
