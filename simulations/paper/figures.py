"""The paper's figures: what they draw, and whether its claims about them hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.display.tables import interval_text
from fedhist.protocol.measurements.key_totals import SHARE_BITS
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.server.selection.exponential_v import error_bound
from fedhist.server.steps import read_statistic, select_request
from fedhist.simulations.engines.in_process import exact_total
from fedhist.simulations.experiments.running import Group, Results
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import Cell, UserSet, draw_users
from fedhist.simulations.paper.drawings import draw_bound, draw_bounded, draw_debias, draw_sparsity
from fedhist.simulations.paper.setup import BUDGET, NO_NUMBERS, OPEN, READINGS, Claim, Report, Setup

SIZES = (100, 200, 500, 1000, 2000, 5000)
QUICK_SIZES = (100, 1000)
STAND_IN = "stand-in (synthetic, heavy-tailed)"
STAND_IN_USERS = (20_000, 100_000)
"""Quick and full."""
SIMILAR = 1.25
"""A loss is similar to another if it is at most this multiple of it."""

SETTINGS: Mapping[str, Any] = BUDGET | {"mechanism": "gaussian", "release": "classic-gaussian"}
"""The paper's noise, sigma^2 = 2 log(1.32/delta)/epsilon^2."""

COLUMNS = {
    "data": "data", "d": "d", "method": "method", "loss": "loss", "interval": "95 % interval", "C": "C",
}  # fmt: skip
BEST, QUANTILE, SGD = "C* (not private)", "DP-M-quantile", "DP-SGD, s = 0.1 d"
OUTPUT_BY_QUANTILE, OUTPUT_150 = "output perturbation, C_m = DP-M-quantile", "output perturbation, C_m = 150"
OURS = "weighted-quantile (ours)"


