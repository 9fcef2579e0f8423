"""Populations made for an audit, and transports that run them through the coordinator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fedhist.client.device import add_noise_share
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.circle import signed
from fedhist.protocol.histograms import Floats, Histograms, Integers, Population
from fedhist.protocol.masking.masked_vector import to_total
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost, Ledger
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.privacy.randomness import Source, SystemSource
from fedhist.protocol.rounds import Request, Round, Total
from fedhist.server.coordinator import run_rounds
from fedhist.server.releases.contract import Release
from fedhist.server.selection import Selection
from fedhist.server.steps import release_request, select_request
from fedhist.simulations.engines.in_process import exact_total

_CLAIMS = 16
T = TypeVar("T")
User = Sequence[tuple[int, int]]
"""A user's items and counts."""


def crafted(users: Sequence[User], domain_size: int, labels: Sequence[str] | None = None) -> SparsePopulation:
    """A population of these users, some of them possibly without any item. What they hold is not checked."""
    entries = [entry for user in users for entry in user]
    offsets = np.concatenate([[0], np.cumsum([len(user) for user in users])]).astype(np.int64)
    items, counts = (np.array([entry[i] for entry in entries], dtype=np.int64) for i in range(2))
    histograms = Histograms(offsets=offsets, items=items, counts=counts, domain_size=domain_size)
    return SparsePopulation(histograms, labels=None if labels is None else tuple(labels))


def requests_of(plan: Plan) -> tuple[Request, Request]:
    """The requests of both rounds, the second with the largest candidate."""
    return select_request(plan), release_at(plan, int(plan.candidate_steps[-1]))


def release_at(plan: Plan, steps: int) -> Request:
    """The request of round 2 at this threshold."""
    return release_request(plan, Selection(plan.at_steps(steps)), source=SystemSource())


Lie = Callable[[Request], Integers]
"""What participants who do not follow the protocol add to the sum of the masked vectors, all together."""


@dataclass
class Replay:
    """A cohort whose exact answers are computed once by the devices' own code and repeated in every run.

    Args:
        population: the users.
        source: the users' randomness.
        lie: for a masked plan, what some participants add to the sum against the protocol.
    """

    population: Population
    source: Source
    lie: Lie | None = None
    simulated: bool = False
    _known: dict[object, Total] = field(default_factory=dict, repr=False)

    def total(self, request: Request) -> Total:
        """The exact sum."""
        # Where a table's cells go is new in every run and changes nothing of what is in it.
        key = (request.settled, request.asks, repr(request.given.to_fields() | {"table-salt": b""}))
        if key not in self._known:
            total = exact_total(request, self.population, source=self.source.fork("device"))
            self._known[key] = total if self.lie is None else lied(total, request, self.lie(request))
        return self._known[key]


def lied(total: Total, request: Request, lie: Integers) -> Total:
    """What the server reads after a lie was added to the sum of the masked vectors, modulo their width."""
    vector = np.concatenate([[total.users], total.values])
    summed = signed(vector + np.concatenate([[0], lie]), request.measurement.masked_width)
    return to_total(summed, request, participants=request.plan.masks.participants)


@dataclass
class Shares:
    """A cohort that adds noise in shares, seen by corrupt participants who know their own shares.

    As many participants as may drop out have done so. `honest` is what the corrupt ones can compute in each round: the
    sum less their own shares.
    """

    exact: Replay
    plan: Plan
    corrupt: int
    source: Source
    simulated: bool = False
    honest: dict[Round, Integers] = field(default_factory=dict, repr=False)
    requests: list[Request] = field(default_factory=list, repr=False)

    def total(self, request: Request) -> Total:
        """The sum with the survivors' shares."""
        self.requests.append(request)
        exact = self.exact.total(request)
        nothing = np.zeros(len(exact.values), dtype=np.int64)
        survivors = self.plan.minimum_survivors
        drawn = [
            add_noise_share(request, nothing, source=self.source.fork("participant", number))
            for number in range(survivors)
        ]
        noised = exact.values + np.sum(drawn, axis=0)
        self.honest[request.round] = noised - np.sum([nothing, *drawn[: self.corrupt]], axis=0)
        return Total(users=exact.users, values=noised, shares=survivors)


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


def release_of(plan: Plan, transport: Replay | Shares, *, source: Source) -> Release:
    """One end-to-end run."""
    return run_rounds(plan, transport, ledger=Ledger(), source=source)


def repeated(
    plan: Plan,
    population: Population,
    runs: int,
    read: Callable[[Release], T],
    *,
    source: Source,
    lie: Lie | None = None,
) -> tuple[list[T], Cost]:
    """What is read in each of many runs over the same users, and the largest claim of the first few."""
    transport = Replay(population, source.fork("cohort"), lie)
    found, claim = [], Cost(0.0, 0.0)
    for number in range(runs):
        release = release_of(plan, transport, source=source.fork("run", number))
        found.append(read(release))
        if number < _CLAIMS:
            cost = claim_of(release)
            claim = Cost(max(claim.epsilon, cost.epsilon), max(claim.delta, cost.delta))
    return found, claim
