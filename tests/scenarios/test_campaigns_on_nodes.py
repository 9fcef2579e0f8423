"""A campaign on Flower: each run of the ServerApp runs what is due, on nodes that select the rows themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from local_grid import LocalGrid, Node, context_of

from fedhist import BudgetFile, InvalidInput, Limit, RoundFailed
from tests.builders import rows_of
from tests.campaigns import SHOPS, WEEKS, campaign_in, runs_of, visits
from tests.support.api import Definition, run_campaign
from tests.support.api import app_module as client_app
from tests.support.refusals import refused

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


def run(definition: Definition, grid: LocalGrid, **config: Any) -> list[str]:
    given = {"campaign-folder": str(definition.place), "users": USERS, "out": "", "epsilon": ""} | config
    return [window.text for window in run_campaign(grid, given)]


def test_each_run_runs_what_is_due_on_the_nodes(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, total=LOOSE, reading={})
    assert run(made, nodes_in(tmp_path)) == list(WEEKS)
    values = [float(row["value"]) for row in rows_of(made.place / "2020-W41" / "histogram.csv")]
    assert values == pytest.approx([40, 40, 40], abs=3)
    assert [entry.status for entry in runs_of(made)] == ["released"] * 4
    assert run(made, nodes_in(tmp_path)) == []
    assert LOOSE.has_room(BudgetFile.open(made.ledger, create=False).counted())


def test_items_that_were_found_are_known_items_of_the_next_window(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, total=LOOSE, plan={"domain": "open", "users": USERS}, items=None)
    assert run(made, nodes_in(tmp_path, items_path=None), users="") == list(WEEKS)
    assert [entry.plan["known_items"] for entry in runs_of(made)[:3]] == [
        None,
        "bakery\ncinema",
        "bakery\ncinema\nlibrary",
    ]


def test_nodes_that_have_answered_a_window_are_not_asked_to_forget_it(tmp_path: Path) -> None:
    made = campaign_in(tmp_path, total=LOOSE, plan={"domain": "closed", "minimum_cohort": USERS})
    # One node alone is too few: it has answered all the same.
    alone = LocalGrid({100: nodes_in(tmp_path).nodes[100]})
    with pytest.raises(RoundFailed):
        run(made, alone)
    assert [entry.status for entry in runs_of(made)] == ["failed"]
    # They refuse it from now on, and later windows do not wait.
    assert run(made, nodes_in(tmp_path)) == list(WEEKS[1:])
    with refused(RoundFailed, "no-answer", "answered-window"):
        run(made, nodes_in(tmp_path))
    assert run(made, nodes_in(tmp_path, window_runs=3)) == ["2020-W40"]


@pytest.mark.parametrize(
    ("changes", "config", "code"),
    [
        ({}, {"epsilon": 2.0}, "unknown-key"),
        ({}, {"out": "somewhere"}, "unknown-key"),
        ({}, {"users": ""}, "no-users"),
        ({}, {"timeout": "long"}, "bad-value"),
        ({}, {"campaign-again": "2020-W40"}, "not-run-again"),
        (
            {"plan": {"domain": "open"}, "items": None, "discover": "first"},
            {},
            "list-of-found-items",
        ),
    ],
)
def test_what_nodes_can_not_do_is_refused_before_they_are_asked(
    tmp_path: Path, changes: dict[str, Any], config: dict[str, Any], code: str
) -> None:
    made = campaign_in(tmp_path, total=LOOSE, **changes)
    grid = nodes_in(tmp_path)
    with refused(InvalidInput, code):
        run(made, grid, **config)
    assert runs_of(made) == []
    assert all(node.replies == [] for node in grid.nodes.values())
