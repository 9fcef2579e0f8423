"""The keys of a node's `--node-config`, each with its type and its use.

    flower-supernode ... --node-config 'data-path="visits.csv" memory-path="memory.db" max-epsilon=2.0 max-delta=1e-4'

docs/node-settings.md has the same table; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flwr.app import Context

from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.files.database import EXAMPLE, Database
from fedhist.client.files.items import NORMALISATIONS
from fedhist.client.policy import Policy
from fedhist.protocol.errors import InvalidFile, InvalidInput, MissingFile
from fedhist.protocol.histograms import Labels, Population
from fedhist.protocol.item_lists import bin_labels, checked_edges, edges_of, read_items
from fedhist.protocol.plan.terms import MASKINGS
from fedhist.protocol.plan.window import Window
from fedhist.protocol.plugins import load_files_once

if TYPE_CHECKING:
    from fedhist.protocol.masking.crypto import Identity


class Kind(StrEnum):
    """What a key's value is."""

    PATH = "path"
    PATHS = "paths, with a colon between them"
    NUMBER = "number"
    WHOLE = "whole number"
    SWITCH = "true or false"
    TEXT = "text"
    COLUMN = "text, or a whole number"
    ADDRESS = "address"
    EDGES = "edges with commas between them, or START:STOP:STEP"
    SPELLING = " or ".join(NORMALISATIONS)
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


SOURCE_KEYS = ("data-path", "db-url")
"""What says where a node's users are."""

FILE_KEYS = (
    Key(
        "data-path", Kind.PATH, "the node's users: a file, folder or pattern that `fedhist run --data` reads"
    ),
    Key(
        "db-url",
        Kind.ADDRESS,
        "in place of `data-path`, the address of a database; `${NAME}` is from the environment",
    ),
    Key("query", Kind.TEXT, "what the node asks its database; the rows are its users' observations"),
    Key(
        "user-column",
        Kind.COLUMN,
        "the column of the user; left out: `user`, in any case. Numbers from 1 for all columns: a text file without a "
        "line of names",
    ),
    Key("item-column", Kind.COLUMN, "the column of the item; left out: `item`, in any case"),
    Key(
        "count-column",
        Kind.COLUMN,
        "how many observations a row stands for; left out: `count`, or one a row without it",
    ),
    Key(
        "time-column",
        Kind.COLUMN,
        "when a row was; the node then answers plans with a window only, each day once; needs a `memory-path`",
    ),
    Key(
        "separator",
        Kind.TEXT,
        "what stands between the fields of a text file; left out: a comma, a tab in .tsv files",
    ),
    Key(
        "bins",
        Kind.EDGES,
        "count the items, numbers, in bins between these public edges, the same on every node",
    ),
    Key("normalise", Kind.SPELLING, "write the names of items alike, as `--normalise` does"),
    Key(
        "memory",
        Kind.TEXT,
        "how much memory reading may use, such as 1GB; left out: half of what is available",
    ),
    Key("items-path", Kind.PATH, "the public list of a closed domain's items, the same on every node"),
    Key(
        "memory-path",
        Kind.PATH,
        "what the node has spent, its secret, its last answers and its masking sessions",
    ),
    Key("identity-path", Kind.PATH, "signed masking: the node's own Ed25519 key"),
    Key("directory-path", Kind.PATH, "signed masking: the public keys of all nodes"),
    Key("plugin", Kind.PATHS, "files with methods from outside, of the same versions as the server's"),
)
POLICY_KEYS = (
    Key("max-epsilon", Kind.NUMBER, "what all runs together may cost; needs a `memory-path`"),
    Key("max-delta", Kind.NUMBER, "the same for delta, below 1; left out: 1e-4 beside a `max-epsilon`"),
    Key("max-plan-delta", Kind.NUMBER, "what one plan may cost in all its rounds; left out: 1e-5"),
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
        "the least share that a plan expects to be corrupt, of its participants, or of the directory if there is one; "
        "left out: 0.05 of that if it demands signed masks",
    ),
    Key("noise-from-devices", Kind.SWITCH, "refuse plans that leave the noise to the server"),
    Key("window-runs", Kind.WHOLE, "the number of runs that may read the same day; left out: 1"),
)
KEYS = FILE_KEYS + POLICY_KEYS
"""All keys that are ours."""

