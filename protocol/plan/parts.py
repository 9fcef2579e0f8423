"""What only some plans have. A part's values are always there, so nobody asks whether one is None.

    plan.closed            of a closed domain
    plan.open              of an open one
    plan.masks             of a masked plan
    plan.fixed_threshold   of the selector `fixed`

To ask for a part that a plan does not have is a mistake in the program, a LookupError.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Closed:
    """A public list of items: d of them, and s, the number of distinct items of a user that round 1 reckons with."""

    items: int
    sparsity: int


@dataclass(frozen=True)
class Open:
    """Items that nobody can list, and the name of the noise and bar that they are released with."""

    release: str


@dataclass(frozen=True)
class Masks:
    """Numbers of participants: all of them, and those that are sure to stay.

    With fewer than `minimum_survivors` at the end of a round nothing is released. `noise_shares` is n_min: how many
    shares of honest participants are sure to be in a sum, where each adds 1/n_min of the noise. Masks that are
    `signed` withstand a server that lies to devices.
    """

    participants: int
    minimum_survivors: int
    noise_shares: int
    signed: bool = False
