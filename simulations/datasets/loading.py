"""The population of a run, read from a file or synthetic, with notes for the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.files.items import NORMALISATIONS, ItemChoice
from fedhist.client.files.read import (
    NOBODY,
    Following,
    is_matrix,
    is_path,
    is_population,
    item_origin,
    order_of_users,
    over_items,
    read_data,
)
from fedhist.client.populations import Label, SparsePopulation
from fedhist.protocol.errors import InvalidInput, InvalidPopulation
from fedhist.protocol.histograms import Population, labels_of
from fedhist.protocol.item_lists import ItemOrigin, origin_of, read_items
from fedhist.simulations.datasets.registry import (
    DEFAULT_NAME,
    PREFIX,
    dataset_name,
    is_synthetic,
    make_population,
)
from fedhist.simulations.datasets.synthetic import materialise


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The population that the user asks for.

    Args:
        data: a file, `synthetic:NAME?key=value` (see `datasets.registry`), a data frame, a scipy matrix of users by
            items or a population; None for the default synthetic one.
        columns: the columns of a table or data frame, and the bins for its values.
        items_file: the file of the public domain of a data file or frame.
        item_names: the public domain itself. For a matrix, which has no names: those of its columns, in their order.
        users, items: the size of the synthetic population. For data, `users` is what a plan that hides the real number
            has in its place: then reading says nothing, and a table may be empty.
        top_items: how many of the most frequent items to keep.
        open_domain: True when the items need no list.
        normalise: a name of NORMALISATIONS, to unify the spelling of item names; None leaves them as they are.
        memory: what reading a table may use, such as 1GB; None for half of what is available.
    """

    data: Any = None
    columns: Columns = USUAL_COLUMNS
    items_file: Path | None = None
    item_names: Sequence[Label] | None = None
    users: int | None = None
    items: int | None = None
    top_items: int | None = None
    open_domain: bool = False
    normalise: str | None = None
    memory: str | int | None = None

    @property
    def synthetic(self) -> str | None:
        """The synthetic population as `synthetic:NAME?key=value`; None for data."""
        if self.data is None:
            return PREFIX + DEFAULT_NAME
        return str(self.data) if is_path(self.data) and is_synthetic(str(self.data)) else None

    @property
    def path(self) -> Path | None:
        """The file of the data; None if it is in memory or synthetic."""
        return Path(self.data) if is_path(self.data) and self.synthetic is None else None

    @property
    def label(self) -> str:
        """The name of the data in a ledger, without parameters or folders."""
        if self.data is None:
            return "synthetic"
        if self.synthetic is not None:
            return PREFIX + dataset_name(self.synthetic)
        if self.path is not None:
            return _name(self.path)
        return f"{type(self.data).__module__.partition('.')[0]} {type(self.data).__name__}"

    @property
    def item_origin(self) -> ItemOrigin:
        """What decides the list of items, found without reading all of the data."""
        if self.synthetic is not None:
            return ItemOrigin.SYNTHETIC
        if self.items_file is not None or self.item_names is not None or self.columns.bins is not None:
            return ItemOrigin.PUBLIC
        if self.path is not None:
            return item_origin(self.path, top_items=self.top_items)
        if self.top_items is not None:
            return ItemOrigin.TOP
        if is_matrix(self.data):
            return ItemOrigin.PUBLIC
        return origin_of(self.data) if is_population(self.data) else ItemOrigin.DATA


@dataclass(frozen=True)
class Loaded:
    """A population, its name, and notes for the user about its origin.

    `frame_kind` is the library of the data frame that it came from: pandas, polars or pyarrow.
    """

    population: Population
    name: str
    labels: Sequence[str | int] | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    frame_kind: str | None = None


def load(wanted: Wanted, seed: int | None, *, follow: Following = NOBODY) -> Loaded:
    """Read or make the population; a synthetic one is drawn from the seed, and so is the order of a table's users.

    Args:
        wanted: what the user asks for.
        seed: None for a new order of a table's users each time; a synthetic population is then that of seed 0.
        follow: told how the reading of a table goes.
    """
    start = perf_counter()
    _check_wanted(wanted)
    hidden = wanted.users is not None and wanted.synthetic is None
    follow = NOBODY if hidden else follow
    if wanted.synthetic is not None:
        loaded = _synthetic(wanted, wanted.synthetic, seed or 0)
    elif wanted.path is not None:
        loaded = _from_table(wanted, wanted.path, _name(wanted.path), seed, follow)
    elif is_matrix(wanted.data) or is_population(wanted.data):
        loaded = _from_memory(wanted)
    else:
        from fedhist.client.files.frames import frame_kind, in_memory

        frame = in_memory(wanted.data, wanted.columns)
        kind = frame_kind(frame)
        loaded = _from_table(wanted, frame, f"{kind} data frame", seed, follow)
        loaded = replace(loaded, frame_kind=kind)
    if not (hidden or loaded.population.users):
        raise InvalidPopulation(
            "there are no users (no rows)",
            allowed="at least one user",
            advice="check that the data is complete",
            code="no-users",
        )
    return replace(loaded, seconds=0.0 if hidden else perf_counter() - start)


