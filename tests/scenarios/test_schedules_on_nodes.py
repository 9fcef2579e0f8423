"""A schedule on Flower: each run of the ServerApp runs what is due, on nodes that select the rows themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from local_grid import LocalGrid, Node, context_of

from fedhist import InvalidInput, Limit, RoundFailed, Schedule
from tests.builders import rows_of
from tests.support.api import app_module as client_app
from tests.support.api import run_schedule
from tests.support.refusals import refused
from tests.support.schedules import SHOPS, WEEKS, ledger_of, runs_of, schedule_in, visits

USERS = 120
LOOSE = Limit(400, 5e-5)


def nodes_in(folder: Path, **config: Any) -> LocalGrid:
    """Two SuperNodes with half of the users each, which name the column of times themselves."""
    table, nodes = visits(USERS), {}
    for number in (100, 101):
        place = folder / str(number)
        if not place.exists():
            place.mkdir()
            half = table.filter(table["user"].str.slice(1).cast(int) % 2 == number - 100)
            half.write_csv(place / "visits.csv")
            (place / "shops.txt").write_text("\n".join(SHOPS))
        node = Node(client_app.app, number)
        usual = {
            "items_path": str(place / "shops.txt"),
            "data_path": str(place / "visits.csv"),
            "time_column": "when",
            "memory_path": str(place / "memory.db"),
        }
        given = usual | config
        node.context = context_of(
            node=number, **{name: one for name, one in given.items() if one is not None}
        )
        nodes[number] = node
    return LocalGrid(nodes)


def loose_in(folder: Path, **changes: Any) -> Schedule:
    """A schedule without a column of times: nodes name their own."""
    return schedule_in(folder, epsilon=LOOSE.epsilon, delta=LOOSE.delta, time=None, **changes)


def run(made: Schedule, grid: LocalGrid, **config: Any) -> list[str]:
    given = {"campaign-folder": str(made.folder), "users": USERS, "out": "", "epsilon": ""} | config
    return [window.text for window in run_schedule(grid, given)]


def test_each_run_runs_what_is_due_on_the_nodes(tmp_path: Path) -> None:
    made = loose_in(tmp_path)
    assert run(made, nodes_in(tmp_path)) == list(WEEKS)
    values = [float(row["value"]) for row in rows_of(made.folder / "2020-W41" / "histogram.csv")]
    assert values == pytest.approx([40, 40, 40], abs=3)
    assert [entry.status for entry in runs_of(made)] == ["released"] * 4
    assert run(made, nodes_in(tmp_path)) == []
    assert LOOSE.has_room(ledger_of(made).counted())


def test_items_that_were_found_are_known_items_of_the_next_window(tmp_path: Path) -> None:
    made = loose_in(tmp_path, users=USERS, items=None)
    assert run(made, nodes_in(tmp_path, items_path=None), users="") == list(WEEKS)
    assert [entry.plan["known_items"] for entry in runs_of(made)[:3]] == [
        None,
        "bakery\ncinema",
        "bakery\ncinema\nlibrary",
    ]


def test_nodes_that_have_answered_a_window_are_not_asked_to_forget_it(tmp_path: Path) -> None:
    made = loose_in(tmp_path, minimum_cohort=USERS)
    # One node alone is too few: it has answered all the same.
    alone = LocalGrid({100: nodes_in(tmp_path).nodes[100]})
    with pytest.raises(RoundFailed):
        run(made, alone)
    assert [entry.status for entry in runs_of(made)] == ["failed"]
    # They refuse it from now on, and later windows do not wait.
    assert run(made, nodes_in(tmp_path)) == list(WEEKS[1:])
    assert run(made, nodes_in(tmp_path)) == []
    assert run(made, nodes_in(tmp_path, window_runs=3)) == ["2020-W40"]


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"epsilon": 2.0}, "unknown-key"),
        ({"out": "somewhere"}, "unknown-key"),
        ({"users": ""}, "no-users"),
        ({"timeout": "long"}, "bad-value"),
        ({"campaign-again": "2020-W40"}, "not-run-again"),
    ],
)
def test_what_nodes_can_not_do_is_refused_before_they_are_asked(
    tmp_path: Path, config: dict[str, Any], code: str
) -> None:
    made, grid = loose_in(tmp_path), nodes_in(tmp_path)
    with refused(InvalidInput, code):
        run(made, grid, **config)
    assert runs_of(made) == []
    assert all(node.replies == [] for node in grid.nodes.values())
