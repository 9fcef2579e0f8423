"""A simulation that loses nodes fails; a deployment that does says of how many users its histogram is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from local_grid import LocalGrid, Node, at, run_server_app, silent

from fedhist import (
    HeavyTailedPopulation,
    InvalidInput,
    Ledger,
    Plan,
    Release,
    RoundFailed,
    SeededSource,
    run_rounds,
    simulate,
)
from tests.support.api import (
    FlowerSimulation,
    InProcess,
    TooFewSurvivors,
    cohort_notes,
    engine_named,
    faults_of,
    node_app,
    write_mapped,
    write_secrets,
)
from tests.support.refusals import refused

NODES = 20
POPULATION = HeavyTailedPopulation(users=400, items=12, seed=2)
PLAIN = Plan(users=400, items=12)
MASKED = Plan(users=400, items=12, masking="secagg", participants=NODES)
FOUND = Plan(users=400, domain="open", max_threshold=60)
FOUND_MASKED = Plan.from_json(FOUND.to_json() | {"masking": "secagg", "participants": NODES, "max_items": 40})
CONFIG: dict[str, Any] = {"users": 60, "items": 6, "max_threshold": 60.0, "candidates": 16}
Dies = Callable[[Message, int], bool]


class SimulatedGrid(LocalGrid):
    """Nodes as Flower's engine runs them: an exception, or a worker that died, is an error in place of an answer."""

    def __init__(self, nodes: dict[int, Node], dies: Dies) -> None:
        super().__init__(nodes)
        self.dies = dies

    def deliver(self, messages: list[Message]) -> list[Message]:
        came = []
        for message in messages:
            node = self.nodes[message.metadata.dst_node_id]
            if self.dies(message, int(node.context.node_config["partition-id"])):
                came.append(failed(message, "<class 'ray.exceptions.ActorDiedError'>:<'gone'>"))
                continue
            try:
                came += node.handle(message)
            except Exception:
                name = "<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'no'>"
                came.append(failed(message, name))
        return came


def failed(message: Message, reason: str) -> Message:
    return Message(Error(code=0, reason=reason), reply_to=message)


def nobody(message: Message, place: int) -> bool:
    return False


def after_the_first(message: Message, place: int) -> bool:
    """As when one of two workers is killed: Flower sends nearly everything to the dead one."""
    return place > 0


def in_round_two(message: Message, place: int) -> bool:
    return message.metadata.group_id == "release" and place == 7


def in_masking(message: Message, place: int) -> bool:
    return message.metadata.message_type == "query.masking" and place == 7


