"""The users of an experiment: files, stored once for all worker processes, and synthetic sets."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from fedhist.client.files.data_files import check_is_file, data_files
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import Integers, Population
from fedhist.server.disk import held_off
from fedhist.simulations.datasets.mapped_files import ABOUT, read_mapped, write_mapped
from fedhist.simulations.datasets.paper_sets import RatesPopulation
from fedhist.simulations.datasets.registry import DATASETS, PREFIX, make_population
from fedhist.simulations.datasets.synthetic import materialise

_TAG = b"fedhist/1/experiment/"
_OWNER_ALONE = 0o700
FILE = "file"


SYNTHETIC = tuple(name for name, one in DATASETS.items() if {"users", "items"} <= one.defaults.keys())
"""The synthetic populations whose users and items can be set."""


@dataclass(frozen=True, kw_only=True)
class UserSet:
    """The source of an experiment's users.

    Args:
        kind: FILE, a name of SYNTHETIC, or "rates" (one item, Gamma rates).
        name: the name in tables and figures.
        users, items: the size of a synthetic set.
        content: the digest of a file, which replaces its path in seeds and fingerprints.
        top_items: the number of most frequent items to keep; None keeps all.
        shape, mean: of the Gamma rates of the kind "rates".
    """

    kind: str
    name: str
    users: int = 0
    items: int = 0
    content: str = ""
    top_items: int | None = None
    shape: float = 0.0
    mean: float = 0.0

    @cached_property
    def key(self) -> str:
        """All fields but the name: equal keys are equal users."""
        return json.dumps({k: v for k, v in asdict(self).items() if k != "name" and v}, sort_keys=True)

    @property
    def is_file(self) -> bool:
        """True if the users are the same in every trial."""
        return self.kind == FILE


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes; of the digests of the tables of a folder or pattern, in their order."""
    files = data_files(path)
    digests = []
    for one in files:
        check_is_file(one)
        with one.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests[0] if files == [path] else hashlib.sha256("".join(digests).encode()).hexdigest()


def trial_seed(seed: int, users: UserSet, trial: int, purpose: str) -> int:
    """The seed of one trial over these users, a function of the four arguments alone.

    It is shared by everything that is compared: all selectors and budgets see the same users and, as far as possible,
    the same noise.
    """
    text = json.dumps([seed, users.key, trial, purpose])
    return int.from_bytes(hashlib.sha256(_TAG + text.encode()).digest()[:7], "big")


@dataclass
class Store:
    """Populations as mapped files in a folder, so that all worker processes share one copy.

    They are every user's exact histogram: only the owner may open the folder, and the process that fills it clears it.

    Args:
        folder: the folder of the arrays, made when the first population is put in.
    """

    folder: Path
    _files: dict[str, tuple[SparsePopulation, Integers]] = field(default_factory=dict, repr=False)
    _drawn: dict[str, tuple[SparsePopulation, Integers]] = field(default_factory=dict, repr=False)

    def put(self, users: UserSet, population: SparsePopulation) -> None:
        """Write the arrays, unless the set is there already."""
        place = self._place(users)
        if (place / ABOUT).exists():
            return
        self.make()
        place.mkdir(exist_ok=True)
        write_mapped(population, place)

    def make(self) -> None:
        """Make the folder, if it is not there."""
        self.folder.mkdir(mode=_OWNER_ALONE, parents=True, exist_ok=True)
        self.folder.chmod(_OWNER_ALONE)

    def clear(self) -> None:
        """Remove the arrays; a second Ctrl-C does not stop this halfway."""
        with held_off():
            shutil.rmtree(self.folder, ignore_errors=True)

    def users_of(self, users: UserSet, *, seed: int, trial: int) -> tuple[SparsePopulation, Integers]:
        """The users of a trial, and their exact histogram; a file's are the same in every trial."""
        if users.is_file:
            if users.key not in self._files:
                population = read_mapped(self._place(users))
                self._files[users.key] = (population, population.totals())
            return self._files[users.key]
        name = f"{users.key}/{seed}/{trial}"
        if name not in self._drawn:
            population = draw_users(users, seed=seed, trial=trial)
            # Only one trial is kept: the users of the next replace it.
            self._drawn = {name: (population, population.totals())}
        return self._drawn[name]

    def _place(self, users: UserSet) -> Path:
        return self.folder / hashlib.sha256(users.key.encode()).hexdigest()[:16]


def draw_users(users: UserSet, *, seed: int, trial: int) -> SparsePopulation:
    """The synthetic users of a trial, in memory."""
    own_seed = trial_seed(seed, users, trial, "users")
    population: Population
    if users.kind == "rates":
        population = RatesPopulation(users.users, own_seed, alpha=users.shape, mean=users.mean)
    else:
        population = make_population(
            f"{PREFIX}{users.kind}", seed=own_seed, users=users.users, items=users.items
        )
    made = materialise(population)
    return made if users.top_items is None else made.keep_top_items(users.top_items)
