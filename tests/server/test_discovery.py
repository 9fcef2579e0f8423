"""Discovery of an open domain's items: which are weighed, which are found, and what follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist import Ledger, Plan, Release, SeededSource, run_rounds
from tests.asking import first_request, release_at, select_request
from tests.builders import Cohort
from tests.support.api import (
    MEASUREMENTS,
    InvalidPlan,
    Settled,
    answer,
    histograms_of,
    terms_module,
    user_weights,
)
from tests.support.refusals import refused

HARDLY_ANY_NOISE = {"epsilon": 1e6, "epsilon_select": 1e6}


def plan_of(users: int, **settings: Any) -> Plan:
    return Plan(users=users, domain="open", **settings)


def released(cohort: Cohort, **settings: Any) -> Release:
    plan = plan_of(cohort.histograms.users, **settings)
    return run_rounds(plan, cohort, ledger=Ledger(), source=SeededSource(1))


def values_of(release: Release) -> dict[str, float]:
    assert release.labels is not None
    assert len(release.labels) == len(set(map(str, release.labels))) == len(release.histogram)
    return {str(name): value for name, value in zip(release.labels, release.histogram.tolist(), strict=True)}


def weights(
    rows: Any, *, labels: Any = None, seed: int = 1, first_user: int = 0, **settings: Any
) -> dict[str, int]:
    """Sums of weights by name, in steps."""
    users = histograms_of(rows, first_user=first_user)
    sent = answer(first_request(plan_of(100, **settings)), users, source=SeededSource(seed), labels=labels)
    assert sent.keyed is not None
    names = range(users.domain_size) if labels is None else labels
    pairs = zip(sent.keyed.keys.tolist(), sent.keyed.values[:, 0].tolist(), strict=True)
    return {str(names[key]): value for key, value in pairs}


class TestWhatIsFound:
    def test_items_of_weights_above_the_bar_and_no_others(self) -> None:
        """Noise hides nothing here. One user's own item is never above, however many counts it has."""
        rows = [[1, 0, 0, 0], [0, 5, 0, 0], [0, 7, 0, 0], [0, 0, 0, 10**6]] + [[0, 0, 2, 0]] * 30
        found = values_of(
            released(Cohort(histograms_of(rows), labels=["a", "b", "c", "d"]), **HARDLY_ANY_NOISE)
        )
        assert found == {"b": pytest.approx(12, rel=0.01), "c": pytest.approx(60, rel=0.01)}

    def test_nothing_found_is_an_empty_release_that_is_charged(self) -> None:
        ledger, rows = Ledger(), [[1, 0], [0, 2]]
        release = run_rounds(plan_of(2), Cohort(histograms_of(rows)), ledger=ledger, source=SeededSource(1))
        assert values_of(release) == {}
        assert release.seeded
        assert [(c.round, c.epsilon, c.delta) for c in ledger.entries] == [("discover", 1.0, 1e-6)]
        assert release.charges == ledger.entries

    def test_what_was_found_is_named_by_texts_in_the_order_of_their_bytes(self) -> None:
        rows = [[1, 1, 1]] * 20
        release = released(Cohort(histograms_of(rows), labels=["é", 10, "9"]), **HARDLY_ANY_NOISE)
        assert release.labels == ["10", "9", "é"]


class TestKnownItems:
    KNOWN = "b\nnobody's"

    def test_they_are_released_first_whatever_users_hold_and_never_twice(self) -> None:
        rows = [[3, 1, 0]] * 30 + [[0, 0, 1]]
        cohort = Cohort(histograms_of(rows), labels=["a", "b", "c"])
        release = released(cohort, known_items=self.KNOWN, **HARDLY_ANY_NOISE)
        assert list(release.labels or ()) == ["b", "nobody's", "a"]
        assert values_of(release) == {
            "b": pytest.approx(30, rel=0.01), "nobody's": pytest.approx(0, abs=0.5), "a": pytest.approx(90, rel=0.01),
        }  # fmt: skip

    def test_they_are_released_where_nothing_is_found(self) -> None:
        cohort = Cohort(histograms_of([[1, 0], [0, 2]]), labels=["a", "b"])
        assert list(values_of(released(cohort, known_items=self.KNOWN))) == ["b", "nobody's"]

    def test_they_are_not_weighed_and_take_no_weight_from_others(self) -> None:
        labels = ["a", "b", "c"]
        with_known = weights([[1, 1, 0], [0, 1, 1]], labels=labels, known_items=self.KNOWN)
        assert with_known == weights([[1, 0, 0], [0, 0, 1]], labels=labels)
        assert weights([[0, 1]], labels=["a", "b"], known_items="b") == {}
        assert weights([[1, 1, 1]], known_items="1") == weights([[1, 0, 1]])

    def test_one_that_a_device_sent_all_the_same_is_listed_once(self) -> None:
        class Careless(Cohort):
            def total(self, request: Any) -> Any:
                return (
                    super().total(first_request(plan_of(30)))
                    if request.asks == "key-weights"
                    else super().total(request)
                )

        cohort = Careless(histograms_of([[1, 1]] * 30), labels=["a", "b"])
        assert released(cohort, known_items="b", **HARDLY_ANY_NOISE).labels == ["b", "a"]

    @pytest.mark.parametrize(
        ("known", "code"),
        [
            *((known, "bad-known-items") for known in ("a\na", "", "a\n\nb")),
            ("é" * 513, "known-item-too-long"),
        ],
    )
    def test_a_list_with_one_twice_without_a_name_or_with_too_long_a_name_is_refused(
        self, known: str, code: str
    ) -> None:
        with refused(InvalidPlan, code):
            plan_of(10, known_items=known)

    def test_they_are_refused_where_nothing_is_discovered(self) -> None:
        for settings in ({"items": 3}, {"domain": "open", "release": "truncated-laplace"}):
            with refused(InvalidPlan, "unused-known-items"):
                Plan(users=10, known_items="a", **settings)


