"""A comparison: the users that it is made over, every combination of its lists, and a row for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.protocol.privacy.ledger import Charge
from fedhist.server.selection import SELECTORS
from fedhist.server.steps import check_runnable, planned_charges
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_USERS
from fedhist.simulations.datasets.loading import Loaded, Wanted, load
from fedhist.simulations.datasets.registry import PREFIX, is_synthetic
from fedhist.simulations.datasets.synthetic import materialise
from fedhist.simulations.experiments.choices import DEFAULT_PARTICIPANTS, NONE, RANKINGS
from fedhist.simulations.experiments.running import NOT_PRIVATE, Results
from fedhist.simulations.experiments.tables import Row, Summary, summarise
from fedhist.simulations.experiments.trials import FILE, Cell, UserSet, digest_of
from fedhist.simulations.population_checks import check_not_empty
from fedhist.simulations.report.comparison import method_names


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the users of a comparison come from.

    Args:
        data: paths, `synthetic:NAME?...`, data frames, matrices or populations by name; the same users in every trial.
        kinds: names of synthetic populations that are drawn anew for each trial.
        users: of synthetic populations.
        items: sizes of synthetic populations; each is compared.
        top_items: numbers of items to keep of each population; each is compared.
        reading: how data is read, as of one that has none: columns, the public list, spelling, and the domain.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[str] = ()
    users: int | None = None
    items: tuple[int, ...] | None = None
    top_items: tuple[int, ...] | None = None
    reading: Wanted = field(default_factory=Wanted)

    def wanted(self, name: str) -> Wanted:
        """The data of this name, as a run would be asked for it."""
        if not (isinstance(self.data[name], str | Path) and is_synthetic(str(self.data[name]))):
            return replace(self.reading, data=self.data[name])
        return Wanted(data=self.data[name], users=self.users, open_domain=self.reading.open_domain)


@dataclass
class LoadedSets:
    """The sets of users, those that are the same in every trial with their users, and what is to be said of them.

    `wanted` has by a set's key how `fedhist run` asks for it.
    """

    sets: list[UserSet] = field(default_factory=list)
    populations: dict[UserSet, SparsePopulation] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    frame_kind: str | None = None

    def add(
        self,
        users: UserSet,
        size: tuple[int, int],
        wanted: Wanted,
        tops: Sequence[int] | None,
        whole: SparsePopulation | None = None,
    ) -> None:
        """Add a set with its numbers of users and items, once for each number of items to keep; None keeps all."""
        count, items = size
        for top in tops or ():
            if top > items:
                self.note(f"{users.name} has {items:,} items: --top-items {top:,} keeps them all")
        for kept in dict.fromkeys(min(top, items) for top in tops) if tops else (None,):
            one = replace(users, top_items=kept)
            if one.key not in self.sizes:
                self.sets.append(one)
                self.sizes[one.key] = (count, kept or items)
                self.wanted[one.key] = replace(wanted, top_items=kept)
                if whole is not None:
                    self.populations[one] = whole if kept is None else whole.keep_top_items(kept)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)


def load_sets(sources: Sources, seed: int) -> LoadedSets:
    """All sets; data is read or drawn once, also where several numbers of its items are kept."""
    _check_reading(sources)
    loaded = LoadedSets()
    contents: dict[str, str] = {}
    for name in sources.data:
        wanted = sources.wanted(name)
        for items in (sources.items or (None,)) if wanted.synthetic else (None,):
            asked = replace(wanted, items=items)
            read, population = _read(name, asked, seed, alone=len(sources.data) == 1)
            loaded.frame_kind = loaded.frame_kind or read.frame_kind
            for note in () if wanted.synthetic else read.notes:
                # That a list was inferred from the data makes a release not private; no comparison is.
                if "not private" not in note:
                    loaded.note(note)
            called, content = _with_items(name, items, sources), digest_of(population)
            check_different(contents, content, called)
            users, size = (
                UserSet(kind=FILE, name=called, content=content),
                (population.users, population.domain_size),
            )
            loaded.add(users, size, asked, sources.top_items, population)
    count = DEFAULT_USERS if sources.users is None else sources.users
    for kind in sources.kinds:
        for items in sources.items or (DEFAULT_ITEMS,):
            users = UserSet(kind=kind, name=_with_items(kind, items, sources), users=count, items=items)
            asked = Wanted(data=f"{PREFIX}{kind}", users=count, items=items)
            loaded.add(users, (count, items), asked, sources.top_items)
    return loaded


def _read(name: str, wanted: Wanted, seed: int, *, alone: bool) -> tuple[Loaded, SparsePopulation]:
    """Data and its users; an error says of which, where there are several."""
    try:
        # The order of a table's users decides how those above a bound are rounded: it is the same in every run.
        read = load(wanted, seed if wanted.synthetic else 0)
        population = materialise(read.population)
        check_not_empty(population)
    except InvalidInput as refusal:
        if alone:
            raise
        raise type(refusal)(
            f"{name}: {refusal.problem}", allowed=refusal.allowed, advice=refusal.advice, code=refusal.code
        ) from None
    return read, population


def check_different(contents: dict[str, str], content: str, name: str) -> None:
    """Refuse a population with the content of another: they would share one row, under one of their names."""
    if content in contents:
        raise InvalidInput(
            f"{contents[content]} and {name} have the same content",
            allowed="each population once",
            code="same-data",
        )
    contents[content] = name


def _check_reading(sources: Sources) -> None:
    """Refuse what only files and frames have, where there are none, and a list beside another choice of items."""
    reading = sources.reading
    listed = reading.items_file is not None or reading.item_names is not None
    read = [name for name in sources.data if not sources.wanted(name).synthetic]
    if listed and (not read or sources.top_items):
        raise InvalidInput(
            "--items-file names the domain of a data file",
            allowed="--items-file with --data, without --top-items",
        )
    if reading.columns.given and not read:
        raise InvalidInput(
            f"{reading.columns.in_words()} without a file", allowed="names of columns and bins with --data"
        )
    if reading.columns.bins is not None and sources.top_items:
        raise InvalidInput(
            "--bins with --top-items", allowed="bins alone", advice="the bins are the list of items"
        )
    if reading.normalise is not None and not read:
        raise InvalidInput(
            "--normalise needs a data file", allowed="--normalise with --data, for a file that has names"
        )


def names_of(paths: Sequence[Path], *, taken: Sequence[str] = ()) -> dict[Path, str]:
    """The name of each population in tables: the shortest that no other population has.

    A file is called `visits`, else `visits.csv`, else `x/visits.csv` and so on up to the whole path; a synthetic
    population `zipf?users=5`, else with `synthetic:` before it. Whole paths differ, so the search ends.

    Args:
        paths: different paths.
        taken: names of other populations in the same table.
    """
    choices = {path: _names(path) for path in paths}
    named = {path: names.pop(0) for path, names in choices.items()}
    while longer := [
        path for path, name in named.items() if [*named.values(), *taken].count(name) > 1 and choices[path]
    ]:
        named |= {path: choices[path].pop(0) for path in longer}
    return named


def _names(path: Path) -> list[str]:
    """The possible names, from the shortest to the longest."""
    if is_synthetic(str(path)):
        return [str(path).removeprefix(PREFIX), str(path)]
    parts = path.absolute().parts
    return [path.stem, *("/".join(parts[-count:]) for count in range(1, len(parts) + 1))]


def _with_items(name: str, items: int | None, sources: Sources) -> str:
    """The name, with the number of items where several sizes keep the same number of top items."""
    several = sources.top_items and len(sources.items or ()) > 1
    return f"{name}, {items:,} items" if several else name


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
    named = [row | {"method": name} for row, name in zip(rows, method_names(rows), strict=True)]
    # The columns first that people look at.
    return [{name: row[name] for name in _FIRST} | row for row in named]


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
