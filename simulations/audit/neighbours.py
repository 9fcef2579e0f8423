"""Audits of neighbouring datasets: many end-to-end runs with one user and without, and an event that tells them apart.

The event is learned on half of the runs and counted in the other half (Clopper & Pearson). The released threshold is
part of the evidence, so round 1 is audited together with round 2, against the total that the ledger claims. Clients'
exact answers are computed once for each request, by their own code, and given again in each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import Floats, Histograms, Integers, Population
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost, Ledger
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Total
from fedhist.server.coordinator import run_rounds
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.bounds import accuracy_epsilon, count_event, event_epsilon, learn_event
from fedhist.simulations.audit.checks import Effort, Finding, Setting, compared
from fedhist.simulations.engines.in_process import exact_total

_CLAIMS = 16
_THRESHOLD_BINS = 16
T = TypeVar("T")
User = Sequence[tuple[int, int]]
"""A user's items and counts."""
Samples = tuple[Floats, Floats]
"""The thresholds and the evidence of the runs over one dataset."""
RunsOf = Callable[[Effort], int]
"""The number of runs over each dataset."""


def crafted(users: Sequence[User], domain_size: int, labels: Sequence[str] | None = None) -> SparsePopulation:
    """A population of these users, some of them possibly without any item. What they hold is not checked."""
    entries = [entry for user in users for entry in user]
    offsets = np.concatenate([[0], np.cumsum([len(user) for user in users])]).astype(np.int64)
    items, counts = (np.array([entry[i] for entry in entries], dtype=np.int64) for i in range(2))
    histograms = Histograms(offsets=offsets, items=items, counts=counts, domain_size=domain_size)
    return SparsePopulation(histograms, labels=None if labels is None else tuple(labels))


@dataclass
class Replay:
    """A cohort whose exact answers are computed once by the clients' own code and repeated in every run.

    Args:
        population: the users.
        source: the users' randomness.
    """

    population: Population
    source: Source
    simulated: bool = False
    _known: dict[object, Total] = field(default_factory=dict, repr=False)

    def total(self, request: Request) -> Total:
        """The exact sum."""
        # Where a table's cells go is new in every run and changes nothing of what is in it.
        key = (request.settled, request.asks, repr(request.given.to_fields() | {"table-salt": b""}))
        if key not in self._known:
            self._known[key] = exact_total(request, self.population, source=self.source.fork("device"))
        return self._known[key]


def claim_of(release: Release) -> Cost:
    """The cost of this run according to the ledger: the least epsilon that it proves."""
    ledger = Ledger()
    for charge in release.charges:
        ledger.charge(charge)
    return ledger.tight()


def shift_of(bound: float, cells: int, norm: Norm) -> float:
    """What clipping leaves of each cell of a user who holds equally much, and too much, of this number of cells."""
    return float(bound / np.sqrt(cells)) if norm is Norm.L2 else bound / cells


def evidence_of(
    values: Floats | Integers, shifts: Floats | Integers | float, deviations: Floats | float, norm: Norm
) -> Floats:
    """The log-likelihood ratio of each value, shifted or not, if the noise is as claimed.

    Sums that are clipped in l2 have Gaussian noise, those in l1 Laplace noise.
    """
    if norm is Norm.L2:
        return np.asarray((shifts * values - shifts * shifts / 2) / deviations**2, dtype=np.float64)
    return np.asarray((np.abs(values) - np.abs(values - shifts)) / (deviations / math.sqrt(2)))


def repeated(
    plan: Plan, population: Population, runs: int, read: Callable[[Release], T], *, source: Source
) -> tuple[list[T], Cost]:
    """What is read in each of many runs over the same users, and the largest claim of the first few."""
    transport = Replay(population, source.fork("cohort"), simulated=plan.hides_users)
    found, claim = [], Cost(0.0, 0.0)
    for number in range(runs):
        release = run_rounds(plan, transport, ledger=Ledger(), source=source.fork("run", number))
        found.append(read(release))
        if number < _CLAIMS:
            cost = claim_of(release)
            claim = Cost(max(claim.epsilon, cost.epsilon), max(claim.delta, cost.delta))
    return found, claim


