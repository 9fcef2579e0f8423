"""Passes in several forked processes: the same sums, and what becomes of them when a process dies. Really forked."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

import fedhist
from fedhist import (
    FedhistError,
    HeavyTailedPopulation,
    Histograms,
    InvalidInput,
    Plan,
    Population,
    Result,
    RoundFailed,
    simulate,
)
from fedhist.testing import PLANS
from tests.builders import population_of
from tests.support.api import (
    ForkedCrew,
    InvalidPopulation,
    ItemTotals,
    ZipfPopulation,
    engine_named,
    materialise,
    open_in_process,
    select_request,
)
from tests.support.api import engine_contract_module as cores
from tests.support.api import split_passes as split
from tests.support.engines import plans_for
from tests.support.refusals import refused

USERS = materialise(HeavyTailedPopulation(users=300, items=12, seed=2))
NAMED = materialise(ZipfPopulation(users=400, items=30, seed=3))
SECONDS = 60.0


@dataclass(frozen=True)
class Doing:
    """A tally that does something when it comes to user 100."""

    what: Any

    def begin(self, population: Population) -> Any:
        return self

    def add(self, shard: Histograms) -> None:
        if shard.first_user <= 100 < shard.first_user + shard.users:
            self.what()

    def result(self) -> int:
        return 0

    def plus(self, sums: Sequence[int]) -> int:
        return sum(sums)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise InvalidPopulation("bad", allowed="good", advice="mend it")


def fill() -> None:
    raise MemoryError


def fail() -> None:
    class Odd(Exception):
        pass

    raise Odd("user 7 has 3 of item 5")


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def told(result: Result) -> tuple[object, ...]:
    """All that a result says, but for times."""
    assert result.story is not None
    return (
        result.release.threshold,
        result.release.histogram.tolist(),
        result.diagnostics,
        result.bytes_per_user,
        result.users,
        result.story(),
    )


class TestTheSameForAnyNumber:
    @pytest.mark.parametrize("name", [name for name, plan in PLANS.items() if not plan.is_masked])
    def test_of_release_errors_and_report(self, name: str) -> None:
        population = NAMED if PLANS[name].is_open else USERS
        plan = plans_for(population, {name: PLANS[name]})[name]
        engines = [engine_named("in-process", workers=workers) for workers in (1, 3)]
        one, other = (
            told(simulate(population, plan, seed=4, engine=engine, report=True)) for engine in engines
        )
        assert other == one

    def test_measured_later_a_report_is_the_same(self) -> None:
        plan = Plan(users=300, items=12)
        at_once, later = (simulate(USERS, plan, seed=4, report=report) for report in (True, False))
        assert told(at_once) == told(later)

    @pytest.mark.parametrize("users", [1, 2, 3])
    def test_with_more_workers_than_users(self, users: int) -> None:
        population = population_of(np.ones((users, 2)))
        plan = Plan(users=users, items=2)
        one, many = (
            simulate(population, plan, seed=1, engine=engine_named("in-process", workers=workers))
            for workers in (1, 7)
        )
        assert one.release.histogram.tolist() == many.release.histogram.tolist()

    def test_of_a_synthetic_population_cut_between_blocks(self) -> None:
        population = HeavyTailedPopulation(users=20_000, items=50, seed=1)
        with ForkedCrew(population, 3) as crew:
            assert all(np.array_equal(crew([ItemTotals()])[0], population.totals()) for _ in range(2))

    @pytest.mark.parametrize(("users", "parts", "block"), [(1, 4, 1), (10, 4, 4), (9, 3, 100), (100, 7, 3)])
    def test_parts_are_all_users_once_and_begin_with_blocks(self, users: int, parts: int, block: int) -> None:
        found = split(users, parts, block=block)
        assert [place for start, stop in found for place in range(start, stop)] == list(range(users))
        assert len(found) <= parts
        assert all(start % block == 0 and start < stop for start, stop in found)


class TestAWorkerThatFails:
    @pytest.mark.parametrize(
        ("what", "error", "told"),
        [
            (die, RoundFailed, ("worker-ended",)),
            (refuse, InvalidPopulation, ("invalid-population", "bad; allowed: good; mend it.")),
            # An error that can't travel is named without its text.
            (fail, RoundFailed, ("worker-failed", "(Odd)")),
        ],
    )
    def test_fails_the_pass_and_leaves_no_crew_behind(
        self, what: Any, error: type[FedhistError], told: tuple[str, ...]
    ) -> None:
        with ForkedCrew(USERS, 2) as crew:
            with refused(error, *told) as caught:
                crew([Doing(what), ItemTotals()])
            with refused(RoundFailed, "worker-ended"):
                crew([ItemTotals()])
        assert "user 7" not in str(caught.value)

    def test_with_too_little_memory_says_it(self) -> None:
        with pytest.raises(MemoryError), ForkedCrew(USERS, 2) as crew:
            crew([Doing(fill)])

    def test_because_parts_hold_others_than_they_say_fails_the_round(self) -> None:
        class Lying:
            users, domain_size = USERS.users, USERS.domain_size

            def shards(self) -> Any:
                return USERS.shards()

            def part(self, start: int, stop: int) -> Any:
                return USERS.part(start, min(stop + 1, self.users))

        request = select_request(Plan(users=300, items=12))
        with (
            open_in_process(Lying(), seed=1, workers=2) as transport,
            refused(RoundFailed, "users-missing"),
        ):
            transport.total(request)


# Workers that never come to an end of their own: they say who they are, and read on.
ENDLESS = """
import os, sys
from itertools import repeat
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise
from fedhist.simulations.engines.workers import ForkedCrew
from fedhist.simulations.engines.passes import ItemTotals

