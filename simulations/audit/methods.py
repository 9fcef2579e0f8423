"""Audits of methods, the project's own and those from outside: neighbours that are searched for.

For a selector, users whose counts lie between two candidates are added until it rarely chooses the larger one; then a
user comes who is above both. Nearly all of the budget is round 1's, so that an error there can't hide behind the budget
of round 2. The search draws on its own; of all places the one that promises most is audited with fresh draws, end to
end, against what the method charges. For a release rule the threshold is fixed, and the user holds one item or many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import Kind, Plugin, registered
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.releases.contract import Release
from fedhist.server.selection import SELECTORS, selector_for
from fedhist.server.selection.contract import ScoringSelector
from fedhist.server.steps import check_runnable, planned_charges, read_statistic, select_request
from fedhist.simulations.audit.bounds import event_epsilon
from fedhist.simulations.audit.checks import Check, Finding, Setting, exact
from fedhist.simulations.audit.neighbours import (
    Neighbouring,
    User,
    closed_evidence,
    crafted,
    evidence_of,
    told_by_events,
    told_by_guesses,
    values_of,
)
from fedhist.simulations.engines.in_process import exact_total

_LOW, _HIGH = 4.0, 8.0
_BELOW, _BETWEEN, _HUGE = 1, 5, 60
"""Counts below both candidates, between them, and above every bound."""
_FILLERS = (0, 60, 1_000)
"""Numbers of users below both candidates: some methods reckon with shares of all users."""
_SPARSITY = 9
_MANY = 4 * _SPARSITY
_MOST_BETWEEN = 2_048
_RARE = 0.1
"""How often the larger candidate is chosen without the user, about."""
_DRAWS = 64
"""Choices that the search draws where it can't compute probabilities."""
_SINGLES = 100
_KEYS = ((5, 0), (13, 28), (13, 133), (40, 300))
"""Over an open domain, users who hold the same key often, and users who hold keys of their own."""
_CHOICE: dict[str, Any] = {
    "candidates": 2, "min_threshold": _LOW, "max_threshold": _HIGH, "epsilon": 0.1, "epsilon_select": 2.0,
    "delta_select": 0.02,
}  # fmt: skip
_DELTAS: dict[str, Any] = {"laplace": None, "gaussian": 0.02}
Places = Callable[[str, int, int], Neighbouring]
"""Neighbours for a selector, with these numbers of users below and between the candidates."""


def checks_of(plugins: Iterable[Plugin]) -> tuple[Check, ...]:
    """The checks of methods from outside; none for measurements, nor where no plan fits any method.

    Where some methods can be tested and others can't, the others have a check that says so.
    """
    tested: list[Check] = []
    others: list[Check] = []
    for plugin in plugins:
        kind, name = plugin.kind, plugin.name
        if kind in _CHECKS:
            checks = list(_CHECKS[kind](name))
            tested += checks
            others += [] if checks else [Check(f"{kind.words} {name}", _not_tested)]
    return (*tested, *others) if tested else ()


def own_checks() -> tuple[Check, ...]:
    """The checks of the project's own selectors and releases, the longest first."""
    runs, gaussian_runs = attrgetter("runs"), attrgetter("gaussian_runs")
    laplace = {"mechanism": "laplace", "epsilon": 2.0}
    # With an epsilon near 0, delta is a distance in total variation, which guesses measure best.
    gaussian = {"mechanism": "gaussian", "epsilon": 0.01, "delta": 0.49}
    selectors = SELECTORS.with_installed()
    outside = {plugin.name for plugin in registered() if is_from_outside(plugin)}
    return (
        Check("release, gaussian", partial(told_by_guesses, partial(_released, gaussian), gaussian_runs)),
        Check("release, gaussian, replaced", partial(told_by_guesses, partial(_replaced, gaussian), runs)),
        *(
            check
            for name, selector in selectors.items()
            if selector.private and selector.reads and name not in outside
            for check in _of_selector(name)
        ),
        Check("release, laplace", partial(told_by_events, partial(_released, laplace), runs)),
        Check("release, items", partial(told_by_events, partial(_released_items, laplace), runs)),
    )


def is_from_outside(plugin: Plugin) -> bool:
    """Whether it is no baseline of the paper, which this package installs as plug-ins."""
    return plugin.source.package != "fedhist"


def _not_tested(setting: Setting) -> Finding:
    detail = "not tested: no plan of the audit goes with it; fedhist.testing.check_plugin has more checks"
    return exact(setting, passed=True, detail=detail)


def _of_selector(name: str) -> Iterator[Check]:
    closed: dict[str, Places] = {
        "gaussian": partial(_closed, "gaussian", _MANY),
        "gaussian, one item": partial(_closed, "gaussian", 1),
        "laplace": partial(_closed, "laplace", 1),
        "items alone": _items_alone,
    }
    for kind, both in closed.items():
        if _goes(partial(both, name, 1, 1)):
            yield Check(f"selector {name}, {kind}", partial(_searched, partial(_along, both, name)))
    if _goes(partial(_open, name, *_KEYS[0])):
        yield Check(f"selector {name}, open", partial(_searched, partial(_over_keys, name)))


