"""How far one user moves the weights of a discovery, by brute force over all users of a small domain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from fedhist import Histograms, Neighbours, Plan, SeededSource
from tests.support.api import (
    Integers,
    Renumbering,
    Request,
    answer,
    item_bytes,
    keyed_part,
    numbers_in,
    terms_module,
)

LABELS: tuple[str | int, ...] = (5, "5", "a", "known", 6, "6")
"""Four items, of which one is known and two are written in both ways."""


def plan_of(neighbours: Neighbours = Neighbours.ZERO_OUT) -> Plan:
    return Plan(
        users=10,
        domain="open",
        known_items="known",
        neighbours=neighbours,
        epsilon=1.0,
    )


def user(counts: Sequence[int]) -> Histograms:
    """One user with these counts, zeros stored."""
    size = len(counts)
    return Histograms(np.array([0, size]), np.arange(size), np.array(counts), domain_size=size, first_user=3)


def weights_of(plan: Plan, counts: Sequence[int], *, seed: int = 0) -> dict[bytes, int]:
    """What the device's own code sends of a user, by name."""
    sent = answer(Request(plan, "key-weights"), user(counts), source=SeededSource(seed), labels=LABELS)
    keyed = keyed_part(sent.summed)
    by_name: dict[bytes, int] = {}
    for key, weight in zip(keyed.keys.tolist(), keyed.values[:, 0].tolist(), strict=True):
        name = item_bytes(LABELS[key])
        by_name[name] = by_name.get(name, 0) + weight
    return by_name


def vectors(plan: Plan) -> Iterator[Integers]:
    """The weights of every user of a small domain, for several draws."""
    names = (b"5", b"a", b"6")
    for counts in itertools.product((0, 3), repeat=len(LABELS)):
        for seed in range(2):
            sent = weights_of(plan, counts, seed=seed)
            assert set(sent) <= set(names)
            yield np.array([sent.get(name, 0) for name in names])


@pytest.mark.parametrize("user_items", [1, 2, 3])
def test_no_user_weighs_more_than_the_sensitivity(user_items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms_module, "USER_ITEMS", user_items)
    plan = plan_of()
    all_of_them = np.unique(np.stack(list(vectors(plan))), axis=0)
    for neighbours in Neighbours:
        terms = plan_of(neighbours).discovery
        assert terms.bits == plan.discovery.bits
        others = np.zeros((1, 3), dtype=np.int64) if neighbours is not Neighbours.REPLACE_ONE else all_of_them
        moves = (all_of_them[:, np.newaxis] - others).reshape(-1, 3)
        squares = (moves**2).sum(axis=1)
        assert squares.max() <= terms.sensitivity.square
        assert squares.max() >= 0.999 * terms.sensitivity.square
        # The sum over all keys, by which a second look is decided.
        assert np.abs(moves.sum(axis=1)).max() <= math.sqrt(user_items) * (1 << terms.bits)
    assert (all_of_them > 0).sum(axis=1).max() == user_items


def test_a_loader_that_names_an_item_twice_gives_its_users_no_more_weight() -> None:
    """Nothing checks the names that somebody's own loader makes."""
    plan = Plan(users=10, domain="open")
    sent = answer(
        Request(plan, "key-weights"), user([1, 1, 1]), source=SeededSource(0), labels=["a", "a", "a"]
    )
    assert keyed_part(sent.summed).values.tolist() == [[1 << plan.discovery.bits]]


def test_items_beyond_the_most_are_drawn_at_random_and_each_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms_module, "USER_ITEMS", 2)
    plan, runs = plan_of(), 300
    found = [frozenset(weights_of(plan, [1, 4, 9, 2, 0, 1], seed=seed)) for seed in range(runs)]
    for pair in itertools.combinations((b"5", b"a", b"6"), 2):
        assert abs(found.count(frozenset(pair)) - runs / 3) < 5 * math.sqrt(runs * 2 / 9)


def test_a_device_that_names_an_item_twice_counts_it_once_after_a_discovery() -> None:
    """The closed domain's clip bounds a user's norm: two columns of one item must not pass it one by one."""
    listed = ("b", 5, "absent")
    rows = [(3, 4, 1, 0, 0, 0), (0, 0, 0, 0, 0, 0), (0, 0, 2, 8, 1, 1)]
    held = Histograms(
        offsets=np.array([0, 6, 12, 18]),
        items=np.tile(np.arange(6), 3),
        counts=np.array(rows).ravel(),
        domain_size=6,
        first_user=40,
    )
    numbers = numbers_in(listed, LABELS)
    assert numbers.tolist() == [1, 1, -1, -1, -1, -1]
    narrow = Renumbering(numbers, len(listed)).of(held)
    assert (narrow.users, narrow.domain_size, narrow.first_user) == (3, 3, 40)
    dense = np.zeros((3, 3), dtype=np.int64)
    for row in range(3):
        places = slice(int(narrow.offsets[row]), int(narrow.offsets[row + 1]))
        items = narrow.items[places]
        assert len(set(items.tolist())) == len(items)
        dense[row, items] = narrow.counts[places]
    assert dense.tolist() == [[0, 7, 0], [0, 0, 0], [0, 0, 0]]
    # In shards as in one piece: a view whose offsets do not begin at 0 is the same users.
    for start in range(3):
        alone = Renumbering(numbers, len(listed)).of(held.rows(start, start + 1))
        assert alone.first_user == 40 + start
        assert alone.counts.sum() == dense[start].sum()
