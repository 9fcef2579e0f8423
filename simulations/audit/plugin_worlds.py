"""Audits of methods from outside: worlds that are searched for, because nobody knows beforehand which are the worst.

For a selector, users whose counts lie between two candidates are added until it rarely chooses the larger one; then a
user comes who is above both. The search draws on its own; of all places the one that promises most is audited with
fresh draws, end to end, against what the method charges. For a release rule the threshold is fixed, and the user holds
one item or many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plugins import Kind, Plugin
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.releases.contract import Release
from fedhist.server.selection import selector_for
from fedhist.server.selection.contract import ScoringSelector
from fedhist.server.steps import check_runnable, planned_charges, read_statistic, select_request
from fedhist.simulations.audit.bounds import event_epsilon
from fedhist.simulations.audit.findings import Check, Finding, Setting, exact
from fedhist.simulations.audit.selector_worlds import (
    BETWEEN,
    HIGH,
    HUGE,
    LOW,
    closed_plan,
    closed_worlds,
    fixed_plan,
    item_evidence,
    open_selector,
)
from fedhist.simulations.audit.two_worlds import Worlds, two_worlds
from fedhist.simulations.audit.worlds import User, crafted
from fedhist.simulations.engines.in_process import exact_total

_BELOW = 1
"""A count below both candidates."""
_FILLERS = (0, 60, 1_000)
"""Numbers of users below both candidates: some methods reckon with shares of all users."""
_SPARSITY = 9
_MANY = 4 * _SPARSITY
_MOST_BETWEEN = 2_048
_RARE = 0.1
"""How often the larger candidate is chosen without the user, about."""
_DRAWS = 64
"""Choices that the search draws in a world whose chances it can't compute."""
_KEYS = ((5, 0), (13, 28), (13, 133), (40, 300))
"""Over an open domain, users who hold the same key often, and users who hold keys of their own."""
Places = Callable[[str, int, int], Worlds]
"""Worlds for a selector, with these numbers of users below and between the candidates."""


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
    for kind, worlds in closed.items():
        if _goes(partial(worlds, name, 1, 1)):
            yield Check(f"selector {name}, {kind}", partial(_searched, partial(_along, worlds, name)))
    if _goes(partial(open_selector, name, *_KEYS[0])):
        yield Check(f"selector {name}, open", partial(_searched, partial(_over_keys, name)))


def _of_rule(name: str) -> Iterator[Check]:
    budgets = {"laplace": {"epsilon": 2.0}, "gaussian": {"epsilon": 1.0, "delta": 0.02}}
    for mechanism, budget in budgets.items():
        for items in (1, 16):
            worlds = partial(_released, name, mechanism, items, budget)
            if _goes(worlds):
                shown = "one item" if items == 1 else f"{items} items"
                yield Check(f"release rule {name}, {mechanism}, {shown}", partial(_promised, worlds))
        replaced = partial(_replaced, name, mechanism, budget)
        if _goes(replaced):
            yield Check(f"release rule {name}, {mechanism}, replaced", partial(_promised, replaced))


_CHECKS = {Kind.SELECTOR: _of_selector, Kind.RELEASE: _of_rule}


def _goes(worlds: Callable[[], Worlds]) -> bool:
    """Whether the method goes with such a plan. A method that fails on it is audited, and the check says so."""
    try:
        check_runnable(worlds().plan, simulated=True)
    except InvalidPlan:
        return False
    except Exception:
        return True
    return True


def _closed(mechanism: str, own: int, name: str, below: int, between: int) -> Worlds:
    """The user is far above both candidates in cells of their own."""
    sparsity = min(own, _SPARSITY)
    plan = closed_plan(mechanism, name, below + between, items=own + 1, sparsity=sparsity)
    others: list[User] = [*[[(own, BETWEEN)]] * between, *[[(own, _BELOW)]] * below]
    return closed_worlds(plan, [(item, HUGE) for item in range(own)], others)


def _items_alone(name: str, below: int, between: int) -> Worlds:
    """The same where every item has a bound of its own."""
    items = 4
    plan = closed_plan("laplace", name, below + between, items=items, debias="poisson")
    alike: list[User] = [[(item, BETWEEN) for item in range(items)]] * between
    nearly: list[User] = [[(item, _BELOW) for item in range(items)]] * below
    worlds = closed_worlds(plan, [(item, HUGE) for item in range(items)], alike + nearly)
    return replace(worlds, evidence=partial(item_evidence, between))


