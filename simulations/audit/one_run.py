"""Audits of one run: many canaries, each in by a coin of its own, and guesses at the coins from the release alone.

Steinke, Nasr & Jagielski 2023. Flipping a coin makes a neighbour: a canary comes or goes, or it moves from its first
cells to its second. Every canary holds more than the bound, so that clipping has to work for the bound to hold.

A masked run has noise from devices, and as many dropouts as the plan tolerates. Corrupt participants know the shares
that they drew; the rest of the noise must keep the promise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedhist.client.masked_device import with_noise
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.histograms import Flags, Floats, Histograms, Integers
from fedhist.protocol.masking.graph import share_of
from fedhist.protocol.masking.masked_vector import vector_length
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.neighbours import Neighbours, Norm
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Round, Total
from fedhist.server.coordinator import run_rounds
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.bounds import one_run_epsilon
from fedhist.simulations.audit.checks import Check, Finding, Setting, compared
from fedhist.simulations.audit.neighbours import Replay, claim_of, evidence_of, shift_of
from fedhist.simulations.engines.masked import masked_round
from fedhist.simulations.faults import FaultAssignment, Faults

_OVER = 3
"""What a canary holds, as a multiple of the bound."""
_THRESHOLD = 4.0
_PARTICIPANTS = 20
_MASKED: dict[str, Any] = {"masking": "secagg", "participants": _PARTICIPANTS, "noise_from": "devices"}


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

    def plan(self, canaries: int, **more: Any) -> Plan:
        """The plan for this number of canaries."""
        usual: dict[str, Any] = {
            "users": canaries,
            "items": canaries * self.cells * self.places,
            "selector": "fixed",
        }
        bounds = {"threshold": _THRESHOLD, "max_threshold": 2 * _THRESHOLD, "neighbours": self.neighbours}
        budget = {"mechanism": self.mechanism, "epsilon": self.epsilon, "delta": self.delta}
        return Plan(**usual | bounds | budget | more)

    def population(self, heads: Flags) -> SparsePopulation:
        """Canary i owns `cells * places` consecutive items; heads puts it into the first of its places."""
        held = heads if self.places == 1 else np.ones(len(heads), dtype=bool)
        first = np.arange(len(heads)) * self.cells * self.places
        if self.places == 2:
            first = first + np.where(heads, 0, self.cells)
        items = (first[held][:, np.newaxis] + np.arange(self.cells)).ravel()
        counts = np.full(len(items), int(_OVER * _THRESHOLD))
        offsets = np.concatenate([[0], np.cumsum(np.where(held, self.cells, 0))])
        size = len(heads) * self.cells * self.places
        return SparsePopulation(Histograms(offsets=offsets, items=items, counts=counts, domain_size=size))

    def scores(self, values: Floats, norm: Norm, deviation: float) -> Floats:
        """The evidence for heads, canary by canary: the log-likelihood ratio if the noise is as claimed."""
        table = values.reshape(-1, self.places, self.cells)
        evidence = evidence_of(table, shift_of(_THRESHOLD, self.cells, norm), deviation, norm)
        # Rounded, so that ties are broken by the raw values and not by the last bit of a sum.
        scores: Floats = np.round(evidence.sum(axis=2), 9) + 1e-12 * table.mean(axis=2)
        return scores[:, 0] if self.places == 1 else scores[:, 0] - scores[:, 1]


def coins(count: int, *, source: Source) -> Flags:
    """Fair coins."""
    flags: Flags = (source.words(count) >> np.uint64(63)).astype(bool)
    return flags


def one_run(kind: Canaries, setting: Setting) -> Finding:
    """One run of the whole system."""
    heads = coins(setting.effort.canaries, source=setting.auditor().fork("coins"))
    transport = Replay(kind.population(heads), setting.mechanism().fork("devices"))
    release = run_rounds(kind.plan(len(heads)), transport, ledger=Ledger(), source=setting.mechanism())
    scores = kind.scores(release.histogram, release.plan.norm, release.standard_error)
    return _guessed(setting, kind, heads, scores, release, known=np.ones(len(heads), dtype=bool))


@dataclass
class _Corrupt:
    """A masked cohort in which the auditor knows the corrupt participants' shares of noise."""

    population: SparsePopulation
    source: Source
    simulated: bool = False
    included: tuple[int, ...] = ()
    known: dict[Round, Integers] = field(default_factory=dict, repr=False)

    def total(self, request: Request) -> Total:
        """One masked round, in which as many participants drop out as the plan tolerates."""
        plan = request.plan
        users, parts = self.population.users, plan.masks.participants
        assignment = FaultAssignment.drawn(Faults(plan.dropout_share), parts, users, source=self.source)
        run = masked_round(request, self.population, source=self.source, assignment=assignment)
        draws = self.source.fork("masking", request.round.value)
        self.included = run.included
        nothing = np.zeros(vector_length(request), dtype=np.int64)
        drawn = [
            with_noise(nothing, request, own=draws.fork("noise", number))
            for number in run.included[: corrupt_participants(plan)]
        ]
        self.known[request.round] = np.sum([nothing, *drawn], axis=0)[1:]
        return run.total