whole = materialise(HeavyTailedPopulation(users=30, items=5, seed=1))

class Endless:
    users, domain_size = whole.users, whole.domain_size

    def part(self, start, stop):
        return self

    def shards(self):
        os.write(1, f"{os.getpid()}\\n".encode())
        return repeat(whole.histograms)

try:
    with ForkedCrew(Endless(), 2) as crew:
        crew([ItemTotals()])
except KeyboardInterrupt:
    os.write(1, b"stopped\\n")
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_no_worker_outlives_the_command(number: signal.Signals) -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert command.stdout is not None
        workers = [int(command.stdout.readline()) for _ in range(2)]
        if number is signal.SIGINT:
            # As a terminal does it: to the command and to its workers.
            os.killpg(command.pid, number)
        else:
            command.kill()
        said, errors = command.communicate(timeout=SECONDS)
    finally:
        command.kill()
    assert (said, errors) == ("stopped\n" if number is signal.SIGINT else "", "")
    until = monotonic() + SECONDS
    while any(map(is_running, workers)):
        assert monotonic() < until


class TestHowMany:
    def test_by_the_number_of_users_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cores, "cores", lambda: 6)
        many, few = (
            HeavyTailedPopulation(users=users, items=5, seed=1)
            for users in (cores.PAYS_FROM_USERS, cores.PAYS_FROM_USERS - 1)
        )
        assert cores.workers_for(many, None) == 6
        assert cores.workers_for(few, None) == 1
        assert cores.workers_for(few, 3) == 3

    def test_one_where_users_can_t_be_read_in_parts_and_it_is_told(self) -> None:
        class Whole:
            users, domain_size = 10**6, 5

            def shards(self) -> Any:
                raise AssertionError

        assert cores.workers_for(Whole(), 4) == 1
        (note,) = cores.worker_notes(Whole(), 4)
        assert note.startswith("--workers 4 is not used, because the population has no method part()")
        assert cores.worker_notes(Whole(), None) == cores.worker_notes(USERS, 4) == []

    def test_one_where_there_is_no_fork(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "darwin")
        assert cores.workers_for(USERS, 4) == 1

    def test_one_inside_a_pool(self) -> None:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply(cores.workers_for, (USERS, 4)) == 1

    @pytest.mark.parametrize("workers", [0, -1, 257, 1.5, True])
    def test_others_are_refused(self, workers: Any) -> None:
        with refused(InvalidInput, "bad-workers", "256"):
            fedhist.histogram(USERS, workers=workers)

    @pytest.mark.parametrize("engine", ["flower-simulation", "ray"])
    def test_on_another_engine_they_are_refused(self, engine: str) -> None:
        with refused(InvalidInput, "engine-without-workers", engine):
            fedhist.histogram(USERS, workers=2, engine=engine)


def test_errors_of_ours_can_be_pickled() -> None:
    import pickle

    for error in (InvalidInput("a", allowed="b", advice="c"), RoundFailed("d"), FedhistError("e")):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this line
        assert (type(copy), str(copy)) == (type(error), str(error))