FLOWERS_KEYS = ("partition-id", "num-partitions")
"""What Flower's Simulation Engine gives its virtual nodes."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """A node's configuration, read and checked: its files, and its policy."""

    data_path: Path | None = None
    db_url: str | None = field(default=None, repr=False)
    query: str | None = field(default=None, repr=False)
    user_column: str | int = USUAL_COLUMNS.user
    item_column: str | int = USUAL_COLUMNS.item
    count_column: str | int | None = None
    time_column: str | int | None = None
    separator: str | None = None
    bins: Collection[float] | None = None
    normalise: str | None = None
    memory: str | None = None
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
                code="half-given",
            )
        if (self.db_url is None) != (self.query is None):
            raise InvalidInput(
                "the node's configuration has only one of db-url and query",
                allowed="both, or neither",
                advice="a database needs its address and what to ask it",
                code="half-given",
            )
        if self.db_url is not None and self.data_path is not None:
            raise InvalidInput(
                "the node's configuration has both a data-path and a db-url",
                allowed="one of the two",
                advice="leave one out",
                code="two-sources-of-data",
            )

    @property
    def columns(self) -> Columns:
        """The columns that hold the user, the item, the count and the time, and the bins."""
        return Columns(
            self.user_column,
            self.item_column,
            self.count_column,
            self.separator,
            self.bins,
            time=self.time_column,
        )

    def population(self, window: Window | None = None) -> Population:
        """The users in the node's file or database, with their rows of a window if there is one.

        Over a closed domain, over the list in `items-path` or the bins.
        """
        data: Path | Database | None = self.data_path
        if self.db_url is not None and self.query is not None:
            data = Database(self.db_url, self.query)
        if data is None:
            raise InvalidInput(
                "the node has no data",
                allowed="a data-path, or a db-url and a query, in its --node-config",
                code="no-data",
            )
        from fedhist.client.files.read import node_users

        return node_users(
            data,
            columns=replace(self.columns, window=window),
            items=None if self.items_path is None else read_items(self.items_path),
            rename=None if self.normalise is None else NORMALISATIONS[self.normalise],
            memory=self.memory,
        )

    def identity(self) -> Identity | None:
        """For signed masking, the key in `identity-path` and the keys in `directory-path`; None without them."""
        key, directory = self.identity_path, self.directory_path
        if key is None or directory is None:
            return None
        from fedhist.protocol.masking.crypto import parse_identity

        return parse_identity(
            _key_file(key), _key_file(directory), key_name=str(key), directory_name=str(directory)
        )


def read_node_config(config: Mapping[str, object], *, besides: Collection[str] = ()) -> NodeSettings:
    """The settings in a node's configuration. An unknown key or a value of the wrong type is an error.

    Args:
        config: the `node_config` of a Context.
        besides: keys that an app of your own has there for itself.
    """
    for name in config:
        if name not in besides:
            _check_name(name)
    given: dict[str, Any] = {
        key.field: _converted(key, config[key.name]) for key in KEYS if key.name in config
    }
    limits = {key.field: given.pop(key.field) for key in POLICY_KEYS if key.field in given}
    return NodeSettings(**given, policy=Policy(**limits))


def _key_file(path: Path) -> bytes:
    from fedhist.protocol.masking.crypto import MAX_KEY_FILE_BYTES

    try:
        with path.open("rb") as file:
            return file.read(MAX_KEY_FILE_BYTES + 1)
    except FileNotFoundError:
        raise MissingFile(f"there is no file {path}", allowed="a file of keys") from None
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
        code="unknown-key",
    )


def _converted(key: Key, value: object) -> object:
    is_text = isinstance(value, str) and value != ""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    as_it_is = {
        Kind.TEXT: is_text,
        Kind.ADDRESS: is_text,
        Kind.COLUMN: is_text or is_whole,
        Kind.WHOLE: is_whole,
        Kind.SWITCH: isinstance(value, bool),
        Kind.SPELLING: value in tuple(NORMALISATIONS),
        Kind.MASKING: value in MASKINGS,
    }
    if as_it_is.get(key.kind):
        return value
    if key.kind is Kind.PATH and "://" in str(value):
        # Not shown: there may be a password in it.
        raise InvalidInput(
            f"{key.name} in the node's configuration is an address",
            allowed=_EXAMPLES[Kind.PATH],
            advice="the address of a database is a db-url",
        )
    match key.kind, value:
        case Kind.PATH, str() if is_text:
            return Path(value)
        case Kind.PATHS, str() if all(value.split(":")):
            return tuple(value.split(":"))
        case Kind.EDGES, str():
            return edges_of(value, name=key.name)
        case Kind.NUMBER, int() | float() if is_whole or isinstance(value, float):
            return float(value)
    raise InvalidInput(
        f"{key.name} in the node's configuration is {'no text' if key.kind is Kind.ADDRESS else repr(value)}",
        allowed=_EXAMPLES[key.kind],
        advice=f"it is {key.help}".replace("`", ""),
        code="bad-value",
    )


