"""Totals with sampled Gaussian releases lie between the truth and Flower's own accountant."""

from __future__ import annotations

import functools
import json
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation

from fedhist import Charge
from tests.oracles import gaussian_delta
from tests.support.api import (
    ApproximateLoss,
    BoundedRangeLoss,
    GaussianLoss,
    InvalidFile,
    InvalidPlan,
    PrivacyLoss,
    PureLoss,
    SampledGaussianLoss,
    delta_at,
    epsilon_at,
    loss_epsilon,
    noise_multiplier,
    tight_total,
)

DELTA = 1e-6
CASES = [(1.0, 0.01, 1000), (0.8, 0.1, 50), (4.0, 0.3, 200), (2.0, 0.001, 1)]


def charge(loss: PrivacyLoss, epsilon: float = 100.0, delta: float = DELTA) -> Charge:
    """An epsilon that is surely no less than the loss's, where none is given."""
    return Charge("train", "test", {}, 1.0, "l2", "zero-out", epsilon, delta, loss)


def mixture_delta(multiplier: float, share: float, epsilon: float) -> float:
    """The larger of both orders' deltas of (1 - q) N(0) + q N(1) against N(0), in closed form."""
    z, q, grown = mpmath.mpf(multiplier), mpmath.mpf(share), mpmath.exp(mpmath.mpf(epsilon))

    def beyond(place: mpmath.mpf, centre: int) -> mpmath.mpf:
        return mpmath.erfc((place - centre) / z / mpmath.sqrt(2)) / 2

    def cut(ratio: mpmath.mpf) -> mpmath.mpf:
        return z**2 * mpmath.log((ratio - 1 + q) / q) + mpmath.mpf("0.5")

    high = cut(grown)
    removed = (1 - q) * beyond(high, 0) + q * beyond(high, 1) - grown * beyond(high, 0)
    added = mpmath.mpf(0)
    if 1 / grown > 1 - q:
        low = cut(1 / grown)
        mixed = (1 - q) * beyond(low, 0) + q * beyond(low, 1)
        added = (1 - beyond(low, 0)) - grown * (1 - mixed)
    return float(max(removed, added))


def least_epsilon(multiplier: float, share: float, releases: int) -> float:
    """What the pair that every such training contains costs at least, by distributions rounded down."""
    one = pld.from_gaussian_mechanism(
        multiplier, sampling_prob=share, pessimistic_estimate=False, use_connect_dots=False
    )
    return float(one.self_compose(releases).get_epsilon_for_delta(DELTA))


def renyi_epsilon(loss: SampledGaussianLoss) -> float:
    if loss.change == "zero-out":
        accountant = rdp.RdpAccountant()
        event = dp_event.PoissonSampledDpEvent(loss.probability, dp_event.GaussianDpEvent(loss.multiplier))
    else:
        accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        event = dp_event.SampledWithoutReplacementDpEvent(
            1000, round(1000 * loss.probability), dp_event.GaussianDpEvent(loss.multiplier)
        )
    return float(accountant.compose(event, loss.releases).get_epsilon(DELTA))


@functools.cache
def our_epsilon(loss: SampledGaussianLoss) -> float:
    return loss_epsilon(loss, DELTA)


@pytest.mark.parametrize(("multiplier", "share", "releases"), CASES)
class TestTraining:
    @pytest.mark.parametrize("change", ["zero-out", "replace-one"])
    def test_it_costs_no_less_than_the_truth_and_no_more_than_by_renyi_divergences(
        self, multiplier: float, share: float, releases: int, change: str
    ) -> None:
        loss = SampledGaussianLoss(multiplier, share, releases, change)
        ours = our_epsilon(loss)
        assert ours >= least_epsilon(multiplier, share, releases)
        assert ours <= renyi_epsilon(loss)

    def test_with_users_in_or_out_it_is_tight(self, multiplier: float, share: float, releases: int) -> None:
        ours = our_epsilon(SampledGaussianLoss(multiplier, share, releases, "zero-out"))
        theirs = pld.from_gaussian_mechanism(multiplier, sampling_prob=share).self_compose(releases)
        assert ours == pytest.approx(theirs.get_epsilon_for_delta(DELTA), rel=1e-3, abs=1e-3)

    def test_samples_never_cost_more_than_all(self, multiplier: float, share: float, releases: int) -> None:
        whole = epsilon_at([charge(GaussianLoss(multiplier / math.sqrt(releases)))], DELTA)
        for change in ("zero-out", "replace-one"):
            assert our_epsilon(SampledGaussianLoss(multiplier, share, releases, change)) <= whole + 1e-6


class TestExtremes:
    @pytest.mark.parametrize("change", ["zero-out", "replace-one"])
    @pytest.mark.parametrize(
        ("multiplier", "share", "releases"),
        [
            (0.05, 0.5, 3),
            (0.11, 0.5, 1),
            (0.11, 0.01, 100),
            (1e-3, 0.5, 3),
            (1.0, 1e-9, 1000),
            (30.0, 0.999999, 10),
            (1e9, 0.5, 1),
        ],
    )
    def test_they_have_an_epsilon_that_is_not_above_that_of_all(
        self, multiplier: float, share: float, releases: int, change: str
    ) -> None:
        loss = SampledGaussianLoss(multiplier, share, releases, change)
        whole = epsilon_at([charge(GaussianLoss(multiplier / math.sqrt(releases)), 1e9)], DELTA)
        assert 0 <= loss_epsilon(loss, DELTA) <= whole * (1 + 1e-9)


