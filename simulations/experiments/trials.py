"""One trial of a cell: both rounds of a plan over some users, compared with the exact data. Not private."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.clipping import user_squares, user_totals
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.histograms import Floats, Integers, Labels, Population, names_of
from fedhist.protocol.items import numbers_in
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource, Source
from fedhist.protocol.rounds import Request, Round, Total
from fedhist.server.coordinator import run_rounds
from fedhist.server.declared import is_private
from fedhist.server.releases.contract import Release
from fedhist.server.selection import SELECTORS, selector_for
from fedhist.server.selection.exponential_v import ExponentialV, capped_error, choice_by_range
from fedhist.server.steps import read_statistic, select_request
from fedhist.server.totals import plan_for_total
from fedhist.simulations.datasets.paper_sets import RatesPopulation
from fedhist.simulations.datasets.registry import DATASETS, PREFIX, make_population
from fedhist.simulations.datasets.synthetic import materialise
from fedhist.simulations.engines.in_process import exact_total
from fedhist.simulations.engines.masked import unmasked_total
from fedhist.simulations.experiments.choices import ALL_DELTA, PAPER_DELTA

_TAG = b"fedhist/1/experiment/"
EXACT = {"median": 0.5, "p90": 0.9}
"""Exact quantiles of the totals, as shares of users at or below; "m-rank" is the M-th largest l2 norm."""


class PaperPlan(Plan):
    """A plan with the paper's candidates: 10, 20, ..., 1500, evenly spaced where ours are geometric."""

    @cached_property
    def candidate_steps(self) -> Integers:
        """Tens from 10 to C_m."""
        return np.arange(10, int(self.max_threshold) + 1, 10, dtype=np.int64) << self.grid_bits


FILE = "file"
SYNTHETIC = tuple(name for name, one in DATASETS.items() if {"users", "items"} <= one.defaults.keys())
"""The synthetic populations whose users and items can be set."""


@dataclass(frozen=True, kw_only=True)
class UserSet:
    """The source of an experiment's users.

    Args:
        kind: FILE, a name of SYNTHETIC, or "rates" (one item, Gamma rates).
        name: the name in tables and figures.
        users, items: the size of a synthetic set.
        content: the digest of users that are the same in every trial (`digest_of`).
        top_items: the number of most frequent items to keep; None keeps all.
        shape, mean: of the Gamma rates of the kind "rates".
    """

    kind: str
    name: str
    users: int = 0
    items: int = 0
    content: str = ""
    top_items: int | None = None
    shape: float = 0.0
    mean: float = 0.0

    @cached_property
    def key(self) -> str:
        """All fields but the name: equal keys are equal users."""
        return json.dumps({k: v for k, v in asdict(self).items() if k != "name" and v}, sort_keys=True)


def trial_seed(seed: int, users: UserSet, trial: int, purpose: str) -> int:
    """The seed of one trial over these users, a function of the four arguments alone.

    It is shared by everything that is compared: all selectors and budgets see the same users and, as far as possible,
    the same noise.
    """
    text = json.dumps([seed, users.key, trial, purpose])
    return int.from_bytes(hashlib.sha256(_TAG + text.encode()).digest()[:7], "big")


def digest_of(population: SparsePopulation) -> str:
    """The digest of how many users there are, how much each has, and how often each item is counted, in any order."""
    users = population.histograms
    names = [str(name) for name in names_of(population)]
    counted = sorted(zip(names, population.totals().tolist(), strict=True))
    digest = hashlib.sha256(_TAG + json.dumps(counted).encode())
    for sizes in (user_totals(users), user_squares(users), np.diff(users.offsets)):
        digest.update(np.sort(sizes).astype(np.float64).tobytes())
    return digest.hexdigest()


