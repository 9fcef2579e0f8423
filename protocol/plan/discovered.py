"""Plans that a run derives from its own: after a discovery, and for each mechanism that it may choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from fedhist.protocol.plan.checks import LARGEST_THRESHOLD
from fedhist.protocol.plan.fields import FIELDS, MECHANISMS
from fedhist.protocol.plan.plan import Plan

_PlanT = TypeVar("_PlanT", bound=Plan)


def on_one_range(ways: dict[str, _PlanT]) -> dict[str, _PlanT]:
    """The ways with ranges that reach equally far: bounds of equal noise, of which the smaller reaches C_m.

    An l1 bound is several times the l2 bound of the same noise, and of the same users.
    """
    gaussian, laplace = ways["gaussian"], ways["laplace"]
    if gaussian.is_open:
        return ways
    ratio = gaussian.noise_price / laplace.noise_price
    reach = {"gaussian": max(1.0, 1 / ratio), "laplace": max(1.0, ratio)}
    return {
        name: replace(way, max_threshold=min(reach[name] * way.max_threshold, LARGEST_THRESHOLD))
        for name, way in ways.items()
    }


@dataclass(frozen=True, kw_only=True)
class DiscoveredPlan(Plan):
    """The plan of the rounds after a discovery, which every side derives and which never travels.

    Args:
        release_multiplier: what discovery has left of the noise's budget; `epsilon` is that of Laplace noise.
        bits_of_all: the grid of all plans that may follow the discovery; None to find it.
    """

    release_multiplier: float
    bits_of_all: int | None

    @classmethod
    def of(cls, plan: Plan, items: int, share: float, *, bits: int | None) -> DiscoveredPlan:
        """A closed domain of this number of items, at what a discovery with this share has left of the budget."""
        fields = {name: getattr(plan, name) for name in FIELDS} | {
            "domain": "closed",
            "items": items,
            "release": None,
            "known_items": None,
            "sparsity": None if plan.sparsity is None else min(plan.sparsity, items),
        }
        if plan.mechanism != "gaussian":
            fields["epsilon"] = plan.discovery.release_epsilon(share)
        return cls(release_multiplier=plan.discovery.release_multiplier(share), bits_of_all=bits, **fields)

    @property
    def is_discovered(self) -> bool:
        """Whether the items of this closed domain were found by the run itself."""
        return True

    @cached_property
    def ways(self) -> Mapping[str, Plan]:
        """The plans of the release for each mechanism, on one grid."""
        if not self.chooses_mechanism:
            return super().ways
        ways = on_one_range({name: replace(self, mechanism=name) for name in MECHANISMS})
        bits = min(way.grid_bits for way in ways.values())
        return {name: replace(way, bits_of_all=bits) for name, way in ways.items()}

    @cached_property
    def grid_bits(self) -> int:
        """The same whatever was found, so that it is known before."""
        return super().grid_bits if self.bits_of_all is None else self.bits_of_all

    @property
    def multiplier(self) -> float:
        """The Gaussian's standard deviation for each unit of l2 sensitivity, after discovery."""
        return self.release_multiplier
