"""Audits of two worlds: many end-to-end runs with one user and without, and an event that tells them apart.

The event is learned on half of the runs and counted in the other half (Clopper & Pearson). The released threshold is
part of the evidence, so round 1 is audited together with round 2, against the total that the ledger claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import Floats
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.bounds import accuracy_epsilon, count_event, event_epsilon, learn_event
from fedhist.simulations.audit.findings import Effort, Finding, Setting, compared
from fedhist.simulations.audit.worlds import Lie, evidence_of, repeated, shift_of

_THRESHOLD_BINS = 16
Samples = tuple[Floats, Floats]
"""The thresholds and the evidence of the runs in one world."""
RunsOf = Callable[[Effort], int]
"""The number of runs in each world."""


@dataclass(frozen=True)
class Worlds:
    """A plan, two populations, and the evidence of a release about the user, its threshold aside.

    Args:
        plan: the plan of every run; the number of users is the same in both worlds.
        without: the population in which the user has nothing, or another histogram.
        with_user: the population with the user.
        evidence: the log-likelihood ratio of the released values if the noise is as claimed.
        lie: what participants who do not follow the protocol add to the masked sums, in both worlds.
    """

    plan: Plan
    without: SparsePopulation
    with_user: SparsePopulation
    evidence: Callable[[Release], float]
    lie: Lie | None = None


def closed_evidence(cells: Sequence[int]) -> Callable[[Release], float]:
    """The evidence for a user who alone holds these cells, in equal parts and more than the bound."""
    places = np.array(cells)

    def evidence(release: Release) -> float:
        before = release.item_release
        values = (release.histogram if before is None else before.clipped)[places]
        norm = release.round_plan.norm
        shift = shift_of(release.threshold, len(places), norm)
        return float(evidence_of(values, shift, release.standard_error, norm).sum())

    return evidence


def open_evidence(label: str, others: int) -> Callable[[Release], float]:
    """The evidence for a user who adds the bound to a key, as this number of others do; 0 if the key is not shown."""

    def evidence(release: Release) -> float:
        labels = list(release.labels or ())
        if label not in labels:
            return 0.0
        value = release.histogram[labels.index(label)] - others * release.threshold
        return float(evidence_of(value, release.threshold, release.standard_error, release.round_plan.norm))

    return evidence


def _both_worlds(worlds: Worlds, runs_of: RunsOf, setting: Setting) -> tuple[Samples, Samples, Cost]:
    """The runs without the user, those with, and the claim."""
    source = setting.mechanism()

    def samples(population: SparsePopulation, name: str) -> tuple[Samples, Cost]:
        found, claim = repeated(
            worlds.plan,
            population,
            runs_of(setting.effort),
            lambda release: (release.threshold, worlds.evidence(release)),
            source=source.fork(name),
            lie=worlds.lie,
        )
        thresholds, evidence = np.array(found).T
        return (thresholds, evidence), claim

    without, claim = samples(worlds.without, "without")
    return without, samples(worlds.with_user, "with")[0], claim


def two_worlds(make: Callable[[], Worlds], runs_of: RunsOf, setting: Setting) -> Finding:
    """The check of an event in two worlds."""
    return judge_events(setting, *_both_worlds(make(), runs_of, setting))


def guessed_worlds(make: Callable[[], Worlds], runs_of: RunsOf, setting: Setting) -> Finding:
    """The check of guesses between two worlds, the sharpest for an epsilon near 0 and a large delta.

    Equally many runs in both worlds are no riskier than a coin for each run (Hoeffding 1956, theorem 4).
    """
    (_, without), (_, with_user), claim = _both_worlds(make(), runs_of, setting)
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
    """Guess the world of each run from its evidence."""
    correct, guesses = int((with_user > 0).sum() + (without <= 0).sum()), len(without) + len(with_user)
    bound = accuracy_epsilon(correct, guesses, delta=claim.delta, alpha=setting.alpha)
    return compared(setting, claim, bound, f"{correct:,} of {guesses:,} guesses right")


def _threshold_ratio(without: Floats, with_user: Floats) -> Callable[[Floats], Floats]:
    """The log-likelihood ratio of a released threshold, learned from runs: few cells, and one is added to each."""
    seen = np.unique(np.concatenate([without, with_user]))
    if len(seen) > _THRESHOLD_BINS:
        seen = np.unique(
            np.quantile(np.concatenate([without, with_user]), np.linspace(0, 1, _THRESHOLD_BINS))
        )
    edges = seen[1:]
    counts = [
        np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(seen)) + 1.0
        for values in (without, with_user)
    ]
    ratios = np.log(counts[1] / counts[0])
    return lambda thresholds: np.asarray(ratios[np.searchsorted(edges, thresholds, side="right")])