def draw_users(users: UserSet, *, seed: int, trial: int) -> SparsePopulation:
    """The synthetic users of a trial, in memory."""
    own_seed = trial_seed(seed, users, trial, "users")
    population: Population
    if users.kind == "rates":
        population = RatesPopulation(users.users, own_seed, alpha=users.shape, mean=users.mean)
    else:
        population = make_population(
            f"{PREFIX}{users.kind}", seed=own_seed, users=users.users, items=users.items
        )
    made = materialise(population)
    return made if users.top_items is None else made.keep_top_items(users.top_items)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row of a table: users, and a way to release their histogram.

    Args:
        users: the set of users.
        settings: fields of Plan except users and items, and a total as `plan_for_total` takes it; deltas may be
            PAPER_DELTA or ALL_DELTA.
        paper_grid: True for the paper's candidates.
        exact: a name of EXACT or "m-rank": the threshold is inferred from the data, and the selector is fixed.
        bounded_by: a selector that first chooses the largest threshold, with half of epsilon-select.
        half_penalty: True caps an item's loss at half of t(C) in the V(C) of the selector exponential-v.
    """

    users: UserSet
    settings: Mapping[str, Any]
    paper_grid: bool = False
    exact: str | None = None
    bounded_by: str | None = None
    half_penalty: bool = False

    @cached_property
    def key(self) -> str:
        """A short name that depends on everything that changes a trial."""
        content = [
            self.users.key, dict(self.settings), self.paper_grid, self.exact, self.bounded_by, self.half_penalty,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]

    def settings_for(self, users: int) -> dict[str, Any]:
        """The settings, with numbers for deltas that depend on the number of users."""
        deltas = {PAPER_DELTA: 1 / (2 * users), ALL_DELTA: 1 / users}
        return {name: deltas.get(value, value) for name, value in self.settings.items()}

    def plan(self, users: int, items: int) -> Plan:
        """The plan for these numbers of users and items."""
        settings = self.settings_for(users)
        if self.exact is not None:
            settings |= {"selector": "fixed", "threshold": settings.get("max_threshold", 1500.0)}
        closed = settings.get("domain", "closed") == "closed"
        sizes: dict[str, Any] = {"users": users, "items": items if closed else None}
        if "total_epsilon" in settings:
            return _plan_for_total(sizes | settings)
        make = PaperPlan if self.paper_grid else Plan
        return make(**sizes, **settings)


def _plan_for_total(settings: dict[str, Any]) -> Plan:
    """The plan for a total. The choice of a selector that is not private is free: the histogram has it all."""
    selector = SELECTORS.find(settings.get("selector", ""))
    named = {name: value for name, value in settings.items() if not name.startswith("total_")}
    if selector is None or is_private(selector, Plan(**named).releasing):
        return plan_for_total(**settings)
    total = {"epsilon": settings.pop("total_epsilon"), "delta": settings.pop("total_delta", None)}
    return Plan(**settings, **{name: value for name, value in total.items() if value is not None})


NOTHING_RELEASED = {"loss": 1.0, "estimate": 1.0, "threshold": math.nan, "released": 0.0, "significant": 0.0}
"""The values of a trial whose round failed, as one over an open domain may whose table has too little room."""

RoundOnes = dict[object, tuple[Total, float]]
"""The sums of round 1 and the seconds that they took, by statistic."""


@dataclass
class SharedRoundOne:
    """A transport that computes round 1 once: its sum is the same for all plans with the same statistic.

    `remembered` is the time that a remembered round 1 took when it was computed.
    """

    population: SparsePopulation
    source: Source
    first: RoundOnes
    simulated: bool = True
    remembered: float = 0.0

    def total(self, request: Request) -> Total:
        """The sum; that of round 1 from memory if it was computed before. Noise of devices is drawn in every trial."""
        if (
            request.round is not Round.SELECT
            or request.settled.keys is not None
            or request.measurement.share is not None
        ):
            return self._sum(request)
        key = (request.plan.masking, request.key)
        if key in self.first:
            total, spent = self.first[key]
            self.remembered += spent
            return total
        start = perf_counter()
        total = self._sum(request)
        self.first[key] = (total, perf_counter() - start)
        return total

    def _sum(self, request: Request) -> Total:
        """What the server reads; under masks that is the sum of what the participants would have masked."""
        add = exact_total if request.plan.participants is None else unmasked_total
        return add(request, self.population, source=self.source)


Values = dict[str, float]
"""The results of one trial of a cell, by name."""


@dataclass
class Trials:
    """Runs trials in one process, whose trials of the same users share what does not depend on the draws.

    Args:
        seed: of all trials.
        populations: the users that are the same in every trial, by the key of their set.
    """

    seed: int
    populations: Mapping[str, SparsePopulation]
    _first: dict[str, RoundOnes] = field(default_factory=lambda: defaultdict(dict))
    _users: tuple[object, SparsePopulation, Integers] | None = None

    def run(self, trial: int, cells: Sequence[Cell]) -> Iterator[Values]:
        """One trial of each of these cells, which have the same users."""
        users = cells[0].users
        same = users.key in self.populations
        this = users.key if same else (users.key, trial)
        if self._users is None or self._users[0] != this:
            population = (
                self.populations[users.key] if same else draw_users(users, seed=self.seed, trial=trial)
            )
            self._users = (this, population, population.totals())
        _, population, truth = self._users
        first = self._first[users.key] if same else {}
        source = SeededSource(trial_seed(self.seed, users, trial, "draws"))
        for cell in cells:
            # A fresh source of the same seed, so that a trial does not depend on the cells before it.
            yield _measure(cell, SharedRoundOne(population, source.fork(), first), truth, source)


def _measure(
    cell: Cell, transport: SharedRoundOne, truth: Integers, source: SeededSource
) -> dict[str, float]:
    population = transport.population
    plan = cell.plan(population.users, population.domain_size)
    start = perf_counter()
    if cell.exact is not None:
        threshold = exact_threshold(cell.exact, plan, population)
        plan = replace(plan, threshold=threshold)
    if cell.bounded_by is not None:
        plan = _bounded(cell.bounded_by, plan, transport, source.fork())
    if cell.half_penalty:
        plan = _half_penalty(plan, transport, source.fork())
    ledger = Ledger()
    try:
        release = run_rounds(plan, transport, ledger=ledger, source=source.fork())
    except RoundFailed:
        # Nothing was released, and every item counts as 0.
        spent = perf_counter() - start + transport.remembered
        return NOTHING_RELEASED | {"seconds": spent, "delta": ledger.basic().delta}
    spent = perf_counter() - start + transport.remembered
    values = {
        "loss": relative_loss(release, release.histogram, truth, names_of(population)),
        "estimate": relative_loss(release, release.estimate, truth, names_of(population)),
        "threshold": release.threshold,
        "released": float(len(release.histogram)),
        "significant": float((release.at_least > 0).sum()),
        "seconds": spent,
        "delta": ledger.basic().delta,
    }
    if release.item_release is not None:
        missed = np.abs(release.item_release.clipped - truth).sum()
        values["loss_clipped"] = float(missed / max(int(truth.sum()), 1))
    return values


def relative_loss(release: Release, values: Floats, truth: Integers, names: Labels) -> float:
    """The l1 error of a release's values over the true total; an item that is not released counts as 0."""
    released = values
    if release.keys is not None:
        released = np.zeros(len(truth))
        released[release.keys] = values
    elif release.labels is not None:
        places = numbers_in(release.labels, names)
        released = np.where(places >= 0, np.append(values, 0.0)[places], 0.0)
    return float(np.abs(released - truth).sum() / max(int(truth.sum()), 1))


