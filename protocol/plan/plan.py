"""What a run is: everything that changes the released value or its privacy, checked once."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from fedhist.display.tables import html_table
from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.grid import MAX_BOUND_STEPS, MAX_GRID_BITS, Threshold
from fedhist.protocol.histograms import Integers
from fedhist.protocol.plan.fields import FIELDS, MECHANISMS, PlanFields, described
from fedhist.protocol.plan.rules import (
    LARGEST_THRESHOLD,
    MAX_USERS,
    check_budgets,
    check_domain,
    check_mechanism,
    check_relation,
    check_sizes,
    check_thresholds,
    usual_delta,
)
from fedhist.protocol.plan.terms import (
    MOST_KEYS,
    Closed,
    Discovery,
    Masks,
    check_device_noise,
    check_discovery,
    check_masking,
    check_table,
    discovery_of,
    growth_of_mean,
    masks_of,
    usual_dropout_share,
)
from fedhist.protocol.plan.window import window_in
from fedhist.protocol.plugins import (
    Kind,
    check_described,
    check_same,
    found,
    named_by,
    plugin_named,
    read_names,
)
from fedhist.protocol.privacy.bars import OpenNoise, OpenNoiseKind, bars_for
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.neighbours import (
    WEIGHT_BITS,
    Neighbours,
    Norm,
    Sensitivity,
    clipped_sum_l1,
    clipped_sum_l2,
    weight_cap,
)

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""E|Z| of a standard Gaussian."""

_ROOT_SPARSITY = (3, 8)
_LEAST_RESOLUTION = 3.0

PLAN_VERSION = 2
# A threshold in so fine a unit that nothing of a sensitivity is rounded.
_UNIT = 1 << 30
# The samplers take Gaussian deviations up to 2^27.5 steps and Laplace scales up to 2^51; sums stay below 2^62.
_MAX_NOISE_STEPS = {"gaussian": 2.0**27, "laplace": 2.0**50}


def geometric_candidates(first: int, last: int, count: int) -> Integers:
    """About `count` thresholds in geometric progression from first to last, in steps, rising.

    Neighbours that fall on the same step are one candidate, so a short range may give fewer than `count`; both ends
    are always there.
    """
    if first == last or count == 1:
        return np.array([last], dtype=np.int64)
    spread = np.rint(np.geomspace(first, last, count)).astype(np.int64)
    spread[0], spread[-1] = first, last
    return spread[np.diff(spread, prepend=first - 1) > 0]


def usual_sparsity(plan: Plan) -> int:
    """The largest of 9, 16, ..., 64 with eps' M/(2 sqrt(s)) >= 3, at most all items; all for the paper's selectors.

    The choice tells W(C) = 0 from W(C) = M by a factor of e^3 then. A smaller s sharpens it, and a larger one
    counts users of many items as they are: few have a ratio of norms above sqrt(64), none above sqrt(d).
    """
    items = cast(int, plan.items)
    plugin = plugin_named(Kind.SELECTOR, plan.selector)
    if plan.selector == "oracle" or (plugin is not None and plugin.thing.counts_all_items):
        return items
    root = math.inf
    if plan.mechanism != "laplace" and not plan.per_item:
        moved = clipped_sum_l2(1, domain_size=items, neighbours=plan.neighbours).value
        price = items * moved * plan.multiplier * MEAN_ABSOLUTE
        root = plan.epsilon_select * price / (2 * _LEAST_RESOLUTION)
    lowest, highest = _ROOT_SPARSITY
    return min(items, max(lowest, math.floor(min(root, highest))) ** 2)


