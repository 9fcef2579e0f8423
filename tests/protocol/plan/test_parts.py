"""What only some plans have."""

from __future__ import annotations

import pytest

from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.parts import Closed, Masks, Open

CLOSED = Plan(users=100, items=10)
OPEN = Plan(users=100, domain="open")


def test_a_plan_has_the_parts_that_its_fields_ask_for():
    assert Plan(users=100, items=10, sparsity=4).closed == Closed(items=10, sparsity=4)
    assert CLOSED.closed == Closed(items=10, sparsity=10)
    assert Plan(users=100, domain="open", release="laplace-threshold").open == Open(
        release="laplace-threshold"
    )
    masked = Plan(
        users=100, items=10, masking="secagg", participants=20, dropout_share=0.3, corrupt_share=0.2
    )
    assert masked.masks == Masks(participants=20, minimum_survivors=14, noise_shares=10)
    fixed = Plan(users=100, items=10, selector="fixed", threshold=12.3)
    assert fixed.fixed_threshold.value == pytest.approx(12.3, abs=2.0**-fixed.grid_bits)


@pytest.mark.parametrize(
    ("plan", "part"),
    [(OPEN, "closed"), (CLOSED, "open"), (CLOSED, "masks"), (CLOSED, "fixed_threshold")],
)
def test_a_part_that_a_plan_does_not_have_is_a_mistake_in_the_program(plan: Plan, part: str):
    with pytest.raises(LookupError, match="ask"):
        getattr(plan, part)