def exact_threshold(name: str, plan: Plan, population: SparsePopulation) -> float:
    """A threshold inferred from the data, inside the plan's range: a quantile of totals, or the M-th largest norm."""
    histograms = population.histograms
    if name == "m-rank":
        norms = np.sqrt(user_squares(histograms).astype(np.float64))
        rank = min(max(math.ceil(plan.noise_price), 1), len(norms))
        bound = float(np.partition(norms, len(norms) - rank)[len(norms) - rank])
    else:
        # A total that occurs: the smallest that this share of users does not exceed.
        bound = float(np.quantile(user_totals(histograms), EXACT[name], method="inverted_cdf"))
    return min(max(bound, plan.min_threshold), plan.max_threshold)


def _half_penalty(plan: Plan, transport: SharedRoundOne, source: Source) -> Plan:
    """The plan at a threshold that exponential-v chose by V(C) with t(C)/2 for t(C)."""
    statistic = read_statistic(plan, transport.total(select_request(plan)))
    caps = [noise.bar // 2 for noise in plan.open_noises(plan.candidate_steps)]
    selector = selector_for(plan)
    assert isinstance(selector, ExponentialV)  # noqa: S101 - the V(C) whose bar is halved
    choice = choice_by_range(plan, -capped_error(statistic, caps), selector.range_of(plan))
    chosen = choice.draw(source=source.fork("server", "select", "half penalty")).threshold
    return replace(plan, selector="fixed", threshold=chosen.value)


def _bounded(name: str, plan: Plan, transport: SharedRoundOne, source: Source) -> Plan:
    """The plan with a largest threshold chosen by a private selector for half of epsilon-select.

    The paper's C_m = DP-M-quantile for Algorithm 2. Both halves together cost epsilon-select.
    """
    half = replace(plan, epsilon_select=plan.epsilon_select / 2)
    chooser = replace(half, selector=name)
    statistic = read_statistic(chooser, transport.total(select_request(chooser)))
    draws = source.fork("server", "select", name)
    chosen = selector_for(chooser).select(chooser, statistic, source=draws).threshold
    return replace(half, max_threshold=max(chosen.value, plan.min_threshold))
