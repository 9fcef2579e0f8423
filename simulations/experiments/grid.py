"""The grid of a comparison: every combination of its lists, without those that do not go together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.server.selection import SELECTORS
from fedhist.server.steps import check_runnable
from fedhist.simulations.experiments.choices import DEFAULT_PARTICIPANTS, NONE
from fedhist.simulations.experiments.trials import Cell, UserSet

MAX_CELLS = 10_000
_REASONS_SHOWN = 5
Sizes = Mapping[str, tuple[int, int]]
"""Users and items of each set, by its key."""


@dataclass(frozen=True)
class Grid:
    """What is compared.

    Args:
        selectors: names of SELECTORS; None for all that fit, without fixed.
        varied: lists of values by field of Plan, or by total_epsilon and total_delta; None leaves a field out.
        fixed: values that all combinations share.
        participants: of masked rounds; None for DEFAULT_PARTICIPANTS, or all users if they are fewer.
    """

    selectors: tuple[str, ...] | None
    varied: Mapping[str, tuple[Any, ...]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    participants: int | None = None

    def __post_init__(self) -> None:
        for name in self.selectors or ():
            if SELECTORS.find(name) is None:
                raise InvalidInput(
                    f"unknown selector {name!r}",
                    allowed=", ".join(SELECTORS.with_installed()),
                    code="unknown-selector",
                )
        if self.varied.get("total_delta") and not self.varied.get("total_epsilon"):
            raise InvalidInput(
                "total-delta without total-epsilon",
                allowed="both of them, or the budgets of single rounds",
                advice="add --total-epsilon, or use --delta",
                code="total-delta-alone",
            )
        thresholds = self.varied.get("threshold") or ()
        if "fixed" in (self.selectors or ()) and not thresholds:
            raise InvalidInput(
                "the selector fixed has no threshold", allowed="--threshold with numbers", code="no-threshold"
            )
        if thresholds and "fixed" not in (self.selectors or ()):
            raise InvalidInput(
                "--threshold needs the selector fixed", allowed="--threshold with --selectors fixed,..."
            )

    def settings(self, users: int) -> Iterator[list[dict[str, Any]]]:
        """The settings of every combination for this number of users, in groups that differ in the selector alone."""
        names = [name for name, values in self.varied.items() if values]
        selectors = self.selectors or tuple(name for name in SELECTORS.with_installed() if name != "fixed")
        for values in product(*(self.varied[name] for name in names)):
            shared = {**self.fixed, **dict(zip(names, values, strict=True))}
            shared = {name: value for name, value in shared.items() if value is not None}
            if shared.get("masking", NONE) != NONE:
                shared["participants"] = self.participants or min(DEFAULT_PARTICIPANTS, users)
            own = {name: value for name, value in shared.items() if name != "threshold"}
            yield [{"selector": name, **(shared if name == "fixed" else own)} for name in selectors]

    @property
    def size(self) -> int:
        """The number of combinations for one set of users."""
        lists = [len(values) for values in self.varied.values() if values]
        return math.prod(lists) * len(self.selectors or SELECTORS.with_installed())


@dataclass(frozen=True)
class Combinations:
    """The cells of a grid that go together, with their plans by key, and how many do not, by the reason."""

    cells: tuple[Cell, ...]
    plans: Mapping[str, Plan]
    left_out: Mapping[str, int]

    @property
    def note(self) -> str | None:
        """What was left out, as a sentence."""
        if not self.left_out:
            return None
        count = sum(self.left_out.values())
        total = count + len(self.cells)
        return f"{count:,} of {total:,} combinations do not go together and are left out: {_reasons(self.left_out)}"


def combinations(grid: Grid, sets: Sequence[UserSet], sizes: Sizes) -> Combinations:
    """Every combination whose plan can run, each checked before anything runs.

    A selector that nobody named and that does not fit is no combination, unless none fits.

    Raises:
        InvalidInput: none can run, with the reasons, or there are too many.
    """
    if grid.size * len(sets) > MAX_CELLS:
        raise InvalidInput(
            f"there are {grid.size * len(sets):,} combinations",
            allowed=f"up to {MAX_CELLS:,}",
            code="too-many-combinations",
        )
    cells: dict[str, Cell] = {}
    plans: dict[str, Plan] = {}
    left_out: Counter[str] = Counter()
    refusals: dict[str, InvalidInput] = {}
    for users in sets:
        for group in grid.settings(sizes[users.key][0]):
            refused = []
            for settings in group:
                cell = Cell(users=users, settings=settings)
                try:
                    plan = cell.plan(*sizes[users.key])
                    check_runnable(plan, simulated=True)
                except InvalidInput as refusal:
                    refused.append(refusal)
                    continue
                cells[cell.key], plans[cell.key] = cell, plan
            if grid.selectors is None:
                refused = refused[:1] if len(refused) == len(group) else []
            for reason in refused:
                left_out[reason.problem] += 1
                refusals.setdefault(reason.problem, reason)
    if not cells:
        raise _nothing(refusals, left_out)
    return Combinations(tuple(cells.values()), plans, left_out)


def _nothing(refusals: Mapping[str, InvalidInput], left_out: Mapping[str, int]) -> InvalidInput:
    if len(refusals) == 1:
        (refusal,) = refusals.values()
        return refusal
    return InvalidInput(
        f"no combination goes together: {_reasons(left_out)}",
        allowed="a grid with at least one combination that can run",
        advice="'fedhist run --help' says what goes with what",
        code="no-combination",
    )


def _reasons(left_out: Mapping[str, int]) -> str:
    """The most frequent reasons, with their numbers."""
    common = Counter(left_out).most_common()
    named = [f"{reason} ({count:,})" for reason, count in common[:_REASONS_SHOWN]]
    more = sum(count for _, count in common[_REASONS_SHOWN:])
    return "; ".join([*named, *([f"other reasons ({more:,})"] if more else [])])