def _released(name: str, mechanism: str, items: int, budget: dict[str, float]) -> Worlds:
    """No choice: the release alone, of a user who alone holds these items."""
    plan = fixed_plan(mechanism, items=items + 1, threshold=1.0, release=name, **budget)
    worlds = closed_worlds(plan, [(item, HUGE) for item in range(items)], [[]])
    return replace(worlds, evidence=partial(_sum_of_first, items))


def _replaced(name: str, mechanism: str, budget: dict[str, float]) -> Worlds:
    """The same for a user who has one item in the place of another."""
    plan = fixed_plan(mechanism, items=3, threshold=1.0, release=name, neighbours="replace-one", **budget)
    one, other = (crafted([[], [(item, HUGE)]], plan.closed.items) for item in range(2))
    return Worlds(plan=plan, without=other, with_user=one, evidence=_first_over_second)


def _first_over_second(release: Release) -> float:
    return float(release.histogram[0] - release.histogram[1])


def _sum_of_first(items: int, release: Release) -> float:
    """What is released of the user's items. Whatever the noise is, more of it speaks for the user."""
    return float(release.histogram[:items].sum())


def _promised(make: Callable[[], Worlds], setting: Setting) -> Finding:
    """The check of two worlds; a method that declares no charge has no promise to break."""
    if not all(charge.private for charge in planned_charges(make().plan)):
        return exact(
            setting, passed=True, detail="not private: it declares no charge, so there is nothing to test"
        )
    return two_worlds(make, attrgetter("runs"), setting)


def _searched(places: Callable[[Source], Iterator[Worlds]], setting: Setting) -> Finding:
    """The check of the worlds that the search finds most telling."""
    source = setting.auditor()
    runs = setting.effort.runs // 2
    best = max(places(source.fork("places")), key=partial(_promise, runs, source.fork("promise")))
    return _promised(lambda: best, setting)


def _along(worlds: Places, name: str, source: Source) -> Iterator[Worlds]:
    """Worlds in which the larger candidate is rare, for each number of users below; found by halving."""
    for below in _FILLERS:
        low, high = 0, _MOST_BETWEEN
        while high - low > 1:
            middle = (low + high) // 2
            without = worlds(name, below, middle)
            chance = _chance_of_high(without, without.without, source.fork(below, middle))
            low, high = (middle, high) if chance < _RARE else (low, middle)
        yield from (worlds(name, below, between) for between in {low, high, max(low - 1, 0)})


def _over_keys(name: str, source: Source) -> Iterator[Worlds]:
    yield from (open_selector(name, holders, singles) for holders, singles in _KEYS)


def _promise(runs: int, source: Source, worlds: Worlds) -> float:
    """The bound of epsilon that this number of runs would prove if the chances are those that the search sees."""
    without, with_user = (
        _chance_of_high(worlds, population, source.fork(worlds.plan.users, place))
        for place, population in enumerate((worlds.without, worlds.with_user))
    )
    pairs = (
        (with_user, without),
        (without, with_user),
        (1 - with_user, 1 - without),
        (1 - without, 1 - with_user),
    )
    delta = sum(charge.delta for charge in planned_charges(worlds.plan))
    return max(
        event_epsilon(round(ours * runs), runs, round(theirs * runs), runs, delta=min(delta, 1.0), alpha=1e-3)
        for ours, theirs in pairs
    )


def _chance_of_high(worlds: Worlds, population: SparsePopulation, source: Source) -> float:
    """How likely it is that a threshold above the middle is chosen: computed for scores, else drawn."""
    plan = worlds.plan
    selector = selector_for(plan)
    statistic = None
    if selector.reads:
        statistic = read_statistic(
            plan, exact_total(select_request(plan), population, source=source.fork("device"))
        )
    middle = math.ldexp(math.sqrt(LOW * HIGH), plan.grid_bits)
    # A selector with a draw of its own may choose otherwise than its scores say.
    if isinstance(selector, ScoringSelector) and _draws_by_score(selector) and not plan.debias:
        chances = selector.choice(plan, statistic).probabilities()
        return float(chances[np.asarray(plan.candidate_steps) > middle].sum())
    drawn = [
        selector.select(plan, statistic, source=source.fork("draw", number)).threshold.steps
        for number in range(_DRAWS)
    ]
    return float(np.mean(np.array(drawn) > middle))


def _draws_by_score(selector: ScoringSelector) -> bool:
    return type(selector).select is ScoringSelector.select
