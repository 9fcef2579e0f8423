"""zCDP of charges against exact divergences, conversions against exact Gaussians, limits against adaptive attacks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.privacy.calibration import gaussian_epsilon, noise_multiplier
from fedhist.protocol.privacy.composition import tight_total
from fedhist.protocol.privacy.concentrated import (
    Limit,
    Spending,
    epsilon_of,
    pure_rho,
    rho_within,
    spending_of,
)
from fedhist.protocol.privacy.ledger import (
    Alternative,
    AlternativesLoss,
    ApproximateLoss,
    BoundedRangeLoss,
    Charge,
    Cost,
    GaussianLoss,
    PrivacyLoss,
    PureLoss,
)

ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 60), np.geomspace(2, 1e4, 60)])


def charge(loss: PrivacyLoss, epsilon: float, delta: float = 0.0, **parameters: float) -> Charge:
    return Charge("release", "a mechanism", parameters, 1.0, "l2", "add-remove", epsilon, delta, loss)


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
    @settings(max_examples=50, deadline=None)
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
    @settings(max_examples=60, deadline=None)
    def test_what_is_claimed_is_never_below_tight_composition(
        self, parts: list[tuple[str, float]], delta: float
    ) -> None:
        charges = [KINDS[kind](epsilon) for kind, epsilon in parts]
        # The tight total is at the sum of deltas: scaled so that this is the limit's.
        own = sum(entry.delta for entry in charges)
        claimed = Limit(1.0, max(own, delta)).claimed(Spending.of(charges))
        if own >= delta:
            assert claimed >= tight_total(charges).epsilon * (1 - 1e-9)
        else:
            filler = charge(ApproximateLoss(), 0.0, delta - own)
            assert claimed >= tight_total([*charges, filler]).epsilon * (1 - 1e-6)

    @given(st.lists(st.floats(0.2, 2.0), min_size=10, max_size=40), st.sampled_from([1e-6, 1e-5]))
    @settings(max_examples=30, deadline=None)
    def test_ten_gaussian_runs_are_claimed_within_15_percent(
        self, epsilons: list[float], delta: float
    ) -> None:
        runs = [(charge(BoundedRangeLoss(), epsilon / 10), gaussian(epsilon, 1e-7)) for epsilon in epsilons]
        charges = [entry for run in runs for entry in run]
        precision = 2 * sum(spending_of(entry).rho for _, entry in runs)
        exact = gaussian_epsilon(1 / math.sqrt(precision), delta)  # less than all of it costs
        assert exact <= Limit(1.0, delta).claimed(Spending.of(charges)) <= 1.15 * exact

    def test_thirty_runs_of_a_week_cost_a_fifth_of_their_sum(self) -> None:
        run = Spending.of([charge(BoundedRangeLoss(), 0.1), gaussian(1.0)])
        assert run.times(30).epsilon == pytest.approx(33)
        assert 5.9 < Limit(7.2, 1e-5).claimed(run.times(30)) < 6.7
        assert Limit(7.2, 1e-5).runs_left(Spending(), run) >= 30

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

    @given(st.data())
    @settings(max_examples=40, deadline=None)
    def test_an_adversary_who_adapts_gets_no_more_than_the_limit(self, data: st.DataObject) -> None:
        """Randomised responses and rare full disclosures, each chosen by all results so far; the exact delta of it."""
        limit = Limit(data.draw(st.floats(0.2, 3.0)), data.draw(st.sampled_from([1e-3, 1e-2, 0.1])))
        steps = 7

        def delta_from(spent: Spending, loss: float, depth: int) -> tuple[float, float]:
            """The hockey-stick at the limit's epsilon, weighted by P, of all that can follow, for the worse choice."""
            here = max(0.0, -math.expm1(limit.epsilon - loss))
            if depth == steps:
                return here, here
            best = here
            for kind, size in choices[depth]:
                if kind == "pure":
                    step = Spending.of([charge(PureLoss(), size)])
                    if not limit.admits(spent, step):
                        continue
                    high = 1 / (1 + math.exp(-size))
                    found = sum(
                        chance * delta_from(spent + step, loss + sign * size, depth + 1)[0]
                        for chance, sign in ((high, 1), (1 - high, -1))
                    )
                else:
                    step = Spending.of([charge(ApproximateLoss(), 0.0, size)])
                    if not limit.admits(spent, step):
                        continue
                    found = size + (1 - size) * delta_from(spent + step, loss, depth + 1)[0]
                best = max(best, found)
            return best, best

        choices = [
            [
                ("pure", data.draw(st.floats(0.05, 1.5))),
                ("fails", limit.delta * data.draw(st.sampled_from([0.02, 0.05, 0.1]))),
            ]
            for _ in range(steps)
        ]
        assert delta_from(Spending(), 0.0, 0)[0] <= limit.delta
