"""The selectors. A new one is a file here and a line in SELECTORS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedhist.protocol.errors import InvalidInput, InvalidPlan
from fedhist.protocol.measurements import MEASUREMENTS, Measurement
from fedhist.protocol.measurements.base import Column
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import Kind, Registry, plugin_named
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.server.selection.contract import NoisySelector, Selection, Selector
from fedhist.server.selection.exponential_v import ExponentialV
from fedhist.server.selection.fixed import Fixed
from fedhist.server.selection.noisy import FromNoisyTail
from fedhist.server.selection.oracle import Oracle
from fedhist.server.selection.quantile import Quantile
from fedhist.server.selection.weighted_norms import WeightedNorms
from fedhist.server.selection.weighted_quantile import WeightedQuantile

__all__ = ["SELECTORS", "Offered", "Selection", "Selector", "column_of", "fitting", "selector_for"]

_OWN = (WeightedQuantile(), Quantile(), ExponentialV(), Fixed(), Oracle())


def _check(selector: Selector) -> None:
    """Refuse a selector from outside that lacks something."""
    if not getattr(selector, "name", None):
        raise InvalidInput(
            f"the selector {type(selector).__qualname__} has no name",
            allowed="a selector with a name",
            advice='write name = "mine" in the class',
            code="no-name",
        )
    for column in selector.reads:
        match column:
            case (str(), frozenset() as norms) if norms and all(isinstance(norm, Norm) for norm in norms):
                continue
        raise InvalidInput(
            f"the selector {selector.name} reads {column!r}",
            allowed="pairs of what a measurement offers and a frozenset of norms",
            advice='write reads = (("weights", ANY_NORM),)',
            code="bad-reads",
        )


SELECTORS: Registry[Selector] = Registry(
    Kind.SELECTOR,
    {selector.name: selector for selector in _OWN},
    base=Selector,
    instances=True,
    check=_check,
)


@dataclass(frozen=True)
class Offered:
    """What a selector reads under a plan, and the measurement that offers it."""

    name: str
    measurement: type[Measurement[Any]]

    @property
    def noisy(self) -> bool:
        """Whether devices add noise to it, and send this column alone."""
        return self.measurement.takes is Column


def column_of(plan: Plan, selector: Selector) -> Offered:
    """What the selector reads under this plan. InvalidPlan if the plan can measure nothing of use to it."""
    offered = _offered(plan, selector)
    if offered is None:
        kinds = (kind.where for kind in MEASUREMENTS.values() if kind.offers and kind.admitted(plan))
        where = next(kinds, "before its items are found")
        raise InvalidPlan(
            f"the selector {selector.name} does not go with the {plan.mechanism} mechanism {where}",
            allowed=", ".join(fitting(plan)),
            advice="choose another --selector or leave it out",
            code="selector-does-not-fit",
        )
    return offered


def fitting(plan: Plan) -> list[str]:
    """The names of the selectors that go with the plan."""
    return [
        name
        for name, one in SELECTORS.with_installed().items()
        if not one.reads
        or ((offered := _offered(plan, one)) and (not offered.noisy or isinstance(one, NoisySelector)))
    ]


def selector_for(plan: Plan) -> Selector:
    """The plan's selector, after checking that it exists and fits the plan."""
    selector = SELECTORS.find(plan.selector)
    if selector is None:
        raise InvalidPlan(
            f"unknown selector {plan.selector!r}",
            allowed=", ".join(fitting(plan)),
            advice="choose another --selector or leave it out",
            code="unknown-selector",
        )
    if selector.reads:
        offered = column_of(plan, selector)
        if offered.noisy:
            selector = FromNoisyTail(selector, offered.name)
        elif offered.name == "norm-tails" and type(selector) is WeightedQuantile:
            selector = WeightedNorms()
    selector.check(plan)
    return selector


def _offered(plan: Plan, selector: Selector) -> Offered | None:
    from_outside = plugin_named(Kind.SELECTOR, selector.name) is not None
    for kind in MEASUREMENTS.values():
        for name, norms in selector.reads:
            if name not in kind.offers or not kind.admitted(plan, named=from_outside):
                continue
            if plan.chooses_mechanism or plan.norm in norms:
                return Offered(name, kind)
    return None
