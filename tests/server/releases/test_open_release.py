"""Releases over an open domain: which keys are shown, what they are called, and what the ledger says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedhist import Histograms, Ledger, Neighbours, Plan, SeededSource, run_rounds
from tests.asking import release_at, releasing, select_request
from tests.builders import Cohort
from tests.oracles import passing_chance
from tests.support.api import (
    ApproximateLoss,
    KeptItems,
    Keyed,
    Total,
    advance,
    histograms_of,
    planned_charges,
)

each_release = pytest.mark.parametrize("release", KeptItems.releases)
relations = pytest.mark.parametrize("neighbours", list(Neighbours))


def plan_of(cohort, **settings):
    return Plan(users=cohort.histograms.users, domain="open", **({"release": "truncated-laplace"} | settings))


def fixed(cohort, threshold, **settings):
    return plan_of(cohort, selector="fixed", threshold=threshold, **settings)


def run(plan, cohort, seed=1, ledger=None):
    return run_rounds(plan, cohort, ledger=ledger or Ledger(), source=SeededSource(seed))


def released(release):
    return list(zip(release.labels, release.histogram.tolist(), strict=True))


@pytest.fixture
def zipf():
    """400 users with items of very different popularity, some clipped at 20."""
    generator = np.random.default_rng(5)
    chances = 1 / np.arange(1, 61)
    totals = generator.integers(0, 40, size=400)
    rows = [generator.multinomial(total, chances / chances.sum()).tolist() for total in totals]
    return Cohort(histograms_of(rows), labels=[f"mot {i:02} é" for i in range(60)])


# --- Which keys are shown.


@each_release
@relations
def test_only_keys_above_the_bar_are_shown_under_their_own_names(zipf, release, neighbours):
    plan = fixed(zipf, 20.0, release=release, neighbours=neighbours, epsilon=4.0, delta=1e-3)
    request = release_at(plan, plan.at_steps(20))
    clipped = zipf.total(request).keyed
    sums = dict(zip(clipped.keys.tolist(), clipped.values[:, 0].tolist(), strict=True))
    (noise,) = plan.open_noises(np.array([20]))
    for seed in range(10):
        result = run(plan, zipf, seed)
        assert 0 < len(result.histogram) < len(sums)
        assert result.bar == noise.bar
        assert (result.histogram > noise.bar).all()
        assert (result.histogram == np.rint(result.histogram)).all()
        assert result.labels == [zipf.labels[key] for key in result.keys]
        assert len(set(result.labels)) == len(result.labels) == len(result.histogram)
        far = [value - sums[key] for key, value in zip(result.keys.tolist(), result.histogram, strict=True)]
        assert np.abs(far).max() < 15 * float(noise.scale)
        if release == "truncated-laplace":
            assert np.abs(far).max() <= noise.bar
            assert set(result.keys.tolist()) >= {key for key, count in sums.items() if count > 2 * noise.bar}


@each_release
def test_a_key_is_shown_as_often_as_the_bar_says(release):
    """Counts below, at and above the bar, over many releases."""
    plan = Plan(
        users=6, domain="open", selector="fixed", threshold=500.0, release=release, epsilon=50.0, delta=0.01
    )
    (noise,) = plan.open_noises(np.array([500]))
    counts = noise.bar + np.array([-40, -20, -5, 0, 5, 20])
    request = release_at(plan, plan.at_steps(500))
    total = Total(6, np.zeros(0, dtype=np.int64), Keyed(np.arange(6), counts[:, np.newaxis]))
    releases, seen = 600, np.zeros(6, dtype=int)
    state = releasing(request)
    for seed in range(releases):
        release_ = advance(state, total, ledger=Ledger(), source=SeededSource(seed)).release
        seen[release_.keys] += 1
    chances = [passing_chance(noise, count) for count in counts.tolist()]
    assert min(chances) > 0 and max(chances) < 1
    for times, chance in zip(seen.tolist(), chances, strict=True):
        assert stats.binomtest(times, releases, chance).pvalue > 1e-3


@each_release
def test_a_key_that_was_clipped_away_never_appears_whatever_the_noise(release):
    """One user with 200 items of their own at C = 3: three of them may show, with a bar that most noise passes."""
    cohort = Cohort(histograms_of([[1] * 200]), labels=[f"key {i}" for i in range(200)])
    plan = fixed(cohort, 3.0, release=release, epsilon=0.01, delta=0.49)
    support = set(cohort.total(release_at(plan, plan.at_steps(3))).keyed.keys.tolist())
    assert len(support) == 3
    shown = [set(run(plan, cohort, seed).keys.tolist()) for seed in range(60)]
    assert all(keys <= support for keys in shown)
    assert set().union(*shown) == support


@each_release
def test_a_key_of_no_count_is_the_same_as_no_key(release):
    """A sum of 0 is not noised and does not shift the noise of others."""
    cohort = Cohort(histograms_of([[1]]))
    plan = fixed(cohort, 3.0, release=release, epsilon=0.01, delta=0.49)
    state = releasing(release_at(plan, plan.at_steps(3)))

    def shown(keys, counts, seed):
        keyed = Keyed(np.array(keys), np.array(counts)[:, np.newaxis])
        total = Total(1, np.zeros(0, dtype=np.int64), keyed)
        return released(advance(state, total, ledger=Ledger(), source=SeededSource(seed)).release)

    some = 0
    for seed in range(30):
        without = shown([1, 4, 8], [1, 1, 1], seed)
        assert shown([0, 1, 3, 4, 5, 8, 9], [0, 1, 0, 1, 0, 1, 0], seed) == without
        some += len(without)
    assert some > 5


def test_outside_of_simulations_a_release_does_not_depend_on_how_many_keys_stay_hidden():
    """A key that is shown comes after 500 or 501 that never are: its number among them would tell which."""
    leaving = []
    for hidden in (500, 501):
        rows = [[0] * hidden + [10] for _ in range(300)]
        rows.append([1] * hidden + [0])
        names = [f"a{i}" for i in range(hidden)] + ["zz"]
        cohort = Cohort(histograms_of(rows), labels=names, simulated=False)
        plan = fixed(cohort, 600.0, epsilon=50.0, delta=1e-3)
        release = run(plan, cohort)
        leaving.append((release.labels, release.keys))
        assert run(plan, replace(cohort, simulated=True)).keys.tolist() == [hidden]
    assert leaving == [(["zz"], None)] * 2


def test_a_release_of_no_key_is_an_empty_one():
    cohort = Cohort(histograms_of([[1, 0], [0, 2]]), labels=["a", "b"])
    result = run(fixed(cohort, 5.0), cohort)
    assert result.histogram.shape == result.keys.shape == (0,)
    assert result.labels == []


# --- What they are called.

STRANGE = [
    "", " a", "a", "A", "é", "e\u0301", "語", "🙂", "\ud800", "\ud83d", "a,b", 'say "hi"\r\n', "7", 7, "07", -7, 2**70,
]  # fmt: skip


def popular(labels, order=None):
    """Everybody has every item, the item at place i in the list of labels 1 + i times."""
    numbers = list(range(len(labels))) if order is None else list(order)
    row = [1 + number for number in numbers]
    return Cohort(histograms_of([row] * 300), labels=[labels[number] for number in numbers])


def test_names_come_back_as_texts_as_they_were_written():
    cohort = popular(STRANGE)
    result = run(fixed(cohort, 160.0, epsilon=500.0), cohort)
    assert set(result.labels) == {str(label) for label in STRANGE}
    for label, value in released(result):
        due = sum(1 + place for place, one in enumerate(STRANGE) if str(one) == label)
        assert abs(value - 300 * due) < 30


@each_release
def test_renumbering_the_items_leaves_the_release_as_it_was(release):
    """Noise goes by the bytes of a name, not by who numbered it, so nobody's release depends on a numbering."""
    generator = np.random.default_rng(3)
    for seed in range(3):
        first = popular(STRANGE)
        second = popular(STRANGE, generator.permutation(len(STRANGE)))
        plan = fixed(first, 1000.0, epsilon=30.0, delta=1e-3, release=release)
        a, b = released(run(plan, first, seed)), released(run(plan, second, seed))
        assert 0 < len(a) < len(STRANGE)
        assert a == b
        assert a != released(run(plan, first, seed + 100))


