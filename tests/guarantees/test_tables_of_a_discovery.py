"""Whether a round with a table fails must not tell what a user holds: nobody can aim at it, and full tables decode."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhist import Ledger, Plan, SystemSource
from tests.support.api import (
    SALT_BYTES,
    Asking,
    Begin,
    Planned,
    Salt,
    advance,
    decode_table,
    encode_table,
    fit_noise,
    table_shape,
)


def with_a_table(capacity: int, **settings: Any) -> Plan:
    usual: dict[str, Any] = {"users": 3, "selector": "fixed", "threshold": 5.0, "max_threshold": 8.0}
    usual |= {"masking": "secagg", "participants": 3, "corrupt_share": 0.0, "dropout_share": 0.0}
    usual |= {"epsilon": 0.1, "epsilon_select": 2.0, "delta": 0.01, "delta_select": 0.01}
    return Plan(domain="open", max_items=capacity, **(usual | settings))


def test_every_run_draws_a_new_salt_so_that_nobody_can_choose_names_that_collide() -> None:
    salts = []
    for _ in range(100):
        asked = advance(Planned(with_a_table(12)), Begin(), ledger=Ledger(), source=SystemSource())
        assert isinstance(asked, Asking) and isinstance(asked.request.given, Salt)
        salts.append(asked.request.given.salt)
    assert len(set(salts)) == len(salts)
    assert {len(salt) for salt in salts} == {SALT_BYTES}


def test_tables_as_full_as_allowed_decode_completely_whatever_the_salt() -> None:
    for capacity in (1, 2, 40, 6_000):
        plan = with_a_table(capacity, users=max(capacity, 3))
        noise, shape = fit_noise(plan), table_shape(plan)
        room = capacity if noise is None else capacity + 2 * noise.bar
        names = [f"name {number}" for number in range(room)]
        for _ in range(10):
            salt = SystemSource().words(SALT_BYTES // 8).tobytes()
            vector = encode_table(names, np.ones(room, dtype=np.int64), shape, salt=salt)
            assert sorted(decode_table(vector, shape, salt=salt).labels) == sorted(names)