class TestOneRelease:
    @pytest.mark.parametrize("epsilon", [0.01, 0.2, 1.0])
    def test_it_has_the_delta_of_its_closed_form(self, epsilon: float) -> None:
        entry = charge(SampledGaussianLoss(1.0, 0.2, 1, "zero-out"))
        exact = mixture_delta(1.0, 0.2, epsilon)
        assert exact <= delta_at([entry], epsilon) <= exact * 1.001 + 1e-12
        assert epsilon <= epsilon_at([entry], exact) <= epsilon * 1.001 + 1e-4

    @pytest.mark.parametrize("epsilon", [0.01, 0.2, 1.0])
    def test_a_replaced_one_has_that_of_the_bound_and_covers_its_worst_neighbours(
        self, epsilon: float
    ) -> None:
        """Both contributions at 1/2 to either side of the others, or one of them among the others."""
        multiplier, share = 1.0, 0.2
        delta = delta_at([charge(SampledGaussianLoss(multiplier, share, 1, "replace-one"))], epsilon)
        assert delta >= mixture_delta(multiplier, share, epsilon)
        places = np.linspace(-12, 12, 200_001)
        density = {at: np.exp(-((places - at) ** 2) / 2) / math.sqrt(2 * math.pi) for at in (-0.5, 0.0, 0.5)}
        one, other = ((1 - share) * density[0.0] + share * density[at] for at in (-0.5, 0.5))
        apart = float(np.sum(np.maximum(one - math.exp(epsilon) * other, 0)) * (places[1] - places[0]))
        assert delta >= apart
        whole = math.log1p(math.expm1(epsilon) / share)
        bound = share * float(gaussian_delta(multiplier, whole))
        assert delta == pytest.approx(bound, rel=1e-3)


class TestBesideOthers:
    OTHERS = (
        charge(BoundedRangeLoss(), 0.1, 0.0),
        charge(GaussianLoss(noise_multiplier(1.0, DELTA)), 1.0),
        charge(PureLoss(), 0.2, 0.0),
        charge(ApproximateLoss(), 0.1, 1e-8),
    )

    @pytest.fixture
    def training(self) -> Charge:
        loss = SampledGaussianLoss(1.0, 0.01, 100, "zero-out")
        return charge(loss, our_epsilon(loss))

    def test_the_total_is_below_the_sum_and_above_each(self, training: Charge) -> None:
        entries = [*self.OTHERS, training]
        total = tight_total(entries)
        assert total.delta == pytest.approx(2 * DELTA + 1e-8)
        alone = [epsilon_at([entry], total.delta) for entry in entries]
        assert max(alone) < total.epsilon < sum(entry.epsilon for entry in entries)

    def test_it_is_the_total_of_dp_accounting_where_that_knows_all(self, training: Charge) -> None:
        gaussian = noise_multiplier(1.0, DELTA)
        theirs = pld.from_gaussian_mechanism(1.0, sampling_prob=0.01).self_compose(100)
        theirs = theirs.compose(pld.from_gaussian_mechanism(gaussian))
        entries = [training, charge(GaussianLoss(gaussian))]
        assert epsilon_at(entries, DELTA) == pytest.approx(theirs.get_epsilon_for_delta(DELTA), rel=2e-3)

    def test_delta_and_epsilon_are_two_sides(self, training: Charge) -> None:
        for entries in ([*self.OTHERS, training], list(self.OTHERS), [self.OTHERS[1]]):
            epsilon = epsilon_at(entries, 3 * DELTA)
            assert delta_at(entries, epsilon) == pytest.approx(3 * DELTA, rel=0.02)

    def test_below_what_may_fail_there_is_no_epsilon(self) -> None:
        assert epsilon_at(self.OTHERS, 1e-9) == math.inf
        assert epsilon_at([], DELTA) == 0
        assert delta_at([], 0.0) == 0
        assert delta_at([charge(GaussianLoss(1e-4), 1e9)], 1.0) == 1


class TestRecords:
    def test_a_charge_survives_json(self) -> None:
        entry = charge(SampledGaussianLoss(1.1, 0.25, 40, "replace-one"))
        assert Charge.from_json(json.loads(json.dumps(entry.to_json()))) == entry

    @pytest.mark.parametrize(
        "change",
        [
            {"probability": 1.5},
            {"multiplier": 0},
            {"releases": 0},
            {"releases": True},
            {"releases": 10**400},
            {"releases": 1.5},
            {"change": "swap"},
            {"more": 1},
            {"multiplier": "1"},
        ],
    )
    def test_a_damaged_one_is_refused(self, change: dict[str, object]) -> None:
        document = charge(SampledGaussianLoss(1.1, 0.25, 40, "replace-one")).to_json()
        document["loss"] |= change
        with pytest.raises((InvalidFile, InvalidPlan)):
            Charge.from_json(document)
