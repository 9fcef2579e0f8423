"""Campaigns on nodes: each user has one bound for all windows, whatever the server asks, repeats or renames."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flwr.app import Message
from local_grid import LocalGrid, Node, at, context_of, data_of, message_of, outcome, silent

from fedhist import Plan, RoundFailed
from fedhist.server import run_on_grid
from tests.asking import release_at
from tests.support.api import (
    ONE,
    Envelope,
    MaskingStage,
    MemoryFile,
    decode,
    items_digest,
    round_handlers_module,
)
from tests.support.api import app_module as client_app

SHOPS = ["a", "b", "c"]
VISITS, THRESHOLD = 2, 5.0
MASKED: dict[str, Any] = {"masking": "secagg", "participants": 4, "users": 8}
# Every day, alice has more than the threshold and bob one visit.
ROWS = [("alice", "b", f"2026-11-{day:02}") for day in range(1, 9) for _ in range(40)]
ROWS += [("bob", "c", f"2026-11-{day:02}") for day in range(1, 9)]


def plan_of(day: int = 1, **settings: Any) -> Plan:
    usual = {"users": 2, "items": 3, "max_threshold": 50, "selector": "fixed", "threshold": THRESHOLD}
    terms = {"window": f"2026-11-{day:02}", "campaign": "autumn", "visits": VISITS}
    return Plan(**(usual | terms | settings))


def node_at(place: Path, number: int = 100, **config: Any) -> Node:
    """A SuperNode with a file of its own; a new one of the same place is the node after a restart."""
    place.mkdir(exist_ok=True)
    if not (place / "visits.csv").exists():
        pl.DataFrame(ROWS, schema=["user", "item", "when"], orient="row").write_csv(place / "visits.csv")
        (place / "shops.txt").write_text("\n".join(SHOPS))
    files = {"items_path": "shops.txt", "data_path": "visits.csv", "memory_path": "memory.db"}
    given = {name: str(place / file) for name, file in files.items()} | {"time_column": "when"} | config
    node = Node(client_app.app, number)
    node.context = context_of(
        node=number, **{name: value for name, value in given.items() if value is not None}
    )
    return node


def asked(plan: Plan, run: str) -> Envelope:
    return Envelope(run=run, request=release_at(plan, plan.fixed_threshold), items_digest=items_digest(SHOPS))


def sums(node: Node, plan: Plan, run: str) -> list[int]:
    """The node's sums by item."""
    envelope = asked(plan, run)
    data = data_of(node.answer(message_of(envelope)))
    assert data is not None
    values: list[int] = decode(data, envelope.request)[0].values.tolist()
    return values


def reason(node: Node, plan: Plan, run: str) -> str:
    """Why the node does not answer; nothing if it does."""
    return outcome(node.answer(message_of(asked(plan, run))))[1]


def share(values: Any, plan: Plan) -> Fraction:
    """What one user's vector takes of the bound."""
    return Fraction(sum(int(value) ** 2 for value in values), VISITS * plan.fixed_threshold.steps**2)


def used(place: Path) -> list[int]:
    with closing(sqlite3.connect(place / "memory.db")) as database:
        return sorted(amount for (amount,) in database.execute("SELECT used FROM campaign"))


def test_a_user_sends_the_bound_once_and_then_nothing(tmp_path: Path) -> None:
    found = [sums(node_at(tmp_path / "n"), plan_of(day), f"run {day}") for day in range(1, 6)]
    steps = plan_of().fixed_threshold.steps
    alice = [values[1] for values in found]
    bob = [values[2] for values in found]
    # Bob has one count of five a day: a fiftieth of the bound.
    assert bob == [1 << plan_of().grid_bits] * 5
    assert all(steps * 0.99 < value <= steps for value in alice[:2]) and max(alice[2:]) < 0.03 * steps
    assert sum(share([value], plan_of()) for value in alice) <= 1
    assert used(tmp_path / "n")[0] == pytest.approx(5 / 50 * ONE, rel=1e-6)
    assert used(tmp_path / "n")[1] <= ONE


def test_thresholds_may_change_and_the_bound_holds(tmp_path: Path) -> None:
    total = Fraction(0)
    for day, threshold in enumerate((50.0, 1.0, 3.0, 50.0, 2.5, 40.0), 1):
        plan = plan_of(day, threshold=threshold)
        values = sums(node_at(tmp_path / "n"), plan, f"run {day}")
        total += share([values[1]], plan)
    assert Fraction(9, 10) < total <= 1


def test_a_repeated_request_has_the_noted_answer_and_spends_nothing_more(tmp_path: Path) -> None:
    first = sums(node_at(tmp_path / "n"), plan_of(), "one")
    spent = used(tmp_path / "n")
    again = sums(node_at(tmp_path / "n"), plan_of(), "one")
    assert first == again and used(tmp_path / "n") == spent
    assert reason(node_at(tmp_path / "n"), plan_of(), "two") == "answered-window"
    assert reason(node_at(tmp_path / "n"), plan_of(threshold=50.0), "one") == "other-plan"
    assert used(tmp_path / "n") == spent


def test_what_was_noted_before_a_crash_stays_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(round_handlers_module, "clear_answer", lambda *a, **k: 1 / 0)
        assert reason(node_at(tmp_path / "n"), plan_of(), "one") == "failed"
    assert used(tmp_path / "n")[1] == pytest.approx(ONE / VISITS, rel=1e-3)
    # The first answer never left, and the second one is bounded by what is left.
    assert share([sums(node_at(tmp_path / "n"), plan_of(), "one")[1]], plan_of()) <= Fraction(1, 2)
    for day in range(2, 5):
        values = sums(node_at(tmp_path / "n"), plan_of(day), f"run {day}")
        assert values[1] < 0.03 * plan_of().fixed_threshold.steps


