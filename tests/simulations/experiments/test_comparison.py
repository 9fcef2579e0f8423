"""The rows of a comparison from what its trials measured."""

from __future__ import annotations

import json
import math

import pytest

from tests.support.api import (
    Experiment,
    Results,
    Row,
    UserSet,
    answers_of,
    combinations,
    cost_words,
    grid_of,
    rows_of,
)
from tests.support.api import TrialGroup as Group

USERS = UserSet(kind="poisson", name="made up", users=100, items=5)
SIZES = {USERS.key: (100, 5)}


def rows(**losses: list[float]) -> list[Row]:
    """The rows of selectors with these losses, trial by trial."""
    names = [name.replace("_", "-") for name in losses]
    found = combinations(grid_of(selectors=names, settings={}), [USERS], SIZES)
    trials = len(next(iter(losses.values())))
    experiment = Experiment(seed=0, groups=(Group(found.cells, trials),))
    done = {
        (cell.key, trial): {
            "loss": loss,
            "estimate": loss,
            "threshold": 3.0,
            "released": 5.0,
            "significant": 2.0,
            "seconds": 0.1,
        }
        for cell, of in zip(found.cells, losses.values(), strict=True)
        for trial, loss in enumerate(of)
    }
    return rows_of(found.cells, found.plans, Results(done, experiment), SIZES, ranking="loss")


def test_gaps_are_paired_so_a_small_one_in_every_trial_is_a_difference() -> None:
    noise = [0.1, 0.5, 0.9, 0.3]
    best, behind, level, oracle = rows(
        weighted_quantile=noise,
        dpsgd=[loss + 0.01 + 0.001 * place for place, loss in enumerate(noise)],
        m_quantile=[0.2, 0.4, 1.2, 0.2],
        oracle=[loss - 0.1 for loss in noise],
    )
    assert [row["result"] for row in (best, behind, level, oracle)] == [
        "best",
        "worse",
        "not different",
        None,
    ]
    # Their intervals overlap by far.
    assert behind["loss_low"] < best["loss_high"]
    assert behind["gap_mean"] == pytest.approx(0.0115)
    (answer,) = answers_of([best, behind, level, oracle])
    assert (answer.best["selector"], [row["selector"] for row in answer.same]) == (
        "weighted-quantile",
        ["m-quantile"],
    )


def test_a_loss_that_is_no_number_is_none_and_wins_nothing() -> None:
    broken, fine = rows(dpsgd=[math.nan, 0.1], weighted_quantile=[0.3, 0.4])
    assert (broken["loss_mean"], broken["result"], broken["gap_mean"]) == (None, None, None)
    assert fine["result"] == "best"
    json.dumps([broken, fine], allow_nan=False)


def test_methods_that_do_not_cost_the_same_are_told() -> None:
    even = rows(dpsgd=[0.2, 0.3], weighted_quantile=[0.3, 0.3])
    assert cost_words(answers_of(even)) == ""
    uneven = [row | {"epsilon_total": row["epsilon_total"] + place} for place, row in enumerate(even)]
    assert "from 1.1 to 2.1: --total-epsilon" in cost_words(answers_of(uneven))


def test_one_trial_names_the_least_and_says_that_it_proves_nothing() -> None:
    found = rows(dpsgd=[0.2], weighted_quantile=[0.3])
    assert [row["result"] for row in found] == ["best", None]
    (answer,) = answers_of(found)
    assert answer.unclear and "proves nothing" in answer.words


def test_a_best_method_that_is_no_better_than_zeros_says_so() -> None:
    (answer,) = answers_of(rows(dpsgd=[1.2, 1.4], weighted_quantile=[30.0, 40.0]))
    assert "a histogram of zeros loses 1" in answer.words
