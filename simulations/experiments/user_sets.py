"""The users of an experiment: files and synthetic sets, stored once and shared by all worker processes."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.client.populations import SparsePopulation, item_totals
from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.protocol.histograms import Histograms, Integers, Population
from fedhist.server.result_folder import undisturbed
from fedhist.simulations.datasets.paper_sets import RatesPopulation
from fedhist.simulations.datasets.registry import DATASETS, PREFIX, make_population
from fedhist.simulations.datasets.synthetic import materialise

_TAG = b"fedhist/1/experiment/"
_OWNER_ALONE = 0o700
FILE = "file"
SYNTHETIC = tuple(name for name, dataset in DATASETS.items() if {"users", "items"} <= dataset.defaults.keys())
"""The synthetic populations that have the sizes of an experiment."""


@dataclass(frozen=True, kw_only=True)
class UserSet:
    """Where the users of an experiment come from.

    Args:
        kind: FILE, a name of SYNTHETIC, or "rates" (one item, Gamma rates).
        name: what tables and figures call it.
        users, items: the size of a synthetic set.
        content: the digest of a file, which stands for its path in seeds and fingerprints.
        top_items: how many of the most frequent items are kept; None is all.
        shape, mean: of the rates of the kind "rates".
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
        """The set without what it is called: equal keys are equal users."""
        return json.dumps({k: v for k, v in self.to_json().items() if k != "name" and v}, sort_keys=True)

    @property
    def is_file(self) -> bool:
        """Whether the users are the same in every trial."""
        return self.kind == FILE

    def to_json(self) -> dict[str, Any]:
        """All fields by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    if not path.is_file():
        raise InvalidFile(f"there is no file {path}", allowed="an existing data file", advice="check --data")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def trial_seed(seed: int, users: UserSet, trial: int, purpose: str) -> int:
    """The seed of one trial over these users: a function of these four alone.

    What is compared shares it: all selectors and budgets see the same users and, as far as they agree, the same noise.
    """
    text = json.dumps([seed, users.key, trial, purpose])
    return int.from_bytes(hashlib.sha256(_TAG + text.encode()).digest()[:7], "big")


def make_users(users: UserSet, seed: int) -> Population:
    """The synthetic set of this seed."""
    if users.kind == "rates":
        return RatesPopulation(users.users, seed, alpha=users.shape, mean=users.mean)
    if users.kind not in SYNTHETIC:
        raise InvalidInput(f"unknown synthetic set {users.kind!r}", allowed=", ".join(SYNTHETIC))
    return make_population(f"{PREFIX}{users.kind}", seed=seed, users=users.users, items=users.items)


@dataclass
class Store:
    """Populations as memory-mapped arrays in a folder, so that all worker processes share one copy.

    They are every user's exact histogram: its owner alone may open the folder, and who puts something in clears it.

    Args:
        folder: where the arrays are; made by whoever puts something in.
    """

    folder: Path
    _known: dict[str, tuple[SparsePopulation, Integers]] = field(default_factory=dict, repr=False)
    _drawn: dict[str, tuple[SparsePopulation, Integers]] = field(default_factory=dict, repr=False)

    def put(self, users: UserSet, population: SparsePopulation) -> None:
        """Write the arrays; a set that is there already is left as it is."""
        place = self._place(users)
        if (place / "rest.json").exists():
            return
        self.folder.mkdir(mode=_OWNER_ALONE, parents=True, exist_ok=True)
        self.folder.chmod(_OWNER_ALONE)
        place.mkdir(exist_ok=True)
        histograms = population.histograms
        for name in ("offsets", "items", "counts"):
            np.save(place / f"{name}.npy", getattr(histograms, name))
        labels = None if population.labels is None else list(population.labels)
        rest = {"domain_size": histograms.domain_size, "labels": labels}
        (place / "rest.json").write_text(json.dumps(rest))

    def clear(self) -> None:
        """Remove the arrays; a second Ctrl-C does not stop it halfway."""
        with undisturbed():
            shutil.rmtree(self.folder, ignore_errors=True)

    def users_of(self, users: UserSet, *, seed: int, trial: int) -> tuple[SparsePopulation, Integers]:
        """The users of a trial, and their exact histogram; a file's are the same in every trial."""
        if users.is_file:
            if users.key not in self._known:
                population = self._open(users)
                self._known[users.key] = (population, item_totals(population))
            return self._known[users.key]
        name = f"{users.key}/{seed}/{trial}"
        if name not in self._drawn:
            population = draw_users(users, seed=seed, trial=trial)
            # One trial at a time: the next one's users replace it.
            self._drawn = {name: (population, item_totals(population))}
        return self._drawn[name]

    def _open(self, users: UserSet) -> SparsePopulation:
        place = self._place(users)
        rest = json.loads((place / "rest.json").read_text())
        # As plain arrays: memory maps check something on every slice.
        offsets, items, counts = (
            np.load(place / f"{name}.npy", mmap_mode="r").view(np.ndarray)
            for name in ("offsets", "items", "counts")
        )
        histograms = Histograms(
            offsets=offsets, items=items, counts=counts, domain_size=int(rest["domain_size"])
        )
        labels = None if rest["labels"] is None else tuple(rest["labels"])
        return SparsePopulation(histograms, labels=labels)

    def _place(self, users: UserSet) -> Path:
        return self.folder / hashlib.sha256(users.key.encode()).hexdigest()[:16]


def draw_users(users: UserSet, *, seed: int, trial: int) -> SparsePopulation:
    """The synthetic users of a trial, in memory."""
    made = materialise(make_users(users, trial_seed(seed, users, trial, "users")))
    return made if users.top_items is None else made.keep_top_items(users.top_items)