def test_two_runs_at_once_share_one_bound(tmp_path: Path) -> None:
    node_at(tmp_path / "n")
    with ThreadPoolExecutor(4) as threads:
        days = range(1, 9)
        found = list(threads.map(lambda day: sums(node_at(tmp_path / "n"), plan_of(day), f"run {day}"), days))
    assert sum(share([values[1]], plan_of()) for values in found) <= 1


def test_users_are_known_again_in_another_order_and_another_kind_of_file(tmp_path: Path) -> None:
    for day in (1, 2):
        sums(node_at(tmp_path / "n"), plan_of(day), f"run {day}")
    table = pl.DataFrame(ROWS[::-1], schema=["user", "item", "when"], orient="row")
    table.cast({"user": pl.Categorical}).write_parquet(tmp_path / "n" / "visits.parquet")
    moved = node_at(tmp_path / "n", data_path=str(tmp_path / "n" / "visits.parquet"))
    values = sums(moved, plan_of(3), "run 3")
    assert values[1] < 0.03 * plan_of().fixed_threshold.steps
    assert len(used(tmp_path / "n")) == 2


def test_the_memory_holds_no_name(tmp_path: Path) -> None:
    sums(node_at(tmp_path / "n"), plan_of(), "one")
    sums(node_at(tmp_path / "m"), plan_of(), "one")
    keys = []
    for place in ("n", "m"):
        assert b"alice" not in (tmp_path / place / "memory.db").read_bytes()
        with closing(sqlite3.connect(tmp_path / place / "memory.db")) as database:
            keys.append({key for (key,) in database.execute("SELECT user FROM campaign")})
    # Under a secret of each node: who has both can't tell that they have the same users.
    assert len(keys[0]) == 2 and not keys[0] & keys[1]


def test_a_node_without_a_memory_that_lasts_takes_no_part(tmp_path: Path) -> None:
    for masks in (dict[str, Any](), MASKED):
        envelope = asked(plan_of(**masks), "one")
        reply = node_at(tmp_path / "n", memory_path=None).answer(
            message_of(envelope, "advertising" if masks else None)
        )
        assert outcome(reply) == ("refused", "no-memory")


def test_a_damaged_memory_is_no_fresh_start(tmp_path: Path) -> None:
    sums(node_at(tmp_path / "n"), plan_of(), "one")
    with closing(sqlite3.connect(tmp_path / "n" / "memory.db")) as database:
        database.execute("UPDATE campaign SET used = -1")
        database.commit()
    assert reason(node_at(tmp_path / "n"), plan_of(2), "two") == "bad-memory"


def test_a_memory_of_before_there_were_campaigns_is_read(tmp_path: Path) -> None:
    sums(node_at(tmp_path / "n"), plan_of(1, campaign=None, visits=None), "one")
    with closing(sqlite3.connect(tmp_path / "n" / "memory.db")) as database:
        database.execute("DROP TABLE campaign")
        database.commit()
    assert reason(node_at(tmp_path / "n"), plan_of(2), "two") == ""
    assert len(used(tmp_path / "n")) == 2
    assert MemoryFile(tmp_path / "n" / "memory.db").read().spent.epsilon == 2.0


def test_a_nodes_own_limit_counts_a_campaign_once_and_its_new_name_anew(tmp_path: Path) -> None:
    limits = {"max_epsilon": 1.2, "max_delta": 1e-5}
    for day in range(1, 6):
        assert reason(node_at(tmp_path / "n", **limits), plan_of(day), f"run {day}") == ""
    for name in ("winter", "spring"):
        refused = reason(node_at(tmp_path / "n", **limits), plan_of(6, campaign=name, visits=1), name)
        assert refused == "over-budget"
    assert reason(node_at(tmp_path / "n", **limits), plan_of(7), "run 7") == ""


def grid_at(folder: Path) -> LocalGrid:
    return LocalGrid({number: node_at(folder / str(number), number) for number in range(100, 104)})


def test_masked_nodes_keep_the_bound(tmp_path: Path) -> None:
    settings = MASKED | {"epsilon": 40.0}
    found = [
        run_on_grid(grid_at(tmp_path), plan_of(day, **settings), labels=SHOPS).histogram for day in (1, 2, 3)
    ]
    assert found[0][1] == pytest.approx(4 * THRESHOLD, abs=6) and found[2][1] == pytest.approx(0, abs=6)


def test_a_masked_vector_that_is_lost_is_spent_and_one_that_was_never_due_is_not(tmp_path: Path) -> None:
    def lost(message: Message, node: Node) -> list[Message]:
        node.answer(message)
        return []

    grid = grid_at(tmp_path)
    grid.nodes[100].fault = at(MaskingStage.MASKING, lost)
    for number in (102, 103):
        grid.nodes[number].fault = at(MaskingStage.MASKING, silent)
    with pytest.raises(RoundFailed):
        run_on_grid(grid, plan_of(1, **MASKED), labels=SHOPS)
    assert used(tmp_path / "100")[1] == pytest.approx(ONE / VISITS, rel=1e-3)
    assert used(tmp_path / "102") == []
