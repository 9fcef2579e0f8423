"""Audits of campaigns: a user over many windows, whose data is chosen, like thresholds, in view of earlier releases.

In two worlds a user is there, or not, or another one is. The devices' own code clips to what is left, and the claim is
what a ledger counts for all releases together. The evidence is the exact ratio of likelihoods, so that nothing is lost
by looking at the releases in another way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fedhist.client.campaign_users import taken_by, with_left
from fedhist.protocol.clips.campaign_bound import ONE
from fedhist.protocol.histograms import Integers
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.composition import tight_total
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.protocol.privacy.randomness import SeededSource, Source
from fedhist.protocol.rounds import Request, Total
from fedhist.server.coordinator import run_rounds
from fedhist.simulations.audit.findings import Check, Finding, Setting
from fedhist.simulations.audit.two_worlds import judge_guesses
from fedhist.simulations.audit.worlds import crafted, release_at
from fedhist.simulations.engines.in_process import exact_total

_WINDOWS, _VISITS, _HUGE = 4, 2, 10**6
_THRESHOLDS = (40.0, 100.0)
# As for other Gaussian noise: with an epsilon near 0, delta is a distance in total variation.
_EPSILON, _DELTA = 0.01, 0.49


@dataclass
class _Cohort:
    """One user, in one of two worlds, through the windows of a campaign.

    Args:
        world: 0 or 1; the user has something in the world 1, and in the world 0 where users are replaced.
        plan: of a window.
        forgets: whether the device has lost its memory after each window: it must be caught.
        left: what the user has left.
    """

    world: int
    plan: Plan
    forgets: bool
    left: int = ONE
    _known: dict[object, tuple[Integers, int]] = field(default_factory=dict)

    def sent(self, plan: Plan, cell: int) -> Integers:
        """What the device sends in a window in which the user has too much of one item."""
        key = (plan.threshold, cell, self.left)
        if key not in self._known:
            self._known[key] = self._computed(plan, cell)
        values, taken = self._known[key]
        self.left -= 0 if self.forgets else taken
        return values

    def _computed(self, plan: Plan, cell: int) -> tuple[Integers, int]:
        there = self.world == 1 or plan.neighbours is Neighbours.REPLACE_ONE
        users = crafted([[(cell if self.world else 1 - cell, _HUGE)] if there else []], 2)
        left = np.array([self.left], dtype=np.int64)
        request = release_at(plan, plan.fixed_threshold.steps)
        total = exact_total(request, with_left(users, left), source=SeededSource(0))
        (taken,) = taken_by(users, left, plan.fixed_threshold, visits=_VISITS).tolist()
        return total.values, taken


@dataclass
class _Sent:
    """A transport of a vector that is known."""

    values: Integers
    simulated: bool = False

    def total(self, request: Request) -> Total:
        return Total(users=1, values=self.values)


def adaptive_campaign(neighbours: Neighbours, setting: Setting, *, forgets: bool = False) -> Finding:
    """The check of guesses between two worlds, each of which is a whole campaign."""
    plans = [
        Plan(
            users=1,
            items=2,
            selector="fixed",
            threshold=threshold,
            max_threshold=_THRESHOLDS[-1],
            window="2026-W01",
            campaign="audit",
            visits=_VISITS,
            neighbours=neighbours,
            epsilon=_EPSILON,
            delta=_DELTA,
        )
        for threshold in _THRESHOLDS
    ]
    source, charges = setting.mechanism(), list[Charge]()
    cohorts = [_Cohort(world, plans[0], forgets) for world in (0, 1)]
    found: list[list[float]] = [[], []]
    for world in (0, 1):
        for number in range(setting.effort.slow_runs):
            own = source.fork("world", world, number)
            evidence, charges = _one_campaign(plans, cohorts, world, own)
            found[world].append(evidence)
    return judge_guesses(setting, np.array(found[0]), np.array(found[1]), tight_total(charges))


def _one_campaign(
    plans: list[Plan], cohorts: list[_Cohort], world: int, source: Source
) -> tuple[float, list[Charge]]:
    """The evidence for the world 1 in all releases of a campaign that is run in this world, and its charges."""
    for cohort in cohorts:
        cohort.left = ONE
    evidence, charges, plan, cell = 0.0, list[Charge](), plans[0], 0
    for window in range(_WINDOWS):
        sent = [cohort.sent(plan, cell) for cohort in cohorts]
        ledger = Ledger()
        release = run_rounds(plan, _Sent(sent[world]), ledger=ledger, source=source.fork("window", window))
        charges += ledger.entries
        without, there = (release.histogram - np.ldexp(one, -plan.grid_bits) for one in sent)
        evidence += float((without**2 - there**2).sum() / (2 * release.standard_error**2))
        # The next window is chosen in view of this one.
        plan, cell = plans[int(release.histogram[1] > 0)], int(release.histogram[0] > 0)
    return evidence, charges


CHECKS = (
    Check("campaign, adaptive windows", partial(adaptive_campaign, Neighbours.ZERO_OUT)),
    Check("campaign, adaptive windows, replaced", partial(adaptive_campaign, Neighbours.REPLACE_ONE)),
)
