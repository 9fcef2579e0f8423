"""The comparison behind `fedhist compare`: a cell for every combination, and a tidy row for each cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins.identity import Kind
from fedhist.protocol.plugins.registry import plugin_named
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.protocol.privacy.ledger import Charge
from fedhist.server.releases import rule_for
from fedhist.server.selection import SELECTORS, column_of, fitting
from fedhist.server.steps import check_runnable, planned_charges
from fedhist.simulations.datasets.registry import PREFIX, dataset_name, is_synthetic, make_population
from fedhist.simulations.datasets.synthetic import materialise
from fedhist.simulations.experiments.running import NOT_PRIVATE, Results
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import Cell
from fedhist.simulations.experiments.user_sets import UserSet

MAX_CELLS = 10_000
PLAN_COLUMNS = (
    "domain", "mechanism", "release", "epsilon", "delta", "epsilon_select", "delta_select", "neighbours",
    "min_threshold", "max_threshold", "candidates", "threshold",
)  # fmt: skip
_TAG = b"fedhist/1/experiment/drawn-once/"


def names_of(paths: Sequence[Path], *, taken: Sequence[str] = ()) -> dict[Path, str]:
    """The name of each population in tables: the shortest that no other population has.

    A file is called `visits`, else `visits.csv`, else `x/visits.csv` and so on up to the whole path; a synthetic
    population `zipf?users=5`, else with `synthetic:` before it. Whole paths differ, so the search ends.

    Args:
        paths: different paths.
        taken: names of other populations in the same table.
    """
    choices = {path: _names(path) for path in paths}
    length = dict.fromkeys(paths, 0)
    while True:
        named = {path: choices[path][length[path]] for path in paths}
        all_names = [*named.values(), *taken]
        longer = [
            path
            for path, name in named.items()
            if all_names.count(name) > 1 and length[path] + 1 < len(choices[path])
        ]
        if not longer:
            return named
        for path in longer:
            length[path] += 1


def _names(path: Path) -> list[str]:
    """The possible names, from the shortest to the longest."""
    if is_synthetic(str(path)):
        return [str(path).removeprefix(PREFIX), str(path)]
    parts = path.absolute().parts
    return [path.stem, *("/".join(parts[-count:]) for count in range(1, len(parts) + 1))]


def drawn_once(text: str, seed: int, **sizes: int | None) -> SparsePopulation:
    """The users of `synthetic:NAME?...`, the same in every trial, like a file's: those of `fedhist run`."""
    return materialise(make_population(text, seed=seed, **sizes))


def drawn_digest(text: str, seed: int, **sizes: int | None) -> str:
    """The digest of `drawn_once`, whose users are a function of these arguments alone."""
    plugin = plugin_named(Kind.POPULATION, dataset_name(text))
    code = [] if plugin is None else [str(plugin.identity)]
    content = json.dumps(
        [text, seed, {name: size for name, size in sizes.items() if size is not None}, *code]
    )
    return hashlib.sha256(_TAG + content.encode()).hexdigest()


def check_different(contents: Mapping[Path, str]) -> None:
    """Refuse two populations with the same content: they would share one row, under one of their names."""
    seen: dict[str, Path] = {}
    for path, content in contents.items():
        if content in seen:
            raise InvalidInput(
                f"{seen[content]} and {path} have the same content", allowed="each population once"
            )
        seen[content] = path


def check_selectors(names: Sequence[str], kinds: Sequence[Plan]) -> None:
    """Refuse an unknown selector, or one that goes with none of these kinds of plan, before any data is read."""
    allowed = fitting_any(kinds)
    for name in names:
        if SELECTORS.find(name) is None:
            raise InvalidInput(f"unknown selector {name!r}", allowed=", ".join(allowed))
        if name not in allowed:
            column_of(kinds[0].releasing, SELECTORS[name])


def fitting_any(kinds: Sequence[Plan]) -> list[str]:
    """The selectors that go with one of these kinds of plan."""
    fits = {name for plan in kinds for name in fitting(plan.releasing)}
    return [name for name in SELECTORS if name in fits]


