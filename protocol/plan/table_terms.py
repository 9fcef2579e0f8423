"""What a plan says about the table of a discovery under masks: its room, its test, what both cost.

A sum of tables can be read only if it holds no more distinct items than it has room for. Whether it does is an output
of the round, so it is made private and charged, before the round is asked for.

**The test.** Let N be the number of distinct items in the sum. Each user puts weights on at most D items
(`USER_ITEMS`). So N moves by at most D when a user is zeroed out. When one is replaced, at most D items are new and at
most D are gone, so N moves by at most D then, too: sensitivity D under both relations. The server draws discrete
Laplace noise Z cut to [-A, A] for sensitivity D, epsilon' and delta' (`bars.truncated_laplace`, whose proof for one key
that grows or shrinks is that N + Z is (epsilon', delta')-private), and releases nothing if

    N + Z > capacity + A.

With N <= capacity this never happens. With N > capacity + 2A it always does, so the table has room for `capacity + 2A`
items and no more are ever to be read. If all users together can hold at most `capacity` items, then there is no test,
no cost and no further room.

**Decoding.** A table within its room fails with a chance p over the salt, which was drawn after the data was fixed
(`decoding_bound`; p includes that it decodes wrongly). For all salts but a share of 2p, the tables of both of two
neighbours decode as they should, or are too full and the test fails for certain. For these salts the round shows what
a perfect table would show, which costs what discovery and test cost. For the others it may show anything: 2p more of
delta, also to those who know the salt. A table that does not decode fails with the words of a test that failed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan.fields import TABLE_TRUST
from fedhist.protocol.plan.masking_terms import MAX_TABLE_CAPACITY
from fedhist.protocol.privacy.bars import OpenNoise, truncated_laplace
from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.protocol.sketch import MAX_FAILURE, TableShape

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

_MUCH_LONGER = 2


def table_shape(plan: Plan) -> TableShape:
    """The table, with room for all that the test may let pass."""
    return TableShape(capacity=table_room(plan), label_bytes=plan.max_item_bytes)


def table_room(plan: Plan) -> int:
    """How many distinct items the table must be able to hold."""
    noise = fit_noise(plan)
    return plan.max_items if noise is None else plan.max_items + 2 * noise.bar  # audited: room


def fit_noise(plan: Plan) -> OpenNoise | None:
    """The noise on the number of distinct items, in [-bar, bar]; None where no test is needed."""
    if not is_tested(plan):
        return None
    # The number moves by at most D under either relation, as one key does under zero-out.
    return truncated_laplace(
        plan.discovery.user_items,
        epsilon=plan.epsilon_select,
        delta=plan.delta_select,
        neighbours=Neighbours.ZERO_OUT,
    )


def is_tested(plan: Plan) -> bool:
    """Whether users could bring in more items than the capacity."""
    return plan.users * plan.discovery.user_items > plan.max_items


def decoding_delta(plan: Plan) -> float:
    """2p."""
    return _decoding_delta(plan.max_item_bytes, table_room(plan))


def most_of_table(plan: Plan) -> Cost:
    """The most that test and decoding may cost; nothing for a plan that has no table.

    A bound for devices: what a ledger is charged is less, and takes longer to compute.
    """
    if not plan.has_table:
        return Cost(0.0, 0.0)
    decoding = Cost(0.0, 2 * MAX_FAILURE)
    return decoding + Cost(plan.epsilon_select, plan.delta_select) if is_tested(plan) else decoding


def check_table(plan: Plan) -> None:
    """Refuse a plan whose table would need a delta that it does not have, or be too long."""
    if not plan.has_table or not is_tested(plan):
        return
    if plan.delta_select == 0:
        untested = plan.users * plan.discovery.user_items
        more = f", or raise --max-items to {untested:,}" if untested <= MAX_TABLE_CAPACITY else ""
        raise InvalidPlan(
            "an open domain under masks without a delta-select",
            allowed="a delta-select above 0, which the test for room in the table spends",
            advice=f"leave --delta-select out{more}",
            code="no-delta-select",
        )
    try:
        table_shape(plan)
    except InvalidPlan as problem:
        raise InvalidPlan(
            f"for --max-items {plan.max_items}, {problem.problem}",
            allowed=problem.allowed,
            advice="lower --max-items or --max-item-bytes, or raise --epsilon-select",
            code="table-too-large",
        ) from None


def table_notes(plan: Plan) -> list[str]:
    """Notes on the plan's table for its user, before it costs anything."""
    if not plan.has_table:
        return []
    notes = [TABLE_TRUST]
    longest = table_shape(plan).length
    plain = TableShape(capacity=plan.max_items, label_bytes=plan.max_item_bytes).length
    if longest > _MUCH_LONGER * plain:
        notes.append(
            f"the private test for room makes the table {longest / plain:.1f} times as long, "
            f"{8 * longest / 1e6:,.1f} MB a participant: a higher --epsilon-select makes it shorter"
        )
    return notes


@functools.lru_cache(maxsize=256)
def _decoding_delta(label_bytes: int, room: int) -> float:
    return 2 * TableShape(capacity=room, label_bytes=label_bytes).failure_bound
