"""Which two populations must be hard to tell apart, and how far apart a sum over them can be.

`zero-out`: one user's data becomes nothing. `replace-one`: it becomes any other. Under both the number of users is
public and stays (dp_accounting calls the first REPLACE_SPECIAL). The paper defines the second and calibrates for the
first; here the relation is a setting of the plan and every sensitivity names it.

`add-or-remove-one`: one user is in the data or not, and how many there are is hidden. The plan has a number of users
that somebody gives, whatever the real one is. Proof that a mechanism that is private under zero-out is under this one:

1. What a run does is a function of the plan and of sums over all users. The plan is the same with and without the user,
   and so is everything that follows from it: candidates, the grid, targets, bars, noise, and the number of users that
   transports report, which is the plan's.
2. In every number of those sums that is read a user without items adds 0: they are in bin 0 of a tail, which is above
   no candidate, have no weight, no mass and no key, and no step of a clipped histogram. So the sums without the user
   are those with the user zeroed out, and the two releases have the distributions that zero-out compares.
3. Zero-out's proofs compare sums that differ in one user's part, and hold for any number of other users, also for more
   than the plan's: where a sum has to fit, there is room for `Plan.most_users`. A target is a number of the plan.

A statistic or method from outside has to keep 2, or its charges hold under the first two relations alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

WEIGHT_BITS = 10
"""Tail weights travel as whole multiples of 2^-10."""


class Neighbours(StrEnum):
    """The relation that the guarantee is about."""

    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"
    ADD_OR_REMOVE_ONE = "add-or-remove-one"


COUNTED = (Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE)
"""The relations under which the number of users is public: those that every plan can have."""


class Norm(StrEnum):
    """How a change is measured."""

    L1 = "l1"
    L2 = "l2"
    SCORE = "score"


@dataclass(frozen=True)
class Sensitivity:
    """The largest change that one user makes, in the units of what is noised or scored.

    The square is kept because it is a whole number also for sqrt(2) times the bound.
    """

    square: int
    norm: Norm
    neighbours: Neighbours

    @property
    def value(self) -> float:
        """The sensitivity itself."""
        return math.sqrt(self.square)

    @property
    def whole(self) -> int:
        """The sensitivity as a whole number, rounded up."""
        root = math.isqrt(self.square)
        return root if root * root == self.square else root + 1


def clipped_sum_l1(bound: int, *, domain_size: int | None, neighbours: Neighbours) -> Sensitivity:
    """Sum of histograms that were clipped to l1 norm `bound`.

    Zero out: the sum changes by one clipped histogram q, and |q|_1 <= bound. Replace one: by q - q', and
    |q - q'|_1 <= |q|_1 + |q'|_1 <= 2 bound, reached by (bound, 0) and (0, bound). With a single item both are
    numbers in [0, bound], so their difference is at most the bound.
    """
    doubled = neighbours is Neighbours.REPLACE_ONE and domain_size != 1
    change = 2 * bound if doubled else bound  # audited: l1 of two
    return Sensitivity(square=change**2, norm=Norm.L1, neighbours=neighbours)


def clipped_sum_l2(bound: int, *, domain_size: int | None, neighbours: Neighbours) -> Sensitivity:
    """Sum of non-negative histograms that were clipped to l2 norm `bound`.

    Zero out: |q|_2 <= bound. Replace one: |q - q'|_2^2 = |q|^2 + |q'|^2 - 2 <q, q'> <= 2 bound^2, because the
    product of two non-negative vectors is not negative; reached by (bound, 0) and (0, bound). With a single item
    the difference of two numbers in [0, bound] is at most the bound.
    """
    doubled = neighbours is Neighbours.REPLACE_ONE and domain_size != 1
    square = 2 * bound**2 if doubled else bound**2  # audited: l2 of two
    return Sensitivity(square=square, norm=Norm.L2, neighbours=neighbours)


def weight_cap(sparsity: int) -> int:
    """The largest weight a user may put in the tail, whatever they have: floor(sqrt(s) 2^WEIGHT_BITS)."""
    return math.isqrt(sparsity << (2 * WEIGHT_BITS))


def tail_weight(cap: int, *, neighbours: Neighbours) -> Sensitivity:
    """W(C), the weight of the users above C, at every C at once, and so the score -|W(C) - M|.

    A user adds one weight in [0, cap] to W(C) for all C below their norm and nothing above. Zeroing out changes
    W(C) by at most cap at any C. Replacing changes it by the difference of two numbers in [0, cap], so by at most cap
    too. The score changes by no more than W does.
    """
    return Sensitivity(square=cap**2, norm=Norm.SCORE, neighbours=neighbours)


def tail_count(*, neighbours: Neighbours) -> Sensitivity:
    """The number of users above C, at every C at once: a tail weight of one."""
    return tail_weight(1, neighbours=neighbours)
