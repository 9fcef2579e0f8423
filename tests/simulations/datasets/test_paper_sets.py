from __future__ import annotations

import numpy as np
import pytest

from fedhist import InvalidInput
from tests.builders import table_of
from tests.support.api import (
    NumberedLabels,
    PaperPopulation,
    RatesPopulation,
    ZipfPopulation,
    item_probabilities,
)


class TestPaper:
    @pytest.mark.parametrize(("shape", "fourth"), [(0.5, 14), (2.0, 5)])
    def test_non_iid_totals_are_a_gamma_mixture_of_poisson_totals(self, shape: float, fourth: float) -> None:
        """Rates are Gamma of mean 100; `fourth` is their kurtosis less one, for the error of the variance."""
        population = PaperPopulation(60_000, 30, seed=7, rate_shape=shape)
        totals, variance = table_of(population).sum(axis=1), 100 + 100**2 / shape
        assert totals.mean() == pytest.approx(100, abs=5 * np.sqrt(variance / 60_000))
        assert totals.var() == pytest.approx(variance, rel=5 * np.sqrt(fourth / 60_000))
        # E exp(-rate) of the users have nothing.
        nobody = (1 + 100 / shape) ** -shape
        assert (totals == 0).mean() == pytest.approx(nobody, abs=5 * np.sqrt(nobody / 60_000))

    def test_the_paper_s_median_and_90_percent_baselines_lose_what_reproduced_it(self) -> None:
        totals = table_of(PaperPopulation(users=50_000, items=50, seed=1)).sum(axis=1)
        for quantile, lost in ((0.5, 0.702), (0.9, 0.169)):
            threshold = np.quantile(totals, quantile)
            assert np.maximum(totals - threshold, 0).sum() / totals.sum() == pytest.approx(lost, abs=0.012)

    def test_non_iid_cells_have_the_moments_of_a_dirichlet(self) -> None:
        population = PaperPopulation(users=100_000, items=8, seed=9)
        table = table_of(population)
        p = item_probabilities(8)
        assert p == pytest.approx((1 / np.arange(51, 59)) / (1 / np.arange(51, 59)).sum())
        # Dir(p/2) has E q_j = p_j and E q_j q_k = (p_j p_k / 2 + [j = k] p_j) / 1.5; rates have E R^2 = 30,000.
        second = (np.outer(p, p) / 2 + np.diag(p)) / 1.5
        expected = 30_000 * second + np.diag(100 * p)
        error = np.sqrt(table.var(axis=0) / len(table))
        assert (np.abs(table.mean(axis=0) - 100 * p) < 5 * error).all()
        products = table.T @ table / len(table)
        squares = table**2
        spread = np.sqrt(squares.T @ squares / len(table) - products**2) / np.sqrt(len(table))
        assert (np.abs(products - expected) < 5 * spread).all()


def test_items_have_names_by_rank_with_enough_digits_for_all() -> None:
    names = ZipfPopulation(users=5, items=101, seed=1).labels
    assert list(names) == [f"item-{number:03}" for number in range(101)]
    assert list(NumberedLabels(1)) == ["item-0"]
    with pytest.raises(IndexError):
        names[101]


class TestRatesOfOneItem:
    @pytest.mark.parametrize(("alpha", "mean"), [(0.5, 2.0), (3.0, 10.0), (1e6, 2.0)])
    def test_rates_are_gamma_so_counts_are_negative_binomial(self, alpha: float, mean: float) -> None:
        counts = table_of(RatesPopulation(users=200_000, seed=2, alpha=alpha, mean=mean))[:, 0]
        variance = mean + mean**2 / alpha
        assert counts.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / len(counts)))
        assert counts.var() == pytest.approx(variance, rel=0.05)
        nobody = (alpha / (alpha + mean)) ** alpha
        assert (counts == 0).mean() == pytest.approx(nobody, abs=5 * np.sqrt(nobody / len(counts)))

    @pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": 1.0, "mean": 0.0}, {"alpha": float("nan")}])
    def test_a_shape_or_mean_out_of_range_is_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(InvalidInput):
            RatesPopulation(users=10, seed=1, **wrong)
