"""What a discovery and the release after it cost together, from the definition of delta alone."""

from __future__ import annotations

import itertools
import math
from typing import Any

from scipy import integrate, special

from fedhist import Neighbours, Plan
from tests.support.api import COVERAGE_SHARE, MECHANISMS, AlternativesLoss, Norm, Settled, discovery_charges

DUST = 1e-6


def discovering(**settings: Any) -> Plan:
    usual: dict[str, Any] = {"users": 13, "epsilon": 1.0, "delta": 0.01}
    return Plan(domain="open", selector="weighted-quantile", max_threshold=8.0, **(usual | settings))


def test_noise_and_bars_together_stay_within_the_plans_delta() -> None:
    """For every mechanism and relation."""
    for mechanism, neighbours in itertools.product(("gaussian", "laplace", "auto"), Neighbours):
        plan = discovering(mechanism=mechanism, neighbours=neighbours)
        losses = [charge.loss for charge in discovery_charges(plan)]
        bars = sum(loss.failure for loss in losses if isinstance(loss, AlternativesLoss))
        assert bars > 0 and spent(plan) > 0
        assert bars + spent(plan) <= plan.delta * (1 + DUST), (mechanism, neighbours)


def spent(plan: Plan) -> float:
    """Delta of discovery and release, bars aside: of Gaussian noise once, and of Laplace noise for each share."""
    terms, gaussian, laplace = plan.discovery, [0.0], [0.0]
    for share in terms.shares:
        before = (share + COVERAGE_SHARE) / terms.multiplier**2
        for mechanism in MECHANISMS if plan.chooses_mechanism else (None,):
            after = Settled(keys=("a", "b"), share=share, mechanism=mechanism).plan_for(plan)
            if after.norm is Norm.L2:
                gaussian.append(delta_of(before + 1 / after.multiplier**2, 0.0, plan.epsilon))
            else:
                laplace.append(delta_of(before, after.epsilon, plan.epsilon))
    return max(gaussian) + sum(laplace)


def delta_of(precision: float, pure: float, epsilon: float) -> float:
    """E[max(0, 1 - e^(epsilon - loss))] of a loss N(precision/2, precision) and one of randomised response."""
    deviation = math.sqrt(precision)

    def beyond(limit: float) -> float:
        def excess(x: float) -> float:
            return float(-math.expm1(limit - x) * math.exp(-((x - precision / 2) ** 2) / (2 * precision)))

        top = max(limit, precision / 2) + 12 * deviation
        found, _ = integrate.quad(excess, limit, top, points=[min(max(precision / 2, limit), top)], limit=200)
        return float(found) / (deviation * math.sqrt(2 * math.pi))

    up = float(special.expit(pure))
    return up * beyond(epsilon - pure) + (1 - up) * beyond(epsilon + pure)