def _of_rule(name: str) -> Iterator[Check]:
    budgets = {"laplace": {"epsilon": 2.0}, "gaussian": {"epsilon": 1.0, "delta": 0.02}}
    for mechanism, budget in budgets.items():
        settings = {"release": name, "mechanism": mechanism, **budget}
        cases = {
            "one item": partial(_released_by, settings, 1),
            "16 items": partial(_released_by, settings, 16),
        }
        for kind, both in (cases | {"replaced": partial(_replaced, settings)}).items():
            if _goes(both):
                yield Check(f"release rule {name}, {mechanism}, {kind}", partial(_promised, both))


_CHECKS = {Kind.SELECTOR: _of_selector, Kind.RELEASE: _of_rule}


def _goes(both: Callable[[], Neighbouring]) -> bool:
    """Whether the method goes with such a plan. A method that fails on it is audited, and the check says so."""
    try:
        check_runnable(both().plan, simulated=True)
    except InvalidPlan:
        return False
    except Exception:
        return True
    return True


def _own_cells(plan: Plan, user: User, others: Sequence[User]) -> Neighbouring:
    """The user is the last one and has cells of their own."""
    size = plan.closed.items
    without, with_user = (crafted([*others, last], size) for last in ([], user))
    return Neighbouring(plan, without, with_user, closed_evidence([item for item, _ in user]))


def _closed(mechanism: str, own: int, name: str, below: int, between: int) -> Neighbouring:
    """The user is far above both candidates in cells of their own."""
    plan = Plan(
        users=below + between + 1, items=own + 1, sparsity=min(own, _SPARSITY), mechanism=mechanism, selector=name,
        delta=_DELTAS[mechanism], **_CHOICE,
    )  # fmt: skip
    others: list[User] = [*[[(own, _BETWEEN)]] * between, *[[(own, _BELOW)]] * below]
    return _own_cells(plan, [(item, _HUGE) for item in range(own)], others)


def _items_alone(name: str, below: int, between: int) -> Neighbouring:
    """The same where every item has a bound of its own: a user with much of every item moves all bounds."""
    items = 4
    plan = Plan(
        users=below + between + 1,
        items=items,
        mechanism="laplace",
        selector=name,
        debias="poisson",
        **_CHOICE,
    )
    others: list[User] = [
        [(item, count) for item in range(items)] for count in [_BETWEEN] * between + [_BELOW] * below
    ]
    both = _own_cells(plan, [(item, _HUGE) for item in range(items)], others)
    return replace(both, evidence=partial(_item_evidence, between))


def _item_evidence(others: int, release: Release) -> float:
    """The evidence for a user who adds every item's bound, where each of the others holds _BETWEEN of every item.

    The chosen bounds are evidence, too, all in the same direction: each that is the larger candidate counts with its
    share of the budget of round 1.
    """
    items = release.item_release
    assert items is not None  # noqa: S101 - of a plan that clips items one by one
    values = items.clipped - others * np.minimum(_BETWEEN, items.thresholds)
    shifts = items.thresholds
    ratios = evidence_of(values, shifts, items.clipped_errors, release.round_plan.norm)
    chosen = release.plan.epsilon_select / len(shifts) * np.count_nonzero(shifts > _LOW)
    return float(ratios.sum() + chosen)


