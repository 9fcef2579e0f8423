"""What a plan that discovers its items spends on finding them, and what is left for releasing them.

Discovery and release together cost (epsilon, delta). One Gaussian mechanism of multiplier z would have the precision
1/z^2 for them; discovery takes a share of it, and the release the rest. How large a share is best depends on the data:
a few items that everybody has are found for next to nothing, and a long tail is worth half of the budget. So a first
look takes the smallest share, and what it leaves uncovered of all weight decides which share the whole discovery gets.
The proofs are in `protocol/privacy/discovery.py`.

| of delta | spent on |
|---|---|
| a fifth | bars: a quarter of it for the first look's, the rest for the second's |
| the rest | noise; if the norm is chosen by the run, five eighths of it for Gaussian noise and three for Laplace |

What Laplace noise has is shared out evenly among the shares that may come out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.items import item_bytes
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.discovery import epsilon_beside, least_bar, pass_chance
from fedhist.protocol.privacy.ledger import Alternative
from fedhist.protocol.privacy.mechanisms import Noise, gaussian_noise
from fedhist.protocol.privacy.neighbours import Neighbours, Norm, Sensitivity, clipped_sum_l2

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

MOST_KEYS = 2**20
"""The most items that a discovery keeps: those of the largest noisy weights."""
LONGEST_NAME = 1024
"""The longest name of an item that is found or known, in bytes."""
USER_ITEMS = 100
"""D, the most of a user's items that help to find items: fewer lose where users have that many, more cost little."""

SHARES = (0.02, 0.4)
"""The shares of the precision that a discovery may end up with: after a first look, and after a second."""
UNCOVERED = 0.05
"""A first look that leaves more than this share of all weight uncovered is followed by a second."""
COVERAGE_SHARE = 0.004
"""The share of the precision that measures the sum of all weights."""

_BARS, _FIRST_BAR = 0.2, 0.05
_LAPLACE_OF_AUTO = 0.3
_MOST_BITS, _LEAST_BITS = 16, 6
_WIDEST_BITS = 27
_LOOK_VARIANCE = 100


@dataclass(frozen=True)
class Discovery:
    """The terms of a discovery.

    Args:
        user_items: D, the most of a user's items that count.
        bits: weights are in steps of 2^-bits.
        sensitivity: of the sums of weights of all keys, in steps.
        multiplier: z, of one Gaussian mechanism that would spend the whole budget of discovery and release.
        shares: of the precision, rising; the first look takes the first.
        delta: of discovery and release.
        laplace_delta: what a release with Laplace noise may spend, at each of the shares; 0 for none.
        epsilon: of discovery and release.
    """

    user_items: int
    bits: int
    sensitivity: Sensitivity
    multiplier: float
    shares: tuple[float, ...]
    delta: float
    laplace_delta: float
    epsilon: float

    @property
    def coverage_noise(self) -> Noise:
        """On the sum of all weights."""
        largest = Sensitivity(self.user_items << (2 * self.bits), Norm.L2, self.sensitivity.neighbours)
        return gaussian_noise(largest, self.multiplier / math.sqrt(COVERAGE_SHARE))

    @cached_property
    def variances(self) -> tuple[Fraction, ...]:
        """Of the noise on each key at each share, falling."""
        whole = Fraction(self.multiplier) ** 2 * self.sensitivity.square
        return tuple(whole / Fraction(share) + _LOOK_VARIANCE for share in self.shares)

    @cached_property
    def bars(self) -> tuple[int, ...]:
        """What a noisy weight must exceed at each share, in steps."""
        return tuple(
            least_bar(chance, most=self.user_items, bits=self.bits, deviation=math.sqrt(variance))
            for chance, variance in zip(self._chances, self.variances, strict=True)
        )

    @cached_property
    def bar_delta(self) -> float:
        """What it costs that a user's own key may pass a bar."""
        passing = [
            pass_chance(bar, most=self.user_items, bits=self.bits, deviation=math.sqrt(variance))
            for bar, variance in zip(self.bars, self.variances, strict=True)
        ]
        return _odds_of_passing(passing)

    @property
    def most_of_bars(self) -> float:
        """What `bar_delta` is at most, as the bars are chosen: nodes count this one, which takes no normal tails."""
        return _odds_of_passing(self._chances)

    @property
    def _chances(self) -> list[float]:
        bars = self.delta / (1 + self.delta)
        return [_FIRST_BAR * bars, (_BARS - _FIRST_BAR) * bars]

    def release_multiplier(self, share: float) -> float:
        """Of the Gaussian noise that a discovery of this share leaves for the release."""
        return self.multiplier / math.sqrt(1 - share - COVERAGE_SHARE)  # audited: precision left

    def release_epsilon(self, share: float) -> float:
        """Of the Laplace noise that a discovery of this share leaves for the release; 0 for none."""
        before = self.before_release(share)
        return epsilon_beside(before, epsilon=self.epsilon, delta=self.laplace_delta)  # audited: epsilon left

    def before_release(self, share: float) -> float:
        """The multiplier of all Gaussian noise of a discovery that took this share."""
        return self.multiplier / math.sqrt(share + COVERAGE_SHARE)


