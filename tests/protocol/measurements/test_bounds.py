"""Honest contributions pass, at the very bound too; what no users can add up to does not, nor what wraps around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist.client.device import answer, bucket_table
from fedhist.protocol.errors import OutOfBounds
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Histograms
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements.bounds import check_contribution
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import Contribution, Request
from tests.asking import release_at, select_request

MODES: dict[str, dict[str, Any]] = {
    "gaussian": {"items": 3},
    "laplace": {"items": 3, "mechanism": "laplace"},
    "debiased": {"items": 3, "debias": "poisson", "mechanism": "laplace"},
    "open": {"domain": "open"},
    "bucketed": {"domain": "open", "statistic": "bucketed", "buckets": 4},
}


def plan_of(mode: str, **changes: Any) -> Plan:
    return Plan(**({"users": 20, "max_threshold": 40, "candidates": 8} | MODES[mode] | changes))


def requests_of(plan: Plan) -> list[Request]:
    low, high = plan.step_range
    each = np.linspace(low, high, plan.items or 1).astype(np.int64) if plan.per_item else None
    return [
        select_request(plan),
        *(
            release_at(plan, Threshold(steps, plan.grid_bits), each)
            for steps in ([high] if plan.per_item else [low, (low + high) // 2, high])
        ),
    ]


def answered(request: Request, histograms: Histograms) -> Contribution:
    table = bucket_table(request.plan, range(histograms.domain_size))
    return answer(request, histograms, source=SeededSource(1), bucket_of=table)


rows = st.lists(
    st.lists(st.one_of(st.integers(0, 60), st.just(100_000)), min_size=3, max_size=3), min_size=1, max_size=12
)


@pytest.mark.parametrize("mode", MODES)
@given(table=rows)
@settings(max_examples=40, deadline=None)
def test_whatever_users_have_passes(
    make_histograms: Callable[..., Histograms], mode: str, table: list[list[int]]
) -> None:
    for request in requests_of(plan_of(mode)):
        check_contribution(answered(request, make_histograms(table)), request)


@pytest.mark.parametrize("mode", MODES)
def test_the_answer_of_ten_heavy_users_is_not_one_of_nine(
    make_histograms: Callable[..., Histograms], mode: str
) -> None:
    heavy = make_histograms([[100_000, 0, 0]] * 10)
    for request in requests_of(plan_of(mode)):
        honest = answered(request, heavy)
        claimed = Contribution(
            round=honest.round,
            plan_digest=honest.plan_digest,
            users=9,
            values=honest.values,
            keyed=honest.keyed,
        )
        with pytest.raises(OutOfBounds):
            check_contribution(claimed, request)


def test_more_users_than_the_plan_has(make_histograms: Callable[..., Histograms]) -> None:
    for request in requests_of(plan_of("gaussian", users=2)):
        with pytest.raises(OutOfBounds, match="3 users"):
            check_contribution(answered(request, make_histograms([[1, 0, 0]] * 3)), request)


def contribution(request: Request, users: int, values: Any, keyed: Keyed | None = None) -> Contribution:
    return Contribution(
        round=request.round,
        plan_digest=request.plan.digest,
        users=users,
        values=np.array(values, dtype=np.int64),
        keyed=keyed,
    )


class TestSumsThatWrapAround:
    """Each value alone is small enough for the codec; as 64-bit integers they sum to something harmless."""

    def test_bins_of_users(self) -> None:
        request = select_request(plan_of("gaussian", candidates=16))
        bins = request.length // 2
        counted = np.zeros(bins, dtype=np.int64)
        counted[:16] = 2**60
        counted[16:] = 0
        counted[0] += 5
        assert int(counted.sum()) == 5
        with pytest.raises(OutOfBounds):
            check_contribution(contribution(request, 5, np.concatenate([counted, 0 * counted])), request)

    def test_an_l1_norm(self) -> None:
        plan = plan_of("laplace", items=8)
        request = release_at(plan, Threshold(plan.step_range[1], plan.grid_bits))
        with pytest.raises(OutOfBounds):
            check_contribution(contribution(request, 5, [2**61] * 8), request)

    @pytest.mark.parametrize("column", [0, 1])
    def test_masses_and_shares(self, column: int) -> None:
        request = select_request(plan_of("open"))
        values = np.zeros((8, 2), dtype=np.int64)
        values[:, column] = 2**61
        header = np.zeros(request.length, dtype=np.int64)
        header[0] = 5
        with pytest.raises(OutOfBounds):
            check_contribution(contribution(request, 5, header, Keyed(np.arange(8), values)), request)

    def test_buckets(self) -> None:
        request = select_request(plan_of("bucketed", buckets=8))
        candidates = len(request.plan.candidate_steps)
        values = np.concatenate([np.zeros(2 * candidates), np.full(8 * candidates, 2**61)])
        with pytest.raises(OutOfBounds):
            check_contribution(contribution(request, 5, values), request)

    def test_counts_of_an_open_domain(self) -> None:
        plan = plan_of("open")
        request = release_at(plan, Threshold(plan.step_range[1], plan.grid_bits))
        keyed = Keyed(np.arange(8), np.full((8, 1), 2**61))
        with pytest.raises(OutOfBounds):
            check_contribution(contribution(request, 5, [], keyed), request)
