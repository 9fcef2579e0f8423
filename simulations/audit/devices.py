"""Audits of devices: the noise that they add in shares, and what they answer a lying server.

As many participants as the plan tolerates have dropped out, and some are corrupt: they see the sum of each round and
subtract their own shares of noise. The rest of the noise must still keep the promise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fedhist.client.device import add_noise_share
from fedhist.client.policy import Memory, Policy, admit, check
from fedhist.protocol.errors import Refused
from fedhist.protocol.histograms import Integers
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.composition import epsilon_at
from fedhist.protocol.privacy.ledger import Cost, Ledger
from fedhist.protocol.privacy.randomness import Source, SystemSource
from fedhist.protocol.rounds import Request, Total
from fedhist.protocol.wire.envelope import Envelope
from fedhist.server.coordinator import run_rounds
from fedhist.server.selection import Selection
from fedhist.server.steps import planned_charges, release_request
from fedhist.simulations.audit.checks import Check, Finding, Setting, exact
from fedhist.simulations.audit.neighbours import (
    Replay,
    Samples,
    User,
    claim_of,
    crafted,
    evidence_of,
    judge_events,
    judge_guesses,
)
from fedhist.simulations.audit.one_run import corrupt_participants

_OTHERS, _PARTICIPANTS = 9, 4
_ASKED = 20
"""How many runs a lying server asks for."""
_DELTA_OF_ALL = 1e-4
"""Of all that a device answers that has a limit on epsilon and names none on delta."""


@dataclass
class _Shares:
    """A cohort that adds noise in shares; `honest` is the sum less the corrupt participants' shares."""

    exact: Replay
    plan: Plan
    source: Source
    simulated: bool = False
    honest: list[tuple[Request, Integers]] = field(default_factory=list, repr=False)

    def total(self, request: Request) -> Total:
        """The sum with the survivors' shares."""
        exact = self.exact.total(request)
        nothing = np.zeros(len(exact.values), dtype=np.int64)
        drawn = [
            add_noise_share(request, nothing, source=self.source.fork("participant", number))
            for number in range(self.plan.minimum_survivors)
        ]
        noised = exact.values + np.sum(drawn, axis=0)
        self.honest.append(
            (request, noised - np.sum([nothing, *drawn[: corrupt_participants(self.plan)]], axis=0))
        )
        return Total(users=exact.users, values=noised, shares=len(drawn))


def shares_of_noise(budget: dict[str, Any], setting: Setting) -> Finding:
    """Both rounds as the corrupt participants see them: an event, or guesses where a round has a large delta."""
    plan = Plan(
        users=_OTHERS + 1, items=2, sparsity=1, candidates=2, min_threshold=4.0, max_threshold=8.0, masking="secagg",
        participants=_PARTICIPANTS, corrupt_share=0.25, dropout_share=0.25, noise_from="devices", **budget,
    )  # fmt: skip
    source, runs = setting.mechanism(), setting.effort.slow_runs
    others: list[User] = [[(1, 5)] for _ in range(_OTHERS)]
    both = [
        Replay(crafted([*others, user], 2), source.fork("cohort", place))
        for place, user in enumerate(([], [(0, 60)]))
    ]
    samples, claim = list[Samples](), Cost(0.0, 0.0)
    for place, replay in enumerate(both):
        evidence = []
        for number in range(2 * runs):
            draws = source.fork("world", place, number)
            transport = _Shares(replay, plan, draws)
            release = run_rounds(plan, transport, ledger=Ledger(), source=draws)
            evidence.append(sum(_evidence(request, seen, both) for request, seen in transport.honest))
            claim = claim if number else claim_of(release)
        samples.append((np.zeros(2 * runs), np.array(evidence)))
    without, with_user = samples
    if plan.mechanism == "laplace":
        return judge_events(setting, without, with_user, claim)
    return judge_guesses(setting, without[1], with_user[1], claim)


