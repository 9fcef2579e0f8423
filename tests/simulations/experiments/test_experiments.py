"""Cells, users and workers of experiments: a trial is a run of `simulate`, whoever computes it."""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fedhist import FedhistError, simulate
from tests.builders import population_of, table_of
from tests.support.api import (
    FILE,
    Cell,
    Counting,
    Experiment,
    InvalidFile,
    PaperPlan,
    Trials,
    UserSet,
    digest_of,
    draw_users,
    exact_threshold,
    held_off,
    in_processes,
    run_experiment,
    trial_file,
    trial_seed,
)
from tests.support.api import TrialGroup as Group
from tests.support.refusals import refused

CLOSED = {"selector": "weighted-quantile", "max_threshold": 100.0}
OPEN = CLOSED | {"domain": "open", "selector": "exponential-v", "delta": "1/2n", "epsilon": 5.0}
ITEMS = {"mechanism": "laplace", "debias": "poisson", "selector": "quantile"}


def heavy(users=400, items=20, **others):
    return UserSet(kind="heavy-tailed", name="heavy", users=users, items=items, **others)


def run_once(*cells, seed=0, trial=0):
    """The values of one trial of each cell."""
    return list(Trials(seed, {}).run(trial, cells))


class TestTrials:
    @pytest.mark.parametrize("settings", [CLOSED, CLOSED | {"selector": "dpsgd"}, OPEN, ITEMS], ids=str)
    def test_a_trial_is_a_run_of_simulate(self, settings):
        rates = UserSet(kind="rates", name="r", users=500, shape=2.0, mean=3.0)
        users = rates if settings is ITEMS else heavy()
        cell = Cell(users=users, settings=settings)
        (values,) = run_once(cell, seed=3, trial=1)
        population = draw_users(users, seed=3, trial=1)
        plan = cell.plan(population.users, population.domain_size)
        result = simulate(population, plan, seed=trial_seed(3, users, 1, "draws"))
        assert values["loss"] == pytest.approx(result.relative_loss, rel=1e-12)
        assert values["threshold"] == result.threshold
        if settings is ITEMS:
            assert values["loss_clipped"] == pytest.approx(result.diagnostics.relative_loss_clipped)

    def test_round_one_is_shared_by_none_but_those_with_the_same_statistic(self):
        """Cells that differ in what round 1 depends on, run together and alone."""
        cells = tuple(
            Cell(users=heavy(), settings=settings)
            for settings in (
                CLOSED, CLOSED | {"max_threshold": 50.0}, CLOSED | {"sparsity": 2}, CLOSED | {"candidates": 8},
                CLOSED | {"mechanism": "laplace"}, OPEN, OPEN | {"candidates": 8},
            )
        )  # fmt: skip

        together, alone = run_once(*cells), [run_once(cell)[0] for cell in cells]
        for name in ("loss", "threshold"):
            assert [values[name] for values in together] == [values[name] for values in alone]

    def test_exact_bounds_are_quantiles_and_ranks(self):
        population = population_of([[1, 0], [3, 0], [0, 5], [3, 4], [6, 8], [0, 20]])
        plan = Cell(users=heavy(), settings={"max_threshold": 1500.0}).plan(6, 2)
        assert exact_threshold("median", plan, population) == 5
        assert exact_threshold("p90", plan, population) == 20
        rank = int(np.ceil(plan.noise_price))
        norms = sorted([1, 3, 5, 5, 10, 20], reverse=True)
        assert exact_threshold("m-rank", plan, population) == norms[min(rank, 6) - 1]

    def test_the_paper_s_candidates_are_its_own(self):
        plan = PaperPlan(
            users=10, domain="open", release="truncated-laplace", min_threshold=10, max_threshold=1500
        )
        assert plan.candidate_steps.tolist() == list(range(10, 1501, 10))

    def test_half_a_penalty_chooses_where_the_definition_is_least(self):
        """With a budget at which the choice is all but certain; V(C) term by term, with t(C)/2 for t(C)."""
        users = UserSet(kind="paper-non-iid", name="n", users=3000, items=6)
        settings = OPEN | {
            "epsilon": 1.0,
            "epsilon_select": 1e6,
            "min_threshold": 10.0,
            "max_threshold": 1500.0,
        }
        whole = Cell(users=users, settings=settings, paper_grid=True)
        half = replace(whole, half_penalty=True)
        chosen = [values["threshold"] for values in run_once(whole, half)]
        population = draw_users(users, seed=0, trial=0)
        totals = table_of(population)
        sizes = totals.sum(axis=1).clip(max=1500.0)
        plan = whole.plan(population.users, population.domain_size)
        for threshold, share in zip(chosen, (1, 2), strict=True):
            scores = {}
            noises = plan.open_noises(plan.candidate_steps)
            for noise, steps in zip(noises, plan.candidate_steps, strict=True):
                kept = np.minimum(1.0, steps / totals.sum(axis=1).clip(min=1)) @ totals
                lost = 2 * np.maximum(sizes - steps, 0).sum()
                scores[steps] = lost + np.minimum(kept, noise.bar // share).sum()
            assert threshold == min(scores, key=scores.get)
        assert chosen[1] > chosen[0]


class TestSeeds:
    def test_a_seed_depends_on_all_four_and_not_on_the_name(self):
        one = trial_seed(0, heavy(), 0, "draws")
        assert trial_seed(0, replace(heavy(), name="other"), 0, "draws") == one
        others = [(1, heavy(), 0, "draws"), (0, heavy(401), 0, "draws"), (0, heavy(), 1, "draws")]
        assert len({one, trial_seed(0, heavy(), 0, "users"), *(trial_seed(*other) for other in others)}) == 5


class TestWorkers:
    @pytest.mark.parametrize(
        ("ending", "code"),
        [(lambda: os._exit(1), "worker-ended"), (lambda: {}["secret"], "worker-failed")],
        ids=["dies", "fails"],
    )
    def test_a_worker_that_fails_or_dies_is_noticed(self, ending, code):
        def work(number):
            yield number
            ending()

        if code == "worker-failed":
            with pytest.raises(KeyError):
                list(in_processes(2, work, 2))
        else:
            with refused(FedhistError, code):
                list(in_processes(2, work, 2))

    def test_every_task_is_done_once_and_each_result_comes(self):
        for workers in (1, 3):
            found = list(in_processes(20, lambda number: range(number % 4), workers))
            assert sorted(found) == sorted(one for number in range(20) for one in range(number % 4))

    @pytest.mark.parametrize("by", ["this thread", "another thread"])
    def test_ctrl_c_waits_until_a_worker_is_started_and_is_not_lost(self, by):
        """A start that is stopped halfway leaves a worker that complains of what it never got."""
        begun, sent = threading.Event(), threading.Event()

        def take():
            begun.wait()
            signal.raise_signal(signal.SIGINT)
            sent.set()

        # Born outside, so that the signal is not blocked in it.
        thread = threading.Thread(target=take)
        thread.start()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        steps = []
        try:
            with pytest.raises(KeyboardInterrupt), held_off(starting=True):
                if by == "this thread":
                    signal.raise_signal(signal.SIGINT)
                else:
                    begun.set()
                    sent.wait()
                steps.append("started")
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            begun.set()
            thread.join()
            signal.signal(signal.SIGINT, before)
        assert steps == ["started"]


class TestRunning:
    def test_exact_histograms_are_in_no_file(self, tmp_path):
        users = UserSet(kind=FILE, name="f", content="abc")
        experiment = Experiment(seed=0, groups=(Group((Cell(users=users, settings=CLOSED),), 3),))
        whole = {users: population_of([[1, 0], [3, 4]])}
        found = []
        for workers in (1, 2):
            folder = tmp_path / str(workers)
            run_experiment(experiment, folder, whole, workers=workers, counting=Counting())
            assert sorted(path.name for path in folder.iterdir()) == ["NOT-PRIVATE.txt", "trials.jsonl"]
            found.append(sorted((folder / "trials.jsonl").read_text().splitlines()))
        without = [[re.sub(r'"seconds": [^,]*, ', "", line) for line in lines] for lines in found]
        assert without[0] == without[1]


def test_a_digest_is_of_what_users_have_in_any_order():
    rows = [[1, 0], [3, 4], [0, 2]]
    digest = digest_of(population_of(rows))
    assert digest == digest_of(population_of(rows[::-1]))
    for other in (
        [[1, 0], [3, 4], [0, 3]],
        [[1, 0], [3, 4], [2, 0]],
        [[1, 0], [3, 4], [0, 2], [0, 0]],
        [[1, 0], [3, 6]],
    ):
        assert digest_of(population_of(other)) != digest


TRIAL = b'{"cell": "c", "trial": 0, "values": {"loss": 1.0}}\n'
FOREIGN = (
    '{"mine": "notes"}', '{"mine": "notes"}\n', '{"mine": "notes"}\n{"more', "dear\n", "[" * 100_000 + "\n", "7\n",
    '{"settings": 7}\n', '{"settings": {"b": 7}}\nmine', '{"settings": {"b"',
)  # fmt: skip


class TestFile:
    def test_two_at_once_are_refused(self, tmp_path):
        with trial_file(tmp_path / "j", {"a": 1}), refused(InvalidFile, "at-work"):
            trial_file(tmp_path / "j", {"a": 1}).__enter__()

    def test_damage_before_the_end_is_refused(self, tmp_path):
        with trial_file(tmp_path / "j", {"a": 1}) as (_, file):
            file.write(TRIAL)
        path = tmp_path / "j/trials.jsonl"
        path.write_text(path.read_text().replace('"trial"', '"trail"'))
        with refused(InvalidFile, "damaged-trials"):
            trial_file(tmp_path / "j", {"a": 1}).__enter__()

    # We write the first line before any other file, so an empty one beside another is not the rest of a killed run.
    @pytest.mark.parametrize(
        ("text", "beside"),
        [*product(FOREIGN, (False, True)), ("", True), (None, True)],
        ids=lambda value: str(value)[:16],
    )
    def test_a_folder_of_something_else_is_refused_and_left_alone(self, text, beside, tmp_path):
        path = tmp_path / "trials.jsonl"
        if text is not None:
            path.write_text(text)
        if beside:
            (tmp_path / "letter.txt").write_text("dear")
        with refused(InvalidFile, "not-an-experiment"):
            trial_file(tmp_path, {"a": 1}).__enter__()
        assert text is None or path.read_text() == text
        assert len(list(tmp_path.iterdir())) == (text is not None) + beside

    def test_the_cut_file_of_another_experiment_is_left_alone(self, tmp_path):
        with trial_file(tmp_path, {"a": 1}) as (_, file):
            file.write(TRIAL)
        path = tmp_path / "trials.jsonl"
        path.write_bytes(path.read_bytes()[:-3])
        cut = path.read_bytes()
        with refused(InvalidFile, "other-settings"):
            trial_file(tmp_path, {"a": 2}).__enter__()
        assert path.read_bytes() == cut

    def test_a_file_that_was_cut_anywhere_goes_on(self, tmp_path):
        path = tmp_path / "trials.jsonl"
        with trial_file(tmp_path, {"a": 1}):
            header = path.read_bytes()
        for length in range(len(header + TRIAL) + 1):
            path.write_bytes((header + TRIAL)[:length])
            with trial_file(tmp_path, {"a": 1}) as (done, _):
                assert len(done) == (length == len(header + TRIAL))
            assert path.read_bytes() == header + TRIAL * len(done)
