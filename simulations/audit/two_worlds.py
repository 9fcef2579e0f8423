"""Audits of two worlds: many end-to-end runs with one user and without, and an event that tells them apart.

Half of the runs teach the event, the other half count it (Clopper & Pearson). The released threshold is part of what is
looked at, so round 1 is audited with round 2, against the total that the ledger claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedhist.protocol.histograms import Floats
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.bounds import accuracy_epsilon, count_event, event_epsilon, learn_event
from fedhist.simulations.audit.findings import Finding, Setting, compared
from fedhist.simulations.audit.worlds import Crafted, Lie, Replay, claim_of, release_of

_THRESHOLD_BINS = 16


@dataclass(frozen=True)
class Worlds:
    """A plan, the two populations, and what a release says about the user, its threshold aside.

    Args:
        plan: what is run; the number of users is the same in both worlds.
        without: the user has nothing, or another histogram.
        with_user: the user is there.
        evidence: the log-likelihood ratio of the released values, if the noise is as claimed.
        lie: what participants that do not follow the protocol add to the masked sums, in both worlds.
    """

    plan: Plan
    without: Crafted
    with_user: Crafted
    evidence: Callable[[Release], float]
    lie: Lie | None = None


def closed_evidence(cells: Sequence[int]) -> Callable[[Release], float]:
    """Of a user who alone holds these cells, in equal parts and more than the bound."""
    places = np.array(cells)

    def evidence(release: Release) -> float:
        before = release.item_release
        values = (release.histogram if before is None else before.clipped)[places]
        deviation = release.standard_error
        if release.plan.mechanism == "gaussian":
            shift = release.threshold / np.sqrt(len(places))
            return float(np.sum(shift * values - shift**2 / 2) / deviation**2)
        shift = release.threshold / len(places)
        return float(np.sum(np.abs(values) - np.abs(values - shift)) / (deviation / np.sqrt(2)))

    return evidence


def open_evidence(label: str, others: int) -> Callable[[Release], float]:
    """Of a user who adds the bound to a key that so many others hold to the bound as well; 0 when it is not shown."""

    def evidence(release: Release) -> float:
        labels = list(release.labels or ())
        if label not in labels:
            return 0.0
        value = release.histogram[labels.index(label)] - others * release.threshold
        scale = release.standard_error / np.sqrt(2)
        return float((abs(value) - abs(value - release.threshold)) / scale)

    return evidence


def samples(worlds: Worlds, population: Crafted, runs: int, *, source: Source) -> tuple[Floats, Floats, Cost]:
    """The thresholds and the evidence of so many runs in one world, and the largest claim of the first few."""
    transport = Replay(population, source.fork("cohort"), worlds.lie)
    thresholds, evidence, claim = np.empty(runs), np.empty(runs), Cost(0.0, 0.0)
    for number in range(runs):
        release = release_of(worlds.plan, transport, source=source.fork("run", number))
        thresholds[number], evidence[number] = release.threshold, worlds.evidence(release)
        if number < _THRESHOLD_BINS:
            cost = claim_of(release)
            claim = Cost(max(claim.epsilon, cost.epsilon), max(claim.delta, cost.delta))
    return thresholds, evidence, claim


def two_worlds(make: Callable[[], Worlds], runs_of: Callable[[Setting], int]) -> Callable[[Setting], Finding]:
    """The check of an event in two worlds."""

    def check(setting: Setting) -> Finding:
        worlds, runs, source = make(), runs_of(setting), setting.mechanism()
        out, out_evidence, claim = samples(worlds, worlds.without, runs, source=source.fork("without"))
        into, in_evidence, _ = samples(worlds, worlds.with_user, runs, source=source.fork("with"))
        return judge_events(setting, (out, out_evidence), (into, in_evidence), claim)

    return check


def judge_events(
    setting: Setting, without: tuple[Floats, Floats], with_user: tuple[Floats, Floats], claim: Cost
) -> Finding:
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
    detail = f"event in {hits[0]:,} and {hits[1]:,} of {trials:,} runs"
    return compared(setting.name, claimed=claim.epsilon, delta=claim.delta, observed=bound, detail=detail)


def guessed_worlds(
    make: Callable[[], Worlds], runs_of: Callable[[Setting], int]
) -> Callable[[Setting], Finding]:
    """The check of guesses between two worlds, the sharpest for an epsilon near 0 and a large delta.

    Equally many runs in both worlds are no riskier than a coin for each run (Hoeffding 1956, theorem 4).
    """

    def check(setting: Setting) -> Finding:
        worlds, runs, source = make(), runs_of(setting), setting.mechanism()
        _, out, claim = samples(worlds, worlds.without, runs, source=source.fork("without"))
        _, into, _ = samples(worlds, worlds.with_user, runs, source=source.fork("with"))
        return judge_guesses(setting, out, into, claim)

    return check


def judge_guesses(setting: Setting, without: Floats, with_user: Floats, claim: Cost) -> Finding:
    """Guess the world of each run from its evidence."""
    correct, guesses = int((with_user > 0).sum() + (without <= 0).sum()), len(without) + len(with_user)
    bound = accuracy_epsilon(correct, guesses, delta=claim.delta, alpha=setting.alpha)
    detail = f"{correct:,} of {guesses:,} guesses right"
    return compared(setting.name, claimed=claim.epsilon, delta=claim.delta, observed=bound, detail=detail)


def _threshold_ratio(without: Floats, with_user: Floats) -> Callable[[Floats], Floats]:
    """How much a released threshold speaks for the user, learned from runs: few cells, and one is added to each."""
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