@dataclass(frozen=True)
class Neighbouring:
    """A plan, two neighbouring datasets, and the evidence of a release about the user, its threshold aside.

    Args:
        plan: the plan of every run; the number of users is the same for both.
        without: the population in which the user has nothing, or another histogram.
        with_user: the population with the user.
        evidence: the log-likelihood ratio of the released values if the noise is as claimed.
    """

    plan: Plan
    without: SparsePopulation
    with_user: SparsePopulation
    evidence: Callable[[Release], float]


def values_of(release: Release) -> Floats:
    """The released values, before any debiasing."""
    return release.histogram if release.item_release is None else release.item_release.clipped


def closed_evidence(cells: Sequence[int]) -> Callable[[Release], float]:
    """The evidence for a user who alone holds these cells, in equal parts and more than the bound."""
    places = np.array(cells)

    def evidence(release: Release) -> float:
        norm = release.round_plan.norm
        shift = shift_of(release.threshold, len(places), norm)
        return float(evidence_of(values_of(release)[places], shift, release.standard_error, norm).sum())

    return evidence


def _samples(setting: Setting, both: Neighbouring, runs_of: RunsOf) -> tuple[Samples, Samples, Cost]:
    """The runs without the user, those with, and the claim."""
    samples, claim = [], Cost(0.0, 0.0)
    for name, population in (("with", both.with_user), ("without", both.without)):
        found, claim = repeated(
            both.plan,
            population,
            runs_of(setting.effort),
            lambda release: (release.threshold, both.evidence(release)),
            source=setting.mechanism().fork(name),
        )
        thresholds, evidence = np.array(found).T
        samples.append((thresholds, evidence))
    with_user, without = samples
    return without, with_user, claim


def told_by_events(make: Callable[[], Neighbouring], runs_of: RunsOf, setting: Setting) -> Finding:
    """The check of an event."""
    return judge_events(setting, *_samples(setting, make(), runs_of))


def told_by_guesses(make: Callable[[], Neighbouring], runs_of: RunsOf, setting: Setting) -> Finding:
    """The check of guesses between two datasets, the sharpest for an epsilon near 0 and a large delta.

    Equally many runs over both are no riskier than a coin for each run (Hoeffding 1956, theorem 4).
    """
    (_, without), (_, with_user), claim = _samples(setting, make(), runs_of)
    return judge_guesses(setting, without, with_user, claim)


def judge_events(setting: Setting, without: Samples, with_user: Samples, claim: Cost) -> Finding:
    """Learn an event on the first half of the runs and count it in the second."""
    half = len(without[0]) // 2
    ratio = _threshold_ratio(without[0][:half], with_user[0][:half])
    scores = [ratio(thresholds) + evidence for thresholds, evidence in (without, with_user)]
    cut, above = learn_event(scores[0][:half], scores[1][:half], delta=claim.delta)
    hits = [int(count_event(score[half:], cut, above).sum()) for score in scores]
    if above:
        hits.reverse()
    trials = len(scores[0]) - half
    bound = event_epsilon(hits[0], trials, hits[1], trials, delta=claim.delta, alpha=setting.alpha)
    return compared(setting, claim, bound, f"event in {hits[0]:,} and {hits[1]:,} of {trials:,} runs")


def judge_guesses(setting: Setting, without: Floats, with_user: Floats, claim: Cost) -> Finding:
    """Guess the dataset of each run from its evidence."""
    correct, guesses = int((with_user > 0).sum() + (without <= 0).sum()), len(without) + len(with_user)
    bound = accuracy_epsilon(correct, guesses, delta=claim.delta, alpha=setting.alpha)
    return compared(setting, claim, bound, f"{correct:,} of {guesses:,} guesses right")


def _threshold_ratio(without: Floats, with_user: Floats) -> Callable[[Floats], Floats]:
    """The log-likelihood ratio of a released threshold, learned from runs: few cells, and one is added to each."""
    both = np.concatenate([without, with_user])
    seen = np.unique(both)
    if len(seen) > _THRESHOLD_BINS:
        seen = np.unique(np.quantile(both, np.linspace(0, 1, _THRESHOLD_BINS)))
    edges = seen[1:]
    counts = [
        np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(seen)) + 1.0
        for values in (without, with_user)
    ]
    ratios = np.log(counts[1] / counts[0])
    return lambda thresholds: np.asarray(ratios[np.searchsorted(edges, thresholds, side="right")])
