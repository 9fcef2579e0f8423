"""Selectors on a tail that the devices noised: everything here is a post-processing and costs nothing more.

A selector takes part with a column in `protocol/noisy_tail.COLUMNS` and a rule in RULES; without them it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedhist.protocol.errors import UnexpectedMessage
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats
from fedhist.protocol.measurements.noisy_tail import NoisyTail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.releases.share_charges import select_shares_charge
from fedhist.server.selection.contract import Mode, Selection, Selector, Statistic
from fedhist.server.selection.dpsgd import descend
from fedhist.server.selection.output_perturbation import minimiser

CAUTION = {"gaussian": 0.5, "laplace": 1.0}
"""kappa: how many standard deviations of the noise count in the level that the tail has to fall to.

Chosen in simulation between heavy-tailed populations, which want less of it, and users that are all alike, which want
more. Noise on single bins (Laplace) wanders more from candidate to candidate, so more of it costs little there.
"""


def falling(tail: NoisyTail) -> Floats:
    """The running minimum over the candidates: the noisy tail made to fall as the true one does.

    It lies below the isotonic regression, and that is wanted. Where the tail is flat and near M, noise makes an
    unbiased curve stay above M up to C_m now and then, and a bound far too large costs noise on every item; the running
    minimum errs to the other side, where the loss is what is clipped off a few users.
    """
    return np.minimum.accumulate(tail.values)


def first_crossing(plan: Plan, tail: NoisyTail) -> Threshold:
    """The smallest candidate where the tail has fallen to sqrt(M^2 + (kappa sigma)^2), or the largest candidate.

    sigma is the noise on the tail there. With little noise this is C*; when noise outweighs M, no level below a part of
    sigma can be told from nothing.
    """
    caution = CAUTION[str(plan.mechanism)] * tail.deviations
    inside = falling(tail) <= np.hypot(plan.noise_price, caution)
    index = int(inside.argmax()) if inside.any() else len(inside) - 1
    return Threshold(steps=int(plan.candidate_steps[index]), bits=plan.grid_bits)


def noisy_descent(plan: Plan, tail: NoisyTail) -> Threshold:
    """`dpsgd`: the same descent, whose gradients are noisy already."""
    weights, deviation = falling(tail), float(tail.deviations.max())
    return plan.at_steps(descend(plan, lambda step, index: float(weights[index]), deviation))


def noisy_minimiser(plan: Plan, tail: NoisyTail) -> Threshold:
    """`output-perturbation`: the minimiser of the regularised objective, which needs no noise of its own."""
    return plan.at_steps(np.ldexp(minimiser(plan, falling(tail)), plan.grid_bits))


RULES: Mapping[str, Callable[[Plan, NoisyTail], Threshold]] = {
    "weighted-quantile": first_crossing,
    "quantile": first_crossing,
    "m-quantile": first_crossing,
    "dpsgd": noisy_descent,
    "output-perturbation": noisy_minimiser,
}


@dataclass(frozen=True)
class FromNoisyTail:
    """A selector's counterpart for noise from devices.

    Args:
        original: the selector that the plan names.
    """

    original: Selector
    needs_statistic: bool = True
    private: bool = True

    @property
    def name(self) -> str:
        """The original's."""
        return self.original.name

    @property
    def modes(self) -> frozenset[Mode]:
        """The original's."""
        return self.original.modes

    def check(self, plan: Plan) -> None:
        """Plan refuses noise from devices that can't be drawn, and selectors without a column."""

    def charges(self, plan: Plan) -> tuple[Charge, ...]:
        """One mechanism on the whole vector. Charged before the devices are asked."""
        return (select_shares_charge(plan),)

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Read the threshold off the noisy tail. Draws nothing."""
        if not isinstance(statistic, NoisyTail):
            raise UnexpectedMessage(state="a selector of a noisy tail", message=statistic)
        return Selection(threshold=RULES[self.name](plan, statistic))
