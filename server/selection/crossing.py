"""Where a tail has fallen far enough. On one that the devices noised this costs nothing more: a post-processing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.neighbours import Norm

CAUTION = {Norm.L2: 0.5, Norm.L1: 1.0}
"""How many standard deviations of the noise count in the level that the tail has to fall to.

Chosen in simulation between heavy-tailed populations, which want less of it, and users that are all alike, which want
more. Noise on single bins (Laplace) wanders more from candidate to candidate, so more of it costs little there.
"""


USERS_SHARE = {Norm.L2: 1.0, Norm.L1: 2.0}
"""kappa of `target_weight`, from synthetic populations; users' weights are about twice as large under l2."""


def target_weight(plan: Plan) -> float:
    """T = M/(1 + kappa M/n): what the tail's weight is to fall to. M itself where n users are many for this noise.

    C*, where W = M, balances the mass that clipping takes against noise on all d items. Where M is not far below n it
    is too low, and may even be C_min: n users who are clipped to C hold n C counts at most and the noise has M C, so
    most items lie below the noise, and an estimate loses no more of them than what they have. One more count of C
    then costs what users hold, not what the noise is. T is half the harmonic mean of both prices, and it depends on
    public numbers alone.
    """
    kappa = USERS_SHARE[plan.norm]
    return plan.noise_price / (1 + kappa * plan.noise_price / plan.users)


def falling(tail: NoisyTail) -> Floats:
    """The running minimum over the candidates: the noisy tail made to fall as the true one does.

    It lies below the isotonic regression, and that is wanted. Where the tail is flat and near M, noise makes an
    unbiased curve stay above M up to C_m now and then, and a bound far too large costs noise on every item; the running
    minimum errs to the other side, where the loss is what is clipped off a few users.
    """
    return np.minimum.accumulate(tail.values)


def first_crossing(plan: Plan, tail: NoisyTail) -> Threshold:
    """The smallest candidate where the tail has fallen to sqrt(T^2 + (k sigma)^2), or the largest candidate.

    k is the caution and sigma the noise on the tail there. When noise outweighs T, no level below a part of sigma can
    be told from nothing.
    """
    caution = CAUTION[plan.norm] * tail.deviations
    return first_inside(plan, falling(tail) <= np.hypot(target_weight(plan), caution))


def first_inside(plan: Plan, inside: npt.NDArray[np.bool_]) -> Threshold:
    """The smallest candidate that is marked, or the largest candidate if none is."""
    index = int(inside.argmax()) if inside.any() else len(inside) - 1
    return plan.at_steps(int(plan.candidate_steps[index]))
