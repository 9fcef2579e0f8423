"""What a plan may say about masking."""

from __future__ import annotations

from typing import Any

import pytest

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.plan import Plan

CLOSED: dict[str, Any] = {"users": 5000, "items": 10}


def masked(**settings: Any) -> Plan:
    return Plan(**{**CLOSED, "masking": "secagg", "participants": 100, **settings})


def test_the_open_domain_takes_the_statistic_that_can_be_masked():
    assert Plan(users=100, domain="open", masking="secagg", participants=10).statistic == "bucketed"
    assert Plan(users=100, domain="open").statistic == "plain"


def test_masking_changes_the_plans_name():
    assert len({masked().digest, masked(masking="secagg-signed").digest, Plan(**CLOSED).digest}) == 3


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"participants": None}, "without a number of participants"),
        ({"participants": 2}, "2 participants"),
        ({"participants": 5001}, "5001 participants"),
        ({"participants": 513, "masking": "secagg-signed"}, "513 participants under secagg-signed"),
        ({"corrupt_share": 0.4}, "corrupt share is 0.4"),
        ({"participants": 4, "dropout_share": 0.3, "masking": "secagg-signed"}, "can't rebuild"),
        ({"dropout_share": -0.1}, "drop-out share is -0.1"),
        ({"dropout_share": float("nan")}, "drop-out share is nan"),
        ({"masking": "none"}, "without masking sets participants"),
        (
            {"masking": "none", "participants": None, "noise_from": "devices"},
            "without masking sets noise_from",
        ),
        ({"masking": "pgp"}, "masking is 'pgp'; allowed: none, secagg"),
        ({"noise_from": "above"}, "noise from is 'above'; allowed: server, devices"),
        ({"domain": "open", "items": None, "statistic": "plain"}, "plain statistic under masking"),
        (
            {"domain": "open", "items": None, "noise_from": "devices"},
            "noise from devices over an open domain",
        ),
        ({"domain": "open", "items": None, "table_capacity": 0}, "table capacity is 0"),
        ({"domain": "open", "items": None, "label_bytes": 5000}, "label bytes is 5000"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], told: str):
    with pytest.raises(InvalidPlan, match=told):
        masked(**settings)
