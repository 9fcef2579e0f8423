"""The paper's figure of debiased counts: one item, Poisson counts, rates that are more or less alike."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from fedhist.simulations.experiments.paper_setup import NO_NUMBERS, Report, Setup
from fedhist.simulations.experiments.running import Group, Results
from fedhist.simulations.experiments.tables import Row, interval_text
from fedhist.simulations.experiments.trials import Cell, UserSet
from fedhist.simulations.experiments.verdicts import Claim
from fedhist.simulations.paper.figures import draw_debias

ALPHAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
USERS = (100_000, 1_000_000)
"""Quick and full; the full one is the paper's."""
MEANS = (1.0, 10.0)
"""The paper does not say what its rates sum to: here one count per user, as in its theorem, and ten."""
BOUNDS = {"private": "quantile", "exact": "oracle"}
"""C is the top 1/epsilon count: its private estimate, as in the paper's text, and the exact one."""
SETTINGS = {
    "mechanism": "laplace",
    "debias": "poisson",
    "epsilon": 1.0,
    "epsilon_select": 0.1,
    "max_threshold": 1500.0,
}


def cells_for(sets: Iterable[UserSet]) -> dict[tuple[UserSet, str], Cell]:
    """Each set with each way to find C."""
    return {
        (users, bound): Cell(users=users, settings=SETTINGS | {"selector": selector})
        for users in sets
        for bound, selector in BOUNDS.items()
    }


def figure_debias(setup: Setup) -> Report:
    """Figure of debiased counts: one item, users more and less alike.

    The full version took 50 seconds on two cores.
    """
    sets = [
        UserSet(kind="rates", name=f"mean {mean:g}", users=setup.pick(*USERS), shape=alpha, mean=mean)
        for mean in MEANS
        for alpha in ALPHAS
    ]
    cells = cells_for(sets)
    results = setup.run("figure-debias", [Group(tuple(cells.values()), setup.pick(5, 40))])
    rows = [_row(users, bound, cell, results) for (users, bound), cell in cells.items()]
    claims = [claim for mean in MEANS for bound in BOUNDS for claim in _claims(rows, f"mean {mean:g}", bound)]
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


def _row(users: UserSet, bound: str, cell: Cell, results: Results) -> Row:
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


def _claims(rows: list[Row], data: str, bound: str) -> list[Claim]:
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
