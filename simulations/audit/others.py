"""Audits of what the others hold and of what they send: no user's privacy may depend on either.

Participants who *hold* anything follow the protocol with data of their choice. Participants who *send* anything add any
residues to a masked sum, which the server can't check: numbers at the edge of the wrap, of a score's target and of a
bound, so that one honest user more or less carries the sum over the edge. Selectors that draw by score are checked
exactly, by how far one user moves their scores; noise is checked in two worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedhist.protocol.histograms import Integers
from fedhist.protocol.measurements.tails import ItemTail, NormTailsMeasurement, TailMeasurement
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.privacy.neighbours import COUNTED, Neighbours
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Round
from fedhist.server.releases.contract import Release
from fedhist.server.selection import SELECTORS, fitting, selector_for
from fedhist.server.selection.contract import ScoringSelector, Statistic, WeightedChoice, in_weights
from fedhist.server.selection.crossing import target_weight
from fedhist.server.selection.quantile import Quantile, target_rank
from fedhist.server.steps import read_statistic, select_request
from fedhist.simulations.audit.findings import Check, Finding, Setting, compared
from fedhist.simulations.audit.selector_worlds import HUGE, closed_worlds
from fedhist.simulations.audit.two_worlds import Worlds, two_worlds
from fedhist.simulations.audit.worlds import User, crafted, lied
from fedhist.simulations.engines.in_process import exact_total

MASKED: dict[str, Any] = {
    "masking": "secagg", "participants": 3, "corrupt_share": 0.0, "dropout_share": 0.0,
}  # fmt: skip
_ALL = Cost(1.0, 0.0)
"""All of epsilon', which is the unit here."""
_ITEMS = 3
_CASES = 100
_COUNTS = (1, 2, 3, 7, 8, 9, 40, 2**31 - 1)
"""Counts of one item of one user: small, at a bound, beyond every bound, the largest allowed."""
_MODES: tuple[dict[str, Any], ...] = (
    {"mechanism": "gaussian", "items": _ITEMS},
    {"mechanism": "laplace", "items": _ITEMS},
    {"mechanism": "auto", "items": _ITEMS},
    {"mechanism": "laplace", "items": _ITEMS, "debias": "poisson"},
    {"domain": "open", "release": "truncated-laplace"},
)


def scored_plans(*, masked: bool) -> Iterator[Plan]:
    """A plan for every private selector that draws by score, in every mode that it has."""
    usual: dict[str, Any] = {"users": 6, "candidates": 4, "max_threshold": 8.0, "epsilon_select": 1.0}
    for name, selector in SELECTORS.with_installed().items():
        if not (isinstance(selector, ScoringSelector) and selector.private):
            continue
        for mode in _MODES:
            if masked and "release" in mode:
                continue
            for neighbours in COUNTED if masked else Neighbours:
                masking = MASKED if masked else {}
                plan = Plan(**usual, **mode, **masking, neighbours=neighbours, selector=name)
                if name in fitting(plan):
                    yield plan


def scores_move(setting: Setting, *, masked: bool, sent: bool) -> Finding:
    """For every selector that draws by score, the share of epsilon' that one user uses up by moving the scores.

    Args:
        setting: of the check.
        masked: True for plans with masks.
        sent: True if the others send anything, False if they hold anything.
    """
    source, worst, cases = setting.auditor(), 0.0, 0
    for number, plan in enumerate(scored_plans(masked=masked)):
        for case in range(_CASES):
            worst = max(worst, _moved(plan, sent=sent, source=source.fork(number, case)))
            cases += 1
    return compared(setting, _ALL, worst, f"largest move of the scores in {cases:,} cases")


def _moved(plan: Plan, *, sent: bool, source: Source) -> float:
    """The privacy loss between two neighbours, in units of epsilon'."""
    request, selector = select_request(plan), selector_for(plan)
    assert isinstance(selector, ScoringSelector)  # noqa: S101 - `scored_plans` has no others
    others = [_user(source.fork("other", number)) for number in range(plan.users - 1)]
    pair = [_user(source.fork("user")), []]
    if plan.neighbours is Neighbours.REPLACE_ONE:
        pair[1] = _user(source.fork("replaced"))
    totals = [
        exact_total(request, crafted([*others, user], _ITEMS), source=source.fork("device")) for user in pair
    ]
    if sent:
        lie = edge_sums(request, source.fork("lie")) - totals[1].values
        totals = [lied(total, request, lie) for total in totals]
    drawn = [_choices(selector, plan, read_statistic(plan, total)) for total in totals]
    return sum(_loss(one, other) for one, other in zip(*drawn, strict=True)) / plan.epsilon_select


def _choices(selector: ScoringSelector, plan: Plan, statistic: Statistic) -> list[WeightedChoice]:
    """The choices that are drawn by score: one, or one for each item."""
    if isinstance(statistic, ItemTail):
        assert isinstance(selector, Quantile)  # noqa: S101 - the one selector that has a bound for each item
        return selector.item_choices(plan, statistic)
    return [selector.choice(plan, statistic)]


