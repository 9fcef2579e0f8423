"""What a round hands to the next comes back from its fields, and nothing else does."""

from __future__ import annotations

import pytest

from fedhist import InvalidInput, Plan
from tests.support.api import (
    Bound,
    ClippedSum,
    Column,
    DecodeError,
    ItemBounds,
    NoisyTailMeasurement,
    Salt,
    UnexpectedMessage,
)
from tests.support.refusals import refused

PLAN = Plan(users=100, items=3, debias="poisson")
LOW, HIGH = PLAN.step_range


def bounds(*values):
    return {"item-thresholds": list(values)}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Column, {}),
        (Column, {"column": 1}),
        *((Bound, {"threshold-steps": steps}) for steps in (LOW - 1, HIGH + 1, 2**40, True, 1.5, None)),
        *((ItemBounds, bounds(LOW, LOW, each)) for each in (LOW - 1, HIGH + 1, 1.0, True, 2**63, -(10**30))),
        (ItemBounds, bounds()),
        (ItemBounds, bounds(LOW, LOW)),
        (ItemBounds, {"item-thresholds": None}),
        *((Salt, {"table-salt": salt}) for salt in (None, b"", bytes(31), bytes(33), "0" * 32, [0] * 32)),
        (Salt, {}),
    ],
)
def test_wrong_fields_are_refused(kind, fields):
    with pytest.raises(DecodeError):
        kind.from_fields(fields, PLAN)


def test_what_is_handed_on_must_be_what_the_measurement_takes():
    with refused(InvalidInput, "bad-salt", "16"):
        Salt(bytes(16))
    with pytest.raises(UnexpectedMessage):
        ClippedSum(Plan(users=9, items=2), Salt(bytes(32)))
    noisy = Plan(users=9, items=2, masking="secagg", participants=5, noise_from="devices")
    with refused(InvalidInput, "unknown-column"):
        NoisyTailMeasurement(noisy, Column("median"))
