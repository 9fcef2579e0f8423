"""What a participant adds to a clipped sum, and which plans the devices can noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.privacy.shares import Share, gaussian_share, laplace_share

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan


def release_share(plan: Plan, steps: int) -> Share:
    """What each participant adds to each item of its clipped sum, for a bound in steps."""
    sensitivity = plan.release_sensitivity(steps)
    if plan.norm is Norm.L2:
        return gaussian_share(sensitivity, plan.multiplier, shares=plan.noise_shares)
    return laplace_share(sensitivity, plan.epsilon, shares=plan.noise_shares)


def growth_of_mean(plan: Plan) -> float:
    """How much larger the mean absolute noise is with the shares of all participants than with those of n_min.

    With r = participants/n_min, sqrt(r) for Gaussian noise. A difference of Gamma variables of shape r and scale b,
    which that of negative binomials is on a fine grid, has the mean absolute value 2 b Gamma(r + 1/2)/(sqrt(pi)
    Gamma(r)). It steers the choice of the threshold only.
    """
    ratio = plan.masks.participants / plan.masks.noise_shares
    if plan.mechanism == "gaussian":
        return math.sqrt(ratio)
    return 2 / math.sqrt(math.pi) * math.exp(math.lgamma(ratio + 0.5) - math.lgamma(ratio))


def smallest_steps(plan: Plan) -> int:
    """The smallest threshold that round 2 may have, in steps of the grid."""
    if plan.threshold is None:
        return plan.step_range[0]
    return plan.at_steps(math.ldexp(plan.threshold, plan.grid_bits)).steps


def check_device_noise(plan: Plan) -> None:
    """Refuse a plan whose noise the devices can't draw, at any of its thresholds.

    Round 1 depends on what the selector reads, and is checked with it.
    """
    if not plan.noise_by_devices:
        return
    if plan.discovers:
        for share in plan.discovery.shares:
            plan.discovered(1, share)
        return
    if plan.per_item:
        raise InvalidPlan(
            "noise from devices where items are clipped one by one",
            allowed="noise from devices for whole histograms",
            advice="the bounds of single items could not be chosen from so noisy a tail; use --noise-from server",
            code="device-noise-for-items",
        )
    # Noise grows with the threshold: shares that are wide enough at the smallest are so at every one.
    release_share(plan, smallest_steps(plan))