def test_numbers_without_names_are_in_the_order_of_their_digits():
    cohort = Cohort(histograms_of([[1] * 12] * 300))
    named = Cohort(histograms_of([[1] * 12] * 300), labels=[str(i) for i in range(12)])
    plan = fixed(cohort, 12.0, epsilon=10.0)
    plain, texts = run(plan, cohort), run(plan, named)
    assert plain.labels == sorted(map(str, range(12)))
    assert texts.labels == [str(label) for label in plain.labels]
    assert texts.histogram.tolist() == plain.histogram.tolist()


# --- What it costs.


@each_release
@relations
def test_the_ledger_holds_the_exact_delta_which_is_within_the_plan(zipf, release, neighbours):
    plan = plan_of(zipf, release=release, neighbours=neighbours, epsilon=2.0, delta=1e-4, max_threshold=40)
    ledger = Ledger()
    result = run(plan, zipf, ledger=ledger)
    choice, noise = ledger.entries
    planned = planned_charges(plan)
    (exact,) = plan.open_noises(np.array([int(result.threshold)]))
    largest = max(other.delta for other in plan.open_noises(plan.candidate_steps))
    assert result.charges == ledger.entries
    assert (choice.round, noise.round) == ("select", "release")
    assert noise.name == release
    # The threshold might have been another one: the promise is that of the worst of them.
    assert noise.delta == largest >= exact.delta == noise.parameters["delta_at_threshold"]
    assert 0 < noise.delta <= plan.delta
    assert noise.epsilon == 2.0
    assert isinstance(noise.loss, ApproximateLoss)
    assert noise.parameters["bar"] == exact.bar == result.bar
    assert noise.parameters["scale"] == pytest.approx(noise.sensitivity / 2.0)
    doubled = 1 if neighbours is not Neighbours.REPLACE_ONE else 2
    assert (noise.sensitivity, noise.norm) == (doubled * result.threshold, "l1")
    for before, after in zip(planned, ledger.entries, strict=True):
        assert before.epsilon >= after.epsilon
        assert before.delta >= after.delta
    assert ledger.basic().epsilon == pytest.approx(2.1)
    assert ledger.basic().delta == noise.delta
    assert ledger.tight().epsilon <= 2.1 * (1 + 1e-12)


