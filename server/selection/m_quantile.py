"""`m-quantile`: the M-th largest norm by the geometric updates of Andrew et al., the paper's baseline."""

from __future__ import annotations

import math

import numpy as np

from fedhist.protocol.circle import signed
from fedhist.protocol.measurements.tail import Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.mechanisms import Noise, gaussian_noise
from fedhist.protocol.privacy.neighbours import Norm, tail_count
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    NoisySelector,
    Selection,
    Statistic,
    check_gaussian,
    gaussian_charge,
    reading_as,
    whole_multiplier,
)

UPDATES = 100
LEARNING_RATE = 0.2


class MQuantile(NoisySelector):
    """C <- C exp(-eta (b - gamma)), b the noisy share of users at or below C, gamma = 1 - M/n.

    From C_min, eta = 0.2, 100 updates, as the paper runs it; to a far quantile it has not converged by then. It is
    kept as the baseline that it is.

    Privacy: each update releases a count of users, sensitivity 1 for either neighbours, plus Gaussian noise. Under
    masks the count is read as a number only with the noise in it, so this holds for whatever the other participants
    send.
    """

    name = "m-quantile"
    reads = (("counts", frozenset({Norm.L2})),)

    def check(self, plan: Plan) -> None:
        """Gaussian noise needs a delta."""
        check_gaussian(plan, lambda: _noise(plan), self.name)

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """All updates as the one Gaussian that they compose to."""
        sensitivity = tail_count(neighbours=plan.neighbours).value
        return (gaussian_charge(plan, sensitivity, steps=UPDATES),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Update from C_min, inside [C_min, C_m]."""
        tail = reading_as(Tail, statistic)
        noise = _noise(plan).draw(UPDATES, source=source)
        share = 1 - min(plan.noise_price / plan.users, 1.0)
        places = plan.candidate_steps
        lowest, highest = math.log(places[0]), math.log(places[-1])
        place = lowest
        for step_noise in noise:
            index = int(np.searchsorted(places, math.exp(place) * (1 + 1e-12), side="right")) - 1
            exact = tail.counts[index : index + 1]
            above = signed(exact - step_noise, tail.width).item()  # audited: m-quantile noised
            below = tail.users - above
            place -= LEARNING_RATE * (below / plan.users - share)
            place = min(max(place, lowest), highest)
        return Selection(threshold=plan.at_steps(math.exp(place)))


def _noise(plan: Plan) -> Noise:
    multiplier = whole_multiplier(plan) * math.sqrt(UPDATES)  # audited: m-quantile updates
    return gaussian_noise(tail_count(neighbours=plan.neighbours), multiplier)
