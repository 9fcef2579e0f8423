"""The Gaussians that stand for pure mechanisms dominate them, alone and composed, and no smaller noise does."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special, stats

from tests.oracles import gaussian_delta
from tests.support.api import InvalidPlan, bounded_range_as_gaussian, pure_as_gaussian

EPSILONS = [1e-3, 0.1, 0.5, 1.0, 3.0, 8.0]


def pure_delta(epsilon: float, at: float) -> mpmath.mpf:
    """Randomised response: its truth is told with odds e^epsilon."""
    told = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
    outcomes = [(told, 1 - told), (1 - told, told)]
    return sum((max(p - mpmath.exp(at) * q, mpmath.mpf(0)) for p, q in outcomes), mpmath.mpf(0))


def range_delta(epsilon: float, at: float) -> float:
    """The worst of many mechanisms of two outcomes whose losses are t and t - epsilon."""
    high = np.linspace(0.0005, 0.9995, 4001) * epsilon
    low = high - epsilon
    first = np.expm1(-low) / (np.expm1(-low) - np.expm1(-high))
    one = np.maximum(first * -np.expm1(at - high), 0)
    other = np.maximum((1 - first) * -np.expm1(at - low), 0)
    return float(np.max(one + other))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(
    ("multiplier_of", "delta_of"), [(pure_as_gaussian, pure_delta), (bounded_range_as_gaussian, range_delta)]
)
class TestDomination:
    def test_at_every_epsilon_in_both_orders(
        self, epsilon: float, multiplier_of: object, delta_of: object
    ) -> None:
        multiplier = multiplier_of(epsilon)  # type: ignore[operator]  # one of two functions
        for at in np.linspace(-1.1 * epsilon, 1.1 * epsilon, 23):
            exact = delta_of(epsilon, at)  # type: ignore[operator]  # one of two functions
            assert gaussian_delta(multiplier, float(at)) >= exact * (1 - 1e-14)

    def test_a_little_more_noise_would_not_do(
        self, epsilon: float, multiplier_of: object, delta_of: object
    ) -> None:
        multiplier = multiplier_of(epsilon)  # type: ignore[operator]  # one of two functions
        at_0 = delta_of(epsilon, 0.0)  # type: ignore[operator]  # one of two functions
        assert gaussian_delta(multiplier * 1.001, 0.0) < at_0


class TestNumbers:
    @pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.999, 1.0, 30.0, 700.0, 1500.0])
    def test_errors_of_both_types_are_those_of_randomised_response_rounded_safely(
        self, epsilon: float
    ) -> None:
        with mpmath.workdps(60):
            error = mpmath.ncdf(-1 / (2 * mpmath.mpf(pure_as_gaussian(epsilon))))
            exact = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
            assert exact * (1 - mpmath.mpf("1e-8")) < error <= exact

    def test_small_epsilons_cost_a_quarter_more_than_their_own(self) -> None:
        assert 1 / pure_as_gaussian(1e-3) == pytest.approx(1e-3 * np.sqrt(np.pi / 2), rel=1e-6)

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
    def test_no_epsilon_no_noise(self, epsilon: float) -> None:
        with pytest.raises(InvalidPlan):
            pure_as_gaussian(epsilon)


class TestCompositions:
    def test_five_pure_mechanisms_beside_gaussian_noise(self) -> None:
        """By dp_accounting's own distributions: Laplace noise is one of the worst pure mechanisms but not the worst."""
        own = pld.from_gaussian_mechanism(2.0)
        laplace = pld.from_laplace_mechanism(1 / 0.4).self_compose(5)
        bound = 1 / np.sqrt(0.25 + 5 / pure_as_gaussian(0.4) ** 2)
        for at in (0.0, 0.5, 1.0, 2.0, 3.0):
            assert own.compose(laplace).get_delta_for_epsilon(at) <= gaussian_delta(bound, at) + 1e-9

    def test_ten_coin_flips(self) -> None:
        epsilon, count = 0.3, 10
        bound = pure_as_gaussian(epsilon) / np.sqrt(count)
        told = special.expit(epsilon)
        heads = np.arange(count + 1)
        chance, loss = stats.binom.pmf(heads, count, told), (2 * heads - count) * epsilon
        for at in np.linspace(0, 3, 13):
            exact = float(chance @ np.maximum(-np.expm1(at - loss), 0))
            assert exact <= float(gaussian_delta(bound, float(at))) + 1e-15