def _open(name: str, holders: int, singles: int) -> Neighbouring:
    """A key that some users hold eight times, and keys that others hold once, with up to a hundred holders each.

    At the larger candidate the first key is beyond the cutoff, and the user adds little to the error; at the smaller
    one the user loses nearly everything. The other keys favour the smaller candidate, whose cutoff is lower.
    """
    keys = -(-singles // _SINGLES)
    plan = Plan(
        users=holders + singles + 1, domain="open", release="truncated-laplace", selector=name, delta=0.02,
        **_CHOICE | {"min_threshold": 1.0},
    )  # fmt: skip
    shared: User = [(0, int(_HIGH))]
    others: list[User] = [shared] * holders + [[(1 + number // _SINGLES, 1)] for number in range(singles)]
    labels = ["shared", *(f"single {key}" for key in range(keys))]
    without, with_user = (crafted([*others, last], 1 + keys, labels) for last in ([], shared))
    return Neighbouring(plan, without, with_user, partial(_shared_evidence, holders))


def _shared_evidence(holders: int, release: Release) -> float:
    """The evidence for a user who adds the bound to the shared key, as these others do; 0 if it is not shown."""
    labels = list(release.labels or ())
    if "shared" not in labels:
        return 0.0
    value = release.histogram[labels.index("shared")] - holders * release.threshold
    return float(evidence_of(value, release.threshold, release.standard_error, release.round_plan.norm))


def _fixed_plan(items: int, threshold: float, settings: dict[str, Any]) -> Plan:
    """A plan without a choice."""
    fixed: dict[str, Any] = {"selector": "fixed", "threshold": threshold, "max_threshold": _HIGH}
    return Plan(users=2, items=items, **fixed | settings)


def _released(settings: dict[str, Any], items: int = 1) -> Neighbouring:
    """No choice: the release alone, of a user who alone holds these items."""
    plan = _fixed_plan(items + 1, 1.0, settings)
    return _own_cells(plan, [(item, _HUGE) for item in range(items)], [[]])


def _released_by(settings: dict[str, Any], items: int) -> Neighbouring:
    """The same by a rule whose noise is not known: whatever it is, more speaks for the user."""
    both = _released(settings, items)
    return replace(both, evidence=lambda release: float(values_of(release)[:items].sum()))


def _released_items(settings: dict[str, Any]) -> Neighbouring:
    """Items clipped one by one at public bounds, and a user with much of every item."""
    items = 16
    plan = _fixed_plan(items, _HIGH, settings | {"debias": "poisson"})
    both = _own_cells(plan, [(item, _HUGE) for item in range(items)], [[]])
    return replace(both, evidence=partial(_item_evidence, 0))


def _replaced(settings: dict[str, Any]) -> Neighbouring:
    """A user who has one item instead of another."""
    plan = _fixed_plan(3, 1.0, settings | {"neighbours": "replace-one"})
    one, other = (crafted([[], [(item, _HUGE)]], 3) for item in range(2))
    return Neighbouring(plan, other, one, lambda release: float(release.histogram[0] - release.histogram[1]))


def _promised(make: Callable[[], Neighbouring], setting: Setting) -> Finding:
    """The check of an event; a method that declares no charge has no promise to break."""
    plan = make().plan
    if not all(charge.private for charge in planned_charges(plan)):
        detail = "not private: it declares no charge, so there is nothing to test"
        return exact(setting, passed=True, detail=detail)
    fast = not selector_for(plan).reads or isinstance(selector_for(plan), ScoringSelector)
    return told_by_events(make, attrgetter("runs" if fast else "slow_runs"), setting)


def _searched(places: Callable[[Source], Iterator[Neighbouring]], setting: Setting) -> Finding:
    """The check of the neighbours that the search finds most telling."""
    source = setting.auditor()
    runs = setting.effort.runs // 2
    best = max(places(source.fork("places")), key=partial(_promise, runs, source.fork("promise")))
    return _promised(lambda: best, setting)


def _along(make: Places, name: str, source: Source) -> Iterator[Neighbouring]:
    """Neighbours where the larger candidate is rare, for each number of users below; found by halving."""
    for below in _FILLERS:
        low, high = 0, _MOST_BETWEEN
        while high - low > 1:
            middle = (low + high) // 2
            both = make(name, below, middle)
            rare = _share_of_high(both.plan, both.without, source.fork(below, middle)) < _RARE
            low, high = (middle, high) if rare else (low, middle)
        yield from (make(name, below, between) for between in {low, high, max(low - 1, 0)})


def _over_keys(name: str, source: Source) -> Iterator[Neighbouring]:
    yield from (_open(name, holders, singles) for holders, singles in _KEYS)


def _promise(runs: int, source: Source, both: Neighbouring) -> float:
    """The bound of epsilon that this number of runs would prove if probabilities are those that the search sees."""
    without, with_user = (
        _share_of_high(both.plan, population, source.fork(both.plan.users, place))
        for place, population in enumerate((both.without, both.with_user))
    )
    pairs = (
        (with_user, without),
        (without, with_user),
        (1 - with_user, 1 - without),
        (1 - without, 1 - with_user),
    )
    delta = min(sum(charge.delta for charge in planned_charges(both.plan)), 1.0)
    return max(
        event_epsilon(round(ours * runs), runs, round(theirs * runs), runs, delta=delta, alpha=1e-3)
        for ours, theirs in pairs
    )


def _share_of_high(plan: Plan, population: SparsePopulation, source: Source) -> float:
    """How probable a threshold above the middle is: computed for scores, else drawn."""
    selector, statistic = selector_for(plan), None
    if selector.reads:
        total = exact_total(select_request(plan), population, source=source.fork("device"))
        statistic = read_statistic(plan, total)
    middle = math.ldexp(math.sqrt(_LOW * _HIGH), plan.grid_bits)
    # A selector with a draw of its own may choose otherwise than its scores say.
    if isinstance(selector, ScoringSelector) and type(selector).select is ScoringSelector.select:
        probabilities = selector.choice(plan, statistic).probabilities()
        return float(probabilities[np.asarray(plan.candidate_steps) > middle].sum())
    drawn = [
        selector.select(plan, statistic, source=source.fork("draw", number)).threshold.steps
        for number in range(_DRAWS)
    ]
    return float(np.mean(np.array(drawn) > middle))
