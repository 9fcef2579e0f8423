"""The keys of a node's `--node-config`, each with its type and its use.

    flower-supernode ... --node-config 'data-path="visits.csv" memory-path="memory.db" max-epsilon=2.0'

docs/deployment.md has the same table; a test compares the two.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.client.policy import Policy
from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.protocol.histograms import MAX_USER_TOTAL
from fedhist.protocol.labels.item_list import read_items
from fedhist.protocol.plan.masking_terms import MASKINGS

if TYPE_CHECKING:
    from fedhist.client.populations import SparsePopulation
    from fedhist.protocol.masking.keys import Identity

log = logging.getLogger("fedhist")


class Kind(StrEnum):
    """What a key's value is."""

    PATH = "path"
    PATHS = "paths, with a colon between them"
    NUMBER = "number"
    WHOLE = "whole number"
    SWITCH = "true or false"
    MASKING = f"{', '.join(MASKINGS[:-1])} or {MASKINGS[-1]}"


@dataclass(frozen=True)
class Key:
    """One key of a node's configuration."""

    name: str
    kind: Kind
    help: str

    @property
    def field(self) -> str:
        """The name of its field in NodeSettings or Policy."""
        return self.name.replace("-", "_")


FILE_KEYS = (
    Key("data-path", Kind.PATH, "the node's users: a file that `fedhist run --data` reads"),
    Key("items-path", Kind.PATH, "the public list of a closed domain's items, the same on every node"),
    Key(
        "memory-path",
        Kind.PATH,
        "what the node has spent, its secret, its last answers and its masking sessions",
    ),
    Key("identity-path", Kind.PATH, "signed masking: the node's own Ed25519 key"),
    Key("directory-path", Kind.PATH, "signed masking: the public keys of all nodes"),
    Key("plugin", Kind.PATHS, "files with methods from outside, the same code as the server's"),
)
POLICY_KEYS = (
    Key("max-epsilon", Kind.NUMBER, "what all runs together may cost; needs a `memory-path`"),
    Key("max-delta", Kind.NUMBER, "the same for delta"),
    Key("minimum-cohort", Kind.WHOLE, "the fewest users with which a plan may release"),
    Key("minimum-masking", Kind.MASKING, "the least masking; left out: signed for a node with an identity"),
    Key(
        "minimum-participants",
        Kind.WHOLE,
        "the fewest participants of a masked sum; left out: more than half of the directory if it demands signed masks",
    ),
    Key(
        "minimum-corrupt-share",
        Kind.NUMBER,
        "the least share of participants that a plan expects to be corrupt",
    ),
    Key("noise-from-devices", Kind.SWITCH, "refuse plans that leave the noise to the server"),
)
KEYS = FILE_KEYS + POLICY_KEYS
"""All keys that are ours."""

FLOWERS_KEYS = ("partition-id", "num-partitions")
"""What Flower's Simulation Engine gives its virtual nodes."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """A node's configuration, read and checked: its files, and its policy."""

    data_path: Path | None = None
    items_path: Path | None = None
    memory_path: Path | None = None
    identity_path: Path | None = None
    directory_path: Path | None = None
    plugin: tuple[str, ...] = ()
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        if (self.identity_path is None) != (self.directory_path is None):
            raise InvalidInput(
                "the node's configuration has only one of identity-path and directory-path",
                allowed="both, or neither",
                advice="signed masking needs the node's key and the list of all public keys",
            )

    def population(self) -> SparsePopulation:
        """The users in the file at `data-path`, over the items in `items-path` if the domain is closed."""
        if self.data_path is None:
            raise InvalidInput("the node has no data", allowed="a data-path in its --node-config")
        from fedhist.client.files.records import read_node_population

        items = None if self.items_path is None else read_items(self.items_path)
        population, left_out = read_node_population(self.data_path, items=items)
        if left_out:
            log.warning(
                "%d rows of %s were left out: a row needs a user, an item and, in a column count, a whole number, and "
                "a user's counts may add up to at most %d.",
                left_out,
                self.data_path,
                MAX_USER_TOTAL,
            )
        return population

    def identity(self) -> Identity | None:
        """For signed masking, the key in `identity-path` and the keys in `directory-path`; None without them."""
        key, directory = self.identity_path, self.directory_path
        if key is None or directory is None:
            return None
        from fedhist.protocol.masking.identities import parse_identity

        return parse_identity(
            _key_file(key), _key_file(directory), key_name=str(key), directory_name=str(directory)
        )


def read_node_config(config: Mapping[str, object]) -> NodeSettings:
    """The settings in a node's configuration. An unknown key or a value of the wrong type is an error."""
    for name in config:
        _check_name(name)
    given: dict[str, Any] = {
        key.field: _converted(key, config[key.name]) for key in KEYS if key.name in config
    }
    limits = {key.field: given.pop(key.field) for key in POLICY_KEYS if key.field in given}
    return NodeSettings(**given, policy=Policy(**limits))


def _key_file(path: Path) -> bytes:
    from fedhist.protocol.masking.identities import MAX_KEY_FILE_BYTES

    try:
        with path.open("rb") as file:
            return file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError:
        raise InvalidFile(f"{path} can't be read", allowed="a file of keys") from None


def _check_name(name: str) -> None:
    known = [key.name for key in KEYS]
    if name in known or name in FLOWERS_KEYS:
        return
    near = get_close_matches(name, known, n=1)
    raise InvalidInput(
        f"the node's configuration has the unknown key {name}",
        allowed=", ".join(known),
        advice=f"write {near[0]} if you meant that" if near else "leave it out",
    )


def _converted(key: Key, value: object) -> object:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match key.kind:
        case Kind.PATH if isinstance(value, str) and value:
            return Path(value)
        case Kind.PATHS if isinstance(value, str) and all(value.split(":")):
            return tuple(value.split(":"))
        case Kind.NUMBER if is_whole or isinstance(value, float):
            return float(value)  # type: ignore[arg-type] # a number, as the line above says
        case Kind.WHOLE if is_whole:
            return value
        case Kind.SWITCH if isinstance(value, bool):
            return value
        case Kind.MASKING if value in MASKINGS:
            return value
    raise InvalidInput(
        f"{key.name} in the node's configuration is {value!r}",
        allowed=_EXAMPLES[key.kind],
        advice=f"it is {key.help}".replace("`", ""),
    )


_EXAMPLES = {
    Kind.PATH: 'a path in quotes, as in "/data/visits.csv"',
    Kind.PATHS: 'paths in quotes, as in "mine.py:others.py"',
    Kind.NUMBER: "a number, as in 2.0",
    Kind.WHOLE: "a whole number, as in 100",
    Kind.SWITCH: "true or false",
    Kind.MASKING: ", ".join(f'"{name}"' for name in MASKINGS),
}
