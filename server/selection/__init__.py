"""The selectors. A new one is a file here and a line in SELECTORS."""

from __future__ import annotations

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.server.selection.contract import Selection, Selector, mode_of
from fedhist.server.selection.dpsgd import DpSgd
from fedhist.server.selection.exponential_sharp import ExponentialSharp
from fedhist.server.selection.exponential_v import ExponentialV
from fedhist.server.selection.fixed import Fixed
from fedhist.server.selection.m_quantile import MQuantile
from fedhist.server.selection.noisy import FromNoisyTail
from fedhist.server.selection.oracle import Oracle
from fedhist.server.selection.output_perturbation import OutputPerturbation
from fedhist.server.selection.quantile import Quantile
from fedhist.server.selection.totals_quantile import TotalsQuantile
from fedhist.server.selection.weighted_quantile import WeightedQuantile

__all__ = ["SELECTORS", "Selection", "Selector", "selector_for"]

SELECTORS: dict[str, Selector] = {
    selector.name: selector
    for selector in (
        WeightedQuantile(),
        DpSgd(),
        OutputPerturbation(),
        MQuantile(),
        Quantile(),
        ExponentialV(),
        ExponentialSharp(),
        Fixed(),
        Oracle(),
        TotalsQuantile("median", 0.5),
        TotalsQuantile("p90", 0.9),
    )
}


def selector_for(plan: Plan) -> Selector:
    """The plan's selector, after checking that it exists and fits the plan."""
    selector = SELECTORS.get(plan.selector or "")
    mode = mode_of(plan)
    fitting = ", ".join(name for name, one in SELECTORS.items() if mode in one.modes)
    if selector is None:
        raise InvalidPlan(f"unknown selector {plan.selector!r}", allowed=fitting)
    if mode not in selector.modes:
        raise InvalidPlan(
            f"the selector {selector.name} does not go with the {plan.mechanism} mechanism over {mode[0]} domains",
            allowed=fitting,
        )
    if plan.noise_by_devices and selector.needs_statistic:
        return FromNoisyTail(selector)
    selector.check(plan)
    return selector
