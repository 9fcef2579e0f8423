"""The population of a run, read from a file or synthetic, with notes for the user."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from fedhist.client.files.records import item_origin, read_population
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Population, labels_of
from fedhist.protocol.labels.item_list import read_items
from fedhist.protocol.labels.item_origin import ItemOrigin
from fedhist.simulations.datasets.registry import (
    DEFAULT_NAME,
    PREFIX,
    dataset_name,
    is_synthetic,
    make_population,
)
from fedhist.simulations.datasets.synthetic import materialise

NORMALISATIONS: dict[str, Callable[[str], str]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "casefold": lambda text: unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()),
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The population that the user asks for.

    Args:
        data: a file, or `synthetic:NAME?key=value` (see `datasets.registry`); None for the default synthetic one.
        items_file: the public domain of a data file.
        users, items: the size of the synthetic population.
        top_items: how many of the most frequent items to keep.
        open_domain: True when the items need no list.
        normalise: a name of NORMALISATIONS, to unify the spelling of item names; None leaves them as they are.
    """

    data: Path | None = None
    items_file: Path | None = None
    users: int | None = None
    items: int | None = None
    top_items: int | None = None
    open_domain: bool = False
    normalise: str | None = None

    @property
    def synthetic(self) -> str | None:
        """The synthetic population as `synthetic:NAME?key=value`; None for a file."""
        if self.data is None:
            return PREFIX + DEFAULT_NAME
        return str(self.data) if is_synthetic(str(self.data)) else None

    @property
    def label(self) -> str:
        """The name of the data in a ledger, without parameters or folders."""
        if self.data is None:
            return "synthetic"
        return self.data.name if self.synthetic is None else PREFIX + dataset_name(self.synthetic)

    @property
    def item_origin(self) -> ItemOrigin:
        """What decides the list of items, found without reading all of the data."""
        if self.items_file is not None or self.synthetic is not None or self.data is None:
            return ItemOrigin.PUBLIC
        return item_origin(self.data, top_items=self.top_items)


@dataclass(frozen=True)
class Loaded:
    """A population, its name, and notes for the user about its origin."""

    population: Population
    name: str
    labels: Sequence[str | int] | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def load(wanted: Wanted, seed: int) -> Loaded:
    """Read or make the population; a synthetic one is drawn from the seed."""
    start = perf_counter()
    if wanted.synthetic is not None:
        loaded = _synthetic(wanted, wanted.synthetic, seed)
    else:
        assert wanted.data is not None  # noqa: S101 - without data the population is synthetic
        loaded = _from_file(wanted, wanted.data)
    return replace(loaded, seconds=perf_counter() - start)


def _synthetic(wanted: Wanted, text: str, seed: int) -> Loaded:
    made = make_population(text, seed=seed, users=wanted.users, items=wanted.items)
    name = f"synthetic, {dataset_name(text)}"
    if wanted.top_items is None:
        return Loaded(made, name, labels_of(made))
    # A synthetic population is nobody's data, so its most frequent items are public.
    kept = replace(materialise(made).keep_top_items(wanted.top_items), item_origin=ItemOrigin.PUBLIC)
    return Loaded(kept, f"{name}, top items", None if labels_of(made) is None else kept.labels)


def _from_file(wanted: Wanted, data: Path) -> Loaded:
    items = None if wanted.items_file is None else read_items(wanted.items_file)
    if wanted.normalise is None:
        population = read_population(data, top_items=wanted.top_items, items=items)
    else:
        population = _normalised(
            read_population(data), items, wanted.top_items, NORMALISATIONS[wanted.normalise]
        )
    notes = []
    if population.item_origin.tells("open" if wanted.open_domain else "closed"):
        notes.append(population.item_origin.note)
    if items is not None:
        notes.append("counts of items outside the --items-file, if there are any, are left out")
    return Loaded(population, data.name, population.labels, tuple(notes))


def _normalised(
    population: SparsePopulation, items: list[str] | None, top_items: int | None, rename: Callable[[str], str]
) -> SparsePopulation:
    """Merge the items whose names are equal after renaming, then choose from the merged ones."""
    if population.labels is None:
        raise InvalidInput("--normalise needs items with names", allowed="data with names as text")
    numbers: dict[str | int, int] = {}
    names = (rename(label) if isinstance(label, str) else label for label in population.labels)
    new_number = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    old = population.histograms
    merged = SparsePopulation.from_arrays(
        old.offsets,
        new_number[old.items],
        old.counts,
        domain_size=len(numbers),
        labels=list(numbers),
        item_origin=population.item_origin,
    )
    if top_items is not None:
        return merged.keep_top_items(top_items)
    if items is None:
        return merged
    wanted = list(dict.fromkeys(map(rename, items)))
    return merged.select_items([numbers.get(item, -1) for item in wanted], labels=wanted)
