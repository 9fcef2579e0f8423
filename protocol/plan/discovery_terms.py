"""What a plan that discovers its items spends on finding them, and what is left for releasing them.

Discovery and release together cost (epsilon, delta). A tenth of delta is for the bar. The rest is for the noise: one
Gaussian mechanism of multiplier z would spend it, and two of multipliers z/sqrt(a) and z/sqrt(1-a) do, because
precisions 1/z^2 add up under adaptive composition. If the release has Laplace noise, its epsilon is what a discovery of
multiplier z/sqrt(a) leaves (`discovery.epsilon_beside`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan.checks import check_whole
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.discovery import bar_delta, epsilon_beside, least_bar
from fedhist.protocol.privacy.mechanisms import Noise, gaussian_noise
from fedhist.protocol.privacy.neighbours import Sensitivity, clipped_sum_l2

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

MOST_KEYS = 2**20
"""The most items that a discovery keeps: those of the largest noisy weights."""
MAX_USER_ITEMS = 2**16
BAR_SHARE = 0.1
"""The share of delta for keys of one user alone that pass the bar."""
_MOST_BITS, _LEAST_BITS = 16, 6
_MAX_DEVIATION_BITS = 27


@dataclass(frozen=True)
class Discovery:
    """The terms of a discovery.

    Args:
        user_items: D, the most of a user's items that count.
        bits: weights are in steps of 2^-bits.
        sensitivity: of the sum of all weights, in steps.
        multiplier: of the noise that finds items, for each unit of sensitivity.
        bar: what a noisy sum of weights must exceed, in steps.
        bar_delta: what it costs that a user's own key may pass it.
        release_multiplier: of the Gaussian noise that is left for the release.
    """

    user_items: int
    bits: int
    sensitivity: Sensitivity
    multiplier: float
    bar: int
    bar_delta: float
    release_multiplier: float

    @property
    def noise(self) -> Noise:
        """On each key's sum of weights."""
        return gaussian_noise(self.sensitivity, self.multiplier)


def discovery_of(plan: Plan) -> Discovery:
    """The terms, from the plan alone."""
    whole = noise_multiplier(plan.epsilon, plan.delta * (1 - BAR_SHARE), calibration=plan.calibration)
    multiplier = whole / math.sqrt(plan.discovery_share)
    bits = min(_MOST_BITS, _MAX_DEVIATION_BITS - 1 - math.ceil(math.log2(multiplier)))
    if bits < _LEAST_BITS:
        raise InvalidPlan(
            "the noise of the discovery would be wider than the samplers can draw",
            allowed=f"a multiplier of up to 2^{_MAX_DEVIATION_BITS - 1 - _LEAST_BITS}",
            advice="raise epsilon or --discovery-share",
        )
    sensitivity = clipped_sum_l2(1 << bits, domain_size=None, neighbours=plan.neighbours)
    deviation = gaussian_noise(sensitivity, multiplier).standard_deviation
    bar = least_bar(plan.delta * BAR_SHARE, most=plan.user_items, bits=bits, deviation=deviation)
    return Discovery(
        user_items=plan.user_items,
        bits=bits,
        sensitivity=sensitivity,
        multiplier=multiplier,
        bar=bar,
        bar_delta=bar_delta(bar, most=plan.user_items, bits=bits, deviation=deviation),
        release_multiplier=whole / math.sqrt(1 - plan.discovery_share),
    )


def release_epsilon(plan: Plan) -> float:
    """What is left for a release with Laplace noise."""
    left = epsilon_beside(plan.discovery.multiplier, epsilon=plan.epsilon, delta=plan.delta * (1 - BAR_SHARE))
    if left <= 0:
        raise InvalidPlan(
            f"a discovery share of {plan.discovery_share:g} leaves nothing for Laplace noise",
            allowed="a smaller share, or the mechanism gaussian",
            advice="lower --discovery-share",
        )
    return left


def check_discovery(plan: Plan) -> None:
    """Refuse settings of a discovery that do not go together, or that a plan without one has."""
    if not plan.discovers:
        if plan.known_items is not None:
            raise InvalidPlan(
                "known items in a plan that discovers none",
                allowed="known items with an open domain and the release discover",
                advice="for a closed domain list them with --items-file",
            )
        return
    if not 0 < plan.discovery_share < 1:
        raise InvalidPlan(
            f"the discovery share is {plan.discovery_share!r}",
            allowed="a number between 0 and 1, ends excluded",
        )
    check_whole("user items", plan.user_items, 1, MAX_USER_ITEMS)
    if len(plan.known) >= MOST_KEYS:
        raise InvalidPlan(f"{len(plan.known):,} known items", allowed=f"fewer than {MOST_KEYS:,}")
    if len(set(plan.known)) != len(plan.known) or "" in plan.known:
        raise InvalidPlan(
            "the known items have one twice, or one without a name", allowed="one item a line, each once"
        )
    if plan.mechanism == "laplace":
        release_epsilon(plan)
