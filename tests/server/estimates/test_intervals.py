"""Intervals hold clipped counts, and upper limits true ones, as often as they say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.bars import OpenNoise, bars_for
from fedhist.protocol.privacy.mechanisms import Noise
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.estimates import above_bar, around, law_above_bar, law_of_noise
from fedhist.server.estimates.clipped_mass import rescaling
from fedhist.simulations.simulation import simulate
from fedhist.testing.cases import histograms_of


def open_noise(kind: str) -> OpenNoise:
    (noise,) = bars_for(kind, [3], epsilon=0.7, delta=1e-3, neighbours=Neighbours.ZERO_OUT)  # type: ignore[arg-type]
    return noise


@pytest.mark.parametrize("kind", ["truncated-laplace", "laplace-threshold"])
def test_above_a_bar_every_count_is_covered_given_that_it_is_shown(kind: str) -> None:
    """Exactly, by all values that a count may become; the plain interval is shown to fail near the bar."""
    noise = open_noise(kind)
    law, reach = law_above_bar(noise), 60 * int(noise.scale)
    plain = []
    for count in (1, 2, 5, noise.bar - 1, noise.bar, noise.bar + 3, 3 * noise.bar):
        values = np.arange(max(noise.bar + 1, count - reach), max(noise.bar, count) + reach)
        chances = law.reaching(values - count) - law.reaching(values + 1 - count)
        chances /= chances.sum()
        corrected, ordinary = above_bar(values, law, noise.bar), around(values, law, bits=0)
        assert chances @ ((corrected.low <= count) & (count <= corrected.high)) >= 0.95 - 1e-9
        plain.append(chances @ ((ordinary.low <= count) & (count <= ordinary.high)))
    assert min(plain) < 0.9


def test_far_above_a_bar_the_correction_vanishes() -> None:
    noise = open_noise("laplace-threshold")
    law, values = law_above_bar(noise), np.array([50 * noise.bar])
    corrected, ordinary = above_bar(values, law, noise.bar), around(values, law, bits=0)
    assert abs(corrected.low - ordinary.low)[0] <= 1 and abs(corrected.high - ordinary.high)[0] <= 1


def test_an_interval_is_in_counts_and_not_below_0() -> None:
    law = law_of_noise(Noise("discrete-laplace", Fraction(40)))
    found = around(np.array([-1000, 0, 4096]), law, bits=2)
    radius = law.radius(0.95) / 4
    assert found.low.tolist() == [0, 0, 1024 - radius]
    assert found.high.tolist() == [0, radius, 1024 + radius]


def run(plan: Plan, rows: np.ndarray, seed: int):
    return simulate(SparsePopulation(histograms_of(rows)), plan, seed=seed).release


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_clipped_counts_are_covered_given_the_threshold_that_was_chosen(mechanism: str) -> None:
    """Whatever the choice was: among runs of the same threshold as among all. Users of all sizes, so choices differ."""
    generator = np.random.Generator(np.random.Philox(1))
    rows = generator.poisson(np.geomspace(0.05, 30, 80)[:, np.newaxis], size=(80, 12))
    plan = Plan(
        users=80, items=12, mechanism=mechanism, epsilon=2.0, epsilon_select=0.5, min_threshold=16.0,
        max_threshold=64.0, candidates=4,
    )  # fmt: skip
    norms = np.linalg.norm(rows, ord=1 if mechanism == "laplace" else 2, axis=1)
    held: dict[float, list[float]] = {}
    for seed in range(120):
        release = run(plan, rows, seed)
        shares = np.minimum(1, release.threshold / np.maximum(norms, 1e-9))
        clipped = (rows * shares[:, np.newaxis]).sum(axis=0)
        covered = (release.interval.low - 0.1 <= clipped) & (clipped <= release.interval.high + 0.1)
        held.setdefault(release.threshold, []).append(float(covered.mean()))
    often = {threshold: np.mean(shares) for threshold, shares in held.items() if len(shares) >= 20}
    assert len(often) >= 2
    assert all(abs(share - 0.95) < 0.05 for share in often.values())


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("masked", [{}, {"masking": "secagg", "participants": 6, "noise_from": "devices"}])
def test_upper_limits_cover_true_counts_that_clipping_cut(mechanism: str, masked: dict[str, object]) -> None:
    """Also if everything is taken from one item; plain intervals miss it. Beyond R nothing is promised."""
    rows = np.ones((60, 6), dtype=np.int64)
    rows[:20, 0] = 40
    rows[20:25, 1] = 45
    plan = Plan(
        users=60, items=6, mechanism=mechanism, epsilon=4.0, delta=None if mechanism == "gaussian" else 0.0,
        selector="fixed", threshold=4.0, min_threshold=2.0, max_threshold=64.0, upper_limits=90.0, **masked,
    )  # fmt: skip
    releases = [run(plan, rows, seed) for seed in range(40)]
    limits = np.array([release.upper_limit for release in releases])
    highs = np.array([release.interval.high for release in releases])
    true = rows.sum(axis=0)
    assert (true <= limits).mean() >= 0.95
    assert (true[:2] <= highs[:, :2]).mean() < 0.1
    # The limit of the heaviest item is not the one in proportion: its rest was measured.
    assert np.median(limits[:, 0]) < 0.8 * np.median(highs[:, 0]) * 90 / 4
    rows[:20, 0] = 4000
    beyond = np.array([run(plan, rows, seed).upper_limit for seed in range(10)])
    assert (rows.sum(axis=0)[0] > beyond[:, 0]).all()


def test_rescaling_gives_back_what_clipping_took() -> None:
    rows = np.tile(np.arange(1, 21), (400, 1))
    rows[::4] *= 3
    settings = {"users": 400, "items": 20, "selector": "fixed", "threshold": 60.0, "epsilon": 20.0}
    plan = Plan(**settings, rescale="proportional")
    release, true = run(plan, rows, 1), rows.sum(axis=0)
    plain = run(Plan(**settings), rows, 1)
    assert release.rescaled_by == pytest.approx(true.sum() / plain.histogram.sum(), rel=0.02)
    assert release.estimate == pytest.approx(true, rel=0.15)
    assert np.abs(release.estimate - true).sum() < 0.2 * np.abs(plain.estimate - true).sum()
    assert plain.rescaled_by is None and plain.upper_limit is None
    few = np.array([10.0, 30.0])
    assert rescaling(few, -50.0, deviation=1.0) == rescaling(few, 5.0, deviation=6.0) == 1.0
    assert rescaling(few, 10.0, deviation=5.0) == 1 + 7.5 / 40
    assert rescaling(np.zeros(3), 7.0, deviation=1.0) == 1.0
