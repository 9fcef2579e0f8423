"""The paper's figure of unbounded domains: the true error against its bound V(C), and their ratio."""

from __future__ import annotations

import math

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.measurements.key_totals import SHARE_BITS
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.selection.exponential_v import error_bound
from fedhist.server.steps import read_statistic, select_request
from fedhist.simulations.engines.in_process import exact_total
from fedhist.simulations.experiments.paper_setup import NO_NUMBERS, Report, Setup
from fedhist.simulations.experiments.running import Group, Results
from fedhist.simulations.experiments.table_open import READINGS, SETTINGS
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import Cell, UserSet, draw_users
from fedhist.simulations.experiments.verdicts import Claim
from fedhist.simulations.paper.figures import draw_bound

LARGEST = 1500
LARGE = 1000
"""The paper's number of words."""
TRIALS = 3
"""As in the paper: an average over three runs."""


def figure_open(setup: Setup) -> Report:
    """Figure of unbounded domains: the error against its bound V(C).

    The full version took 10 seconds on two cores.
    """
    synthetic = [
        UserSet(kind=kind, name=f"non-i.i.d., d = 50, reading '{reading}'", users=users, items=50)
        for reading, (_, kind, users) in READINGS.items()
        if not (setup.quick and reading == "text")
    ]
    files = setup.needed_tops((LARGE,))
    sets = [*synthetic, *files]
    thresholds = _thresholds(setup.pick(10, 20))
    groups = [Group(tuple(_at(users, c) for users in sets for c in thresholds), TRIALS)]
    results = setup.run("figure-open", groups, files)
    rows: list[Row] = []
    claims: list[Claim] = []
    for users in sets:
        population = files.get(users) or draw_users(users, seed=setup.seed, trial=0)
        curve = _curve(users, population, results, thresholds)
        rows += curve
        claims += _claims(users, population.users, curve)
    figures = draw_bound(rows, setup.out / "figure-open")
    columns = {"data": "data", "C": "C", "error": "error", "bound": "V(C)", "ratio": "V(C)/error"}
    notes = [NO_NUMBERS, *setup.left_out((LARGE,))]
    if setup.quick:
        notes.append("the reading 'text' (500,000 users) is left to the full run")
    if not files:
        notes.append(f"Sentiment140 with d = {LARGE} needs --data FILE with at least {LARGE} items")
    return Report("figure-open", "error and its bound V(C)", rows, columns, claims, figures, notes)


def _thresholds(count: int) -> list[int]:
    """Multiples of 10 from 10 to 1500, as in the paper's grid, closer together where the curve bends."""
    spaced = np.geomspace(10, LARGEST, count)
    return sorted({round(float(value) / 10) * 10 for value in spaced})


def _at(users: UserSet, threshold: int) -> Cell:
    return Cell(users=users, settings=SETTINGS | {"selector": "fixed", "threshold": float(threshold)})


def _curve(
    users: UserSet, population: SparsePopulation, results: Results, thresholds: list[int]
) -> list[Row]:
    settings = SETTINGS | {"selector": "exponential-v", "min_threshold": 10.0}
    plan = Cell(users=users, settings=settings, paper_grid=True).plan(
        population.users, population.domain_size
    )
    total = exact_total(select_request(plan), population, source=SeededSource(0))
    steps = plan.candidate_steps
    bound = error_bound(plan, read_statistic(plan, total))
    mass = int(population.totals().sum())
    relative = np.ldexp(bound.astype(np.float64), -SHARE_BITS) / mass
    at = dict(zip(steps.tolist(), relative.tolist(), strict=True))
    rows = []
    for threshold in thresholds:
        error = results.summary(_at(users, threshold))
        rows.append(
            {
                "data": users.name, "C": threshold, "error": error.mean, "error_low": error.low,
                "error_high": error.high, "bound": at[threshold], "ratio": at[threshold] / error.mean,
            }
        )  # fmt: skip
    return rows


def _claims(users: UserSet, count: int, curve: list[Row]) -> list[Claim]:
    ratios = [row["ratio"] for row in curve]
    logarithm = math.log(LARGEST / (2 / (2 * count)))
    return [
        Claim(
            "V(C) bounds the expected error from above (at every C)",
            users.name,
            f"V(C)/error from {min(ratios):.3g} to {max(ratios):.3g}",
            min(ratios) >= 1,
        ),
        Claim(
            "the ratio is within O(log(C_m/2 delta)) (judged with the theorem's constant 12)",
            users.name,
            f"at most {max(ratios):.3g}; 12 log(C_m/2 delta) is {12 * logarithm:.0f}",
            max(ratios) <= 12 * logarithm,
        ),
    ]
