"""Audits of the discovery of an open domain: keys that one user alone holds, a key at the bar, and the budget's parts.

A discovery shows names, so its worst users are those with keys of their own: without the user none of these can be
found, and with the user the chance is at most what the ledger says of the bars. That is a small part of delta, so it is
checked by itself: an error there would hide behind the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import integrate, special

from fedhist.client.policy import Memory, Policy, admit
from fedhist.protocol.errors import Refused
from fedhist.protocol.measurements.base import Bound
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.discovery_terms import COVERAGE_SHARE, USER_ITEMS
from fedhist.protocol.plan.fields import MECHANISMS
from fedhist.protocol.privacy.ledger import AlternativesLoss, Cost, Ledger
from fedhist.protocol.privacy.neighbours import Neighbours, Norm
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Round
from fedhist.protocol.settled import Settled
from fedhist.protocol.wire.envelope import Envelope
from fedhist.server.coordinator import run_rounds
from fedhist.server.discovery import discovery_charges
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.bounds import LARGEST_EPSILON, at_least
from fedhist.simulations.audit.findings import Check, Finding, Setting, compared, none_wrong
from fedhist.simulations.audit.two_worlds import judge_guesses
from fedhist.simulations.audit.worlds import Replay, User, crafted, repeated

USERS: dict[str, User] = {
    "one key": [(1, 40)],
    "a key each": [(1 + key, 1) for key in range(USER_ITEMS)],
    "many keys": [(1 + key, 1) for key in range(8 * USER_ITEMS)],
}
_COMMON, _HOLDERS = "common", 12
_DELTA = 0.49
_BOUND = 5.0
_MECHANISMS = ("gaussian", "laplace", "auto")
_DUST = 1e-6


def _plan(**settings: Any) -> Plan:
    usual: dict[str, Any] = {"users": _HOLDERS + 1, "epsilon": 1.0, "delta": _DELTA}
    chosen: dict[str, Any] = {"selector": "fixed", "threshold": _BOUND, "max_threshold": 8.0}
    return Plan(domain="open", release="discover", **(usual | chosen | settings))


def fresh_keys(user_kind: str, neighbours: Neighbours, setting: Setting) -> Finding:
    """The event that a key of the user's own is found. It never is without the user, so its chance is a delta."""
    plan = _plan(neighbours=neighbours)
    user = USERS[user_kind]
    size = 1 + max(item for item, _ in user)
    labels = [_COMMON, *(f"fresh {key}" for key in range(1, size))]
    population = crafted([*[[(0, 1)]] * _HOLDERS, user], size, labels)
    runs = setting.effort.slow_runs
    shown, _ = repeated(plan, population, runs, _finds_others, source=setting.mechanism())
    found = sum(shown)
    claim = Cost(0.0, _bars(plan))
    # What can't happen without the user and has a chance above delta with the user refutes every epsilon.
    refuted = at_least(found, runs, setting.alpha) > claim.delta
    bound = LARGEST_EPSILON if refuted else 0.0
    return compared(setting, claim, bound, f"fresh keys in {found:,} of {runs:,} runs")


def _bars(plan: Plan) -> float:
    """What the ledger charges for keys of one user alone."""
    losses = [charge.loss for charge in discovery_charges(plan)]
    return sum(loss.failure for loss in losses if isinstance(loss, AlternativesLoss))


def _finds_others(release: Release) -> bool:
    return any(label != _COMMON for label in release.labels or ())


def key_at_the_bar(setting: Setting) -> Finding:
    """Guesses from whether a key at the bar is found, half of the time by the user's own weight, and from its value.

    Discovery and release together have the whole budget, and epsilon is near 0: then delta is a distance in total
    variation.
    """
    terms = _plan(epsilon=0.01).discovery
    # Without the user the key is a little above the bar, and is found most of the time; then its value speaks, too.
    holders = math.ceil(math.ldexp(terms.bars[-1], -terms.bits)) + 1
    plan = _plan(epsilon=0.01, users=holders + 2)
    light: User = [(key, 1) for key in range(USER_ITEMS)]
    labels = [_COMMON, *(f"key {key}" for key in range(1, USER_ITEMS))]
    others: list[User] = [[(0, 1)]] * (holders - 1) + [light]
    middle = holders + _BOUND / 2
    found = {}
    claim = Cost(0.0, 0.0)
    source = setting.mechanism()
    for world, user in (("without", []), ("with", [(0, int(_BOUND))])):
        population = crafted([*others, user], len(labels), labels)
        shown, claim = repeated(plan, population, setting.effort.slow_runs, _value, source=source.fork(world))
        # A key that is not found has no value, and speaks for the world without the user.
        found[world] = np.array(shown, dtype=np.float64) - middle
    return judge_guesses(setting, found["without"], found["with"], claim)