def discovery_of(plan: Plan) -> Discovery:
    """The terms, from the plan alone."""
    laplace = {"gaussian": 0.0, "laplace": 1 - _BARS}.get(plan.mechanism, _LAPLACE_OF_AUTO)
    # A release with Laplace noise alone has no delta for a Gaussian one: its noise is in discovery only.
    gaussian = 1 - _BARS if plan.mechanism == "laplace" else 1 - _BARS - laplace
    multiplier = noise_multiplier(plan.epsilon, plan.delta * gaussian)
    widest = multiplier * max(1 / math.sqrt(min(SHARES)), math.sqrt(USER_ITEMS / COVERAGE_SHARE))
    bits = min(_MOST_BITS, _WIDEST_BITS - 1 - math.ceil(math.log2(widest)))
    if bits < _LEAST_BITS:
        raise InvalidPlan(
            "the noise of the discovery would be wider than the samplers can draw",
            allowed="a larger epsilon",
            advice="raise --epsilon",
        )
    return Discovery(
        user_items=USER_ITEMS,
        bits=bits,
        sensitivity=clipped_sum_l2(1 << bits, domain_size=None, neighbours=Neighbours(plan.neighbours)),
        multiplier=multiplier,  # audited: discovery noise
        shares=SHARES,
        delta=plan.delta,
        laplace_delta=plan.delta * laplace / len(SHARES),
        epsilon=plan.epsilon,
    )


def ways_to_release(plan: Plan) -> tuple[Alternative, ...]:
    """All that discovery and release may spend: Gaussian noise, whatever its shares, or Laplace noise at each share."""
    terms, ways = plan.discovery, []
    if plan.mechanism != "laplace":
        ways.append(Alternative(multiplier=terms.multiplier))
    if terms.laplace_delta:
        ways += [
            Alternative(multiplier=terms.before_release(share), epsilon=terms.release_epsilon(share))
            for share in terms.shares
        ]
    return tuple(ways)


def _odds_of_passing(chances: Sequence[float]) -> float:
    return sum(chances) / (1 - sum(chances))


def check_discovery(plan: Plan) -> None:
    """Refuse settings of a discovery that do not go together, or that a plan without one has."""
    if not plan.discovers:
        if plan.known_items is not None:
            raise InvalidPlan(
                "known items in a plan that discovers none",
                allowed="known items with an open domain and the release discover",
                advice="leave --known-items out; for a closed domain list the items with --items-file",
                code="unused-known-items",
            )
        return
    if len(plan.known) >= MOST_KEYS:
        raise InvalidPlan(f"{len(plan.known):,} known items", allowed=f"fewer than {MOST_KEYS:,}")
    if len(set(plan.known)) != len(plan.known) or "" in plan.known:
        raise InvalidPlan(
            "the known items have one twice, or one without a name",
            allowed="one item a line, each once",
            advice="correct the file of --known-items",
            code="bad-known-items",
        )
    if any(len(item_bytes(name)) > LONGEST_NAME for name in plan.known):
        raise InvalidPlan(
            "the name of a known item is too long",
            allowed=f"up to {LONGEST_NAME:,} bytes",
            code="known-item-too-long",
        )
    terms = plan.discovery
    if terms.laplace_delta and not all(terms.release_epsilon(share) > 0 for share in terms.shares):
        raise InvalidPlan(
            "the discovery leaves no epsilon for Laplace noise: delta pays for nearly all of its noise",
            allowed="a larger epsilon, or the mechanism gaussian",
            advice="raise --epsilon, lower --delta or use --mechanism gaussian",
            code="nothing-for-laplace",
        )
