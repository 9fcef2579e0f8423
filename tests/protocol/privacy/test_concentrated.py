"""zCDP of charges against exact divergences, conversions against exact Gaussians, limits against adaptive attacks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Charge, Cost, Limit, Spending
from tests.support.api import (
    Alternative,
    AlternativesLoss,
    ApproximateLoss,
    BoundedRangeLoss,
    GaussianLoss,
    InvalidPlan,
    PrivacyLoss,
    PureLoss,
    epsilon_at,
    epsilon_of,
    gaussian_epsilon,
    noise_multiplier,
    pure_rho,
    rho_within,
    spending_of,
)
from tests.support.api import concentrated_module as concentrated

ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 60), np.geomspace(2, 1e4, 60)])


def charge(loss: PrivacyLoss, epsilon: float, delta: float = 0.0, **parameters: float) -> Charge:
    return Charge("release", "a mechanism", parameters, 1.0, "l2", "zero-out", epsilon, delta, loss)


def gaussian(epsilon: float, delta: float = 1e-6) -> Charge:
    return charge(GaussianLoss(noise_multiplier(epsilon, delta)), epsilon, delta)


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(np.logaddexp.reduce(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1))


class TestEachKind:
    @pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 10.0])
    def test_randomised_response_is_the_worst_pure_mechanism_and_meets_the_bound(
        self, epsilon: float
    ) -> None:
        high = 1 / (1 + math.exp(-epsilon))
        p, q = np.array([high, 1 - high]), np.array([1 - high, high])
        ratios = [divergence(p, q, order) / order for order in ORDERS]
        assert max(ratios) <= pure_rho(epsilon) * (1 + 1e-9)
        assert max(ratios) == pytest.approx(pure_rho(epsilon), rel=1e-2)

    @pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 6.0])
    def test_no_pair_of_losses_of_bounded_range_is_dearer(self, epsilon: float) -> None:
        """The extreme ones have two losses, t and t - epsilon."""
        rho = spending_of(charge(BoundedRangeLoss(), epsilon)).rho
        worst = 0.0
        for t in np.linspace(1e-3, 1 - 1e-3, 61) * epsilon:
            high = math.expm1(epsilon - t) / (math.expm1(epsilon - t) - math.expm1(-t))
            p = np.array([high, 1 - high])
            q = p * np.exp([-t, epsilon - t])
            assert q.sum() == pytest.approx(1)
            worst = max(worst, *(divergence(p, q, order) / order for order in ORDERS))
        assert worst <= rho * (1 + 1e-9)
        assert worst >= 0.9 * rho or epsilon > 1

    def test_gaussian_noise_has_no_failure(self) -> None:
        spent = spending_of(charge(GaussianLoss(2.0), 1.5, 1e-5))
        assert spent == Spending(1.5, 1e-5, 0.125, 0.0)

    def test_what_is_only_approximate_fails_with_its_delta(self) -> None:
        assert spending_of(charge(ApproximateLoss(), 1.0, 1e-7)) == Spending.of_cost(Cost(1.0, 1e-7))

    def test_the_dearest_way_counts_and_the_failure_beside_it(self) -> None:
        ways = (Alternative(multiplier=4.0), Alternative(multiplier=5.0, epsilon=0.3))
        spent = spending_of(charge(AlternativesLoss(ways, failure=1e-8), 1.0, 1e-6))
        assert spent.rho == pytest.approx(max(1 / 32, 1 / 50 + pure_rho(0.3)))
        assert spent.failure == 1e-8

    def test_the_slack_of_shares_of_noise_is_a_failure(self) -> None:
        assert spending_of(charge(GaussianLoss(2.0), 1.5, 1e-5, slack=1e-20)).failure == 1e-20


class TestConversion:
    @pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
    @pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.03, 0.5, 4.0, 60.0])
    def test_it_is_above_the_exact_epsilon_of_a_gaussian_and_not_far(self, rho: float, delta: float) -> None:
        exact = gaussian_epsilon(1 / math.sqrt(2 * rho), delta)
        assert exact <= epsilon_of(rho, delta) <= max(1.25 * exact, exact + 1e-6)

    def test_no_order_gives_less(self) -> None:
        for rho, delta in ((1e-4, 1e-5), (0.2, 1e-6), (30.0, 1e-9)):
            orders = 1 + np.geomspace(1e-4, 1e5, 200_001)
            every = orders * rho - (np.log(orders) + math.log(delta)) / (orders - 1) + np.log1p(-1 / orders)
            assert epsilon_of(rho, delta) == pytest.approx(every.min(), rel=1e-6)

    @pytest.mark.parametrize(
        ("rho", "delta", "due"), [(0.0, 0.0, 0.0), (0.1, 0.0, math.inf), (0.1, 1.0, 0.0)]
    )
    def test_ends(self, rho: float, delta: float, due: float) -> None:
        assert epsilon_of(rho, delta) == due

    @given(st.floats(1e-4, 200.0), st.floats(1e-12, 0.1))
    @settings(max_examples=25, deadline=None)
    def test_the_largest_rho_is_within(self, epsilon: float, delta: float) -> None:
        rho = rho_within(epsilon, delta)
        assert epsilon_of(rho, delta) <= epsilon < epsilon_of(rho * (1 + 1e-6) + 1e-12, delta) * (1 + 1e-9)


KINDS: dict[str, Callable[[float], Charge]] = {
    "gaussian": gaussian,
    "pure": lambda epsilon: charge(PureLoss(), epsilon),
    "range": lambda epsilon: charge(BoundedRangeLoss(), epsilon),
    "approximate": lambda epsilon: charge(ApproximateLoss(), epsilon, 1e-9),
}


class TestLimits:
    @given(
        st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.floats(0.01, 2.0)), min_size=1, max_size=12),
        st.sampled_from([1e-6, 1e-5, 1e-3]),
    )
    @settings(max_examples=25, deadline=None)
    def test_what_is_claimed_is_never_below_tight_composition(
        self, parts: list[tuple[str, float]], delta: float
    ) -> None:
        charges = [KINDS[kind](epsilon) for kind, epsilon in parts]
        assert Limit(1.0, delta).claimed(Spending.of(charges)) >= epsilon_at(charges, delta) * (1 - 1e-6)

    @given(st.lists(st.floats(0.2, 2.0), min_size=10, max_size=40), st.sampled_from([1e-6, 1e-5]))
    @settings(max_examples=12, deadline=None)
    def test_ten_gaussian_runs_are_claimed_within_15_percent(
        self, epsilons: list[float], delta: float
    ) -> None:
        runs = [(charge(BoundedRangeLoss(), epsilon / 10), gaussian(epsilon, 1e-7)) for epsilon in epsilons]
        charges = [entry for run in runs for entry in run]
        exact = epsilon_at(charges, delta)
        assert exact <= Limit(1.0, delta).claimed(Spending.of(charges)) <= 1.15 * exact

    def test_thirty_runs_of_a_week_cost_a_fifth_of_their_sum(self) -> None:
        run = Spending.of([charge(BoundedRangeLoss(), 0.1), gaussian(1.0)])
        assert run.times(30).epsilon == pytest.approx(33)
        assert 5.9 < Limit(6.8, 1e-5).claimed(run.times(30)) < 6.8
        assert Limit(6.8, 1e-5).runs_left(Spending(), run) >= 30

    def test_pure_runs_still_add_up_to_the_whole_limit(self) -> None:
        run, limit = Spending.of([charge(PureLoss(), 0.1)]), Limit(1.0, 1e-6)
        assert limit.runs_left(Spending(), run) == 10
        assert Limit(1.0, 0.0).runs_left(Spending(), run) == 10

    def test_a_first_run_may_take_all_of_a_limit_and_is_then_the_last(self) -> None:
        run = Spending.of([gaussian(1.0)])
        limit = Limit(1.0, 1e-6)
        assert limit.admits(Spending(), run)
        assert not limit.admits(run, Spending.of([charge(PureLoss(), 0.01)]))
        assert not limit.admits(Spending.of([charge(PureLoss(), 1e-9)]), run)
        assert limit.runs_left(Spending(), run) == 1

    @pytest.mark.parametrize(
        ("epsilon", "delta"), [(math.inf, 1e-6), (1.0, 1.0), (-1.0, 0.0), (math.nan, 0.0)]
    )
    def test_limits_that_limit_nothing(self, epsilon: float, delta: float) -> None:
        with pytest.raises(InvalidPlan):
            Limit(epsilon, delta)


def best_attack(
    limit: Limit, region: Callable[[Spending], bool], *, step: float, fails: list[float]
) -> float:
    """The largest delta at the limit's epsilon of all that an adversary can do inside a region, exactly.

    They play randomised responses of epsilon `step`, and disclosures of everything with one of the chances in `fails`,
    each chosen in view of all results. What matters of a history is the sum of its losses and what was spent: at each
    such state they do whatever has the largest expectation of max(0, 1 - e^(epsilon - loss)) under P. Stopping is one
    of the choices.
    """
    high = 1 / (1 + math.exp(-step))
    response, nothing = Spending.of_cost(Cost(step, 0.0)), Spending()

    @functools.cache
    def inside(responses: int, failed: tuple[float, ...]) -> bool:
        return region(
            sum((Spending(0, size, 0, size) for size in failed), nothing) + response.times(responses)
        )

    @functools.cache
    def best(responses: int, net: int, failed: tuple[float, ...]) -> float:
        found = max(0.0, -math.expm1(limit.epsilon - net * step))
        if inside(responses + 1, failed):
            up, down = (best(responses + 1, net + sign, failed) for sign in (1, -1))
            found = max(found, high * up + (1 - high) * down)
        for size in fails:
            if not failed and inside(responses, (size,)):
                found = max(found, size + (1 - size) * best(responses, net, (size,)))
        return found

    assert inside(0, ())
    return best(0, 0, ())


class TestAdversaries:
    """An adversary who adapts as well as possible gets no more than a limit says, and would from a wrong limit."""

    LIMIT = Limit(3.0, 1e-2)

    def attack(self, region: Callable[[Spending], bool], limit: Limit = LIMIT) -> float:
        fails = [share * limit.delta for share in (0.1, 0.5, 0.9, 1.0)]
        return best_attack(limit, region, step=0.1, fails=fails) / limit.delta

    @pytest.mark.parametrize("limit", [Limit(1.0, 1e-2), LIMIT, Limit(3.0, 1e-4)])
    def test_the_limit_holds(self, limit: Limit) -> None:
        assert 0.1 < self.attack(limit.has_room, limit) <= 1

    def test_a_rectangle_twice_as_long_in_rho_is_found_out(self) -> None:
        limit, rho = self.LIMIT, 2 * self.LIMIT.rho
        assert self.attack(lambda spent: spent.rho <= rho and spent.failure <= limit.failure) > 1

    @pytest.mark.parametrize("share", ["_FOR_FAILURES", "_FOR_SUMS"])
    def test_shares_of_delta_that_add_up_to_more_are_found_out(
        self, share: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(concentrated, share, 1.0)
        assert self.attack(self.LIMIT.has_room) > 1

    def test_a_region_that_is_no_rectangle_is_found_out(self) -> None:
        """A conversion at what failures leave of delta is true of every history by itself, and not of all together."""
        limit = self.LIMIT

        def region(spent: Spending) -> bool:
            left = limit.delta - spent.failure
            return left >= 0 and (
                spent.rho == 0 or (left > 0 and epsilon_of(spent.rho, left) <= limit.epsilon)
            )

        assert self.attack(region) > 1

    def test_a_first_run_that_is_given_back_what_it_did_not_charge_is_found_out(self) -> None:
        """It may take all of delta for its own disclosure, or be closed for a ledger that goes on."""
        limit = self.LIMIT
        assert (
            self.attack(
                lambda spent: (
                    limit.has_room(spent) or spent.cost.fits(epsilon=limit.epsilon, delta=limit.delta)
                )
            )
            > 1
        )