@contextmanager
def simulation(folder: Path, dies: Dies, **shares: Any) -> Iterator[FlowerSimulation]:
    """The engine on a grid of this process in place of Flower's."""
    write_mapped(POPULATION, folder)
    write_secrets(folder, NODES, source=SeededSource(8).fork("identities"))
    engine = FlowerSimulation(POPULATION, folder, seed=8, nodes=NODES, faults=faults_of(**shares))
    app = node_app(folder, 8, assignment=engine.assignment)
    nodes = {100 + place: Node(app, 100 + place) for place in range(NODES)}
    for place, node in enumerate(nodes.values()):
        node.context.node_config.update({"partition-id": place, "num-partitions": NODES})
    grid = cast(Grid, SimulatedGrid(nodes, dies))
    thread = Thread(target=engine._pass_on, args=(grid, Context(77, 1, {}, RecordDict(), {})), daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        engine.requests.put(None)
        thread.join(20)


def release_of(engine: FlowerSimulation, plan: Plan, ledger: Ledger | None = None) -> Release:
    return run_rounds(plan, engine, ledger=ledger or Ledger(), source=SeededSource(8))


class TestASimulation:
    @pytest.mark.parametrize(
        ("plan", "dropout"),
        [(PLAIN, 0.0), (MASKED, 0.0), (MASKED, 0.1), (FOUND, 0.0), (FOUND_MASKED, 0.0), (FOUND_MASKED, 0.1)],
    )
    def test_one_that_loses_nobody_else_releases_what_one_process_does(
        self, tmp_path: Path, plan: Plan, dropout: float
    ) -> None:
        with simulation(tmp_path, nobody, dropout=dropout) as engine:
            there = release_of(engine, plan)
        here = simulate(POPULATION, plan, seed=8, engine=engine_named("in-process", dropout=dropout)).release
        assert np.array_equal(there.histogram, here.histogram)
        assert (there.threshold, there.labels, there.charges) == (here.threshold, here.labels, here.charges)

    def test_nodes_that_stand_for_silent_ones_are_named_as_nothing_else(self, tmp_path: Path) -> None:
        with simulation(tmp_path, nobody, dropout=0.1, faulty={"fail": 0.05}) as engine:
            release_of(engine, PLAIN)
        assert engine.reports
        for report in engine.reports.values():
            document = report.to_json(truth=True)
            assert document["faults"] == {"no-answer": 2, "error": 1}
            assert "dropped" not in document

    def test_lost_nodes_fail_the_round_and_nothing_is_spent(self, tmp_path: Path) -> None:
        ledger = Ledger()
        with simulation(tmp_path, after_the_first) as engine, pytest.raises(RoundFailed) as told:
            release_of(engine, PLAIN, ledger)
        assert "round select: 1 of 20 nodes answered; nothing was released" in str(told.value)
        assert "process ended (ActorDiedError), most likely for want of memory" in str(told.value)
        assert ledger.entries == ()

    @pytest.mark.parametrize(
        ("plan", "dies", "dropout", "told"),
        [
            (PLAIN, in_round_two, 0.0, ("nodes-lost", "19", "20")),
            (FOUND, in_round_two, 0.0, ("nodes-lost", "19", "20")),
            (MASKED, in_masking, 0.0, ("nodes-lost", "19", "20")),
            (MASKED, in_masking, 0.05, ("nodes-lost", "18", "20", "drop-outs")),
            # The loss is told, and not what it led to.
            (MASKED, after_the_first, 0.0, ("nodes-lost", "20")),
        ],
    )
    def test_one_beyond_the_modelled_drop_outs_is_enough(
        self, tmp_path: Path, plan: Plan, dies: Dies, dropout: float, told: tuple[str, ...]
    ) -> None:
        with (
            simulation(tmp_path, dies, dropout=dropout) as engine,
            refused(RoundFailed, *told),
        ):
            release_of(engine, plan)

    def test_too_many_modelled_drop_outs_are_still_told_as_such(self, tmp_path: Path) -> None:
        with simulation(tmp_path, nobody, dropout=0.5) as engine, pytest.raises(TooFewSurvivors):
            release_of(engine, MASKED)

    def test_code_that_fails_on_a_node_is_not_taken_for_a_dead_worker(self, tmp_path: Path) -> None:
        with simulation(tmp_path, nobody) as engine:
            (tmp_path / "about.json").write_text("{}")
            from tests.support.api import _mapped

            _mapped.cache_clear()
            with refused(RoundFailed, "nodes-lost", "20"):
                release_of(engine, PLAIN)

    def test_every_node_is_a_participant(self, tmp_path: Path) -> None:
        plan = Plan(users=400, items=12, masking="secagg", participants=NODES - 5)
        with (
            simulation(tmp_path, nobody) as engine,
            refused(InvalidInput, "other-number-of-nodes", "15", "20"),
        ):
            release_of(engine, plan)

    def test_shards_that_lack_users_fail_in_one_process(self) -> None:
        class Short:
            users, domain_size = 401, 12

            def shards(self) -> Any:
                return POPULATION.shards()

        transport = InProcess(Short(), SeededSource(1))
        with refused(RoundFailed, "users-missing", "400", "401"):
            run_rounds(Plan(users=401, items=12), transport, ledger=Ledger(), source=SeededSource(1))


class TestADeployment:
    def test_a_node_that_leaves_shows_in_the_result_and_its_notes(
        self, lab: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        grid = lab.grid(lab.population(), faults={0: at("release", silent)})
        run_server_app(grid, CONFIG | {"out": str(tmp_path / "r")})
        document = json.loads((tmp_path / "r" / "result.json").read_text())
        assert document["users_answered"] == {"select": 60, "release": 50}
        told = "round release: 50 of the plan's 60 users answered; the histogram is of those alone"
        assert document["notes"][0] == told
        assert told in caplog.messages

    def test_a_short_round_one_is_told_of_the_threshold(self) -> None:
        (note,) = cohort_notes(PLAIN, {"select": 399, "release": 400})
        assert note == (
            "round select: 399 of the plan's 400 users answered; the threshold was chosen from those alone"
        )
        assert cohort_notes(PLAIN, {"select": 400, "release": 400}) == []
