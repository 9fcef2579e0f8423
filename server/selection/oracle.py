"""`oracle`: C* from the exact statistic. Not private; the yardstick of simulations."""

from __future__ import annotations

import numpy as np

from fedhist.protocol.histograms import Floats, Integers
from fedhist.protocol.measurements.key_totals import SHARE_BITS, OpenTail
from fedhist.protocol.measurements.tails import ItemTail, Tail
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import (
    ANY_NORM,
    Baseline,
    Selection,
    Statistic,
    best_candidate,
    item_selection,
    reading_as,
)


class Oracle(Baseline):
    """C* of the closed domain: the smallest candidate C with W(C) <= M (Liu et al., theorem 4.2 and lemma 4.1).

    Over an open domain, the candidate with the least expected l1 error (`expected_loss`).
    """

    name = "oracle"
    reads = (("weights", ANY_NORM), ("item-counts", ANY_NORM), ("expected-counts", ANY_NORM))

    def select(self, plan: Plan, statistic: Statistic | None, *, source: Source) -> Selection:
        """Read the best candidate off the exact statistic."""
        match statistic:
            case ItemTail(counts=counts):
                inside = counts <= plan.noise_price
                chosen = np.where(inside.any(axis=1), inside.argmax(axis=1), inside.shape[1] - 1)
                return item_selection(plan, plan.candidate_steps[chosen])
            case OpenTail():
                best = int(expected_loss(plan, statistic).argmin())
                return Selection(plan.at_steps(int(plan.candidate_steps[best])))
            case _:
                return Selection(threshold=best_candidate(plan, reading_as(Tail, statistic)))


def expected_loss(plan: Plan, tail: OpenTail) -> Floats:
    """The expected l1 error of the release at each candidate, up to a constant.

    An item of true count N and expected clipped count a misses N when it is not shown, and |a + Z - N| when it is. The
    true count is taken at C_m: what lies above is lost at every candidate alike.
    """
    loss = np.zeros(len(plan.candidate_steps))
    noises = plan.open_noises(plan.candidate_steps)
    scales = np.array([float(noise.scale) for noise in noises])
    bars = np.array([noise.bar for noise in noises])
    for piece in tail.expected.pieces():
        kept = np.ldexp(piece.astype(np.float64), -SHARE_BITS)
        loss += _item_loss(kept, kept[:, -1:], bars, scales).sum(axis=0)
    return loss


def _item_loss(kept: Floats, true: Floats, bars: Integers, scales: Floats) -> Floats:
    """N P(Z <= r) + E[|Z - g|; Z > r] for Laplace noise Z, r = bar - a and g = N - a."""
    least, gap = bars - kept, true - kept
    at_least, at_gap = np.exp(-np.abs(least) / scales), np.exp(-gap / scales)
    hidden = np.where(least >= 0, 1 - at_least / 2, at_least / 2)
    beyond = at_least * (least - gap + scales) / 2
    between = at_least * (gap - least - scales) / 2 + scales * at_gap
    below = gap + scales * at_gap - at_least * (gap - least + scales) / 2
    shown = np.where(least < 0, below, np.where(least < gap, between, beyond))
    missed: Floats = true * hidden + shown
    return missed
