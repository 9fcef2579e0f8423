"""The paper's figures on sparsity: the number of distinct items of users, and what s = d costs."""

from __future__ import annotations

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.simulations.experiments.figure_bounded import COLUMNS, SETTINGS, SIMILAR, notes_on, stand_in
from fedhist.simulations.experiments.paper_setup import Report, Setup
from fedhist.simulations.experiments.running import Group, Results
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import Cell, UserSet, draw_users
from fedhist.simulations.experiments.verdicts import Claim
from fedhist.simulations.paper.figures import draw_sparsity

FEW = 200
"""The paper's number: most users have fewer distinct items than this."""
SIZES = (1000, 10_000)
TRUE_QUANTILE, QUANTILE, FULL, SPARSE, TRUE_BEST, LEAST = "TQ", "PQ", "P2-Opt", "PS2-Opt", "T2-Opt", "Min"
MEANINGS = {
    TRUE_QUANTILE: "the M-th largest norm (not private)",
    QUANTILE: "its private estimate",
    FULL: "DP-SGD, s = d",
    SPARSE: "DP-SGD, s = 0.1 d",
    TRUE_BEST: "C* (not private)",
    LEAST: "best of a search over C (not private)",
}


def cells_for(users: UserSet, items: int, thresholds: list[float]) -> dict[str, list[Cell]]:
    """The bars of the figure; the last is the best of many thresholds."""
    small = {**SETTINGS, "max_threshold": 150.0, "sparsity": items}

    def cell(**settings: object) -> list[Cell]:
        return [Cell(users=users, settings=small | settings)]

    return {
        TRUE_QUANTILE: [Cell(users=users, settings=small, exact="m-rank")],
        QUANTILE: cell(selector="m-quantile"),
        FULL: cell(selector="dpsgd"),
        SPARSE: cell(selector="dpsgd", sparsity=max(items // 10, 1)),
        TRUE_BEST: cell(selector="oracle"),
        LEAST: [
            Cell(users=users, settings=small | {"selector": "fixed", "threshold": one}) for one in thresholds
        ],
    }


def figure_sparsity(setup: Setup) -> Report:
    """Figures on sparsity: distinct items of users, and what s = d costs.

    The full version took 16 seconds on two cores.
    """
    sizes = SIZES[:1] if setup.quick else SIZES
    files = setup.needed_tops(sizes)
    sets = list(files) or stand_in(setup, sizes)
    thresholds = [round(float(c), 2) for c in np.geomspace(1, 150, setup.pick(8, 12))]
    cells = {users: cells_for(users, users.top_items or 0, thresholds) for users in sets}
    group = Group(tuple(c for of in cells.values() for many in of.values() for c in many), setup.pick(3, 20))
    results = setup.run("figure-sparsity", [group], files)
    rows = [_row(users, name, many, results) for users, of in cells.items() for name, many in of.items()]
    claims, curves = [], {}
    for name, population in _wholes(setup, sets).items():
        distinct = np.sort(np.diff(population.histograms.offsets))[::-1]
        curves[name] = distinct
        share = float((distinct < FEW).mean())
        text = f"most users have fewer than {FEW} distinct items"
        claims.append(Claim(text, name, f"{share:.2%} of users", share > 0.5))
    for users in sets:
        claims += _claims(users, rows)
    figures = draw_sparsity(curves, rows, MEANINGS, setup.out / "figure-sparsity")
    columns, notes = COLUMNS | {"method": "bar"}, notes_on(setup, sizes, standing_in=not files)
    return Report("figure-sparsity", "sparsity of users, and s = d", rows, columns, claims, figures, notes)


def _wholes(setup: Setup, sets: list[UserSet]) -> dict[str, SparsePopulation]:
    """The users of these sets over all their items."""
    used = {users.name for users in sets}
    wholes = {file.name: file.population for file in setup.data if file.name in used}
    if wholes:
        return wholes
    largest = max(sets, key=lambda users: users.top_items or 0)
    return {largest.name: draw_users(largest, seed=setup.seed, trial=0)}


def _row(users: UserSet, name: str, cells: list[Cell], results: Results) -> Row:
    cell = min(cells, key=lambda one: results.summary(one).mean)
    found = results.summary(cell)
    where = {"data": users.name, "d": users.top_items, "method": name, "meaning": MEANINGS[name]}
    threshold = results.summary(cell, "threshold").mean
    return where | found.columns() | {"C": threshold, "trials": found.trials}


def _claims(users: UserSet, rows: list[Row]) -> list[Claim]:
    loss = {
        row["method"]: row["loss"] for row in rows if (row["data"], row["d"]) == (users.name, users.top_items)
    }
    data = f"{users.name}, d = {users.top_items:,}"
    to_best, to_quantile = loss[FULL] / loss[TRUE_BEST], loss[FULL] / loss[TRUE_QUANTILE]
    return [
        Claim(
            f"s = d is close to the true 2-approximation (loss at most {SIMILAR} times)",
            data, f"{to_best:.3g} times C*'s", to_best <= SIMILAR,
        ),
        Claim(
            f"s = d is much better than the quantile (loss at most 1/{SIMILAR})",
            data, f"{to_quantile:.3g} times TQ's", to_quantile <= 1 / SIMILAR,
        ),
        Claim(
            "C* is a 2-approximation of the best C",
            data, f"{loss[TRUE_BEST] / loss[LEAST]:.3g} times the least", loss[TRUE_BEST] <= 2 * loss[LEAST],
        ),
    ]  # fmt: skip