def _loss(one: WeightedChoice, other: WeightedChoice) -> float:
    """The range of the changes of all candidates' log-weights, which no change of a log-probability exceeds."""
    changes = [x - y for x, y in zip(one.scores.tolist(), other.scores.tolist(), strict=True)]
    return float(one.epsilon * (max(changes) - min(changes)) / (2 * one.sensitivity))


def _user(source: Source) -> User:
    """Some of the items, with counts at the edges of bounds."""
    held, counts = source.words(_ITEMS) % np.uint64(2), source.words(_ITEMS) % np.uint64(len(_COUNTS))
    return [(item, _COUNTS[count]) for item, count in enumerate(counts.tolist()) if held[item]]


def edge_sums(request: Request, source: Source) -> Integers:
    """The sums of round 1 that liars aim at: near 0, half of the circle or a selector's target, give or take a user."""
    plan, measurement = request.plan, request.measurement
    half = 1 << (measurement.masked_width - 1)
    aims, offsets = [0, half], [0, 1]
    rank = target_rank(plan.one_way)
    aims += [rank, rank - half, in_weights(target_weight(plan.one_way))]
    if isinstance(measurement, TailMeasurement | NormTailsMeasurement):
        offsets += [plan.one_way.tail_cap, plan.one_way.tail_cap // 2]
    aim, offset, sign = (source.words(measurement.shape.length) for _ in range(3))
    wanted = [
        aims[a % len(aims)] + offsets[o % len(offsets)] * (1 if s & 1 else -1)
        for a, o, s in zip(aim.tolist(), offset.tolist(), sign.tolist(), strict=True)
    ]
    sums = np.array([number % 2**64 for number in wanted], dtype=np.uint64).view(np.int64)
    # Where running sums are read, half of the time these are at the edge, else the vector itself is.
    return sums - np.append(sums[1:], 0) if source.words(1).item() % 2 == 0 else sums


def lied_release(mechanism: str, **settings: Any) -> Worlds:
    """A liar adds half of the circle less half of what the user has: the user carries the sum over the edge."""
    plan = Plan(
        users=3, items=2, mechanism=mechanism, selector="fixed", threshold=4.0, max_threshold=8.0,
        **MASKED, **settings,
    )  # fmt: skip

    def lie(request: Request) -> Integers:
        measurement = request.measurement
        added = np.zeros(measurement.shape.length, dtype=np.int64)
        # Without a choice there is only the round that releases.
        added[0] = (1 << (measurement.masked_width - 1)) - measurement.shape.largest // 2
        return added

    def value(release: Release) -> float:
        items = release.item_release
        # A value that is carried over the edge becomes the smallest number.
        return -float((release.histogram if items is None else items.clipped)[0])

    return replace(closed_worlds(plan, [(0, HUGE)], [[], []]), evidence=value, lie=lie)


def lied_steps(selector: str) -> Worlds:
    """Every sum above a candidate is at the edge of the wrap, and the user carries all of them over it."""
    others = 3
    plan = Plan(
        users=others + 1, items=2, sparsity=1, selector=selector, candidates=16, max_threshold=32.0,
        epsilon=0.1, delta=0.02, epsilon_select=1.0, delta_select=0.02, **MASKED,
    )  # fmt: skip

    def lie(request: Request) -> Integers:
        measurement = request.measurement
        added = np.zeros(measurement.shape.length, dtype=np.int64)
        if request.round is Round.SELECT:
            edge, bins = (1 << (measurement.masked_width - 1)) - 1, len(added) // 2
            added[bins - 1], added[-1] = edge - others, edge - others * plan.tail_cap
        return added

    worlds = closed_worlds(plan, [(0, HUGE)], [[(1, HUGE)]] * others)
    return replace(worlds, evidence=lambda release: 0.0, lie=lie)


def _in_worlds(make: Callable[..., Worlds], *arguments: Any, **settings: Any) -> Callable[[Setting], Finding]:
    """A check in two worlds; a crossed edge shows in few runs."""
    return partial(two_worlds, partial(make, *arguments, **settings), lambda effort: effort.slow_runs // 2)


CHECKS = (
    Check("others hold anything, scores", partial(scores_move, masked=False, sent=False)),
    Check("others hold anything, masked scores", partial(scores_move, masked=True, sent=False)),
    Check("others send anything, masked scores", partial(scores_move, masked=True, sent=True)),
    Check("others send anything, gaussian", _in_worlds(lied_release, "gaussian", epsilon=1.0, delta=0.02)),
    Check("others send anything, laplace", _in_worlds(lied_release, "laplace", epsilon=1.0)),
    Check("others send anything, items", _in_worlds(lied_release, "laplace", epsilon=1.0, debias="poisson")),
    Check("others send anything, dpsgd", _in_worlds(lied_steps, "dpsgd")),
    Check("others send anything, m-quantile", _in_worlds(lied_steps, "m-quantile")),
)
