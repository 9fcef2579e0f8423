"""What a run says of itself: seeded and evaluated ones are not private and charge nobody, and order tells nothing."""

from __future__ import annotations

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.simulations.audit.findings import Check, Finding, Setting, exact, none_wrong
from fedhist.simulations.simulation import Result, simulate

_USERS = 9


def claims(setting: Setting) -> Finding:
    """Runs over a table that are seeded, evaluated or both: `private` is False, and a ledger refuses them."""
    plan, wrong, cases = Plan(users=_USERS, items=2), 0, ((1, False), (None, True), (1, True), (None, False))
    for seed, evaluated in cases:
        open_to_all, charges = seed is None and not evaluated, list[Charge]()
        try:
            private = simulate(_people(0), plan, seed=seed, evaluate=evaluated).release.private
            simulate(_people(0), plan, seed=seed, evaluate=evaluated, journal=charges.append)
        except InvalidInput:
            pass
        wrong += (private, bool(charges)) != (open_to_all, open_to_all)
    return none_wrong(setting, wrong, len(cases), "runs of people say otherwise what protects them")


def order(setting: Setting) -> Finding:
    """One user more on either side of two equal items: whatever is told beside noised values is the same."""
    plan = Plan(
        users=_USERS,
        domain="open",
        release="truncated-laplace",
        selector="fixed",
        threshold=8.0,
        epsilon=50.0,
    )
    one, other = (_told(simulate(_people(more), plan)) for more in (0, 1))
    return exact(setting, passed=one == other, detail="the order of equal items, and their numbers")


def _people(more: int) -> SparsePopulation:
    """Users with two items each, and one with one of them alone; items are numbered as a table's are, by totals."""
    counts = np.full((_USERS, 2), 8)
    counts[0, 1 - more] = 0
    numbers = np.argsort(-counts.sum(axis=0), kind="stable")
    offsets = np.arange(0, 2 * _USERS + 1, 2)
    items = np.tile([0, 1], _USERS)
    labels = [("a", "b")[number] for number in numbers]
    return SparsePopulation.from_arrays(
        offsets, items, counts[:, numbers].ravel(), domain_size=2, labels=labels
    )


def _told(result: Result) -> tuple[object, ...]:
    keys = result.release.keys
    return result.release.private, list(result.release.names), None if keys is None else keys.tolist()


CHECKS = (Check("claims, seeds and evaluation", claims), Check("claims, order of items", order))