def kinds_of_plan(domain: str, mechanism: str | None, releases: Sequence[str]) -> list[Plan]:
    """A plan of each kind that is compared, to ask what goes with it. Refuses releases that do not fit."""
    named: dict[str, Any] = {"users": 1, "domain": domain, "mechanism": mechanism}
    if domain == "closed":
        kind = Plan(items=1, **named)
        for name in releases:
            rule_for(replace(kind, release=name))
        return [kind]
    # Without a release, a selector decides which one a plan has.
    default = ("discover",) if mechanism in ("gaussian", "auto") else ("discover", "truncated-laplace")
    kinds = [Plan(release=name, **named) for name in releases or default]
    for kind in kinds:
        rule_for(kind.releasing)
    # Without a mechanism, a selector decides whether the run chooses one.
    named_all = [
        replace(kind, mechanism="gaussian") for kind in kinds if kind.chooses_mechanism and not mechanism
    ]
    return kinds + named_all


def cells_of(
    varied: Mapping[str, tuple[Any, ...]], fixed: Mapping[str, Any], sets: Sequence[UserSet]
) -> tuple[Cell, ...]:
    """A cell for every combination of the varied fields of Plan; only the selector fixed has a threshold."""
    cells: dict[str, Cell] = {}
    for users, *values in product(sets, *varied.values()):
        settings = {**fixed, **dict(zip(varied, values, strict=True))}
        if settings["selector"] != "fixed":
            settings.pop("threshold", None)
        settings = {name: value for name, value in settings.items() if value is not None}
        if not _go_together(settings):
            continue
        cell = Cell(users=users, settings=settings)
        cells[cell.key] = cell
    if len(cells) > MAX_CELLS:
        raise InvalidInput(f"there are {len(cells):,} combinations", allowed=f"up to {MAX_CELLS:,}")
    return tuple(cells.values())


def checked_plans(cells: Sequence[Cell], sizes: Mapping[str, tuple[int, int]]) -> dict[str, Plan]:
    """The plan of each cell, checked before anything runs; `sizes` has the users and items of a set by its key."""
    plans = {}
    for cell in cells:
        users, items = sizes[cell.users.key]
        plan = cell.plan(users, items)
        check_runnable(plan, simulated=True)
        plans[cell.key] = plan
    return plans


def cost_of(charges: Sequence[Charge]) -> Row:
    """The total by basic and by tight composition; None if something was not private."""
    if not all(charge.private for charge in charges):
        return dict.fromkeys(("epsilon_total", "delta_total", "epsilon_tight", "delta_tight"))
    totals = {"total": basic_total(charges), "tight": tight_total(charges)}
    return {f"{name}_{how}": value for how, cost in totals.items() for name, value in asdict(cost).items()}


def rows_of(
    cells: Sequence[Cell], plans: Mapping[str, Plan], results: Results, sizes: Mapping[str, tuple[int, int]]
) -> list[Row]:
    """One row for each cell, in order."""
    costs: dict[str, Row] = {}
    rows = []
    for cell in cells:
        plan = plans[cell.key]
        kind = str((plan.to_json() | {"users": 0, "items": 0}).items())
        if kind not in costs:
            costs[kind] = cost_of(planned_charges(plan))
        rows.append(_row(cell, plan, results, sizes[cell.users.key], costs[kind]))
    return rows


def _row(cell: Cell, plan: Plan, results: Results, size: tuple[int, int], cost: Row) -> Row:
    row: Row = {"data": cell.users.name, "users": size[0], "items": size[1]}
    row |= {"selector": plan.selector, "private": all(charge.private for charge in planned_charges(plan))}
    row |= {name: getattr(plan, name) for name in PLAN_COLUMNS} | {"neighbours": plan.neighbours.value}
    row["trials"] = len(results.values(cell, "loss"))
    for name in ("loss", "threshold", "released", "seconds"):
        found = results.summary(cell, name)
        row |= {
            f"{name}_mean": found.mean, f"{name}_std": found.std,
            f"{name}_low": found.low, f"{name}_high": found.high,
        }  # fmt: skip
    return row | cost | {"note": NOT_PRIVATE}


def _go_together(settings: Mapping[str, Any]) -> bool:
    """Whether the selector goes with the release, where several releases of an open domain are compared."""
    if settings.get("release") is None or settings.get("domain") != "open":
        return True
    kinds = kinds_of_plan("open", settings.get("mechanism"), [settings["release"]])
    return settings["selector"] in fitting_any(kinds)
