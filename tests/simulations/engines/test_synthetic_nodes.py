from __future__ import annotations

import pytest

from fedhist import HeavyTailedPopulation, InvalidInput
from tests.support.api import users_of
from tests.support.refusals import refused

# The empty text stands for a key that was not given.
RUN = {"users": 50, "items": 7, "seed": 3, "synthetic-items": ""}


def node(number: int) -> dict[str, object]:
    return {"partition-id": number, "num-partitions": 3}


@pytest.mark.parametrize(("run", "items"), [(RUN, 7), (RUN | {"items": "", "synthetic-items": 9}, 9)])
def test_the_nodes_share_the_population_of_the_same_seed(run: dict[str, object], items: int) -> None:
    parts = [users_of(node(number), run) for number in range(3)]
    whole = HeavyTailedPopulation(users=50, items=items, seed=3)
    assert [part.users for part in parts] == [16, 17, 17]
    assert [part.histograms.first_user for part in parts] == [0, 16, 33]
    assert sum(part.totals() for part in parts).tolist() == whole.totals().tolist()


@pytest.mark.parametrize("users", ["", "50", True, 5.0])
def test_a_number_of_users_that_is_none(users: object) -> None:
    with refused(InvalidInput, "not-an-integer"):
        users_of(node(0), RUN | {"users": users})
