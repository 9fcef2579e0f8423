"""Audits of an open domain: keys that one user alone holds, and whether a round with a table fails.

Without the user none of these keys can be shown, so the probability that any is shown is at most delta. The worst users
have one key with the whole bound, or as many keys as count; others have more, of which clipping keeps few. What the
ledger charges for a discovery's cutoffs is a small part of delta, so it is checked by itself: an error there would hide
behind the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedhist.protocol.errors import TableTooSmall
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.terms import USER_ITEMS, fit_noise
from fedhist.protocol.privacy.ledger import AlternativesLoss, Cost, Ledger
from fedhist.protocol.rounds import Request, Round, Total
from fedhist.server.coordinator import run_rounds
from fedhist.server.discovery import discovery_charges
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.bounds import LARGEST_EPSILON, at_least, event_epsilon
from fedhist.simulations.audit.checks import Check, Finding, Setting, compared
from fedhist.simulations.audit.neighbours import User, crafted, repeated

_COMMON, _HOLDERS = "common", 12
_BOUND = 5
_CAPACITY = 12
_RELEASES: dict[str, Any] = {"epsilon": 2.0, "delta": 0.05}
_DISCOVERY: dict[str, Any] = {"epsilon": 1.0, "delta": 0.49, "release": "discover"}


def _plan(**settings: Any) -> Plan:
    usual: dict[str, Any] = {"selector": "fixed", "threshold": float(_BOUND), "max_threshold": 8.0}
    return Plan(**usual | {"users": _HOLDERS + 1, "domain": "open"} | settings)


def fresh_keys(release: str, kind: str, more: dict[str, Any], setting: Setting) -> Finding:
    """Whether a key of the user's own is shown. It never is without the user."""
    discovers = release == "discover"
    plan = _plan(**(_DISCOVERY if discovers else _RELEASES) | {"release": release} | more)
    counted, runs = (USER_ITEMS, setting.effort.slow_runs) if discovers else (_BOUND, setting.effort.runs)
    keys = {"one key": 1, "a key each": counted, "many keys": (8 if discovers else 60) * counted}[kind]
    user: User = [(1 + key, 8 * _BOUND if keys == 1 else 1) for key in range(keys)]
    labels = [_COMMON, *(f"fresh {key}" for key in range(keys))]
    population = crafted([*[[(0, _BOUND)]] * _HOLDERS, user], len(labels), labels)
    shown, _ = repeated(plan, population, runs, _shows_others, source=setting.mechanism())
    claim = Cost(0.0, _cutoffs(plan) if discovers else plan.delta)
    # What can't happen without the user and has a probability above delta with the user refutes every epsilon.
    refuted = at_least(sum(shown), runs, setting.alpha) > claim.delta
    bound = LARGEST_EPSILON if refuted else 0.0
    return compared(setting, claim, bound, f"fresh keys in {sum(shown):,} of {runs:,} runs")


def _shows_others(release: Release) -> bool:
    """True if the release has a key other than the common one."""
    return any(label != _COMMON for label in release.labels or ())


def _cutoffs(plan: Plan) -> float:
    """What the ledger charges for keys of one user alone."""
    losses = [charge.loss for charge in discovery_charges(plan)]
    return sum(loss.failure for loss in losses if isinstance(loss, AlternativesLoss))


def full_table(setting: Setting) -> Finding:
    """The others hold as many items as just fit, and the user adds as many new ones as one user can.

    The event is that the round fails.
    """
    masked: dict[str, Any] = {
        "masking": "secagg",
        "participants": 3,
        "corrupt_share": 0.0,
        "dropout_share": 0.0,
    }
    budget = {"epsilon": 0.1, "epsilon_select": 2.0, "delta": 0.01, "delta_select": 0.01}
    plan = _plan(users=3, max_items=_CAPACITY, **masked, **budget)
    noise = fit_noise(plan)
    assert noise is not None  # noqa: S101 - three users may bring more items than fit
    held = _CAPACITY + noise.bar
    labels = [f"item {number}" for number in range(held + plan.discovery.user_items)]
    # The total is written down, because three users can't hold so many items.
    runs, failed, claim = setting.effort.runs, [0, 0], Cost(0.0, 0.0)
    for place, items in enumerate((held, held + plan.discovery.user_items)):
        keyed = Keyed(np.arange(items), np.ones((items, 1), dtype=np.int64))
        given = _Given(Total(plan.users, np.zeros(0, dtype=np.int64), keyed, labels, shares=3))
        for number in range(runs):
            ledger = Ledger()
            try:
                run_rounds(plan, given, ledger=ledger, source=setting.mechanism().fork(place, number))
            except TableTooSmall:
                failed[place] += 1
            claim = claim if number else ledger.tight()
    bound = event_epsilon(failed[1], runs, failed[0], runs, delta=claim.delta, alpha=setting.alpha)
    detail = f"the round failed in {failed[0]:,} and {failed[1]:,} of {runs:,} runs"
    return compared(setting, claim, bound, detail)


@dataclass(frozen=True)
class _Given:
    """A cohort with one answer to the discovery, and no counts of what it finds."""

    answer: Total
    simulated: bool = False

    def total(self, request: Request) -> Total:
        """The answer to a request."""
        if request.round is Round.DISCOVER:
            return self.answer
        nothing = np.zeros(request.measurement.shape.length, dtype=np.int64)
        return Total(self.answer.users, nothing, shares=self.answer.shares)


_REPLACED = {"neighbours": "replace-one"}
_CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    f"{release}, {kind}": (release, kind, {})
    for release in ("truncated-laplace", "laplace-threshold", "laplace-threshold-paper", "discover")
    for kind in ("one key", "a key each", "many keys")
    if (release, kind) != ("laplace-threshold-paper", "many keys")
}
_CASES |= {
    "truncated-laplace, replaced": ("truncated-laplace", "one key", _REPLACED),
    "laplace-threshold, replaced": ("laplace-threshold", "one key", _REPLACED),
    "discover, replaced": ("discover", "a key each", _REPLACED),
}
CHECKS = (
    *(Check(f"fresh keys, {name}", partial(fresh_keys, *case)) for name, case in _CASES.items()),
    Check("a full table", full_table),
)