def _value(release: Release) -> float:
    """Of the common key; below all numbers if it was not found."""
    values = dict(zip(release.labels or (), release.histogram.tolist(), strict=True))
    return float(values.get(_COMMON, -math.inf))


def parts_of_the_budget(setting: Setting) -> Finding:
    """The noise that a run's release has, and that of its discovery, together cost what the ledger says.

    Computed here from the definition of delta, by numerical integration over the loss of the Gaussian noise.
    """
    wrong = cases = 0
    for mechanism in _MECHANISMS:
        for neighbours in Neighbours:
            plan = _plan(
                mechanism=mechanism,
                selector="weighted-quantile",
                threshold=None,
                neighbours=neighbours,
                delta=0.01,
            )
            cases += 1
            wrong += _spent(plan) + _bars(plan) > plan.delta * (1 + _DUST)
    return none_wrong(setting, wrong, cases, "budgets overspent")


def _spent(plan: Plan) -> float:
    """Delta of discovery and release, bars aside: of Gaussian noise once, and of Laplace noise for each share."""
    terms, gaussian, laplace = plan.discovery, [0.0], [0.0]
    chosen = MECHANISMS if plan.chooses_mechanism else (None,)
    for share in terms.shares:
        before = (share + COVERAGE_SHARE) / terms.multiplier**2
        for mechanism in chosen:
            after = Settled(keys=("a", "b"), share=share, mechanism=mechanism).plan_for(plan)
            if after.norm is Norm.L2:
                gaussian.append(_delta(before + 1 / after.multiplier**2, 0.0, plan.epsilon))
            else:
                laplace.append(_delta(before, after.epsilon, plan.epsilon))
    return max(gaussian) + sum(laplace)


def _delta(precision: float, pure: float, epsilon: float) -> float:
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


def charged_first(setting: Setting) -> Finding:
    """The ledger has the discovery's charge before its noise is drawn."""
    plan, ledger = _plan(), Ledger()
    source = _Watched(setting.mechanism(), ledger)
    population = crafted([[(0, 1)]] * plan.users, 1, [_COMMON])
    run_rounds(plan, Replay(population, setting.auditor()), ledger=ledger, source=source)
    wrong = int(not source.charged or 0 in source.charged)
    return none_wrong(setting, wrong, 1, "discoveries drawn for before they were charged")


@dataclass(frozen=True)
class _Watched:
    """A source that notes how many charges there were when the discovery's noise was about to be drawn."""

    source: Source
    ledger: Ledger
    charged: list[int] = field(default_factory=list)

    @property
    def seeded(self) -> bool:
        """As it is."""
        return self.source.seeded

    def words(self, count: int) -> Any:
        """As they are."""
        return self.source.words(count)

    def user_words(self, users: Any, draw: Any = 0) -> Any:
        """As they are."""
        return self.source.user_words(users, draw)

    def fork(self, *purpose: str | int) -> Source:
        """Watched, too."""
        if "discover" in purpose and "device" not in purpose:
            self.charged.append(len(self.ledger.entries))
        return _Watched(self.source.fork(*purpose), self.ledger, self.charged)


def made_up_items(setting: Setting) -> Finding:
    """A device that is asked for releases of lists that nobody found pays for each, and answers one list a run."""
    plan = _plan(delta=1e-6)
    wrong, memory = 0, Memory()
    # Room for two by zCDP, and for one by sums.
    policy = Policy(max_epsilon=1.3 * plan.epsilon)
    admitted = 0
    for run in range(4):
        asked = [_release_of(plan, f"run {run}", keys) for keys in (("mine",), ("mine", "other"))]
        try:
            memory = admit(policy, memory, asked[0])
        except Refused:
            continue
        admitted += 1
        try:
            admit(policy, memory, asked[1])
            wrong += 1
        except Refused:
            pass
    wrong += admitted != 2
    return none_wrong(setting, wrong, 5, "requests of made-up items answered or refused by mistake")


def _release_of(plan: Plan, run: str, keys: tuple[str, ...]) -> Envelope:
    settled = Settled(keys=keys, share=plan.discovery.shares[0])
    given = Bound(settled.plan_for(plan).fixed_threshold)
    request = Request(plan, "clipped-sum", given, settled)
    assert request.round is Round.RELEASE  # noqa: S101 - what the check is about
    return Envelope(run, request)


CHECKS = (
    *(
        Check(
            f"discovery, fresh keys, {user}",
            partial(fresh_keys, user, Neighbours.ZERO_OUT),
        )
        for user in USERS
    ),
    Check(
        "discovery, fresh keys, replaced",
        partial(fresh_keys, "a key each", Neighbours.REPLACE_ONE),
    ),
    Check("discovery, at the bar", key_at_the_bar),
    Check("discovery, parts of the budget", parts_of_the_budget),
    Check("discovery, charged first", charged_first),
    Check("discovery, made-up items", made_up_items),
)
