"""Audits of one run: many canaries, each in by a coin of its own, and guesses at the coins from the release alone.

Steinke, Nasr & Jagielski 2023. Flipping a coin makes a neighbour: a canary comes or goes, or it moves from its first
cells to its second. Every canary holds more than the bound, so that clipping has to work for the bound to hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import Flags, Floats, Histograms
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.privacy.neighbours import Neighbours, Norm
from fedhist.protocol.privacy.randomness import Source
from fedhist.simulations.audit.bounds import one_run_epsilon
from fedhist.simulations.audit.findings import Finding, Setting, compared
from fedhist.simulations.audit.worlds import Replay, claim_of, evidence_of, release_of, shift_of

_OVER = 3
"""What a canary holds, as a multiple of the bound."""
THRESHOLD = 4.0


@dataclass(frozen=True)
class Canaries:
    """The canaries, and which of their coins are guessed.

    Args:
        mechanism: of the release.
        neighbours: a canary comes and goes, or moves between two places.
        cells: the number of cells that a canary is spread over.
        epsilon, delta: of the release.
        guessed: the share of the coins that is guessed: those for which the release is the strongest evidence.
    """

    mechanism: str
    neighbours: Neighbours
    cells: int
    epsilon: float
    delta: float
    guessed: float

    @property
    def places(self) -> int:
        """The number of places in which a canary may be."""
        return 2 if self.neighbours is Neighbours.REPLACE_ONE else 1

    def plan(self, canaries: int) -> Plan:
        """The plan for this number of canaries."""
        return Plan(
            users=canaries,
            items=canaries * self.cells * self.places,
            mechanism=self.mechanism,
            selector="fixed",
            threshold=THRESHOLD,
            max_threshold=8.0,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
        )


def coins(count: int, *, source: Source) -> Flags:
    """Fair coins."""
    flags: Flags = (source.words(count) >> np.uint64(63)).astype(bool)
    return flags


def canary_population(heads: Flags, kind: Canaries) -> SparsePopulation:
    """Canary i owns `cells * places` consecutive items; heads puts it into the first of its places."""
    held = heads if kind.places == 1 else np.ones(len(heads), dtype=bool)
    first = np.arange(len(heads)) * kind.cells * kind.places
    if kind.places == 2:
        first = first + np.where(heads, 0, kind.cells)
    items = (first[held][:, np.newaxis] + np.arange(kind.cells)).ravel()
    counts = np.full(len(items), int(_OVER * THRESHOLD))
    offsets = np.concatenate([[0], np.cumsum(np.where(held, kind.cells, 0))])
    size = len(heads) * kind.cells * kind.places
    return SparsePopulation(Histograms(offsets=offsets, items=items, counts=counts, domain_size=size))


def coin_scores(values: Floats, kind: Canaries, norm: Norm, deviation: float) -> Floats:
    """The evidence for heads, canary by canary: the log-likelihood ratio if the noise is as claimed."""
    table = values.reshape(-1, kind.places, kind.cells)
    evidence = evidence_of(table, shift_of(THRESHOLD, kind.cells, norm), deviation, norm)
    # Rounded, so that ties are broken by the raw values and not by the last bit of a sum.
    totals = np.round(evidence.sum(axis=2), 9)
    raw = 1e-12 * table.mean(axis=2)
    scores: Floats = totals + raw
    return scores[:, 0] if kind.places == 1 else scores[:, 0] - scores[:, 1]


def judge(
    setting: Setting, heads: Flags, scores: Floats, *, known: Flags, guessed: float, claim: Cost
) -> Finding:
    """Guess the coins with the strongest scores and compare the bound with the claim.

    Args:
        setting: the check's name and level.
        heads: the coins.
        scores: evidence for heads.
        known: the canaries that the auditor knows to have taken part; the coins of the others are not guessed.
        guessed: the share of the coins to guess.
        claim: the ledger's.
    """
    usable = np.flatnonzero(known)
    guesses = int(guessed * len(usable))
    strongest = usable[np.argsort(-np.abs(scores[usable]), kind="stable")[:guesses]]
    correct = int(((scores[strongest] > 0) == heads[strongest]).sum())
    bound = one_run_epsilon(len(usable), guesses, correct, delta=claim.delta, alpha=setting.alpha)
    detail = f"{correct:,} of {guesses:,} guesses right, {len(usable):,} canaries"
    return compared(setting, claim, bound, detail)


def one_run(kind: Canaries, setting: Setting) -> Finding:
    """The check of one run with these canaries."""
    heads = coins(setting.effort.canaries, source=setting.auditor().fork("coins"))
    plan = kind.plan(len(heads))
    transport = Replay(canary_population(heads, kind), setting.mechanism().fork("devices"))
    release = release_of(plan, transport, source=setting.mechanism())
    scores = coin_scores(release.histogram, kind, plan.norm, release.standard_error)
    everybody = np.ones(len(heads), dtype=bool)
    return judge(setting, heads, scores, known=everybody, guessed=kind.guessed, claim=claim_of(release))