def bounded_cells(users: UserSet, items: int) -> dict[str, Cell]:
    """Every method of the figures at one number of items. Where the paper names no C_m, it is the appendix's 150."""
    sparse, full = {"sparsity": max(items // 10, 1)}, {"sparsity": items}
    small = {**SETTINGS, "max_threshold": 150.0}

    def cell(settings: Mapping[str, Any], **others: Any) -> Cell:
        return Cell(users=users, settings=settings, **others)

    return {
        BEST: cell({**SETTINGS, "selector": "oracle"} | full),
        QUANTILE: cell({**SETTINGS, "selector": "m-quantile"} | full),
        SGD: cell({**small, "selector": "dpsgd"} | sparse),
        OUTPUT_BY_QUANTILE: cell(
            {**SETTINGS, "selector": "output-perturbation"} | sparse, bounded_by="m-quantile"
        ),
        OUTPUT_150: cell({**small, "selector": "output-perturbation"} | sparse),
        OURS: cell({**small, "selector": "weighted-quantile"} | full),
    }


def stand_in(setup: Setup, sizes: tuple[int, ...]) -> list[UserSet]:
    """Heavy-tailed users in place of missing data; they can't show what the paper's data would."""
    users = setup.pick(*STAND_IN_USERS)
    return [
        UserSet(kind="heavy-tailed", name=STAND_IN, users=users, items=max(sizes), top_items=size)
        for size in sizes
    ]


def notes_on(setup: Setup, sizes: tuple[int, ...], *, standing_in: bool) -> list[str]:
    """What the reader should know about the data of a figure by number of items."""
    notes = [NO_NUMBERS, *setup.left_out(sizes)]
    if standing_in:
        why = "as no file has enough items" if setup.data else "without --data"
        notes.append(
            "the paper's data are Sentiment140 and SNAP check-ins (snap.stanford.edu/data/loc-gowalla.html); "
            f"{why} a synthetic stand-in is used, and claims judged on it say little about the paper's data"
        )
    return notes


def figure_bounded(setup: Setup) -> Report:
    """Figures of bounded domains: loss of every method by the number of items.

    The full version took 25 seconds on two cores.
    """
    sizes = QUICK_SIZES if setup.quick else SIZES
    files = setup.needed_tops(sizes)
    sets = list(files) or stand_in(setup, sizes)
    cells = {users: bounded_cells(users, users.top_items or 0) for users in sets}
    group = Group(tuple(cell for of in cells.values() for cell in of.values()), setup.pick(3, 20))
    results = setup.run([group], files)
    rows = [
        _bounded_row(users, name, cell, results) for users, of in cells.items() for name, cell in of.items()
    ]
    claims = [
        claim for name in dict.fromkeys(users.name for users in sets) for claim in _bounded_claims(name, rows)
    ]
    claims.append(_places_against_words(rows))
    figures = draw_bounded(rows, setup.out / "figure-bounded")
    notes = notes_on(setup, sizes, standing_in=not files)
    return Report(
        "figure-bounded", "relative loss over bounded domains", rows, COLUMNS, claims, figures, notes
    )


def _bounded_row(users: UserSet, name: str, cell: Cell, results: Results) -> Row:
    found = results.summary(cell)
    where = {"data": users.name, "d": users.top_items, "method": name}
    threshold = results.summary(cell, "threshold").mean
    return where | found.columns() | {"std": found.std, "C": threshold, "trials": found.trials}


def losses_of(rows: list[Row], data: str, method: str, column: str = "loss") -> dict[int, float]:
    """A column of one method, by the number of items."""
    return {row["d"]: row[column] for row in rows if (row["data"], row["method"]) == (data, method)}


def _bounded_claims(data: str, rows: list[Row]) -> list[Claim]:
    best, sgd, quantile, by_quantile, by_150 = (
        losses_of(rows, data, name) for name in (BEST, SGD, QUANTILE, OUTPUT_BY_QUANTILE, OUTPUT_150)
    )
    similar = f"DP-SGD performs similarly to the true C* (loss at most {SIMILAR} times)"
    higher = "DP-M-quantile has higher errors than DP-SGD"
    better = "output perturbation: C_m = 150 is better than C_m = DP-M-quantile"
    return [
        _compare(similar, data, sgd, best, SIMILAR, of="DP-SGD/C*"),
        _compare(higher, data, sgd, quantile, 1.0, of="DP-SGD/DP-M-quantile"),
        _compare(better, data, by_150, by_quantile, 1.0, of="150/DP-M-quantile"),
        _variance(data, *(losses_of(rows, data, name, "std") for name in (SGD, OUTPUT_BY_QUANTILE))),
    ]


def _compare(
    text: str, data: str, small: dict[int, float], large: dict[int, float], times: float, *, of: str
) -> Claim:
    """Whether the first is at most `times` the second at every number of items; `of` names the ratio."""
    ratios = {size: small[size] / max(large[size], 1e-300) for size in small}
    holding = [size for size, ratio in ratios.items() if ratio <= times]
    shown = ", ".join(f"{ratio:.3g} at {size:,}" for size, ratio in ratios.items())
    found = f"{len(holding)} of {len(ratios)} d; {of} {shown}"
    return Claim(text, data, found, len(holding) == len(ratios))


def _variance(data: str, small: dict[int, float], large: dict[int, float]) -> Claim:
    """The paper says this of SNAP alone, so it is judged on places alone."""
    text = "output perturbation has a large variance for SNAP (standard deviation above twice DP-SGD's)"
    if not _is_places(data):
        return Claim(text, data, "not SNAP: needs --data with gowalla, brightkite or snap in its name", None)
    return _compare(
        text, data, small, large, 0.5, of="standard deviations, DP-SGD/output perturbation (at most 0.5)"
    )


def _is_places(name: str) -> bool:
    return any(part in name.lower() for part in ("gowalla", "brightkite", "snap"))


def _places_against_words(rows: list[Row]) -> Claim:
    """The names of the files tell words from places."""
    text = "SNAP (places) has much higher errors than Sentiment140 (words) (C* at least twice at every d)"
    names = list(dict.fromkeys(row["data"] for row in rows))
    words = [name for name in names if "sentiment140" in name.lower()]
    places = [name for name in names if _is_places(name)]
    if not (words and places):
        missing = "needs --data of both, with sentiment140 and gowalla, brightkite or snap in their names"
        return Claim(text, ", ".join(names), missing, None)
    pairs = [(losses_of(rows, a, BEST), losses_of(rows, b, BEST), f"{a}/{b}") for a in places for b in words]
    ratios = [place[size] / word[size] for place, word, _ in pairs for size in place if size in word]
    found = f"C* of {', '.join(name for *_, name in pairs)}: {min(ratios):.3g} to {max(ratios):.3g} times"
    return Claim(text, ", ".join([*places, *words]), found, min(ratios) >= 2)


FEW = 200
"""The paper's number: most users have fewer distinct items than this."""
SPARSITY_SIZES = (1000, 10_000)
TRUE_QUANTILE, PRIVATE_QUANTILE, FULL, SPARSE, TRUE_BEST, LEAST = (
    "TQ",
    "PQ",
    "P2-Opt",
    "PS2-Opt",
    "T2-Opt",
    "Min",
)
MEANINGS = {
    TRUE_QUANTILE: "the M-th largest norm (not private)",
    PRIVATE_QUANTILE: "its private estimate",
    FULL: "DP-SGD, s = d",
    SPARSE: "DP-SGD, s = 0.1 d",
    TRUE_BEST: "C* (not private)",
    LEAST: "best of a search over C (not private)",
}


def sparsity_cells(users: UserSet, items: int, thresholds: list[float]) -> dict[str, list[Cell]]:
    """The bars of the figure; the last is the best of many thresholds."""
    small = {**SETTINGS, "max_threshold": 150.0, "sparsity": items}

    def cell(**settings: object) -> list[Cell]:
        return [Cell(users=users, settings=small | settings)]

    return {
        TRUE_QUANTILE: [Cell(users=users, settings=small, exact="m-rank")],
        PRIVATE_QUANTILE: cell(selector="m-quantile"),
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
    sizes = SPARSITY_SIZES[:1] if setup.quick else SPARSITY_SIZES
    files = setup.needed_tops(sizes)
    sets = list(files) or stand_in(setup, sizes)
    thresholds = [round(float(c), 2) for c in np.geomspace(1, 150, setup.pick(8, 12))]
    cells = {users: sparsity_cells(users, users.top_items or 0, thresholds) for users in sets}
    group = Group(tuple(c for of in cells.values() for many in of.values() for c in many), setup.pick(3, 20))
    results = setup.run([group], files)
    rows = [
        _sparsity_row(users, name, many, results) for users, of in cells.items() for name, many in of.items()
    ]
    claims, curves = [], {}
    for name, population in _wholes(setup, sets).items():
        distinct = np.sort(np.diff(population.histograms.offsets))[::-1]
        curves[name] = distinct
        share = float((distinct < FEW).mean())
        text = f"most users have fewer than {FEW} distinct items"
        claims.append(Claim(text, name, f"{share:.2%} of users", share > 0.5))
    for users in sets:
        claims += _sparsity_claims(users, rows)
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


def _sparsity_row(users: UserSet, name: str, cells: list[Cell], results: Results) -> Row:
    cell = min(cells, key=lambda one: results.summary(one).mean)
    found = results.summary(cell)
    where = {"data": users.name, "d": users.top_items, "method": name, "meaning": MEANINGS[name]}
    threshold = results.summary(cell, "threshold").mean
    return where | found.columns() | {"C": threshold, "trials": found.trials}


def _sparsity_claims(users: UserSet, rows: list[Row]) -> list[Claim]:
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


ALPHAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
DEBIAS_USERS = (100_000, 1_000_000)
"""Quick and full; the full one is the paper's."""
MEANS = (1.0, 10.0)
"""The paper does not say what its rates sum to: here one count per user, as in its theorem, and ten."""
BOUNDS = {"private": "quantile", "exact": "oracle"}
"""C is the top 1/epsilon count: its private estimate, as in the paper's text, and the exact one."""
DEBIASED = {
    "mechanism": "laplace",
    "debias": "poisson",
    "epsilon": 1.0,
    "epsilon_select": 0.1,
    "max_threshold": 1500.0,
}


def debias_cells(sets: Iterable[UserSet]) -> dict[tuple[UserSet, str], Cell]:
    """Each set with each way to find C."""
    return {
        (users, bound): Cell(users=users, settings=DEBIASED | {"selector": selector})
        for users in sets
        for bound, selector in BOUNDS.items()
    }


def figure_debias(setup: Setup) -> Report:
    """Figure of debiased counts: one item, users more and less alike.

    The full version took 50 seconds on two cores.
    """
    sets = [
        UserSet(kind="rates", name=f"mean {mean:g}", users=setup.pick(*DEBIAS_USERS), shape=alpha, mean=mean)
        for mean in MEANS
        for alpha in ALPHAS
    ]
    cells = debias_cells(sets)
    results = setup.run([Group(tuple(cells.values()), setup.pick(5, 40))])
    rows = [_debias_row(users, bound, cell, results) for (users, bound), cell in cells.items()]
    claims = [
        claim for mean in MEANS for bound in BOUNDS for claim in _debias_claims(rows, f"mean {mean:g}", bound)
    ]
    figures = draw_debias(rows, setup.out / "figure-debias")
    columns = {
        "data": "rates", "bound": "C", "alpha": "alpha", "clipped": "clipped", "clipped_interval": "95 % interval",
        "debiased": "debiased", "interval": "95 % interval", "factor": "clipped/debiased",
        "median_factor": "in the median trial", "C": "mean C",
    }  # fmt: skip
    notes = [
        NO_NUMBERS,
        "the paper does not say what its rates sum to, nor how it estimates C: both are run in two ways",
    ]
    return Report("figure-debias", "debiased counts of one item", rows, columns, claims, figures, notes)


def _debias_row(users: UserSet, bound: str, cell: Cell, results: Results) -> Row:
    before, after = results.summary(cell, "loss_clipped"), results.summary(cell)
    pairs = zip(results.values(cell, "loss_clipped"), results.values(cell, "loss"), strict=True)
    return {
        "data": users.name, "bound": bound, "alpha": users.shape,
        "clipped": before.mean, "clipped_interval": interval_text(before.low, before.high),
        "clipped_low": before.low, "clipped_high": before.high,
        **after.columns("debiased"), "factor": before.mean / after.mean,
        "median_factor": median(clipped / debiased for clipped, debiased in pairs),
        "C": results.summary(cell, "threshold").mean, "trials": after.trials,
    }  # fmt: skip


def _debias_claims(rows: list[Row], data: str, bound: str) -> list[Claim]:
    factors = {row["alpha"]: row["factor"] for row in rows if (row["data"], row["bound"]) == (data, bound)}
    most, least = factors[max(factors)], factors[min(factors)]
    middle = next(
        row["median_factor"]
        for row in rows
        if (row["data"], row["bound"], row["alpha"]) == (data, bound, max(factors))
    )
    where = f"{data}, {bound} C"
    return [
        Claim(
            "debiasing does no harm (at every alpha clipped/debiased is at least 0.99)",
            where, f"clipped/debiased from {min(factors.values()):.4g}", min(factors.values()) >= 0.99,
        ),
        Claim(
            f"it greatly reduces the error where users are alike (alpha = {max(factors):g}: at least twice)",
            where, f"{most:.3g} times smaller, {middle:.3g} in the median trial", most >= 2,
        ),
        Claim(
            f"especially for large alpha (more at {max(factors):g} than at {min(factors):g})",
            where, f"{most:.3g} times against {least:.3g}", most > 1.01 * least,
        ),
    ]  # fmt: skip


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
    results = setup.run(groups, files)
    rows: list[Row] = []
    claims: list[Claim] = []
    for users in sets:
        population = files.get(users) or draw_users(users, seed=setup.seed, trial=0)
        curve = _curve(users, population, results, thresholds)
        rows += curve
        claims += _open_claims(users, population.users, curve)
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
    return Cell(users=users, settings=OPEN | {"selector": "fixed", "threshold": float(threshold)})


def _curve(
    users: UserSet, population: SparsePopulation, results: Results, thresholds: list[int]
) -> list[Row]:
    settings = OPEN | {"selector": "exponential-v", "min_threshold": 10.0}
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


def _open_claims(users: UserSet, count: int, curve: list[Row]) -> list[Claim]:
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