def _evidence(request: Request, seen: Integers, both: list[Replay]) -> float:
    """The log-likelihood ratio of a round's sum, if the honest shares are as claimed."""
    share = request.measurement.share
    assert share is not None  # noqa: S101 - of a plan with noise from devices
    without, with_user = (replay.total(request).values for replay in both)
    deviation = share.deviation(share.shares)
    return float(evidence_of(seen - without, with_user - without, deviation, request.plan.norm).sum())


def lying_server(setting: Setting) -> Finding:
    """A device with a limit answers nothing that its users were not promised, whatever the server asks.

    It is asked for plans whose epsilon is next to nothing and whose delta is not, in one round or split over several;
    for methods that say that they are not private; for a seeded run; for another plan or threshold in a run; and for
    run after run, until it refuses: what it has answered by then must fit its limit.
    """
    closed: dict[str, Any] = {"users": 12, "items": 4, "candidates": 16, "max_threshold": 64.0}
    gaussian = closed | {"mechanism": "gaussian", "epsilon": 1.0, "epsilon_select": 1.0}
    signed = gaussian | {"masking": "secagg-signed", "participants": 6, "noise_from": "devices"}
    signed |= {"corrupt_share": 0.0, "dropout_share": 0.0}
    tiny: dict[str, Any] = {"epsilon": 1e-3, "epsilon_select": 1e-3}
    half, split = {"delta": 0.49}, {"delta": 6e-6, "delta_select": 6e-6}
    plan = Plan(**gaussian)
    lies = [Plan(**base | tiny | more) for base in (gaussian, signed) for more in (half, split)]
    lies += [Plan(**closed | tiny | {"mechanism": "laplace", "delta_select": 0.49})]
    lies += [
        Plan(**closed | {"mechanism": "laplace", "selector": name}) for name in ("oracle", "median", "p90")
    ]
    first, policy = _asked(plan, 1), Policy(max_epsilon=2.0)
    asked = [replace(first, seeded=True), *(_asked(lie, 1) for lie in lies)]
    wrong = sum(_admits(Memory(), envelope, policy) for envelope in asked)
    memory, runs = admit(policy, Memory(), first), 1
    largest = int(plan.candidate_steps[-1])
    again = [_asked(other, largest) for other in (plan, replace(plan, epsilon=0.5))]
    wrong += sum(_admits(memory, envelope, policy) for envelope in again)
    while runs < _ASKED and _admits(memory, envelope := replace(first, run=f"run {runs}"), policy):
        memory, runs = admit(policy, memory, envelope), runs + 1
    # Of each run the release alone was asked for; its charge is the last.
    wrong += epsilon_at(runs * planned_charges(plan)[-1:], _DELTA_OF_ALL) > policy.max_epsilon
    cases = len(asked) + len(again) + 1
    detail = f"{wrong} of {cases} requests answered that should be refused"
    return exact(setting, passed=wrong == 0, detail=detail)


def _asked(plan: Plan, steps: int) -> Envelope:
    """The request of the first run for a release at this threshold."""
    return Envelope("run 0", release_request(plan, Selection(plan.at_steps(steps)), source=SystemSource()))


def _admits(memory: Memory, envelope: Envelope, policy: Policy) -> bool:
    try:
        check(policy, memory, Envelope.from_fields(envelope.to_fields()))
    except Refused:
        return False
    return True


_GAUSSIAN = {"mechanism": "gaussian", "epsilon": 0.05, "epsilon_select": 0.05}
_BUDGETS: dict[str, dict[str, Any]] = {
    "laplace": {"mechanism": "laplace", "epsilon": 0.1, "epsilon_select": 2.0},
    "gaussian, round 1": _GAUSSIAN | {"delta_select": 0.45, "delta": 0.02},
    "gaussian, round 2": _GAUSSIAN | {"delta_select": 0.02, "delta": 0.45},
}
CHECKS = (
    *(
        Check(f"shares of noise, {name}", partial(shares_of_noise, budget))
        for name, budget in _BUDGETS.items()
    ),
    Check("a lying server", lying_server),
)
