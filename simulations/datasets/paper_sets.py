"""The synthetic sets of the paper's unbounded-domain table, and a domain too large to list.

They are made from a seed, block by block, like those of `synthetic`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import overload

import numpy as np

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Floats, Histograms
from fedhist.protocol.items import PIECE
from fedhist.protocol.validation import without_repeats
from fedhist.simulations.datasets.synthetic import (
    BLOCK_USERS,
    MAX_MEAN,
    HeavyTailedPopulation,
    SyntheticPopulation,
    block_generator,
    check_size,
    item_probabilities,
)

MEAN_TOTAL = 100.0
# The mean rest after this number of pieces is 3^-34, below the rounding of a double.
_STICKS = 34
_RATES_BLOCK = 65_536


@dataclass(frozen=True)
class PaperPopulation(SyntheticPopulation):
    """The non-iid users of Liu et al., section 7.2, over items of popularity p_j proportional to 1/(j + 50).

    A user's rate is Gamma(1/2) of mean 100, the distribution over items is drawn from Dir(p/2), and counts are
    Poisson(rate p_ij). The paper's iid users are a PoissonPopulation.

    Deviation: the paper prints rates of 100 Dir(2) over all users; only Dir(1/2) gives its median and 90 % columns.
    Such a Dirichlet is Gamma(1/2) variables over their own mean; here they are over the mean's expectation 1/2, so
    that a block of users needs no other. For 50,000 users the two have a standard deviation of 0.6 % between them.
    `rate_shape=2` is the set as it is printed.

    Args:
        users: the number of users.
        items: d.
        seed: any integer.
        rate_shape: the Gamma shape of the rates.
    """

    users: int
    items: int
    seed: int
    rate_shape: float = 0.5

    def __post_init__(self) -> None:
        check_size(self.users, self.items)
        _check_shape(self.rate_shape)

    @cached_property
    def _up_to(self) -> Floats:
        return np.cumsum(item_probabilities(self.items))

    def block(self, number: int) -> Histograms:
        """Dir(p/2) by stick-breaking (Sethuraman 1994): independent items of p, with weights broken off a stick.

        A piece is a Beta(1, 1/2) share of what is left, so what is left shrinks by the square of a uniform number
        each time. Unlike Gamma variables of shape p_j/2, which are nearly all below the smallest double, the weights
        never vanish together, and no item need be drawn for a piece without counts.
        """
        generator = block_generator("paper/non-iid", self.seed, number)
        rates = MEAN_TOTAL / self.rate_shape * generator.standard_gamma(self.rate_shape, BLOCK_USERS)
        left = np.cumprod(generator.random((BLOCK_USERS, _STICKS - 1)) ** 2, axis=1)
        # The last piece is all that is left.
        weights = -np.diff(left, axis=1, prepend=1.0, append=0.0)
        counts = generator.poisson(rates[:, np.newaxis] * weights)
        users, _ = places = np.nonzero(counts)
        items = np.searchsorted(self._up_to, generator.random(len(users)), side="right")
        drawn = Histograms(
            offsets=np.searchsorted(users, np.arange(BLOCK_USERS + 1)),
            # The sum of p may be a rounding below 1.
            items=np.minimum(items, self.items - 1),
            counts=counts[places],
            domain_size=self.items,
            first_user=number * BLOCK_USERS,
        )
        # Two pieces may be of the same item.
        return without_repeats(drawn)


@dataclass(frozen=True)
class RatesPopulation(SyntheticPopulation):
    """Users with Poisson counts of one item whose rates are Gamma: the paper's set for debiasing single counts.

    n rates of a Dirichlet distribution with parameter alpha, scaled to a mean, are Gamma(alpha) variables over their
    own mean; here they are over the mean's expectation. The larger alpha is, the more users are alike.

    Args:
        users: the number of users.
        seed: any integer.
        alpha: the Dirichlet's parameter.
        mean: the mean count of a user.
    """

    users: int
    seed: int
    alpha: float
    mean: float = 1.0

    items = 1

    def __post_init__(self) -> None:
        check_size(self.users, 1)
        _check_shape(self.alpha)
        if not 0 < self.mean <= MAX_MEAN:
            raise InvalidInput(
                f"the mean count of a user is {self.mean}", allowed=f"more than 0 and at most {MAX_MEAN:,.0f}"
            )

    @property
    def block_users(self) -> int:
        """More than elsewhere, as a user has one item at the most."""
        return _RATES_BLOCK

    def block(self, number: int) -> Histograms:
        """The whole block with this number."""
        generator = block_generator("paper/rates", self.seed, number)
        rates = self.mean / self.alpha * generator.standard_gamma(self.alpha, _RATES_BLOCK)
        counts = generator.poisson(rates)
        counted = np.flatnonzero(counts)
        return Histograms(
            offsets=np.searchsorted(counted, np.arange(_RATES_BLOCK + 1)),
            items=np.zeros(len(counted), dtype=np.int32),
            counts=counts[counted],
            domain_size=1,
            first_user=number * _RATES_BLOCK,
        )


def _check_shape(shape: float) -> None:
    if not 0.001 <= shape <= 1e9:
        raise InvalidInput(f"the shape of the rates is {shape}", allowed="a number from 0.001 to 1e9")


@dataclass(frozen=True)
class NumberedLabels(Sequence[str]):
    """The names item-000, item-001, ... with enough digits for all, each made when it is needed.

    Args:
        length: the number of names.
    """

    length: int

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        """One name, or a list of them for a slice. The range checks the bounds and counts from the end."""
        chosen = range(self.length)[number]
        return f"item-{chosen:0{self._digits}}" if isinstance(chosen, int) else self._names(chosen)

    def __iter__(self) -> Iterator[str]:
        """All names."""
        starts = range(0, self.length, PIECE)
        return chain.from_iterable(self[start : start + PIECE] for start in starts)

    @property
    def _digits(self) -> int:
        return len(str(self.length - 1))

    def _names(self, numbers: range) -> list[str]:
        """One line for each name, written into an array of bytes by the digit."""
        lines = np.empty((len(numbers), len("item-") + self._digits + 1), dtype=np.uint8)
        lines[:, : len("item-")] = tuple(b"item-")
        lines[:, -1] = ord("\n")
        rest = np.arange(numbers.start, numbers.stop, numbers.step)
        for place in range(self._digits):
            rest, digit = rest // 10, rest % 10
            lines[:, -2 - place] = digit + ord("0")
        return lines.tobytes().decode("ascii").splitlines()


class ZipfPopulation(HeavyTailedPopulation):
    """The users of `HeavyTailedPopulation` over items that have names.

    For domains that are too large to list: neither users nor names are ever all in memory.
    """

    @property
    def labels(self) -> NumberedLabels:
        """The names of the items, by rank."""
        return NumberedLabels(self.items)