def corrupt_participants(plan: Plan) -> int:
    """The number of participants who may be corrupt under this plan."""
    return share_of(plan.masks.participants, plan.corrupt_share)


def one_masked_run(kind: Canaries, setting: Setting) -> Finding:
    """One masked run with noise from devices, dropouts, and canaries dealt to all participants."""
    auditor = setting.auditor()
    heads = coins(setting.effort.masked_canaries, source=auditor.fork("coins"))
    plan = kind.plan(len(heads), **_MASKED)
    # Always seeded: the auditor has to know what the corrupt participants drew.
    transport = _Corrupt(kind.population(heads), auditor.fork("cohort"))
    release = run_rounds(plan, transport, ledger=Ledger(), source=auditor.fork("server"))
    values = release.histogram - np.ldexp(transport.known[Round.RELEASE].astype(np.float64), -plan.grid_bits)
    honest = release.standard_error * np.sqrt(1 - corrupt_participants(plan) / len(transport.included))
    ends = [(number + 1) * len(heads) // _PARTICIPANTS for number in range(_PARTICIPANTS)]
    owners = np.searchsorted(ends, np.arange(len(heads)), side="right")
    scores = kind.scores(values, plan.norm, float(honest))
    return _guessed(setting, kind, heads, scores, release, known=np.isin(owners, transport.included))


def _guessed(
    setting: Setting, kind: Canaries, heads: Flags, scores: Floats, release: Release, *, known: Flags
) -> Finding:
    """Guess the coins with the strongest scores, of canaries that are known to have taken part."""
    claim, usable = claim_of(release), np.flatnonzero(known)
    guesses = int(kind.guessed * len(usable))
    strongest = usable[np.argsort(-np.abs(scores[usable]), kind="stable")[:guesses]]
    correct = int(((scores[strongest] > 0) == heads[strongest]).sum())
    bound = one_run_epsilon(len(usable), guesses, correct, delta=claim.delta, alpha=setting.alpha)
    detail = f"{correct:,} of {guesses:,} guesses right, {len(usable):,} canaries"
    return compared(setting, claim, bound, detail)


_ZERO, _REPLACE = Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE
_CANARIES = {
    "laplace": Canaries("laplace", _ZERO, 1, 2.0, 0.0, 0.5),
    "laplace, replaced": Canaries("laplace", _REPLACE, 1, 2.0, 0.0, 0.25),
    "laplace, spread": Canaries("laplace", _ZERO, 4, 2.0, 0.0, 0.05),
    "gaussian": Canaries("gaussian", _ZERO, 1, 4.0, 1e-10, 0.005),
    "gaussian, replaced": Canaries("gaussian", _REPLACE, 1, 4.0, 1e-10, 0.005),
    "gaussian, spread": Canaries("gaussian", _ZERO, 16, 4.0, 1e-10, 0.005),
}
CHECKS = (
    *(Check(f"one run, {name}", partial(one_run, kind)) for name, kind in _CANARIES.items()),
    *(
        Check(f"one masked run, {name}", partial(one_masked_run, _CANARIES[name]))
        for name in ("laplace", "gaussian")
    ),
)