def _name(path: Path) -> str:
    """The last part of a path, also where that is a dot."""
    return path.name or path.resolve().name


def _check_wanted(wanted: Wanted) -> None:
    """Refuse settings that the data has no use for."""
    if wanted.items_file is not None and wanted.item_names is not None:
        raise InvalidInput(
            "two lists of items", allowed="one list, in a file or in memory", code="two-choices-of-items"
        )
    whole = wanted.synthetic is not None or is_matrix(wanted.data) or is_population(wanted.data)
    if whole and wanted.columns.given:
        raise InvalidInput(
            f"{wanted.columns.in_words()} for data without columns of users and items",
            allowed="names of columns, a separator and bins for tables: .csv, .tsv, .jsonl, .parquet and data frames",
            advice="leave them out",
            code="columns-without-table",
        )
    if wanted.columns.time is not None and wanted.columns.window is None:
        raise InvalidInput(
            "a time column without a window, which would read all rows",
            allowed="--time-column together with --window",
            advice="name a window, as in --window 2026-W47, or leave the column out",
            code="times-without-window",
        )


def _synthetic(wanted: Wanted, text: str, seed: int) -> Loaded:
    made = make_population(text, seed=seed, users=wanted.users, items=wanted.items)
    name = f"synthetic, {dataset_name(text)}"
    if wanted.top_items is None:
        return Loaded(made, name, labels_of(made))
    kept = materialise(made).keep_top_items(wanted.top_items)
    if origin_of(made) is ItemOrigin.SYNTHETIC:
        kept = replace(kept, item_origin=ItemOrigin.SYNTHETIC)
    return Loaded(kept, f"{name}, top items", None if labels_of(made) is None else kept.labels)


def _from_table(wanted: Wanted, data: Any, name: str, seed: int | None, follow: Following) -> Loaded:
    """The population of a file or data frame, with notes."""
    population, left_out = read_data(
        data,
        _choice(wanted),
        columns=wanted.columns,
        memory=wanted.memory,
        rng=order_of_users(seed),
        follow=follow,
    )
    if left_out:
        follow.left_out(left_out)
    return _noted(wanted, population, name)


def _choice(wanted: Wanted) -> ItemChoice:
    items = wanted.item_names if wanted.items_file is None else read_items(wanted.items_file)
    rename = None if wanted.normalise is None else NORMALISATIONS[wanted.normalise]
    return ItemChoice(wanted.top_items, items, rename)


def _noted(wanted: Wanted, population: SparsePopulation, name: str) -> Loaded:
    """What was read, with notes for the user."""
    notes = []
    if population.item_origin.tells("open" if wanted.open_domain else "closed"):
        notes.append(population.item_origin.note)
    if wanted.items_file is not None or wanted.item_names is not None:
        notes.append("counts of items outside the --items-file, if there are any, are left out")
    if wanted.columns.bins is not None:
        notes.append("values outside the bins, if there are any, are left out")
    if wanted.columns.window is not None:
        notes.append(
            f"rows outside the window {wanted.columns.window} are left out; their users stay, without items"
        )
    return Loaded(population, name, population.labels, tuple(notes))


def _from_memory(wanted: Wanted) -> Loaded:
    """A matrix or population as it is, or over the wanted items."""
    if is_matrix(wanted.data):
        population: Population = SparsePopulation.from_scipy(wanted.data, labels=wanted.item_names)
        wanted, name = replace(wanted, item_names=None), "matrix"
    else:
        population, name = wanted.data, "population"
    chosen = (wanted.items_file, wanted.item_names, wanted.top_items, wanted.normalise)
    if any(choice is not None for choice in chosen):
        return _noted(wanted, over_items(materialise(population), _choice(wanted)), name)
    origin = origin_of(population)
    notes = (origin.note,) if origin.tells("open" if wanted.open_domain else "closed") else ()
    return Loaded(population, name, labels_of(population), notes)
