"""Which items a discovery will find, from the exact sums of weights and the noise on them.

A key of weight w passes a look of deviation s with chance 1 - Phi((bar - w)/s). After two looks, it is found if it has
passed one of them. The chance of that is taken as the larger of the two: the second bar is far below the first, so that
a key with any chance at the first is nearly sure to pass the second. Whether there is a second look depends on the sum
of the noisy weights that passed, less 1 - UNCOVERED of the noisy sum of all weights. That difference is taken as
normal, and as independent of which keys pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fedhist.protocol.histograms import Floats, Histograms, Integers, Population, names_of
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.labels.renumbering import Renumbering, distinct_names, numbers_in
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.discovery_terms import UNCOVERED, Discovery

# Keys of a smaller chance count as never found, and shares of a smaller chance are left out.
_UNLIKELY = 1e-3


@dataclass(frozen=True, eq=False)
class Finding:
    """What a discovery that takes one of its shares will find.

    Args:
        share: of the noise's precision.
        chance: that the discovery takes this share.
        keys: numbers of the population's items that may be found, by falling chance.
        found: their chances.
        listed: how many of them make up a typical list: the expected number.
    """

    share: float
    chance: float
    keys: Integers = field(repr=False)
    found: Floats = field(repr=False)
    listed: int


def findings(terms: Discovery, weights: Keyed) -> list[Finding]:
    """One for each share of the plan that is not very unlikely."""
    from scipy.special import ndtr

    sums = weights.values[:, 0].astype(np.float64)
    passing: list[Floats] = [
        ndtr((sums - bar) / math.sqrt(variance))
        for bar, variance in zip(terms.bars, terms.variances, strict=True)
    ]
    chances = [1.0]
    if len(passing) > 1:
        again = _second_look(terms, sums, passing[0])
        chances, passing = [1 - again, again], [passing[0], np.maximum(*passing)]
    return [
        _finding(share, chance, weights.keys, found)
        for share, chance, found in zip(terms.shares, chances, passing, strict=True)
        if chance > _UNLIKELY
    ]


def _second_look(terms: Discovery, sums: Floats, passing: Floats) -> float:
    """The chance that what passed the first look covers too little."""
    from scipy.special import ndtr

    if not len(sums):
        return 1.0
    deviation = math.sqrt(terms.variances[0])
    # E[(w + Z) 1{w + Z > bar}] and the same of its square, with the density of Z at the bar.
    gap = (terms.bars[0] - sums) / deviation
    density = np.exp(-(gap**2) / 2) / math.sqrt(2 * math.pi)
    mean = sums * passing + deviation * density
    square = (sums**2 + deviation**2) * passing + deviation * density * (sums + terms.bars[0])
    short = (1 - UNCOVERED) * float(sums.sum()) - float(mean.sum())
    variance = (
        float((square - mean**2).sum()) + ((1 - UNCOVERED) * terms.coverage_noise.standard_deviation) ** 2
    )
    return float(ndtr(short / math.sqrt(variance)))


def _finding(share: float, chance: float, keys: Integers, found: Floats) -> Finding:
    order = np.argsort(-found, kind="stable")
    likely = max(int(np.count_nonzero(found > _UNLIKELY)), min(len(order), 1))
    kept = order[:likely]
    return Finding(share, chance, keys[kept], found[kept], min(max(round(float(found.sum())), 1), likely))


@dataclass(frozen=True, eq=False)
class Narrowed:
    """A population over some of its items, in an order of their own."""

    whole: Population
    items: Renumbering

    @property
    def users(self) -> int:
        """All users, also those who have none of the items."""
        return self.whole.users

    @property
    def domain_size(self) -> int:
        """How many items there are."""
        return self.items.size

    def shards(self) -> Iterator[Histograms]:
        """Those of the whole."""
        return map(self.items.of, self.whole.shards())


def narrowed(population: Population, plan: Plan, keys: Integers) -> Narrowed:
    """The population over the items that the plan knows and these keys, in that order, as a run lists them."""
    names, known = names_of(population), plan.known
    size = population.domain_size
    places = np.full(size, -1, dtype=np.int64)
    places[keys] = len(known) + np.arange(len(keys))
    alike = distinct_names(names)
    numbers = places if alike is None else places[alike]
    if known:
        there = numbers_in(known, names)
        numbers = np.where(there >= 0, there, numbers)
    return Narrowed(population, Renumbering(numbers, len(known) + len(keys)))
