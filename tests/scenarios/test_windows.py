"""Windows on nodes: each selects the rows itself, answers a window in one run, and nothing without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from flwr.clientapp import ClientApp
from local_grid import LocalGrid, Node, context_of, data_of, message_of, outcome

from fedhist import Columns, Plan, RoundFailed, SeededSource
from fedhist.client import Policy, mount
from fedhist.server import run_on_grid
from tests.asking import release_at
from tests.builders import population_of
from tests.support.api import Envelope, MemoryFile, Threshold, items_digest
from tests.support.api import PolicyMemory as Memory
from tests.support.api import app_module as client_app
from tests.support.refusals import refused

SHOPS = ["a", "b", "c"]
DAYS = ("2026-11-15", "2026-11-16", "2026-11-20T12:00:00Z", "2026-11-23", "2026-11-24")
ROWS = [(f"u{number % 20}", SHOPS[number % 3], DAYS[number % 5]) for number in range(300)]
IN_WEEK = [shop for _, shop, day in ROWS if "2026-11-16" <= day < "2026-11-23"]
USUAL: dict[str, Any] = {
    "users": 40,
    "items": 3,
    "max_threshold": 500,
    "epsilon": 50.0,
    "epsilon_select": 50.0,
}


def plan_of(window: str | None, **settings: Any) -> Plan:
    return Plan(**(USUAL | {"window": window} | settings))


def node_at(folder: Path, number: int, **config: Any) -> Node:
    """A SuperNode with a file of its own."""
    place = folder / str(number)
    if not place.exists():
        place.mkdir()
        pl.DataFrame(ROWS, schema=["user", "item", "when"], orient="row").write_csv(place / "visits.csv")
        (place / "shops.txt").write_text("\n".join(SHOPS))
    node = Node(client_app.app, number)
    usual = {
        "items_path": str(place / "shops.txt"),
        "data_path": str(place / "visits.csv"),
        "time_column": "when",
    }
    given = usual | {"memory_path": str(place / "memory.db")} | config
    node.context = context_of(
        node=number, **{name: value for name, value in given.items() if value is not None}
    )
    return node


def grid_at(folder: Path, nodes: int = 2, **config: Any) -> LocalGrid:
    return LocalGrid({number: node_at(folder, number, **config) for number in range(100, 100 + nodes)})


def asked(plan: Plan, run: str = "one") -> Envelope:
    at_most = Threshold(steps=plan.step_range[1], bits=plan.grid_bits)
    return Envelope(run=run, request=release_at(plan, at_most), items_digest=items_digest(SHOPS))


def said(node: Node, plan: Plan, run: str = "one") -> tuple[str, str]:
    stage = "advertising" if plan.is_masked else None
    return outcome(node.answer(message_of(asked(plan, run), stage)))


MASKED = {"masking": "secagg", "participants": 4}


class Repeated(SeededSource):
    """The same noise every time, of a server that does not say so: nodes with real users refuse a seed."""

    seeded = False


@pytest.mark.parametrize("masks", [{}, MASKED])
def test_nodes_select_the_rows_and_both_rounds_of_a_run_are_one_look(
    tmp_path: Path, masks: dict[str, Any]
) -> None:
    nodes = masks.get("participants", 2)
    settings = masks | {"users": 20 * nodes}
    grid = grid_at(tmp_path, nodes)
    # The noise is the same every time: now and then it is larger than the window's rows allow for.
    found = run_on_grid(grid, plan_of("2026-W47", **settings), labels=SHOPS, source=Repeated(1))
    exact = [nodes * IN_WEEK.count(shop) for shop in SHOPS]
    assert np.allclose(found.histogram, exact, atol=8)
    assert all({outcome(reply) for reply in node.replies} == {("answer", "")} for node in grid.nodes.values())
    for again in ("2026-W47", "2026-11-22", "2026-11-22/2026-11-30", "2026"):
        with refused(RoundFailed, "too-few-survivors" if masks else "no-answer", "answered-window"):
            run_on_grid(grid_at(tmp_path, nodes), plan_of(again, **settings), labels=SHOPS)
    following = plan_of("2026-W48", **settings)
    next_week = run_on_grid(grid_at(tmp_path, nodes), following, labels=SHOPS, source=Repeated(1))
    assert np.allclose(next_week.histogram, [40 * nodes] * 3, atol=8)


def test_the_answer_is_that_of_a_node_with_those_rows_alone(tmp_path: Path) -> None:
    plan = plan_of("2026-W47")
    windowed = node_at(tmp_path, 100).answer(message_of(asked(plan)))
    table = pl.DataFrame(ROWS, schema=["user", "item", "when"], orient="row")
    cut = table.with_columns(
        count=pl.col("when").str.slice(0, 10).is_between(pl.lit("2026-11-16"), pl.lit("2026-11-22"))
    )
    app = mount(
        ClientApp(),
        lambda context: cut.drop("when"),
        items=SHOPS,
        simulated=lambda context: True,
    )
    assert data_of(windowed) == data_of(Node(app, 100).answer(message_of(asked(plan))))
    assert data_of(windowed)


@pytest.mark.parametrize("masks", [{}, MASKED])
def test_a_node_without_a_time_column_answers_no_window_and_one_with_it_nothing_else(
    tmp_path: Path, masks: dict[str, Any]
) -> None:
    assert said(node_at(tmp_path, 100, time_column=None), plan_of("2026-W47", **masks)) == (
        "refused",
        "no-window",
    )
    assert said(node_at(tmp_path, 100), plan_of(None, **masks)) == ("refused", "no-window")
    memory = tmp_path / "100" / "memory.db"
    assert not memory.exists() or MemoryFile(memory).read() == Memory()
    assert said(node_at(tmp_path, 100, time_column=None), plan_of(None, **masks)) == ("answer", "")


def test_windows_need_a_memory_that_lasts(tmp_path: Path) -> None:
    assert said(node_at(tmp_path, 100, memory_path=None), plan_of("2026-W47")) == ("refused", "no-memory")


def test_a_lost_answer_is_given_again_and_another_run_is_refused(tmp_path: Path) -> None:
    node, plan = node_at(tmp_path, 100), plan_of("2026-W47")
    first, again = (node.answer(message_of(asked(plan))) for _ in range(2))
    assert data_of(first) == data_of(again) is not None
    assert said(node_at(tmp_path, 100), plan, run="two") == ("refused", "answered-window")


def test_a_node_may_allow_more_runs_of_a_day(tmp_path: Path) -> None:
    def told(window: str, run: str) -> str:
        return said(node_at(tmp_path, 100, window_runs=2), plan_of(window), run)[1]

    assert [told("2026-W47", "1"), told("2026-11-20", "2"), told("2026-11-16", "3")] == ["", "", ""]
    assert told("2026-11-16/2026-11-17", "4") == told("2026-W47", "5") == "answered-window"
    assert told("2026-11-17", "6") == ""


def test_a_run_that_costs_too_much_has_not_answered_its_window(tmp_path: Path) -> None:
    assert said(node_at(tmp_path, 100, max_epsilon=10.0), plan_of("2026-W47"))[1] == "over-budget"
    assert said(node_at(tmp_path, 100, max_epsilon=10.0), plan_of("2026-W47", epsilon=5.0), "two") == (
        "answer",
        "",
    )


def test_a_masked_session_that_ends_early_has_not_answered_its_window(tmp_path: Path) -> None:
    plan = plan_of("2026-W47", **MASKED)
    assert [said(node_at(tmp_path, 100), plan, run)[0] for run in ("one", "two")] == ["answer", "answer"]


def test_the_nodes_log_says_which_window_it_has_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said(node_at(tmp_path, 100), plan_of("2026-W47"))
    said(node_at(tmp_path, 100), plan_of("2026-11-20"), "two")
    assert "the window 2026-11-20 shares days with 2026-W47, and window-runs is 1" in caplog.text


class TestAnAppOfOnesOwn:
    def node(self, folder: Path, data: Any, columns: Columns) -> Node:
        app = mount(
            ClientApp(),
            lambda context: data,
            columns=columns,
            items=SHOPS,
            memory=lambda context: folder / "own.db",
            policy=Policy(),
        )
        return Node(app, 100)

    def test_a_frame_is_filtered_by_its_time_column(self, tmp_path: Path) -> None:
        frame = pl.DataFrame(ROWS, schema=["user", "item", "when"], orient="row")
        own = self.node(tmp_path, frame, Columns(time="when")).answer(message_of(asked(plan_of("2026-W47"))))
        assert (
            data_of(own)
            == data_of(node_at(tmp_path, 100).answer(message_of(asked(plan_of("2026-W47")))))
            is not None
        )

    def test_a_population_without_times_is_no_answer_to_a_window(self, tmp_path: Path) -> None:
        users = population_of([[1, 2, 3]])
        for columns in (Columns(), Columns(time="when")):
            assert said(self.node(tmp_path, users, columns), plan_of("2026-W47")) == ("refused", "no-window")
        assert not MemoryFile(tmp_path / "own.db").read().windows
