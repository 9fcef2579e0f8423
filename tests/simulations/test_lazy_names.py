"""An open domain's names may be on disk: a run reads them a few times, in order, and never has them all."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fedhist import Histograms, Plan, SparsePopulation, simulate
from tests.support.api import name_bytes_module as name_bytes

USERS, ITEMS, NAME_BYTES, PIECE = 300, 24_000, 1000, 200


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_bytes, "PIECE", PIECE)


@dataclass
class NamesOnDisk(Sequence[Any]):
    """Long names, each made when it is read; counts how many are."""

    read: int = 0
    passes: int = 0

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            places = range(ITEMS)[number]
            assert len(places) <= PIECE, "a slice of more names than a piece has"
            return list(map(self._name, places))
        return self._name(range(ITEMS)[number])

    def __iter__(self) -> Iterator[str | int]:
        self.passes += 1
        return map(self._name, range(ITEMS))

    def __contains__(self, name: object) -> bool:
        raise AssertionError("a search through all names")

    def _name(self, number: int) -> str | int:
        self.read += 1
        # Most are texts; some are numbers, and of those some are written like a text.
        if number % 100 == 7:
            return number // 200
        return str(number) if number < 50 else f"{number:06}".ljust(NAME_BYTES, "x")


@dataclass
class OnDisk:
    """Users in memory whose items have names on disk."""

    held: SparsePopulation
    labels: NamesOnDisk = field(default_factory=NamesOnDisk)

    @property
    def users(self) -> int:
        return self.held.users

    @property
    def domain_size(self) -> int:
        return self.held.domain_size

    def shards(self) -> Iterator[Histograms]:
        return self.held.shards()


def population() -> OnDisk:
    """Everybody has five common items and fifteen others."""
    rng = np.random.default_rng(1)
    items = np.concatenate(
        [np.tile(np.arange(5) * 7, (USERS, 1)), rng.integers(0, ITEMS, (USERS, 15))], axis=1
    )
    offsets = np.arange(USERS + 1) * items.shape[1]
    counts = np.ones(items.size, dtype=np.int64)
    return OnDisk(SparsePopulation.from_arrays(offsets, items.reshape(-1), counts, domain_size=ITEMS))


PLANNED: dict[str, Any] = {
    "users": USERS,
    "domain": "open",
    "epsilon": 20.0,
    "delta": 0.01,
    "max_threshold": 40.0,
    "candidates": 6,
}
WAYS: dict[str, dict[str, Any]] = {
    "discover": {"release": "discover"},
    "discover beside known items": {"release": "discover", "known_items": "7\nnobody has this"},
    "above a bar": {"release": "truncated-laplace"},
}


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
def test_a_run_reads_names_a_few_times_and_never_has_them_all(settings: dict[str, Any]) -> None:
    """With the truth beside the release, which reads all that a run without it reads, and more."""
    users = population()
    plan = Plan(**PLANNED, **settings)
    simulate(users, plan, seed=3, evaluate=True)
    users.labels = NamesOnDisk()
    tracemalloc.start()
    try:
        release = simulate(users, plan, seed=3, evaluate=True).release
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "0" in release.names
    assert users.labels.passes <= 8
    assert users.labels.read <= 10 * ITEMS
    assert peak < ITEMS * NAME_BYTES / 3


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
def test_the_release_is_that_of_a_list_of_the_same_names(settings: dict[str, Any]) -> None:
    lazy = population()
    listed = OnDisk(lazy.held)
    listed.labels = list(lazy.labels)  # type: ignore[assignment] # any sequence
    plan = Plan(**PLANNED, **settings)
    one, other = (simulate(users, plan, seed=4).release for users in (lazy, listed))
    assert list(one.names) == list(other.names)
    assert one.histogram.tolist() == other.histogram.tolist()
