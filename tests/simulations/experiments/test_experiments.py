"""Cells, users and workers of experiments: a trial is a run of `simulate`, whoever computes it."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fedhist import FedhistError, simulate
from tests.builders import population_of, table_of
from tests.support.api import (
    FILE,
    Cell,
    CellTrials,
    Counting,
    Experiment,
    InvalidFile,
    Measured,
    PaperPlan,
    Store,
    UserSet,
    draw_users,
    exact_threshold,
    held_off,
    open_journal,
    run_cells,
    run_experiment,
    run_tasks,
    trial_seed,
)
from tests.support.api import TrialGroup as Group
from tests.support.api import running_module as running
from tests.support.refusals import refused

CLOSED = {"selector": "weighted-quantile", "max_threshold": 100.0}
OPEN = CLOSED | {"domain": "open", "selector": "exponential-v", "delta": "1/2n", "epsilon": 5.0}
ITEMS = {"mechanism": "laplace", "debias": "poisson", "selector": "quantile"}


def heavy(users=400, items=20, **others):
    return UserSet(kind="heavy-tailed", name="heavy", users=users, items=items, **others)


def run_once(folder, *cells, seed=0, trial=0):
    """The values of one trial of each cell."""
    return [one.values for one in run_cells(CellTrials(seed, trial, cells), Store(folder))]


class TestTrials:
    @pytest.mark.parametrize("settings", [CLOSED, CLOSED | {"selector": "dpsgd"}, OPEN, ITEMS], ids=str)
    def test_a_trial_is_a_run_of_simulate(self, settings, tmp_path):
        rates = UserSet(kind="rates", name="r", users=500, shape=2.0, mean=3.0)
        users = rates if settings is ITEMS else heavy()
        cell = Cell(users=users, settings=settings)
        (values,) = run_once(tmp_path, cell, seed=3, trial=1)
        population = draw_users(users, seed=3, trial=1)
        plan = cell.plan(population.users, population.domain_size)
        result = simulate(population, plan, seed=trial_seed(3, users, 1, "draws"))
        assert values["loss"] == pytest.approx(result.relative_loss, rel=1e-12)
        assert values["threshold"] == result.threshold
        if settings is ITEMS:
            assert values["loss_clipped"] == pytest.approx(result.diagnostics.relative_loss_clipped)

    def test_round_one_is_shared_by_none_but_those_with_the_same_statistic(self, tmp_path):
        """Cells that differ in what round 1 depends on, run together and alone."""
        cells = tuple(
            Cell(users=heavy(), settings=settings)
            for settings in (
                CLOSED, CLOSED | {"max_threshold": 50.0}, CLOSED | {"sparsity": 2}, CLOSED | {"candidates": 8},
                CLOSED | {"mechanism": "laplace"}, OPEN, OPEN | {"candidates": 8},
            )
        )  # fmt: skip

        together, alone = run_once(tmp_path, *cells), [run_once(tmp_path, cell)[0] for cell in cells]
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

    def test_a_first_choice_bounds_the_second(self, tmp_path):
        settings = {"selector": "output-perturbation", "epsilon_select": 5.0}
        free = Cell(users=heavy(), settings=settings)
        bounded = Cell(users=heavy(), settings=settings, bounded_by="m-quantile")
        first = Cell(users=heavy(), settings={"selector": "m-quantile", "epsilon_select": 2.5})
        found = [values["threshold"] for values in run_once(tmp_path, free, bounded, first)]
        assert found[1] <= found[2]
        assert found[1] != found[0]

    def test_half_a_penalty_chooses_where_the_definition_is_least(self, tmp_path):
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
        chosen = [values["threshold"] for values in run_once(tmp_path, whole, half)]
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


class Deadly(UserSet):
    @property
    def is_file(self):
        os._exit(1)


class TestWorkers:
    @pytest.mark.parametrize(
        ("users", "code"),
        [
            (UserSet(kind="none", name="n"), "worker-failed"),
            (Deadly(kind="none", name="n"), "worker-ended"),
        ],
    )
    def test_a_worker_that_fails_or_dies_is_noticed(self, users, code, tmp_path, monkeypatch):
        # Workers are fresh interpreters, and import the class above by the name of this module.
        monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
        tasks = [CellTrials(0, 0, (Cell(users=users, settings={}),))] * 2
        with refused(FedhistError, code):
            list(run_tasks(tasks, store=Store(tmp_path), workers=2))

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
    @pytest.mark.parametrize("problem", [KeyboardInterrupt, OSError, FedhistError])
    def test_exact_histograms_are_the_owner_s_alone_and_gone_however_it_ends(
        self, problem, tmp_path, monkeypatch
    ):
        users = UserSet(kind=FILE, name="f", content="abc")
        experiment = Experiment(seed=0, groups=(Group((Cell(users=users, settings=CLOSED),), 1),))
        with open_journal(tmp_path, experiment.description()):
            # As a killed run may have left it, with rights that it had once.
            (tmp_path / ".users").mkdir()
            (tmp_path / ".users/left.npy").touch()
        seen = []

        def stopped(tasks, *, store, workers, plugins):
            seen.append((store.folder.stat().st_mode & 0o777, (store.folder / "left.npy").exists()))
            seen.append(sorted(path.name for path in tmp_path.iterdir()))
            raise problem("stopped")

        monkeypatch.setattr(running, "run_tasks", stopped)
        with pytest.raises(problem):
            run_experiment(
                experiment, tmp_path, {users: population_of([[1, 0], [3, 4]])}, workers=1, counting=Counting()
            )
        assert seen == [(0o700, False), [".users", "NOT-PRIVATE.txt", "journal.jsonl"]]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["NOT-PRIVATE.txt", "journal.jsonl"]


FOREIGN = (
    '{"mine": "notes"}', '{"mine": "notes"}\n', '{"mine": "notes"}\n{"more', "dear\n", "[" * 100_000 + "\n", "7\n",
    '{"fingerprint": 7}\n', '{"fingerprint": "7"}\nmine', '{"fingerprint": "0',
)  # fmt: skip


class TestJournal:
    def test_two_at_once_are_refused(self, tmp_path):
        with open_journal(tmp_path / "j", {"a": 1}), refused(InvalidFile, "at-work"):
            open_journal(tmp_path / "j", {"a": 1}).__enter__()

    def test_damage_before_the_end_is_refused(self, tmp_path):
        with open_journal(tmp_path / "j", {"a": 1}) as journal:
            journal.add(Measured("c", 0, {"loss": 1.0}))
        path = tmp_path / "j/journal.jsonl"
        path.write_text(path.read_text().replace('"trial"', '"trail"'))
        with refused(InvalidFile, "damaged-journal"):
            open_journal(tmp_path / "j", {"a": 1}).__enter__()

    # We write the first line before any other file, so an empty journal beside another is not the rest of a killed run.
    @pytest.mark.parametrize(
        ("text", "beside"),
        [*product(FOREIGN, (False, True)), ("", True), (None, True)],
        ids=lambda value: str(value)[:16],
    )
    def test_a_folder_of_something_else_is_refused_and_left_alone(self, text, beside, tmp_path):
        path = tmp_path / "journal.jsonl"
        if text is not None:
            path.write_text(text)
        if beside:
            (tmp_path / "letter.txt").write_text("dear")
        with refused(InvalidFile, "not-an-experiment"):
            open_journal(tmp_path, {"a": 1}).__enter__()
        assert text is None or path.read_text() == text
        assert len(list(tmp_path.iterdir())) == (text is not None) + beside

    def test_the_cut_journal_of_another_experiment_is_left_alone(self, tmp_path):
        with open_journal(tmp_path, {"a": 1}) as journal:
            journal.add(Measured("c", 0, {"loss": 1.0}))
        path = tmp_path / "journal.jsonl"
        path.write_bytes(path.read_bytes()[:-3])
        cut = path.read_bytes()
        with refused(InvalidFile, "another-experiment"):
            open_journal(tmp_path, {"a": 2}).__enter__()
        assert path.read_bytes() == cut

    def test_a_journal_that_was_cut_anywhere_goes_on(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with open_journal(tmp_path, {"a": 1}):
            header = path.read_bytes()
        trial = b'{"cell": "c", "trial": 0, "values": {"loss": 1.0}}\n'
        for length in range(len(header + trial) + 1):
            path.write_bytes((header + trial)[:length])
            with open_journal(tmp_path, {"a": 1}) as journal:
                assert len(journal.done) == (length == len(header + trial))
            assert path.read_bytes() == header + trial * len(journal.done)
