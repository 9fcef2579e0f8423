"""Our selectors and releases against the paper's at the same total privacy, including the sets on which we lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedhist.client.populations import SparsePopulation
from fedhist.display.tables import interval_text
from fedhist.simulations.experiments.choices import ALL_DELTA, PAPER_DELTA
from fedhist.simulations.experiments.running import Group, Results
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import Cell, UserSet
from fedhist.simulations.paper.drawings import draw_beyond
from fedhist.simulations.paper.setup import Report, Setup

SAME_TOTAL = (
    "epsilon 1.1 and delta 1/n (closed domains) or 1/(2n) (open domains) in total, neighbours zero-out"
)
PAPER, OURS = "paper", "ours"
USERS = (10_000, 50_000)
"""The size of synthetic sets: quick and full."""
DEFAULT, AUTO = "default", "default, mechanism auto"
GAUSSIAN, LAPLACE = "default, mechanism gaussian", "default, mechanism laplace"
TOTAL = 1.1


@dataclass(frozen=True)
class Method:
    """A way to release a histogram.

    Args:
        whose: the paper's or ours.
        settings: fields of Plan. All that a row depends on is named, so that it does not change with our defaults.
        sparsity: of a closed domain's choice, as a share of the items; None leaves it to the settings.
        by_total: True for a plan that is calibrated by tight composition to the total; False where the epsilons and
            deltas of both rounds add up to it. A method that spends no delta on the choice has all for the release.
    """

    whose: str
    settings: Mapping[str, Any]
    sparsity: float | None = None
    by_total: bool = False


_CLASSIC = {"mechanism": "gaussian", "release": "classic-gaussian"}
_QUANTILE = {"mechanism": "gaussian", "selector": "weighted-quantile"}
_ABOVE_BAR = {"mechanism": "laplace", "release": "truncated-laplace"}

CLOSED = {
    "dpsgd": Method(PAPER, {"selector": "dpsgd"} | _CLASSIC, 0.1),
    "output-perturbation": Method(PAPER, {"selector": "output-perturbation"} | _CLASSIC, 0.1),
    "m-quantile": Method(PAPER, {"selector": "m-quantile"} | _CLASSIC, 1.0),
    "weighted-quantile": Method(OURS, _QUANTILE, 1.0),
    "weighted-quantile, s = 0.1 d": Method(OURS, _QUANTILE, 0.1),
    DEFAULT: Method(OURS, {}, by_total=True),
    LAPLACE: Method(OURS, {"mechanism": "laplace"}, by_total=True),
    AUTO: Method(OURS, {"mechanism": "auto"}, by_total=True),
}
"""The paper's methods with its noise (sigma^2 = 2 log(1.32/delta)/eps^2) and s = 0.1 d, ours with the exact noise."""

OPEN = {
    "exponential-v, as printed": Method(
        PAPER,
        {
            "mechanism": "laplace",
            "selector": "exponential-v-paper",
            "release": "laplace-threshold-paper",
        },
    ),
    "exponential-v": Method(OURS, {"selector": "exponential-v"} | _ABOVE_BAR),
    "exponential-sharp": Method(OURS, {"selector": "exponential-sharp"} | _ABOVE_BAR),
    DEFAULT: Method(OURS, {}, by_total=True),
    GAUSSIAN: Method(OURS, {"mechanism": "gaussian"}, by_total=True),
    LAPLACE: Method(OURS, {"mechanism": "laplace"}, by_total=True),
}
SPENDS_DELTA = ("dpsgd", "m-quantile")


def closed_cells(users: UserSet, items: int, max_threshold: float) -> dict[str, Cell]:
    """Every method over a closed domain, at the same total."""
    cells = {}
    for name, method in CLOSED.items():
        if method.by_total:
            budget: dict[str, Any] = {"total_epsilon": TOTAL, "total_delta": ALL_DELTA}
        else:
            delta = PAPER_DELTA if method.settings["selector"] in SPENDS_DELTA else ALL_DELTA
            budget = {"epsilon": 1.0, "epsilon_select": 0.1, "delta": delta, "delta_select": PAPER_DELTA}
        if method.sparsity is not None:
            budget["sparsity"] = max(int(items * method.sparsity), 1)
        cells[name] = Cell(
            users=users, settings=dict(method.settings) | budget | {"max_threshold": max_threshold}
        )
    return cells


def open_cells(users: UserSet, max_threshold: float) -> dict[str, Cell]:
    """Every method over an open domain, at the same total."""
    by_parts = {"epsilon": 1.0, "epsilon_select": 0.1, "delta": PAPER_DELTA}
    by_total = {"total_epsilon": TOTAL, "total_delta": PAPER_DELTA}
    shared = {"domain": "open", "max_threshold": max_threshold}
    return {
        name: Cell(
            users=users,
            settings=dict(method.settings) | shared | (by_total if method.by_total else by_parts),
        )
        for name, method in OPEN.items()
    }


