"""The paper's figures of bounded domains: the loss of every method for choosing C, by the number of items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedhist.simulations.experiments.paper_setup import BUDGET, NO_NUMBERS, Report, Setup
from fedhist.simulations.experiments.running import Group, Results
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import Cell, UserSet
from fedhist.simulations.experiments.verdicts import Claim
from fedhist.simulations.paper.figures import draw_bounded

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


def cells_for(users: UserSet, items: int) -> dict[str, Cell]:
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
    cells = {users: cells_for(users, users.top_items or 0) for users in sets}
    group = Group(tuple(cell for of in cells.values() for cell in of.values()), setup.pick(3, 20))
    results = setup.run("figure-bounded", [group], files)
    rows = [_row(users, name, cell, results) for users, of in cells.items() for name, cell in of.items()]
    claims = [claim for name in dict.fromkeys(users.name for users in sets) for claim in _claims(name, rows)]
    claims.append(_places_against_words(rows))
    figures = draw_bounded(rows, setup.out / "figure-bounded")
    notes = notes_on(setup, sizes, standing_in=not files)
    return Report(
        "figure-bounded", "relative loss over bounded domains", rows, COLUMNS, claims, figures, notes
    )


def _row(users: UserSet, name: str, cell: Cell, results: Results) -> Row:
    found = results.summary(cell)
    where = {"data": users.name, "d": users.top_items, "method": name}
    threshold = results.summary(cell, "threshold").mean
    return where | found.columns() | {"std": found.std, "C": threshold, "trials": found.trials}


def losses_of(rows: list[Row], data: str, method: str, column: str = "loss") -> dict[int, float]:
    """A column of one method, by the number of items."""
    return {row["d"]: row[column] for row in rows if (row["data"], row["method"]) == (data, method)}


def _claims(data: str, rows: list[Row]) -> list[Claim]:
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
