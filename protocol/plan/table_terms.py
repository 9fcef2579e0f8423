"""What a plan says about the table of round 2, over an open domain under masks: its room, its test, what both cost.

A sum of tables can be read only if it holds no more distinct items than it has room for. Whether it does is an output
of the round, so it is made private and charged, before round 2 is asked for.

**The test.** Let D be the number of distinct items with a positive clipped sum. A clipped histogram has at most C
counts and hence at most C items. So D moves by at most C when a user is zeroed out. When one is replaced, at
most C items are new and at most C are gone, so D moves by at most C then, too: sensitivity C under both relations. The
server draws discrete Laplace noise Z cut to [-A, A] for sensitivity C, epsilon' and delta' (`bars.truncated_laplace`,
whose proof for one key that grows or shrinks is that D + Z is (epsilon', delta')-private), and releases nothing if

    D + Z > capacity + A.

With D <= capacity this never happens. With D > capacity + 2A it always does, so the table has room for `capacity + 2A`
items and no more are ever to be read. If all users together have at most `capacity` counts left after clipping, then
there is no test, no cost and no further room.

**Decoding.** A table within its room fails with a chance p over the salt, which was drawn after the data was fixed
(`decoding_bound`; p includes that it decodes wrongly). For all salts but a share of 2p, the tables of both of two
neighbours decode as they should, or are too full and the test fails for certain. For these salts the round shows what
a perfect table would show, which costs what release and test cost. For the others it may show anything: 2p more of
delta, also to those who know the salt. A table that does not decode fails with the words of a test that failed.

**Charges do not depend on the threshold** that comes out, because a tight total must not: they are the largest over
all thresholds that the plan may choose.
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
from fedhist.protocol.sketch.iblt import MAX_FAILURE, TableShape

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

_MUCH_LONGER = 2


def table_shape(plan: Plan, steps: int) -> TableShape:
    """The table of round 2 at this threshold, with room for all that the test may let pass."""
    return TableShape(capacity=table_room(plan, steps), label_bytes=plan.label_bytes)


def table_room(plan: Plan, steps: int) -> int:
    """How many distinct items the table of round 2 must be able to hold at this threshold."""
    noise = fit_noise(plan, steps)
    return plan.table_capacity if noise is None else plan.table_capacity + 2 * noise.bar  # audited: room


def fit_noise(plan: Plan, steps: int) -> OpenNoise | None:
    """The noise on the number of distinct items at this threshold, in [-bar, bar]; None where no test is needed."""
    if not _may_overflow(plan, steps):
        return None
    # D moves by at most C under either relation, as one key does under zero-out.
    return truncated_laplace(
        steps, epsilon=plan.epsilon_select, delta=plan.delta_select, neighbours=Neighbours.ZERO_OUT
    )


def is_tested(plan: Plan) -> bool:
    """Whether some threshold that the plan may choose could bring in more items than the capacity."""
    return _may_overflow(plan, _thresholds(plan)[-1])


def fit_delta(plan: Plan) -> float:
    """The exact delta of the test, the largest over the thresholds; at most delta_select."""
    noises = (fit_noise(plan, steps) for steps in _thresholds(plan))
    return max((noise.delta for noise in noises if noise is not None), default=0.0)


def decoding_delta(plan: Plan) -> float:
    """2p, the largest over the thresholds."""
    return _decoding_delta(plan.label_bytes, tuple({table_room(plan, steps) for steps in _thresholds(plan)}))


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
        untested = plan.users * _thresholds(plan)[-1]
        more = f", or raise --table-capacity to {untested:,}" if untested <= MAX_TABLE_CAPACITY else ""
        raise InvalidPlan(
            "an open domain under masks without a delta-select",
            allowed="a delta-select above 0, which the test for room in the table spends",
            advice=f"leave --delta-select out{more}",
            code="no-delta-select",
        )
    try:
        table_shape(plan, _thresholds(plan)[-1])
    except InvalidPlan as problem:
        raise InvalidPlan(
            f"for --table-capacity {plan.table_capacity} and {_thresholds(plan)[-1]} items a user, {problem.problem}",
            allowed=problem.allowed,
            advice=f"lower --{_flag(plan)}, --table-capacity or --label-bytes, or raise --epsilon-select",
            code="table-too-large",
        ) from None


def table_notes(plan: Plan) -> list[str]:
    """Notes on the plan's table for its user, before it costs anything."""
    if not plan.has_table:
        return []
    notes = [TABLE_TRUST]
    largest = _thresholds(plan)[-1]
    longest = table_shape(plan, largest).length
    plain = TableShape(capacity=plan.table_capacity, label_bytes=plan.label_bytes).length
    if longest > _MUCH_LONGER * plain:
        most = f"with {largest:,} items a user" if plan.discovers else f"at the threshold {largest:,}"
        notes.append(
            f"{most} the private test for room makes the table {longest / plain:.1f} times as long, "
            f"{8 * longest / 1e6:,.1f} MB a participant: a lower --{_flag(plan)} or a higher --epsilon-select makes it "
            "shorter"
        )
    return notes


def _flag(plan: Plan) -> str:
    """What bounds a user's items in the table."""
    return "user-items" if plan.discovers else "max-threshold"


def _may_overflow(plan: Plan, steps: int) -> bool:
    return plan.users * steps > plan.table_capacity


def _thresholds(plan: Plan) -> list[int]:
    """The most items of a user that the table may hold, in counts, rising: D, or each threshold that may be chosen."""
    if plan.discovers:
        return [plan.user_items]
    if plan.threshold is not None:
        return [plan.fixed_threshold.steps]
    steps: list[int] = plan.candidate_steps.tolist()
    return steps


@functools.lru_cache(maxsize=256)
def _decoding_delta(label_bytes: int, rooms: tuple[int, ...]) -> float:
    return 2 * max(TableShape(capacity=room, label_bytes=label_bytes).failure_bound for room in rooms)
