"""The releases of a campaign: one l2 bound for a user over all of its windows, kept by the user's device.

Each release t of a campaign has Gaussian noise of standard deviation s_t = z sqrt(k) D_t, where D_t is the sensitivity
at the threshold C_t of its window (C_t, or sqrt(2) C_t for replaced users), z the multiplier that the campaign's
epsilon and delta ask for, and k the number of visits. A device sends v_t for its user, and clips it so that the sum
over all windows of |v_t|^2/(k C_t^2) is at most 1 (`clips/campaign_bound`).

*All releases together cost one user what one Gaussian release of multiplier z does.* Let two populations differ in one
user, who sends v_t in one and v'_t in the other (0 for a user who is added). All of v_t, v'_t, C_t, s_t may depend on
earlier releases, which are the same under both. Given these, the privacy loss of release t is that of a Gaussian with
a_t = |v_t - v'_t|^2/s_t^2, which the past decides. Zero-out: a_t = |v_t|^2/(z^2 k C_t^2), and the sum is at most
1/z^2. Replace-one: both vectors are non-negative, so |v_t - v'_t|^2 <= |v_t|^2 + |v'_t|^2, and with the sqrt(2) in D_t
the sum is at most (1 + 1)/(2 z^2). Add one more Gaussian release of which nobody makes use, so that the
sum is 1/z^2 exactly. With X_t ~ N(0, a_t) given the past, exp(iu X_1 + ... + iu X_T + u^2/2 (a_1 + ... + a_T)) is a
bounded martingale, so the characteristic function of the sum of all X_t is exp(-u^2/(2 z^2)): the total loss is
N(1/(2 z^2), 1/z^2), that of one Gaussian of multiplier z (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023). In
terms of zCDP it is the individual filter of Feldman & Zrnic 2021. docs/privacy-campaigns.md has every step.

*One release alone* is Gaussian noise of multiplier z sqrt(k), because |v_t| <= C_t. So T releases cost at most what T
of these cost, and never more than one of multiplier z.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.privacy.calibration import gaussian_epsilon, is_number

MAX_VISITS = 2**20
"""The most visits of a campaign, so that shares of a bound times visits fit in 64 bits."""

# A release of so much noise that it needs no epsilon at its delta; a charge of Gaussian noise has one.
_LEAST_EPSILON = 1e-12


@dataclass(frozen=True)
class CampaignLoss:
    """The Gaussian noise of one release of a campaign; see the top of this module.

    Args:
        key: the digest of the campaign's name and terms. Releases of one campaign have equal losses.
        visits: the number of windows k that a user may fill.
        multiplier: z, of all releases together.
        epsilon, delta: of all releases together.

    The key decides the rest, but for the last digits of z, in which machines differ: losses are equal without it.
    """

    key: str
    visits: int
    multiplier: float = field(compare=False)
    epsilon: float = field(compare=False)
    delta: float

    def __post_init__(self) -> None:
        whole = isinstance(self.visits, int) and not isinstance(self.visits, bool)
        if not (isinstance(self.key, str) and whole and 1 <= self.visits <= MAX_VISITS):
            raise InvalidPlan(
                f"a campaign of {self.visits!r} visits", allowed=f"whole numbers from 1 to {MAX_VISITS}"
            )
        numbers = (self.multiplier, self.epsilon, self.delta)
        if not all(is_number(number) and 0 < number < math.inf for number in numbers):
            raise InvalidPlan("a campaign's noise or budget is no number", allowed="finite numbers above 0")

    @property
    def precision(self) -> float:
        """1/z^2, of all releases together."""
        return self.multiplier**-2

    def precision_of(self, releases: int) -> float:
        """The sum of 1/z^2 that this number of releases comes to, at most."""
        return self.precision * min(releases, self.visits) / self.visits

    @property
    def window_multiplier(self) -> float:
        """Of one release: the standard deviation over the sensitivity. Rounded up, as more noise only helps."""
        return self.multiplier * math.sqrt(self.visits) * (1 + 2.0**-50)

    @property
    def window_delta(self) -> float:
        """The delta of one release alone, so that those of all visits sum to the campaign's."""
        return self.delta / self.visits

    @cached_property
    def window_epsilon(self) -> float:
        """The epsilon of one release alone, at `window_delta`."""
        if self.visits == 1:
            return self.epsilon
        alone = gaussian_epsilon(self.multiplier * math.sqrt(self.visits), self.window_delta)
        return max(alone, _LEAST_EPSILON)

    def of_two_bounds(self) -> CampaignLoss:
        """The same releases for neighbours who are two bounds apart: multiplier z/sqrt(2)."""
        multiplier = self.multiplier / math.sqrt(2) * (1 - 2.0**-50)
        return CampaignLoss(
            f"{self.key}/2", self.visits, multiplier, gaussian_epsilon(multiplier, self.delta), self.delta
        )

    def added_up(self, epsilon: float, delta: float) -> tuple[float, float]:
        """Releases whose own costs sum to this: as a sum, or as the whole campaign where that is less."""
        is_less = epsilon <= self.epsilon and delta <= self.delta
        return (epsilon, delta) if is_less else (self.epsilon, self.delta)


def basic_costs(entries: Iterable[tuple[object, float, float]]) -> list[tuple[float, float]]:
    """Epsilons and deltas that may be added up, of entries with their losses: those of each campaign are one."""
    plain: list[tuple[float, float]] = []
    campaigns: dict[CampaignLoss, list[tuple[float, float]]] = {}
    for loss, epsilon, delta in entries:
        where = campaigns.setdefault(loss, []) if isinstance(loss, CampaignLoss) else plain
        where.append((epsilon, delta))
    sums = {
        campaign: tuple(map(math.fsum, zip(*of_it, strict=True))) for campaign, of_it in campaigns.items()
    }
    return plain + [campaign.added_up(epsilon, delta) for campaign, (epsilon, delta) in sums.items()]


Releases = tuple[tuple[CampaignLoss, int], ...]
"""The number of releases of each of several campaigns, in the order of their keys."""


def together(parts: Iterable[Releases]) -> Releases:
    """All releases of several parts, campaign by campaign."""
    counts: Counter[CampaignLoss] = Counter()
    for part in parts:
        for campaign, releases in part:
            counts[campaign] += releases
    return tuple(sorted(counts.items(), key=lambda one: one[0].key))
