"""Audits of noise from devices: some participants are corrupt, and as many as the plan tolerates have dropped out.

The corrupt participants see the sum of each round and subtract their own shares of noise. The rest of the noise must
still keep the promise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhist.client.masked_device import with_noise
from fedhist.protocol.histograms import Floats, Integers, Population
from fedhist.protocol.masking.graph import share_of
from fedhist.protocol.masking.masked_vector import vector_length
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Round, Total
from fedhist.server.coordinator import run_rounds
from fedhist.simulations.audit.findings import Finding, Setting
from fedhist.simulations.audit.one_run import Canaries, canary_population, coin_scores, coins, judge
from fedhist.simulations.audit.selector_worlds import HIGH, LOW
from fedhist.simulations.audit.two_worlds import judge_events, judge_guesses
from fedhist.simulations.audit.worlds import Replay, Shares, User, claim_of, crafted, evidence_of, release_of
from fedhist.simulations.engines.masked_in_process import masked_round
from fedhist.simulations.faults import FaultAssignment, Faults

PARTICIPANTS = 20
_FEW = 4
_OTHERS = 9


@dataclass
class MaskedWithCorrupt:
    """A masked cohort in which the auditor knows the corrupt participants' shares of noise."""

    population: Population
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


def masked_one_run(kind: Canaries, setting: Setting) -> Finding:
    """One masked run with noise from devices, drop-outs, and canaries dealt to all participants."""
    auditor = setting.auditor()
    heads = coins(setting.effort.masked_canaries, source=auditor.fork("coins"))
    plan = Plan.from_json(
        kind.plan(len(heads)).to_json()
        | {"masking": "secagg", "participants": PARTICIPANTS, "noise_from": "devices"}
    )
    # Always seeded: the auditor has to know what the corrupt participants drew.
    transport = MaskedWithCorrupt(canary_population(heads, kind), auditor.fork("cohort"))
    release = run_rounds(plan, transport, ledger=Ledger(), source=auditor.fork("server"))
    values = release.histogram - np.ldexp(transport.known[Round.RELEASE].astype(np.float64), -plan.grid_bits)
    honest = release.standard_error * np.sqrt(1 - corrupt_participants(plan) / len(transport.included))
    owners = np.searchsorted(
        [(number + 1) * len(heads) // PARTICIPANTS for number in range(PARTICIPANTS)],
        np.arange(len(heads)),
        side="right",
    )
    known = np.isin(owners, transport.included)
    scores = coin_scores(values, kind, plan.norm, float(honest))
    return judge(setting, heads, scores, known=known, guessed=kind.guessed, claim=claim_of(release))


def shares_in_two_worlds(setting: Setting) -> Finding:
    """Both rounds with Laplace noise from devices, as the corrupt participants see them."""
    plan = _few_participants(mechanism="laplace", epsilon=0.1, epsilon_select=2.0)
    without, with_user, claim = _two_worlds(plan, setting, setting.effort.slow_runs)
    flat = np.zeros(len(without))
    return judge_events(setting, (flat, without), (flat, with_user), claim)


def guessed_shares(delta_select: float, delta: float, setting: Setting) -> Finding:
    """The same with Gaussian noise, where the round with the large delta reveals most."""
    plan = _few_participants(
        mechanism="gaussian", epsilon=0.05, epsilon_select=0.05, delta=delta, delta_select=delta_select
    )
    without, with_user, claim = _two_worlds(plan, setting, 2 * setting.effort.slow_runs)
    return judge_guesses(setting, without, with_user, claim)


def _few_participants(**settings: Any) -> Plan:
    return Plan(
        users=_OTHERS + 1,
        items=2,
        sparsity=1,
        candidates=2,
        min_threshold=LOW,
        max_threshold=HIGH,
        masking="secagg",
        participants=_FEW,
        corrupt_share=0.25,
        dropout_share=0.25,
        noise_from="devices",
        **settings,
    )


def _two_worlds(plan: Plan, setting: Setting, runs: int) -> tuple[Floats, Floats, Cost]:
    """The evidence of each run without the user and with, and the ledger's claim."""
    source = setting.mechanism()
    others: list[User] = [[(1, 5)] for _ in range(_OTHERS)]
    replays = [
        Replay(crafted([*others, user], 2), source.fork("cohort", place))
        for place, user in enumerate(([], [(0, 60)]))
    ]
    evidence, claim = np.empty((2, runs)), Cost(0.0, 0.0)
    for place, replay in enumerate(replays):
        for number in range(runs):
            draws = source.fork("world", place, number)
            transport = Shares(replay, plan, corrupt_participants(plan), draws)
            release = release_of(plan, transport, source=draws)
            evidence[place, number] = _evidence(transport, replays, plan)
            if number == 0:
                claim = claim_of(release)
    return evidence[0], evidence[1], claim


def _evidence(transport: Shares, replays: list[Replay], plan: Plan) -> float:
    """The log-likelihood ratio of both rounds' sums, if the honest shares are as claimed."""
    total = 0.0
    for request in transport.requests:
        without, with_user = (replay.total(request).values for replay in replays)
        seen, shift = transport.honest[request.round] - without, with_user - without
        share = request.measurement.share
        assert share is not None  # noqa: S101 - of a plan with noise from devices
        total += float(evidence_of(seen, shift, share.deviation(share.shares), plan.norm).sum())
    return total