@each_release
def test_a_threshold_that_the_plan_names_costs_its_own_delta(zipf, release):
    plan = plan_of(
        zipf, release=release, epsilon=2.0, delta=1e-4, max_threshold=40, selector="fixed", threshold=3
    )
    ledger = Ledger()
    run(plan, zipf, ledger=ledger)
    (exact,) = plan.open_noises(np.array([3]))
    assert ledger.basic().delta == exact.delta


@pytest.mark.parametrize(("selector", "share"), [("median", 0.5), ("p90", 0.9)])
def test_the_baselines_are_quantiles_of_the_totals(zipf, selector, share):
    """The least candidate that at most so many users are above."""
    totals = np.add.reduceat(zipf.histograms.counts, zipf.histograms.offsets[:-1])
    totals[np.diff(zipf.histograms.offsets) == 0] = 0
    plan = plan_of(zipf, selector=selector, max_threshold=60)
    chosen = run(plan, zipf).threshold
    assert (totals > chosen).mean() <= 1 - share
    lower = plan.candidate_steps[plan.candidate_steps < chosen]
    assert all((totals > bound).mean() > 1 - share for bound in lower)


def test_nothing_that_is_printed_shows_a_name_or_a_count(zipf):
    plan = plan_of(zipf)
    total = zipf.total(select_request(plan))
    result = run(plan, zipf)
    for text in (repr(total), repr(total.keyed), repr(result)):
        assert "mot" not in text
        assert "array" not in text


@pytest.mark.parametrize("labels", [(7, "7"), ("7", 7)])
@pytest.mark.parametrize("held", [(100, 0), (99, 1), (1, 99), (0, 100)])
def test_the_form_of_a_label_does_not_tell_who_wrote_it_as_a_text(labels, held):
    items = np.repeat([0, 1], held)
    histograms = Histograms(np.arange(101), items, np.ones(100, dtype=np.int64), domain_size=2)
    cohort = Cohort(histograms, labels=labels)
    assert run(fixed(cohort, 1.0), cohort).labels == ["7"]
