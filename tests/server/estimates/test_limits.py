"""`at_least` is below true counts as often as it says."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from fedhist import Neighbours, Plan, SeededSource, SparsePopulation, simulate
from tests.support.api import (
    Noise,
    NoiseLaw,
    OpenNoise,
    Share,
    above_bar,
    bars_for,
    estimates_and_limits,
    gaussian_variance,
    histograms_of,
    laplace_scale,
    law_above_bar,
    law_of_noise,
    law_of_shares,
    limits_above_bar,
    run_of,
    write_results,
)
from tests.support.api import limits_above as above

DEVIATION = 200.0
NOISES = {
    "gaussian": Noise("discrete-gaussian", gaussian_variance(Fraction(DEVIATION**2))),
    "laplace": Noise("discrete-laplace", laplace_scale(Fraction(DEVIATION / 2**0.5))),
}
both = pytest.mark.parametrize("noise", NOISES.values(), ids=list(NOISES))
WORST = {
    "zeros": np.zeros(5000),
    **{f"equal {size}": np.full(1000, size) for size in (0.5, 1, 3, 5)},
    "200 among zeros": np.append(np.zeros(49_800), np.full(200, 4)),
    "zipf": 400 / np.arange(1, 5001),
}
LAWS: dict[str, NoiseLaw] = {
    **{name: law_of_noise(noise) for name, noise in NOISES.items()},
    "narrow gaussian": law_of_noise(Noise("discrete-gaussian", Fraction(9))),
    "narrow laplace": law_of_noise(Noise("discrete-laplace", Fraction(7, 10))),
    "no noise": law_of_noise(Noise("discrete-laplace", Fraction(1, 10**6))),
    "shares": law_of_shares(Share("discrete-laplace-shares", Fraction(20), 5), 8),
}


def covered(noise: Noise, counts: np.ndarray, limits_of, trials: int = 25) -> list[float]:
    """How often limits hold: of all rows, of the 20 with the largest values, and of those with values above 0."""
    held, rows = np.zeros(3), np.zeros(3)
    for trial in range(trials):
        values = counts + noise.draw(len(counts), source=SeededSource(trial))
        right = limits_of(values) <= counts
        largest = np.argsort(-values, kind="stable")[:20]
        for place, group in enumerate((slice(None), largest, values > 0)):
            held[place] += right[group].sum()
            rows[place] += len(right[group])
    return (held / np.maximum(rows, 1)).tolist()


@both
@pytest.mark.parametrize("case", WORST)
def test_limits_hold_for_rows_that_are_picked_because_they_are_large(noise: Noise, case: str) -> None:
    """Also of equal counts, where value - q, two-sided as it once was or not, holds for none of the largest."""
    law, counts = law_of_noise(noise), np.rint(DEVIATION * WORST[case]).astype(np.int64)
    assert min(covered(noise, counts, lambda values: estimates_and_limits(values, law)[1])) >= 0.93
    for fails in (0.05, 0.025):
        q = above(law, fails)
        plain = covered(noise, counts, lambda values, q=q: np.maximum(values - q, 0), trials=5)
        assert plain[0] > 0.93
        assert case in ("zipf", "200 among zeros") or plain[1] < 0.2


@pytest.mark.parametrize("name", LAWS)
def test_q_is_the_least_that_holds_for_an_item_that_was_named_beforehand(name: str) -> None:
    """By the exact law: P(Z <= q) is 0.95 or more, and less for q - 1, except where there is no noise."""
    law = LAWS[name]
    q = above(law, 0.05)
    beyond = law.reaching(np.array([q, q + 1]))
    assert beyond[1] <= 0.05 + 1e-12
    assert q == 0 or beyond[0] > 0.05
    values = np.array([10**6, 10**6 + 17 * 10**5])
    assert estimates_and_limits(values, law)[1].tolist() == (values - q).tolist()


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("items", [0, 1, 7, 3000])
def test_limits_rise_with_the_value_and_are_between_0_and_both_value_and_estimate(
    name: str, items: int
) -> None:
    law = LAWS[name]
    rng = np.random.Generator(np.random.Philox(items))
    for spread in (0.0, 3.0, 30.0):
        sizes = rng.normal(0, 1, items) + spread * rng.random(items) ** 3
        values = np.sort(np.rint(sizes * max(law.deviation, 1)).astype(np.int64))
        estimates, limits = estimates_and_limits(values, law)
        assert limits.shape == values.shape
        assert (limits >= 0).all() and (np.diff(limits) >= 0).all()
        assert (limits <= np.maximum(values - above(law, 0.05), 0)).all() and (limits <= estimates).all()


def open_noise(kind: str) -> OpenNoise:
    (noise,) = bars_for(kind, [3], epsilon=0.7, delta=1e-3, neighbours=Neighbours.ZERO_OUT)  # type: ignore[arg-type]
    return noise


@pytest.mark.parametrize("kind", ["truncated-laplace", "laplace-threshold"])
def test_above_a_bar_every_count_is_covered_given_that_it_is_shown(kind: str) -> None:
    """Exactly, by all values that a count may become; value - q is shown to fail near the bar."""
    noise = open_noise(kind)
    law, reach = law_above_bar(noise), 60 * int(noise.scale)
    plain, least = [], []
    for count in (1, 2, 5, *range(noise.bar - 1, noise.bar + 4), 3 * noise.bar):
        values = np.arange(max(noise.bar + 1, count - reach), max(noise.bar, count) + reach)
        chances = law.reaching(values - count) - law.reaching(values + 1 - count)
        chances /= chances.sum()
        limits = above_bar(values, law, noise.bar)
        assert (limits >= 1).all() and (limits <= values).all() and (np.diff(limits) >= 0).all()
        least.append(chances @ (limits <= count))
        plain.append(chances @ (values - above(law, 0.05) <= count))
    assert 0.95 - 1e-9 <= min(least) < 0.97
    assert min(plain) < 0.1


def test_a_value_little_above_a_bar_says_nothing_of_its_count_and_one_far_above_as_much_as_without() -> None:
    """However many scales of the noise the bar is away: a Laplace tail has no memory."""
    (noise,) = bars_for("laplace-threshold", [1], epsilon=1.0, delta=1e-25, neighbours=Neighbours.ZERO_OUT)
    law = law_above_bar(noise)
    values = np.array([noise.bar + 1, noise.bar + 2, 50 * noise.bar])
    limits = above_bar(values, law, noise.bar)
    assert limits[:2].tolist() == [1, 1]
    assert abs(limits[2] - (values[2] - above(law, 0.05))) <= 1


@pytest.mark.parametrize("kind", ["truncated-laplace", "laplace-threshold"])
@pytest.mark.parametrize("clip", [1, 20])
@pytest.mark.parametrize("size", [0.8, 1.0, 1.2, 1.5])
def test_above_a_bar_limits_hold_for_rows_that_are_picked_because_they_are_large(
    kind: str, clip: int, size: float
) -> None:
    """Of equal counts; what is proved for a key that was named beforehand holds for none of the largest."""
    (noise,) = bars_for(kind, [clip], epsilon=1.0, delta=1e-6, neighbours=Neighbours.ZERO_OUT)  # type: ignore[arg-type]
    law, count = law_above_bar(noise), int(size * noise.bar)
    picked: list[np.ndarray] = []
    named: list[np.ndarray] = []
    for trial in range(30):
        values = count + noise.draw(1000, source=SeededSource(trial))
        values = -np.sort(-values[values > noise.bar])
        limits, proved = limits_above_bar(values, law, noise.bar), above_bar(values, law, noise.bar)
        assert (limits >= 1).all() and (limits <= proved).all() and (np.diff(limits) <= 0).all()
        picked.append(limits[:20] <= count)
        named.append(proved[:20] <= count)
    assert np.concatenate(picked).mean() >= 0.93
    assert size < 1 or np.concatenate(named).mean() < 0.35


def test_limits_above_a_bar_of_a_few_keys_and_of_none() -> None:
    noise = open_noise("laplace-threshold")
    law = law_above_bar(noise)
    assert limits_above_bar(np.zeros(0, dtype=np.int64), law, noise.bar).shape == (0,)
    far = np.array([10**12, noise.bar + 1, 10**9])
    assert limits_above_bar(far, law, noise.bar).tolist() == above_bar(far, law, noise.bar).tolist()


def run(plan: Plan, rows: np.ndarray, seed: int):
    return simulate(SparsePopulation(histograms_of(rows)), plan, seed=seed).release


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_clipped_counts_are_above_their_limits_given_the_threshold_that_was_chosen(mechanism: str) -> None:
    """Whatever the choice was: among runs of the same threshold as among all. Users of all sizes, so choices differ."""
    generator = np.random.Generator(np.random.Philox(1))
    rows = generator.poisson(np.geomspace(0.05, 30, 80)[:, np.newaxis], size=(80, 12))
    plan = Plan(
        users=80, items=12, mechanism=mechanism, epsilon=2.0, epsilon_select=0.5, min_threshold=16.0,
        max_threshold=64.0, candidates=4,
    )  # fmt: skip
    norms = np.linalg.norm(rows, ord=1 if mechanism == "laplace" else 2, axis=1)
    held: dict[float, list[float]] = {}
    halved = []
    for seed in range(120):
        release = run(plan, rows, seed)
        shares = np.minimum(1, release.threshold / np.maximum(norms, 1e-9))
        clipped = (rows * shares[:, np.newaxis]).sum(axis=0)
        held.setdefault(release.threshold, []).append(float((release.at_least <= clipped + 0.1).mean()))
        halved.append(float((release.histogram - 0.7 * release.standard_error <= clipped).mean()))
    often = {threshold: np.mean(shares) for threshold, shares in held.items() if len(shares) >= 20}
    assert len(often) >= 2
    assert all(share > 0.93 for share in often.values())
    assert np.mean(halved) < 0.9


def test_limits_of_debiased_counts_hold_for_counts_that_are_not_poisson() -> None:
    """They are those of the clipped counts: where all users have one count each, debiased values are too high."""
    rows = np.ones((200, 40), dtype=np.int64)
    plan = Plan(
        users=200,
        items=40,
        epsilon=300.0,
        selector="fixed",
        threshold=1.0,
        debias="poisson",
        max_threshold=8.0,
    )
    releases = [run(plan, rows, seed) for seed in range(20)]
    assert np.mean([one.histogram > 300 for one in releases]) > 0.9
    assert np.mean([one.at_least <= 200 for one in releases]) >= 0.93
    assert np.mean([one.at_least > 150 for one in releases]) > 0.9
    assert all((one.at_least <= one.estimate).all() for one in releases)


@pytest.mark.parametrize(
    "settings",
    [
        {"items": 12},
        {"items": 12, "debias": "poisson"},
        {"domain": "open", "release": "laplace-threshold"},
    ],
    ids=str,
)
def test_frame_file_document_and_report_have_the_same_limits(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    rows = np.random.Generator(np.random.Philox(2)).poisson(np.geomspace(0.1, 9, 12), size=(900, 12))
    labels = [f"item {number}" for number in range(12)]
    population = SparsePopulation(histograms_of(rows), labels=labels)
    result = simulate(population, Plan(users=900, epsilon=20.0, **settings), seed=3)
    write_results(tmp_path, document := result.to_json(), result.release, None)
    with (tmp_path / "histogram.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    limits = result.release.at_least.tolist()
    assert len(limits) > 3
    assert [float(row["at_least"]) for row in table] == limits == result.to_frame()["at_least"].to_list()
    assert limits == run_of(result, "run").at_least.tolist()
    assert not {"low", "high"} & {*table[0], *result.to_frame().columns}
    assert document["significant_items"] == sum(limit > 0 for limit in limits)
    assert document["at_least_level"] == 0.95
