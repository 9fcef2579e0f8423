"""Deterministic quantities against their formulas, evaluated here in high precision and by other means.

Bars and their deltas are in test_bars.py, the analytic multiplier in test_calibration.py, the masking graph in
test_mask_graph.py, V(C) in test_open_domain_laws.py and h in test_poisson.py, each against exact sums of their own.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from fedhist import Neighbours, Plan
from tests.builders import charge_of
from tests.support.api import (
    ApproximateLoss,
    Share,
    classic_multiplier,
    growth_of_mean,
    release_noise,
    running_sum_root,
    tight_total,
)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2, 0.4])
def test_the_classic_multiplier_is_the_paper_s(epsilon: float, delta: float) -> None:
    with mpmath.workdps(40):
        exact = mpmath.sqrt(2 * mpmath.log(mpmath.mpf("1.32") / mpmath.mpf(delta))) / mpmath.mpf(epsilon)
        assert abs(classic_multiplier(epsilon, delta) / exact - 1) < 1e-14


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_noise_of_a_release_is_its_formula(mechanism: str, neighbours: Neighbours) -> None:
    plan = Plan(users=5, items=3, mechanism=mechanism, epsilon=0.7, neighbours=neighbours)
    threshold = plan.at_steps(12345)
    spread = release_noise(plan, threshold).spread
    doubled = 2 if neighbours is Neighbours.REPLACE_ONE else 1
    with mpmath.workdps(40):
        if mechanism == "laplace":
            exact = doubled * threshold.steps / mpmath.mpf(0.7)
        else:
            exact = mpmath.mpf(plan.multiplier) ** 2 * doubled * threshold.steps**2 + 9
        relative = mpmath.mpf(spread.numerator) / spread.denominator / exact - 1
        assert 0 <= relative < 2.0**-25


@pytest.mark.parametrize("count", [2, 10, 40])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (0.5, 1e-3)])
def test_approximate_mechanisms_compose_as_kairouz_oh_and_viswanath_have_it(
    count: int, epsilon: float, delta: float
) -> None:
    total = tight_total([charge_of(epsilon, delta, ApproximateLoss())] * count)
    with mpmath.workdps(60):
        up = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))

        def exact_delta(at: mpmath.mpf) -> mpmath.mpf:
            """1 - (1 - delta)^k (1 - rest), rest by the number of the k losses that are +epsilon."""
            rest = mpmath.mpf(0)
            for ups in range(count + 1):
                loss = (2 * ups - count) * mpmath.mpf(epsilon)
                chance = mpmath.binomial(count, ups) * up**ups * (1 - up) ** (count - ups)
                rest += chance * max(1 - mpmath.exp(at - loss), 0)
            return 1 - (1 - mpmath.mpf(delta)) ** count * (1 - rest)

        # The reported pair holds, and a little less would not.
        assert exact_delta(mpmath.mpf(total.epsilon)) <= count * delta * (1 + 1e-9)
        if total.epsilon < count * epsilon:
            assert exact_delta(mpmath.mpf(total.epsilon) * (1 - mpmath.mpf("0.01"))) > count * delta


@pytest.mark.parametrize("participants", [3, 10, 57, 1000, 99_999])
@pytest.mark.parametrize(("corrupt", "dropout"), [(0.05, 0.1), (0.0, 0.3), (0.29, 0.01), (0.07, 0.07)])
def test_shares_that_are_sure_to_be_honest(participants: int, corrupt: float, dropout: float) -> None:
    plan = Plan(
        users=participants,
        items=2,
        masking="secagg",
        participants=participants,
        corrupt_share=corrupt,
        dropout_share=dropout,
    )
    silent = math.floor(Fraction(str(dropout)) * participants)
    survivors = max(participants - silent, 2)
    assert plan.minimum_survivors == survivors
    assert plan.noise_shares == survivors - math.floor(Fraction(str(corrupt)) * participants)


@pytest.mark.parametrize(("variance", "shares", "items"), [(16, 2, 1), (16, 10**6, 10**8), (20, 85, 1000)])
def test_the_slack_of_gaussian_shares_is_twice_tau_an_item(variance: int, shares: int, items: int) -> None:
    slack = Share("discrete-gaussian-shares", Fraction(variance), shares).slack(items)
    with mpmath.workdps(60):
        tau = 7 * (shares - 1) * mpmath.exp(-(mpmath.pi**2) * variance)
        assert 2 * items * tau <= slack <= 2 * items * tau * (1 + mpmath.mpf("1e-8"))


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("items", [2, 100, 5000])
def test_the_price_of_noise_is_its_expected_norm(items: int, neighbours: Neighbours) -> None:
    replaced = neighbours is Neighbours.REPLACE_ONE
    with mpmath.workdps(30):
        gaussian = Plan(users=10, items=items, epsilon=0.5, delta=1e-5, neighbours=neighbours)
        density = mpmath.quad(lambda x: x * mpmath.npdf(x), [0, 2, 8, 40])
        exact = items * 2 * density * gaussian.multiplier * (mpmath.sqrt(2) if replaced else 1)
        assert gaussian.noise_price == pytest.approx(float(exact), rel=1e-12)
        laplace = Plan(users=10, items=items, mechanism="laplace", epsilon=0.5, neighbours=neighbours)
        mean = mpmath.quad(lambda x: x * mpmath.exp(-x), [0, 5, 20, mpmath.inf])
        assert laplace.noise_price == pytest.approx(
            float(items * mean / 0.5 * (2 if replaced else 1)), rel=1e-12
        )


@pytest.mark.parametrize("participants", [20, 50])
def test_the_noise_of_all_shares_is_larger_by_the_ratio_of_means(participants: int) -> None:
    """E|X - Y| = 2 integral of F (1 - F) for independent X and Y of distribution F, here Gamma of shape r."""
    plan = Plan(
        users=100,
        items=2,
        mechanism="laplace",
        masking="secagg",
        participants=participants,
        noise_from="devices",
        corrupt_share=0.2,
        dropout_share=0.2,
    )
    shape = mpmath.mpf(participants) / plan.noise_shares

    def below(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.gammainc(shape, 0, x, regularized=True)

    with mpmath.workdps(20):
        exact = 2 * mpmath.quad(lambda x: below(x) * (1 - below(x)), [0, 1, 4, 12, 60])
    assert growth_of_mean(plan) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("length", [1, 2, 16, 128])
def test_the_noisy_tail_is_measured_with_the_root_of_the_running_sums(length: int) -> None:
    bits = 12
    coefficients = running_sum_root(length, bits)
    with mpmath.workdps(40):
        exact = [mpmath.binomial(2 * m, m) / mpmath.mpf(4) ** m for m in range(length)]
        assert all(abs(c - 2**bits * e) <= 0.5 for c, e in zip(coefficients.tolist(), exact, strict=True))
        # The square of the series is 1/(1 - z): every running sum.
        for place in range(length):
            assert abs(mpmath.fsum(exact[i] * exact[place - i] for i in range(place + 1)) - 1) < 1e-30
