"""The populations of a comparison: which they are, what they are called, and their users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_USERS
from fedhist.simulations.datasets.loading import Loaded, Wanted, load
from fedhist.simulations.datasets.registry import PREFIX, is_synthetic
from fedhist.simulations.datasets.synthetic import materialise
from fedhist.simulations.experiments.trials import FILE, UserSet, digest_of
from fedhist.simulations.population_checks import check_not_empty


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the users of a comparison come from.

    Args:
        data: paths, `synthetic:NAME?...`, data frames, matrices or populations by name; the same users in every trial.
        kinds: names of synthetic populations that are drawn anew for each trial.
        users: of synthetic populations.
        items: sizes of synthetic populations; each is compared.
        top_items: numbers of items to keep of each population; each is compared.
        reading: how data is read, as of one that has none: columns, the public list, spelling, and the domain.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[str] = ()
    users: int | None = None
    items: tuple[int, ...] | None = None
    top_items: tuple[int, ...] | None = None
    reading: Wanted = field(default_factory=Wanted)

    def wanted(self, name: str) -> Wanted:
        """The data of this name, as a run would be asked for it."""
        if not (isinstance(self.data[name], str | Path) and is_synthetic(str(self.data[name]))):
            return replace(self.reading, data=self.data[name])
        return Wanted(data=self.data[name], users=self.users, open_domain=self.reading.open_domain)


@dataclass
class LoadedSets:
    """The sets of users, those that are the same in every trial with their users, and what is to be said of them.

    `wanted` has by a set's key how `fedhist run` asks for it.
    """

    sets: list[UserSet] = field(default_factory=list)
    populations: dict[UserSet, SparsePopulation] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    frame_kind: str | None = None

    def add(
        self, users: UserSet, size: tuple[int, int], wanted: Wanted, whole: SparsePopulation | None = None
    ) -> None:
        """Add a set with its numbers of users and items, once."""
        if users.key in self.sizes:
            return
        self.sets.append(users)
        self.sizes[users.key] = size
        self.wanted[users.key] = replace(wanted, top_items=users.top_items)
        if whole is not None:
            self.populations[users] = (
                whole if users.top_items is None else whole.keep_top_items(users.top_items)
            )

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def tops(self, name: str, items: int, wanted: Sequence[int] | None) -> list[int | None]:
        """The numbers of items to keep, each at most all of them; a larger one is noted. None keeps all."""
        for top in wanted or ():
            if top > items:
                self.note(f"{name} has {items:,} items: --top-items {top:,} keeps them all")
        return list(dict.fromkeys(min(top, items) for top in wanted)) if wanted else [None]


def load_sets(sources: Sources, seed: int) -> LoadedSets:
    """All sets; data is read or drawn once, also where several numbers of its items are kept."""
    _check_reading(sources)
    loaded = LoadedSets()
    contents: dict[str, str] = {}
    for name in sources.data:
        wanted = sources.wanted(name)
        for items in (sources.items or (None,)) if wanted.synthetic else (None,):
            asked = replace(wanted, items=items)
            read, population = _read(name, asked, seed, alone=len(sources.data) == 1)
            loaded.frame_kind = loaded.frame_kind or read.frame_kind
            for note in () if wanted.synthetic else read.notes:
                # That a list was inferred from the data makes a release not private; no comparison is.
                if "not private" not in note:
                    loaded.note(note)
            called, content = _with_items(name, items, sources), digest_of(population)
            check_different(contents, content, called)
            for top in loaded.tops(called, population.domain_size, sources.top_items):
                users = UserSet(kind=FILE, name=called, content=content, top_items=top)
                loaded.add(users, (population.users, top or population.domain_size), asked, population)
    count = DEFAULT_USERS if sources.users is None else sources.users
    for kind in sources.kinds:
        for items in sources.items or (DEFAULT_ITEMS,):
            called = _with_items(kind, items, sources)
            for top in loaded.tops(called, items, sources.top_items):
                users = UserSet(kind=kind, name=called, users=count, items=items, top_items=top)
                asked = Wanted(data=f"{PREFIX}{kind}", users=count, items=items)
                loaded.add(users, (count, top or items), asked)
    return loaded


def _read(name: str, wanted: Wanted, seed: int, *, alone: bool) -> tuple[Loaded, SparsePopulation]:
    """Data and its users; an error says of which, where there are several."""
    try:
        # The order of a table's users decides how those above a bound are rounded: it is the same in every run.
        read = load(wanted, seed if wanted.synthetic else 0)
        population = materialise(read.population)
        check_not_empty(population)
    except InvalidInput as refusal:
        if alone:
            raise
        raise type(refusal)(
            f"{name}: {refusal.problem}", allowed=refusal.allowed, advice=refusal.advice, code=refusal.code
        ) from None
    return read, population


def check_different(contents: dict[str, str], content: str, name: str) -> None:
    """Refuse a population with the content of another: they would share one row, under one of their names."""
    if content in contents:
        raise InvalidInput(
            f"{contents[content]} and {name} have the same content",
            allowed="each population once",
            code="same-data",
        )
    contents[content] = name


def _check_reading(sources: Sources) -> None:
    """Refuse what only files and frames have, where there are none, and a list beside another choice of items."""
    reading = sources.reading
    listed = reading.items_file is not None or reading.item_names is not None
    read = [name for name in sources.data if not sources.wanted(name).synthetic]
    if listed and (not read or sources.top_items):
        raise InvalidInput(
            "--items-file names the domain of a data file",
            allowed="--items-file with --data, without --top-items",
        )
    if reading.columns.given and not read:
        raise InvalidInput(
            f"{reading.columns.in_words()} without a file", allowed="names of columns and bins with --data"
        )
    if reading.columns.bins is not None and sources.top_items:
        raise InvalidInput(
            "--bins with --top-items", allowed="bins alone", advice="the bins are the list of items"
        )
    if reading.normalise is not None and not read:
        raise InvalidInput(
            "--normalise needs a data file", allowed="--normalise with --data, for a file that has names"
        )


def names_of(paths: Sequence[Path], *, taken: Sequence[str] = ()) -> dict[Path, str]:
    """The name of each population in tables: the shortest that no other population has.

    A file is called `visits`, else `visits.csv`, else `x/visits.csv` and so on up to the whole path; a synthetic
    population `zipf?users=5`, else with `synthetic:` before it. Whole paths differ, so the search ends.

    Args:
        paths: different paths.
        taken: names of other populations in the same table.
    """
    choices = {path: _names(path) for path in paths}
    length = dict.fromkeys(paths, 0)
    while True:
        named = {path: choices[path][length[path]] for path in paths}
        all_names = [*named.values(), *taken]
        longer = [
            path
            for path, name in named.items()
            if all_names.count(name) > 1 and length[path] + 1 < len(choices[path])
        ]
        if not longer:
            return named
        for path in longer:
            length[path] += 1


def _names(path: Path) -> list[str]:
    """The possible names, from the shortest to the longest."""
    if is_synthetic(str(path)):
        return [str(path).removeprefix(PREFIX), str(path)]
    parts = path.absolute().parts
    return [path.stem, *("/".join(parts[-count:]) for count in range(1, len(parts) + 1))]


def _with_items(name: str, items: int | None, sources: Sources) -> str:
    """The name, with the number of items where several sizes keep the same number of top items."""
    several = sources.top_items and len(sources.items or ()) > 1
    return f"{name}, {items:,} items" if several else name
