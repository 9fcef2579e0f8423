"""Audits of the tables of a masked discovery: whether a round fails must not reveal what a user holds.

The others may hold names that were made to collide, and as many items as just fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhist.protocol.errors import FedhistError, TableTooSmall
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements.base import Round, Salt
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.table_terms import fit_noise, table_shape
from fedhist.protocol.privacy.ledger import Cost, Ledger
from fedhist.protocol.rounds import Request, Total
from fedhist.protocol.sketch import SALT_BYTES, decode_table, encode_table
from fedhist.server.coordinator import Asking, Begin, Planned, advance, run_rounds
from fedhist.simulations.audit.bounds import event_epsilon
from fedhist.simulations.audit.findings import Check, Finding, Setting, compared, none_wrong
from fedhist.simulations.audit.others import MASKED

_CAPACITY = 12
_RUNS, _TABLES = 100, 10


def _table_plan(capacity: int, **settings: Any) -> Plan:
    usual: dict[str, Any] = {"users": 3, "selector": "fixed", "threshold": 5.0, "max_threshold": 8.0}
    budget: dict[str, Any] = {"epsilon": 0.1, "epsilon_select": 2.0, "delta": 0.01, "delta_select": 0.01}
    return Plan(domain="open", max_items=capacity, **MASKED, **(usual | budget | settings))


def full_table(setting: Setting) -> Finding:
    """The others hold as many items as just fit, and the user adds as many new ones as one user can.

    The event is that the round fails.
    """
    plan = _table_plan(_CAPACITY)
    noise = fit_noise(plan)
    assert noise is not None  # noqa: S101 - three users may bring more items than fit
    held = _CAPACITY + noise.bar
    labels = [f"item {number}" for number in range(held + plan.discovery.user_items)]
    # The total is written down, because three users can't hold so many items.
    runs, source = setting.effort.runs, setting.mechanism()
    failed, claim = [0, 0], Cost(0.0, 0.0)
    for place, (world, items) in enumerate((("without", held), ("with", held + plan.discovery.user_items))):
        keyed = Keyed(np.arange(items), np.ones((items, 1), dtype=np.int64))
        total = Total(plan.users, np.zeros(0, dtype=np.int64), keyed, labels, shares=3)
        for number in range(runs):
            ledger = Ledger()
            try:
                run_rounds(plan, _Given(total), ledger=ledger, source=source.fork(world, number))
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


def fresh_salts(setting: Setting) -> Finding:
    """Every run draws a new salt for its table, so that nobody can choose names that collide."""
    plan, salts = _table_plan(_CAPACITY), []
    state = Planned(plan)
    for number in range(_RUNS):
        source = setting.mechanism().fork("salt", number)
        asked = advance(state, Begin(), ledger=Ledger(), source=source)
        assert isinstance(asked, Asking)  # noqa: S101 - a run begins with its discovery
        assert isinstance(asked.request.given, Salt)  # noqa: S101 - a table is asked for
        salts.append(asked.request.given.salt)
    again = len(salts) - len(set(salts)) + sum(len(salt) != SALT_BYTES for salt in salts)
    return none_wrong(setting, again, len(salts), "salts repeated or short")


def tables_at_their_room(setting: Setting) -> Finding:
    """Tables that are as full as allowed are decoded completely, whatever the salt."""
    wrong = cases = 0
    for capacity in (1, 2, 40, 6_000):
        plan = _table_plan(capacity, users=max(capacity, 3))
        noise = fit_noise(plan)
        room = capacity if noise is None else capacity + 2 * noise.bar
        names = [f"name {number}" for number in range(room)]
        for number in range(_TABLES):
            salt = setting.auditor().fork(capacity, number).words(SALT_BYTES // 8).tobytes()
            shape = table_shape(plan)
            vector = encode_table(names, np.ones(room, dtype=np.int64), shape, salt=salt)
            try:
                wrong += sorted(decode_table(vector, shape, salt=salt).labels) != sorted(names)
            except FedhistError:
                wrong += 1
            cases += 1
    return none_wrong(setting, wrong, cases, "full tables not read back")


CHECKS = (
    Check("tables, too full or not", full_table),
    Check("tables, fresh salts", fresh_salts),
    Check("tables, at their room", tables_at_their_room),
)