_EXAMPLES = {
    Kind.PATH: 'a path in quotes, as in "/data/visits.csv"',
    Kind.PATHS: 'paths in quotes, as in "mine.py:others.py"',
    Kind.TEXT: 'a text in quotes, as in "customer"',
    Kind.COLUMN: 'a text in quotes, as in "customer", or a whole number',
    Kind.ADDRESS: f'an address in quotes, as in "{EXAMPLE}"',
    Kind.EDGES: 'edges in quotes, as in "0,10,20,inf" or "0:100:10"',
    Kind.SPELLING: ", ".join(f'"{name}"' for name in NORMALISATIONS),
    Kind.NUMBER: "a number, as in 2.0",
    Kind.WHOLE: "a whole number, as in 100",
    Kind.SWITCH: "true or false",
    Kind.MASKING: ", ".join(f'"{name}"' for name in MASKINGS),
}


# What `mount` takes, from a node's own configuration: functions of its Context.

Load = Callable[[Context], Any]
"""Returns a node's users, as whatever `fedhist.histogram` takes for data."""


def node_population(context: Context) -> NodeSettings:
    """The node's own configuration, for `mount` to read the users in its file or database, with or without a window.

    The server has no say in what is read, except for the window of its plan.
    """
    return read_node_config(context.node_config)


def node_items(context: Context) -> Labels | None:
    """The public list that the node's own configuration names as `items-path`, or its `bins`."""
    settings = read_node_config(context.node_config)
    if settings.bins is not None:
        return bin_labels(checked_edges(settings.bins))
    return None if settings.items_path is None else read_items(settings.items_path)


def node_policy(context: Context) -> Policy:
    """The limits in the node's own configuration."""
    return read_node_config(context.node_config).policy


def node_memory(context: Context) -> Path | None:
    """The file that the node's own configuration names as `memory-path`."""
    return read_node_config(context.node_config).memory_path


def node_identity(context: Context) -> Identity | None:
    """The key and the directory that the node's own configuration names; None if it names none."""
    return read_node_config(context.node_config).identity()


def node_plugins(context: Context) -> None:
    """Load the files that the node's own configuration names as `plugin`. The server has no say in them."""
    load_files_once(read_node_config(context.node_config).plugin)


# Virtual nodes of Flower's Simulation Engine, and how one app serves them and real ones.
#
# Flower gives a virtual node a `partition-id` and `num-partitions`, and apps switch on that.


class Partitioned(Protocol):
    """What is used of a `flwr_datasets.FederatedDataset`."""

    def load_partition(self, partition_id: int, split: str | None = None) -> Any:
        """The rows of one partition, a `datasets.Dataset`."""

    @property
    def partitioners(self) -> Any:
        """By split, what cuts it."""


def is_virtual(context: Context) -> bool:
    """Whether Flower's Simulation Engine made the node: it has its two keys, and no data or memory of its own.

    The node's own configuration decides, which no server has a say in. Not for deployed nodes whose configurations have
    the same two keys and nothing else of ours: they would be taken for virtual ones.
    """
    config, own = context.node_config, (*SOURCE_KEYS, "memory-path")
    return all(name in config for name in FLOWERS_KEYS) and not any(name in config for name in own)


def partition_loader(
    dataset: Partitioned, *, split: str | None = None, deployed: Load = node_population
) -> Load:
    """For `mount`: a virtual node has its partition of a `FederatedDataset`, a real one what is its own.

    Args:
        dataset: of flwr-datasets. Nothing is loaded before a node is asked.
        split: the name of the split, if several are partitioned.
        deployed: where the users of a real node are; in its configuration, if left out.
    """

    def load(context: Context) -> Any:
        if not is_virtual(context):
            return deployed(context)
        number, nodes = (int(context.node_config[name]) for name in FLOWERS_KEYS)
        rows = dataset.load_partition(number, split)
        (cut,) = [one for name, one in dataset.partitioners.items() if split in (None, name)]
        if cut.num_partitions != nodes:
            # Some rows would be nobody's, or some nodes would have none.
            raise InvalidInput(
                f"the data set has {cut.num_partitions} partitions, and the simulation {nodes} nodes",
                allowed="as many partitions as nodes",
                advice="set num-supernodes of the federation, or the partitioner's num_partitions",
                code="other-number-of-partitions",
            )
        return rows

    return load