@dataclass(frozen=True, kw_only=True)
class Plan(PlanFields):
    """A frozen, validated description of one run. Its digest travels in every message."""

    plugins: tuple[str, ...] = field(init=False, default=())
    """The methods from outside, by name and version; filled in on construction, and empty for built-in methods."""

    def __post_init__(self) -> None:
        for declared in FIELDS.values():
            self._set(declared.name, declared.plain(getattr(self, declared.name)))
        self._set("neighbours", Neighbours(self.neighbours))
        window = window_in(self.window)
        self._set("window", None if window is None else window.text)
        if self.is_open:
            self._fill_in("release", "truncated-laplace" if self._reads_sums_by_key else "discover")
        one_release = self.is_open and not self.discovers
        # One count is the paper's case for Laplace; the budget of many splits better under Gaussian noise.
        single = self.per_item and self.items == 1
        usual = "auto" if self._may_choose_mechanism else "gaussian"
        self._fill_in("mechanism", "laplace" if single or one_release else usual)
        default = "exponential-v" if one_release else "weighted-quantile"
        self._fill_in("selector", "quantile" if self.per_item else default)
        self._set("plugins", named_by(self.selector, self.release))
        check_sizes(self)
        check_relation(self)
        self._fill_in("delta", 0.0 if self.is_pure else usual_delta(self.users))
        self._fill_in("delta_select", usual_delta(self.users))
        check_mechanism(self)
        check_domain(self)
        self._fill_in("dropout_share", usual_dropout_share(self))
        check_masking(self)
        check_budgets(self)
        if not self.is_open:
            self._fill_in("sparsity", usual_sparsity(self))
        if self.is_pure:
            self._set("delta", 0.0)
        check_discovery(self)
        check_thresholds(self)
        check_device_noise(self)
        check_table(self)

    def _set(self, name: str, value: object) -> None:
        """Only while the plan is made: it is frozen afterwards."""
        object.__setattr__(self, name, value)

    def _fill_in(self, name: str, default: object) -> None:
        if getattr(self, name) is None:
            self._set(name, default)

    def _repr_html_(self) -> str:
        """How a notebook shows it: what is set, by name."""
        shown = [(name, value) for name, value in self.to_json().items() if value is not None]
        return html_table(f"Plan {self.digest.hex()[:16]}", shown)

    @property
    def is_open(self) -> bool:
        """Whether the items can't be enumerated."""
        return self.domain == "open"

    @property
    def _may_choose_mechanism(self) -> bool:
        """Whether a plan that names no mechanism leaves it to the run: after a discovery, where the run can choose."""
        by_norms = self.selector in (None, "weighted-quantile") and self.threshold is None
        return self.discovers and by_norms and not (self.noise_by_devices or self.per_item)

    @property
    def _reads_sums_by_key(self) -> bool:
        """Whether the selector is one for the paper's one release above a bar, if the plan names none."""
        plugin = found(Kind.SELECTOR, self.selector)
        reads = {name for name, _ in plugin.thing.reads} if plugin else set()
        return self.selector == "exponential-v" or reads == {"expected-counts"}

    @property
    def discovers(self) -> bool:
        """Whether the items are found first, and the domain is closed from there on."""
        return self.is_open and self.release == "discover"

    @property
    def known(self) -> tuple[str, ...]:
        """The items that are public already, in a plan that discovers others."""
        return () if self.known_items is None else tuple(self.known_items.split("\n"))

    @cached_property
    def discovery(self) -> Discovery:
        """The terms on which items are found."""
        return discovery_of(self)

    def discovered(self, items: int, share: float) -> Plan:
        """The plan of the rounds after a discovery with this share: a closed domain of this number of items."""
        return DiscoveredPlan.of(self, items, share, bits=self.grid_bits)

    @cached_property
    def releasing(self) -> Plan:
        """The plan that the release runs under; while its items are not found, one for the most that there may be."""
        return self.discovered(MOST_KEYS, self.discovery.shares[-1]) if self.discovers else self

    @property
    def is_discovered(self) -> bool:
        """Whether the items of this closed domain were found by the run itself."""
        return False

    @property
    def per_item(self) -> bool:
        """Whether each item is clipped by itself, as debiasing needs."""
        return self.debias is not None

    @property
    def thresholds(self) -> int:
        """The number of thresholds that are chosen: one, or one for each item where items are clipped alone."""
        return self.closed.items if self.per_item else 1

    @property
    def hides_users(self) -> bool:
        """Whether the number of users is hidden, and `users` a number that somebody gave in its place."""
        return self.neighbours is Neighbours.ADD_OR_REMOVE_ONE

    @property
    def most_users(self) -> int:
        """How many users a sum has room for."""
        return MAX_USERS if self.hides_users else self.users

    @property
    def is_masked(self) -> bool:
        """Whether the server learns sums only."""
        return self.masking != "none"

    @property
    def is_signed(self) -> bool:
        """Whether masking withstands a server that lies to devices."""
        return self.masking == "secagg-signed"

    @property
    def noise_by_devices(self) -> bool:
        """Whether the devices add the noise, in shares."""
        return self.noise_from == "devices"

    @property
    def has_table(self) -> bool:
        """Whether keys come as a sum of tables, under masks."""
        return self.is_open and self.is_masked

    @property
    def minimum_survivors(self) -> int:
        """With fewer participants at the end of a round, masking releases nothing; one is enough without."""
        return self.masks.minimum_survivors if self.is_masked else 1

    @property
    def noise_shares(self) -> int:
        """n_min: how many shares of honest participants are sure to be in a sum, each of 1/n_min of the noise."""
        return self.masks.noise_shares

    @cached_property
    def closed(self) -> Closed:
        """The items of a closed domain."""
        if self.items is None or self.sparsity is None:
            raise LookupError("a plan over an open domain has no list of items: ask plan.is_open first")
        return Closed(items=self.items, sparsity=self.sparsity)

    @property
    def cutoff_release(self) -> str:
        """The one release above a cutoff that an open domain's plan names."""
        if self.release is None or not self.is_open or self.discovers:
            raise LookupError("this plan does not release keys above a cutoff: ask plan.is_open first")
        return self.release

    @cached_property
    def masks(self) -> Masks:
        """The numbers of participants under masks."""
        return masks_of(self)

    @cached_property
    def fixed_threshold(self) -> Threshold:
        """The threshold of the selector `fixed`, on the grid."""
        if self.threshold is None:
            raise LookupError("this plan's threshold is chosen in round 1: ask for the selector first")
        return self.at_steps(math.ldexp(self.threshold, self.grid_bits))

    @property
    def is_pure(self) -> bool:
        """Whether the release spends no delta."""
        return self.mechanism == "laplace" and not self.is_open

    @property
    def chooses_mechanism(self) -> bool:
        """Whether the run itself chooses between the mechanisms, together with the bound."""
        return self.mechanism == "auto"

    @cached_property
    def ways(self) -> Mapping[str, Plan]:
        """The plans of the release for each mechanism that may be chosen."""
        if not self.chooses_mechanism:
            raise LookupError("this plan names its mechanism: ask plan.chooses_mechanism first")
        return on_one_range({name: replace(self, mechanism=name) for name in MECHANISMS})

    def way(self, mechanism: str | None) -> Plan:
        """The plan of the release with the mechanism that was chosen; None where the plan names it."""
        return self if mechanism is None else self.ways[mechanism]

    @property
    def one_way(self) -> Plan:
        """The plan itself if it names its mechanism, else that of Gaussian noise: for what is said before a choice."""
        return self.ways["gaussian"] if self.chooses_mechanism else self

    @property
    def norm(self) -> Norm:
        """What is clipped: l2 for the Gaussian mechanism, l1 for Laplace. Random clipping bounds l1."""
        if self.chooses_mechanism:
            raise LookupError("this plan's mechanism is chosen in round 1: ask one of plan.ways")
        return Norm.L2 if self.mechanism == "gaussian" else Norm.L1

    @cached_property
    def unit_noise(self) -> float:
        """The noise's scale for a threshold of one count: standard deviation (Gaussian) or Laplace scale.

        Includes what the neighbours ask for: sensitivities are C or sqrt(2) C in l2, C or 2 C in l1.
        """
        sensitivity = self.item_share if self.per_item else self.release_sensitivity(_UNIT).value / _UNIT
        if self.mechanism == "gaussian":
            return sensitivity * self.multiplier
        return sensitivity / self.epsilon

    @cached_property
    def multiplier(self) -> float:
        """The Gaussian's standard deviation for each unit of l2 sensitivity."""
        least, rule = noise_multiplier(self.epsilon, self.delta), plugin_named(Kind.RELEASE, self.release)
        if rule is None:
            return least
        multiplier = float(rule.thing.multiplier(self.epsilon, self.delta))
        if not least <= multiplier < math.inf:
            raise InvalidPlan(
                f"the release rule {rule.name} has Gaussian noise of {multiplier:.4g} times the sensitivity",
                allowed=f"at least {least:.4g} times, which epsilon and delta need",
                code="too-little-noise",
            )
        return multiplier

    @property
    def item_share(self) -> float:
        """By how much an item's noise grows when d items are clipped one by one: d in l1, sqrt(d) in l2.

        Proof sketch: one user moves item j by at most C_j, for either neighbours. With Laplace scales d C_j/eps the
        privacy loss is at most the sum of C_j/(d C_j/eps) = eps. With Gaussian deviations sqrt(d) sigma C_j the move
        measured in deviations has l2 norm at most 1/sigma. The same as a budget of eps/d, or about
        eps/sqrt(d log(1/delta)), for each item alone.
        """
        return math.sqrt(self.closed.items) if self.mechanism == "gaussian" else float(self.closed.items)

    @cached_property
    def noise_price(self) -> float:
        """M: the expected l1 norm of the noise for each count of the threshold; of one item where each has its own.

        d sigma sqrt(2/pi) for Gaussian noise (Liu et al., theorem 4.2), d/eps for Laplace (lemma 4.1), with sigma and
        eps after the neighbours' sensitivity. Where devices add the noise, it is that of all participants' shares.
        """
        mean_absolute = MEAN_ABSOLUTE if self.mechanism == "gaussian" else 1.0
        if self.noise_by_devices:
            mean_absolute *= growth_of_mean(self)
        return (1 if self.per_item else self.closed.items) * self.unit_noise * mean_absolute

    @property
    def unit_error(self) -> float:
        """The standard deviation of the noise for a threshold of one count, with all shares where devices add it."""
        error = self.unit_noise * (1.0 if self.mechanism == "gaussian" else math.sqrt(2))
        return (
            error * math.sqrt(self.masks.participants / self.noise_shares) if self.noise_by_devices else error
        )

    @cached_property
    def grid_bits(self) -> int:
        """The grid's step is 2^-grid_bits of one count: as fine as 64-bit sums and the samplers allow.

        Random clipping keeps whole counts, so an open domain's step is one count.
        """
        if self.discovers:
            after = (DiscoveredPlan.of(self, MOST_KEYS, share, bits=None) for share in self.discovery.shares)
            return min(plan.grid_bits for plan in after)
        if self.chooses_mechanism:
            return min(way.grid_bits for way in self.ways.values())
        limit = 0 if self.is_open else MAX_GRID_BITS
        for_bound = math.floor(math.log2(MAX_BOUND_STEPS / self.max_threshold))
        for_noise = math.floor(
            math.log2(_MAX_NOISE_STEPS[self.mechanism] / (self.unit_noise * self.max_threshold))
        )
        return min(limit, for_bound, for_noise)

    @cached_property
    def candidate_steps(self) -> Integers:
        """The candidates of round 1, in steps, rising from C_min to C_m."""
        return geometric_candidates(*self.step_range, self.candidates)

    @cached_property
    def step_range(self) -> tuple[int, int]:
        """The first and the last step inside [C_min, C_m]."""
        steps = 1 << self.grid_bits
        return math.ceil(Fraction(self.min_threshold) * steps), math.floor(
            Fraction(self.max_threshold) * steps
        )

    @property
    def tail_cap(self) -> int:
        """The largest weight that any user has in the tail: sqrt(s) under l2, one under l1."""
        return weight_cap(self.closed.sparsity) if self.norm is Norm.L2 else 1 << WEIGHT_BITS

    def at_steps(self, steps: float) -> Threshold:
        """The threshold of this plan's grid nearest to this number of steps, kept inside [C_min, C_m]."""
        lowest, highest = self.step_range
        return Threshold(steps=min(max(round(steps), lowest), highest), bits=self.grid_bits)

    def release_sensitivity(self, bound: int) -> Sensitivity:
        """How far one user moves the sum of round 2, for a bound in any unit."""
        clipped_sum = clipped_sum_l2 if self.norm is Norm.L2 else clipped_sum_l1
        return clipped_sum(bound, domain_size=self.items, neighbours=self.neighbours)

    def open_noises(self, thresholds: Integers) -> list[OpenNoise]:
        """The noise and the bar of an open domain's release at each threshold, in counts."""
        rule = plugin_named(Kind.RELEASE, self.release)
        if rule is not None:
            noises: list[OpenNoise] = rule.thing.open_noises(self, thresholds)
            return noises
        kind = cast(OpenNoiseKind, self.cutoff_release)
        return bars_for(kind, thresholds, epsilon=self.epsilon, delta=self.delta, neighbours=self.neighbours)

    def to_json(self) -> dict[str, Any]:
        """Every field by name, as JSON has it. Plans of built-in methods alone have no key `plugins`."""
        plugins = {"plugins": list(self.plugins)} if self.plugins else {}
        return {"version": PLAN_VERSION} | {name: getattr(self, name) for name in FIELDS} | plugins

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` described; anything else is an InvalidPlan.

        A plan of methods from outside is for a side that has the same versions: else it is refused with OtherPlugin.
        """
        plan, plugins = cls._read(document)
        check_same(plugins, plan.plugins)
        return plan

    @classmethod
    def recorded(cls, document: Mapping[str, Any]) -> Plan:
        """The plan of a run that is over, to read about it: its plugins may have changed, and its selector be missing.

        What it released is described by its release rule and measurement, so those are needed: else OtherPlugin.
        """
        plan, plugins = cls._read(document)
        check_described(plugins)
        plan._set("plugins", plugins or ())
        return plan

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> tuple[Plan, tuple[str, ...] | None]:
        """The plan with the plugins that there are here, and those that the document names."""
        if not isinstance(document, Mapping):
            raise InvalidPlan(f"a plan of type {type(document).__name__}", allowed="fields by name")
        values = dict(document)
        if values.pop("version", None) != PLAN_VERSION:
            raise InvalidPlan("the plan is of another version", allowed=f"version {PLAN_VERSION}")
        plugins = read_names(values.pop("plugins", None))
        unknown = sorted(set(values) - set(FIELDS))
        if unknown:
            raise InvalidPlan(
                f"the plan has unknown fields {', '.join(unknown)}", allowed="the fields of Plan"
            )
        if "users" not in values:
            raise InvalidPlan("the plan has no users", allowed="the public size of the cohort")
        return cls(**values), plugins

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the plan, which names it in every message."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(b"fedhist/plan\x00" + canonical.encode()).digest()


Plan.__doc__ = described(Plan.__doc__)
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
