"""What one participant answers. A phone is a batch of one user, a node a batch of many."""

from __future__ import annotations

from fedhist.protocol.clipping import sum_clipped
from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.histograms import Histograms, Integers
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Contribution, ReleaseRequest, Request, SelectRequest
from fedhist.protocol.statistics import tail_vector


def answer(request: Request, histograms: Histograms, *, source: Source) -> Contribution:
    """The participant's contribution to this round: the sum of the asked statistic over its users."""
    if histograms.domain_size != request.plan.items:
        raise InvalidPopulation(
            f"the data has {histograms.domain_size} items and the plan {request.plan.items}",
            allowed="the same closed domain on every device",
        )
    return Contribution(
        round=request.round,
        plan_digest=request.plan.digest,
        users=histograms.users,
        values=_statistic(request, histograms, source),
    )


def _statistic(request: Request, histograms: Histograms, source: Source) -> Integers:
    plan = request.plan
    match request:
        case SelectRequest():
            return tail_vector(
                histograms, plan.candidate_steps, bits=plan.grid_bits, norm=plan.norm, cap=plan.tail_cap
            )
        case ReleaseRequest(threshold=threshold):
            draws = source.fork("device", request.round.value)
            return sum_clipped(histograms, threshold, norm=plan.norm, source=draws)
