"""A run that anybody can repeat or compare with the exact data says that it is not private, and charges nobody."""

from __future__ import annotations

import pytest

from fedhist import Charge, InvalidInput, Plan, simulate
from tests.builders import population_of

PLAN = Plan(users=9, items=2)
PEOPLE = population_of([[8, 8]] * 9)


@pytest.mark.parametrize(("seed", "evaluate"), [(1, False), (None, True), (1, True)])
def test_seeded_and_evaluated_runs_are_not_private_and_no_ledger_takes_them(
    seed: int | None, evaluate: bool
) -> None:
    charges: list[Charge] = []
    assert not simulate(PEOPLE, PLAN, seed=seed, evaluate=evaluate).release.private
    with pytest.raises(InvalidInput):
        simulate(PEOPLE, PLAN, seed=seed, evaluate=evaluate, journal=charges.append)
    assert charges == []


def test_other_runs_are_private_and_charged() -> None:
    charges: list[Charge] = []
    assert simulate(PEOPLE, PLAN, evaluate=False, journal=charges.append).release.private
    assert charges
