"""Every population that the project makes or reads, and what the contract makes of wrong ones."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedhist import HeavyTailedPopulation, PoissonPopulation, SparsePopulation
from tests.support.api import histograms_of, parts_of, read_part, write_mapped
from tests.support.populations import POPULATION, check_population

ROWS = np.random.Generator(np.random.Philox(1)).poisson(1.0, size=(40, 5))
SPARSE = SparsePopulation.from_scipy(csr_array(ROWS), labels=["a", "b", 7, "7", "ü"])


def part_of_a_file(folder):
    write_mapped(SPARSE, folder)
    return read_part(folder, 2, 3)


POPULATIONS = {
    "in memory": lambda folder: SPARSE,
    "fewer items": lambda folder: SPARSE.keep_top_items(3),
    "heavy-tailed": lambda folder: HeavyTailedPopulation(users=9000, items=20, seed=1),
    "poisson": lambda folder: PoissonPopulation(users=9000, items=20, seed=1),
    "one participant's": lambda folder: list(parts_of(HeavyTailedPopulation(9000, 20, 1), 3))[1],
    "one node's": part_of_a_file,
    "a part inside blocks": lambda folder: HeavyTailedPopulation(9000, 20, 1).part(4000, 8500),
    "a part in memory": lambda folder: SPARSE.part(3, 30),
    "stored": lambda folder: write_mapped(SPARSE, folder),
    "a stored part of a part": lambda folder: write_mapped(SPARSE.part(3, 30), folder).part(5, 20),
}


@pytest.mark.parametrize("check", POPULATION.checks)
@pytest.mark.parametrize("make", POPULATIONS.values(), ids=POPULATIONS)
def test_each_keeps_the_contract(tmp_path, make, check):
    POPULATION.run(check, make(tmp_path))


class Toy:
    """Forty users in two shards, with something changed."""

    def __init__(self, *, users=40, domain_size=5, labels=None, **changes):
        self.users, self.domain_size, self.labels, self.changes = users, domain_size, labels, changes

    def shards(self):
        whole = histograms_of(ROWS)
        second = whole.rows(25, 40)
        changed = {name: change(getattr(second, name)) for name, change in self.changes.items()}
        return iter([whole.rows(0, 25), replace(second, **changed)])


class Parted(Toy):
    """Forty users whose parts are others."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def part(self, start, stop):
        return SparsePopulation(histograms_of(ROWS).rows(start + self.by, stop + self.by))


class NumberedAnew(Toy):
    """Forty users whose parts number them from 0."""

    def part(self, start, stop):
        return SparsePopulation(histograms_of(ROWS[start:stop]))


passes = itertools.count()
USERS = "the_shards_hold_the_users_that_it_says"
COUNTS = "histograms_are_whole_counts_of_items_of_the_domain"
NAMES = "each_item_has_a_name_of_its_own_or_none_has"


def test_wrong_parts_are_caught(caught_by):
    check_population(Parted(0))
    caught_by("a_part_holds_the_users_that_it_names", check_population, Parted(1))
    caught_by("a_part_holds_the_users_that_it_names", check_population, NumberedAnew())


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"users": 41}, USERS),
        ({"first_user": lambda first: first + 1}, USERS),
        ({"offsets": lambda offsets: offsets[:1]}, USERS),
        ({"counts": lambda counts: counts + next(passes)}, "every_pass_reads_the_same"),
        ({"counts": lambda counts: counts / 2}, COUNTS),
        ({"counts": lambda counts: -counts}, COUNTS),
        ({"counts": lambda counts: counts << 31}, COUNTS),
        ({"items": lambda items: items + 1}, COUNTS),
        ({"items": lambda items: 0 * items}, COUNTS),
        ({"domain_size": 6}, COUNTS),
        ({"labels": ["a", "b"]}, NAMES),
        ({"labels": ["a", "b", "c", "d", "a"]}, NAMES),
    ],
)
def test_a_wrong_one_is_caught(caught_by, settings, name):
    check_population(Toy())
    caught_by(name, check_population, Toy(**settings))