def beyond(setup: Setup) -> Report:
    """Our selectors and releases against the paper's at the same total privacy.

    The full version took eight minutes with four files on two cores.
    """
    size = setup.pick(*USERS)
    bounds = (1500.0,) if setup.quick else (150.0, 1500.0)
    files = setup.tops((100, 1000)) | setup.whole()
    groups: dict[tuple[UserSet, str, float], dict[str, Cell]] = {}
    for users, items in _closed_sets(setup, size, files):
        for bound in bounds:
            groups[users, "closed", bound] = closed_cells(users, items, bound)
    for users in _open_sets(setup, size, files):
        groups[users, "open", 1500.0] = open_cells(users, 1500.0)
    cells = tuple(cell for of in groups.values() for cell in of.values())
    results = setup.run([Group(cells, setup.pick(6, 40))], files)
    rows: list[Row] = []
    comparisons = sum(_whose(domain, name) == OURS for (_, domain, _), of in groups.items() for name in of)
    for (users, domain, bound), of in groups.items():
        items = files[users].domain_size if users in files else users.items
        where = {"data": users.name, "domain": domain, "items": items, "C_m": bound}
        rows += _rows(where, of, results, comparisons)
    figures = draw_beyond(rows, setup.out / "beyond")
    columns = {
        "data": "data", "domain": "domain", "items": "items", "C_m": "C_m", "method": "ours", "loss": "raw loss",
        "estimate": "estimate", "interval": "95 % interval", "best_of_paper": "best of the paper's",
        "its_loss": "its loss", "ratio": "ours/its", "gap": "difference", "gap_interval": "its interval",
        "result": "ours is",
    }  # fmt: skip
    notes = [
        f"same total for all: {SAME_TOTAL}",
        f"{DEFAULT}, with its mechanism or another: runs given the total alone, calibrated by tight composition "
        "to the same total; all other rows are given epsilon 1 and epsilon' 0.1, which add up to it",
        "ours is judged by the estimate, as the interval and all that follows it; raw loss is that of the noisy values",
        "the paper's best method is chosen in hindsight for each set; differences are paired by trial",
        f"all {comparisons} intervals of differences together are right in 95 of 100 cases (Bonferroni)",
    ]
    return Report(
        "beyond", "ours against the paper's at the same total privacy", rows, columns, [], figures, notes
    )


def _closed_sets(
    setup: Setup, size: int, files: dict[UserSet, SparsePopulation]
) -> list[tuple[UserSet, int]]:
    found = [
        (UserSet(kind=kind, name=kind, users=size, items=items), items)
        for kind in ("heavy-tailed", "paper-iid", "paper-non-iid")
        for items in ((100,) if setup.quick else (100, 1000))
    ]
    return found + [(users, users.top_items) for users in files if users.top_items is not None]


def _open_sets(setup: Setup, size: int, files: dict[UserSet, SparsePopulation]) -> list[UserSet]:
    found = [
        UserSet(kind=kind, name=kind, users=size, items=items)
        for kind in ("paper-iid", "paper-non-iid")
        for items in ((50,) if setup.quick else (50, 100, 200))
    ]
    for kind, items in (("heavy-tailed", 1000), ("zipf", setup.pick(2_000, 20_000))):
        found.append(UserSet(kind=kind, name=kind, users=size, items=items))
    return found + [users for users in files if users.top_items in (None, 1000)]


def _whose(domain: str, name: str) -> str:
    return (CLOSED if domain == "closed" else OPEN)[name].whose


def _rows(where: Row, cells: Mapping[str, Cell], results: Results, comparisons: int) -> list[Row]:
    domain = where["domain"]
    theirs = [name for name in cells if _whose(domain, name) == PAPER]
    best = min(theirs, key=lambda name: results.summary(cells[name]).mean)
    least = results.summary(cells[best])
    rows = []
    for name, cell in cells.items():
        if name in theirs:
            continue
        found, gap = results.summary(cell, "estimate"), results.gap(cell, cells[best], "estimate")
        gap_low, gap_high = gap.among(comparisons) or (None, None)
        rows.append(
            where
            | {
                "method": name,
                "loss": results.summary(cell).mean,
                **found.columns("estimate"),
                "best_of_paper": best, "its_loss": least.mean, "its_low": least.low,
                "its_high": least.high, "ratio": found.mean / least.mean, "gap": gap.mean,
                "gap_interval": interval_text(gap_low, gap_high), "gap_low": gap_low, "gap_high": gap_high,
                "result": result_of(gap_low, gap_high), "trials": found.trials,
            }
            | {f"loss_{other}": results.summary(cells[other]).mean for other in theirs}
        )  # fmt: skip
    return rows


def result_of(low: float | None, high: float | None) -> str:
    """Better or worse if the interval of the paired difference excludes zero."""
    if low is None or high is None:
        return "unknown"
    return "better" if high < 0 else "worse" if low > 0 else "not different"