class TestWeights:
    def test_a_user_s_are_equal_and_of_norm_one_whatever_the_counts(self) -> None:
        bits = plan_of(100).discovery.bits
        assert weights([[9, 1, 0, 10**6]]) == dict.fromkeys(["0", "1", "3"], int(2**bits / 3**0.5))
        assert weights([[0, 0]]) == {}
        table = user_weights(500, bits)
        assert (np.arange(501) * table**2 <= 4**bits).all()
        assert (np.arange(1, 501) * (table[1:] + 1) ** 2 > 4**bits).all()

    def test_a_user_of_more_items_draws_exactly_as_many_as_count_and_uniformly(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows, kept = np.ones((4000, 5), dtype=np.int64), 2
        monkeypatch.setattr(terms_module, "USER_ITEMS", kept)
        one = int(user_weights(kept, plan_of(100).discovery.bits)[kept])
        sums = weights(rows)
        counts = np.array([sums[str(item)] for item in range(5)]) / one
        assert counts.sum() == 4000 * kept
        # 1600 of each are due, with a deviation of 31.
        assert np.abs(counts - 1600).max() < 4 * 31
        for user in range(20):
            assert sorted(weights(rows[:1], first_user=user).values()) == [one, one]

    def test_what_a_user_draws_does_not_depend_on_the_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(terms_module, "USER_ITEMS", 2)
        rows = np.random.default_rng(3).poisson(1.5, (12, 6))
        at_once = weights(rows)
        alone: dict[str, int] = {}
        for user, row in enumerate(rows):
            for name, weight in weights(row[np.newaxis], first_user=user).items():
                alone[name] = alone.get(name, 0) + weight
        assert alone == at_once
        assert weights(rows, seed=2) != at_once


class TestItemsThatAreWrittenAlike:
    """The number 5 and the text "5" are one item, or a user's weights would meet on one key: a larger norm."""

    LABELS = (5, "a", "5")

    def test_they_are_weighed_as_one(self) -> None:
        alike = weights([[1, 1, 1]], labels=self.LABELS)
        assert alike == weights([[1, 1]], labels=(5, "a"))
        assert sum(weight**2 for weight in alike.values()) <= 4 ** plan_of(100).discovery.bits

    def test_their_counts_are_added_up_before_they_are_clipped(self) -> None:
        plan = plan_of(100, mechanism="gaussian")
        settled = Settled(keys=("5", "a"), share=plan.discovery.shares[0])
        request = release_at(plan, plan.at_steps(1 << plan.grid_bits), settled=settled)
        source = SeededSource(1)
        alike = answer(request, histograms_of([[40, 30, 60]]), source=source, labels=self.LABELS)
        assert (
            alike.values.tolist()
            == answer(request, histograms_of([[100, 30]]), source=source, labels=("5", "a")).values.tolist()
        )
        assert np.linalg.norm(alike.values) <= 1 << plan.grid_bits

    def test_they_are_released_as_one(self) -> None:
        cohort = Cohort(histograms_of([[2, 0, 1]] * 30), labels=self.LABELS)
        assert values_of(released(cohort, **HARDLY_ANY_NOISE)) == {"5": pytest.approx(90, rel=0.01)}


class TestTheRoundsAfterIt:
    def test_devices_count_what_is_listed_alone(self) -> None:
        plan = plan_of(100, mechanism="laplace")
        settled = Settled(keys=("b", "x"), share=plan.discovery.shares[0])
        source = SeededSource(1)
        request = select_request(plan, settled)
        narrowed = answer(request, histograms_of([[9, 2], [5, 0]]), source=source, labels=("a", "b"))
        assert (
            narrowed.values.tolist()
            == answer(request, histograms_of([[2], [0]]), source=source, labels=("b",)).values.tolist()
        )

    def test_a_plan_that_discovers_admits_no_other_measurement_before_its_items_are_found(self) -> None:
        for changes in (
            {},
            {"mechanism": "laplace"},
            {"masking": "secagg", "participants": 9, "noise_from": "devices"},
        ):
            plan = plan_of(100, **changes)
            (fitting,) = [kind for kind in MEASUREMENTS.values() if kind.fits(plan)]
            assert fitting.round == "discover"
