"""The rows of a comparison: a tidy one for each cell, and which method is the best for each set of users."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.protocol.privacy.ledger import Charge
from fedhist.server.steps import planned_charges
from fedhist.simulations.experiments.choices import RANKINGS
from fedhist.simulations.experiments.grid import Sizes
from fedhist.simulations.experiments.running import NOT_PRIVATE, Results
from fedhist.simulations.experiments.summaries import Summary, summarise
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import Cell
from fedhist.simulations.report.comparison import method_names

PLAN_COLUMNS = (
    "domain", "mechanism", "release", "debias", "masking", "noise_from", "participants",
    "epsilon", "delta", "epsilon_select", "delta_select", "neighbours", "min_threshold", "max_threshold",
    "candidates", "threshold",
)  # fmt: skip
TOTALS = ("total_epsilon", "total_delta")
BUDGETS = (*TOTALS, "epsilon", "delta", "epsilon_select", "delta_select")
"""What methods must share to be compared. Of a total, the parts belong to the method."""

MEASURED = {
    "loss": "loss", "estimate": "estimate_loss", "threshold": "threshold", "released": "released",
    "significant": "significant",
}  # fmt: skip
"""What a trial measures, and the columns of a table that say it."""

BEST, SAME, WORSE = "best", "not different", "worse"
"""The results of a method: beside others a method is no different if the paired interval of the gap holds 0."""


def rows_of(
    cells: Sequence[Cell],
    plans: Mapping[str, Plan],
    results: Results,
    sizes: Sizes,
    *,
    ranking: str,
) -> list[Row]:
    """One row for each cell, in order."""
    costs: dict[str, Row] = {}
    rows = []
    gaps = _gaps(cells, plans, results, RANKINGS[ranking])
    for cell in cells:
        plan = plans[cell.key]
        kind = str((plan.to_json() | {"users": 0, "items": 0}).items())
        if kind not in costs:
            costs[kind] = cost_of(planned_charges(plan))
        row = _row(cell, plan, results, sizes[cell.users.key])
        rows.append(row | gaps[cell.key] | costs[kind] | {"ranked_by": ranking, "note": NOT_PRIVATE})
    names = method_names(rows)
    return [_ordered(row | {"method": name}) for row, name in zip(rows, names, strict=True)]


def cost_of(charges: Sequence[Charge]) -> Row:
    """The total by basic and by tight composition; None if something was not private."""
    if not all(charge.private for charge in charges):
        return dict.fromkeys(("epsilon_total", "delta_total", "epsilon_tight", "delta_tight"))
    totals = {"total": basic_total(charges), "tight": tight_total(charges)}
    return {f"{name}_{how}": value for how, cost in totals.items() for name, value in asdict(cost).items()}


_FIRST = (
    "data", "users", "items", "method", "result", "loss_mean", "loss_low", "loss_high", "estimate_loss_mean",
    "estimate_loss_low", "estimate_loss_high", "threshold_mean", "released_mean", "significant_mean",
    "epsilon_total", "delta_total",
)  # fmt: skip


def _ordered(row: Row) -> Row:
    """The row with the columns first that people look at."""
    return {name: row[name] for name in _FIRST} | row


def _row(cell: Cell, plan: Plan, results: Results, size: tuple[int, int]) -> Row:
    row: Row = {"data": cell.users.name, "users": size[0], "items": size[1]}
    row |= {"selector": plan.selector, "private": _is_private(plan)}
    row |= {name: getattr(plan, name) for name in PLAN_COLUMNS} | {"neighbours": plan.neighbours.value}
    row |= {name: cell.settings_for(size[0]).get(name) for name in TOTALS}
    thresholds = results.values(cell, "threshold")
    row |= {"trials": len(thresholds), "failed": sum(map(math.isnan, thresholds))}
    for name, column in (*MEASURED.items(), ("seconds", "seconds")):
        values = results.values(cell, name)
        if name == "threshold":
            # A round that failed has none.
            values = [value for value in values if not math.isnan(value)]
        row |= _columns(column, values)
    return row


def _is_private(plan: Plan) -> bool:
    return all(charge.private for charge in planned_charges(plan))


def _columns(name: str, values: Sequence[float]) -> Row:
    """The mean, deviation and interval; None where a value is not a number."""
    known = bool(values) and all(map(math.isfinite, values))
    found = summarise(values) if known else Summary(math.nan, None, None, None, 0)
    return {
        f"{name}_mean": found.mean if known else None, f"{name}_std": found.std,
        f"{name}_low": found.low, f"{name}_high": found.high,
    }  # fmt: skip


def _gaps(
    cells: Sequence[Cell], plans: Mapping[str, Plan], results: Results, measured: str
) -> dict[str, Row]:
    """How far each method is behind the best private one that has the same users and budget.

    Trials share users and noise, so gaps are paired.
    """
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.users.key, *_budget(cell)), []).append(cell)
    found: dict[str, Row] = {}
    for number, group in enumerate(groups.values(), 1):
        means = {
            cell.key: math.fsum(results.values(cell, measured)) / len(results.values(cell, measured))
            for cell in group
        }
        private = [cell for cell in group if _is_private(plans[cell.key]) and math.isfinite(means[cell.key])]
        best = min(private, key=lambda cell: means[cell.key], default=None)
        for cell in group:
            found[cell.key] = {"group": number} | _gap(cell, best, results, measured)
            if cell not in private:
                found[cell.key]["result"] = None
    return found


def _budget(cell: Cell) -> tuple[object, ...]:
    names = TOTALS if "total_epsilon" in cell.settings else BUDGETS
    return tuple(cell.settings.get(name) for name in names)


def _gap(cell: Cell, best: Cell | None, results: Results, measured: str) -> Row:
    nothing: Row = dict.fromkeys(("gap_mean", "gap_low", "gap_high", "result"))
    if best is None:
        return nothing
    pairs = zip(results.values(cell, measured), results.values(best, measured), strict=True)
    gaps = [mine - its for mine, its in pairs]
    if cell is best or not all(map(math.isfinite, gaps)):
        return nothing | ({"gap_mean": 0.0, "result": BEST} if cell is best else {})
    gap = summarise(gaps)
    row = {"gap_mean": gap.mean, "gap_low": gap.low, "gap_high": gap.high}
    return nothing | row | ({} if gap.low is None else {"result": WORSE if gap.low > 0 else SAME})
