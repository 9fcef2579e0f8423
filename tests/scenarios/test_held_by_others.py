"""Whether a run ends well must not tell of one user's items, whatever the other participants hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhist import (
    Ledger,
    Plan,
    RoundFailed,
    SeededSource,
    SparsePopulation,
    run_rounds,
    simulate,
)
from fedhist.server import run_on_grid
from tests.builders import population_of
from tests.support.api import (
    TABLE_TRUST,
    Round,
    TableTooSmall,
    Total,
    encode_table,
    engine_named,
    table_room,
    to_total,
)


def plan_of(users: int, **settings: Any) -> Plan:
    defaults: dict[str, Any] = {
        "domain": "open", "masking": "secagg", "participants": 9, "selector": "fixed", "threshold": 2,
        "max_threshold": 2, "mechanism": "gaussian", "epsilon": 20.0, "epsilon_select": 2.0, "max_items": 50,
    }  # fmt: skip
    return Plan(users=users, **defaults | settings)


def held_once_each(items: int) -> SparsePopulation:
    """As many users as items, each with an item of their own."""
    return population_of(np.eye(items, dtype=np.int64))


class TestTablesThatAreTooFull:
    def failed(self, plan: Plan, population: SparsePopulation) -> tuple[RoundFailed, Ledger, Any]:
        ledger = Ledger()
        with (
            engine_named("in-process")(population, seed=3) as transport,
            pytest.raises(RoundFailed) as caught,
        ):
            run_rounds(plan, transport, ledger=ledger, source=SeededSource(3))
        return caught.value, ledger, transport

    def test_a_table_that_is_too_full_is_charged_and_says_nothing_of_the_data(self) -> None:
        """One decodes and has too many items by the test, one does not decode: nobody can tell which is which."""
        plan = plan_of(5_000, max_items=30)
        table = np.zeros((5_000, 5_000), dtype=np.int64)
        room = table_room(plan)
        table[np.arange(room + 50), np.arange(room + 50)] = 1
        some = population_of(table)
        outcomes = [self.failed(plan, population) for population in (some, held_once_each(5_000))]
        assert [outcome[2].totals[Round.DISCOVER].unread for outcome in outcomes] == [False, True]
        (one, ledger, there), (other, others, elsewhere) = outcomes
        assert type(one) is type(other) is TableTooSmall
        assert str(one) == str(other)
        assert [word for word in str(one).split() if any(map(str.isdigit, word))] == ["30"]
        assert "charged" in str(one) and "Raise --max-items" in str(one)
        assert ledger.entries == others.entries
        assert [charge.name for charge in ledger.entries] == [
            "discrete-gaussian-above-bar",
            "table-fit",
            "table-decoding",
        ]
        reports = [transport.reports[Round.DISCOVER] for transport in (there, elsewhere)]
        assert reports[0].users == reports[1].users == 5_000
        assert reports[0].answered == reports[1].answered == 9
        assert reports[0].size == reports[1].size

    def test_between_capacity_and_room_chance_decides(self) -> None:
        """Half-way the test passes about every other time; a table of this size decodes in any case."""
        plan = plan_of(2_000, epsilon_select=1.0)
        middle = (plan.max_items + table_room(plan)) // 2
        table = np.zeros((2_000, middle), dtype=np.int64)
        table[np.arange(middle), np.arange(middle)] = 1
        population, passed = population_of(table), 0
        for seed in range(40):
            try:
                simulate(population, plan, seed=seed, evaluate=False)
                passed += 1
            except TableTooSmall:
                pass
        assert 6 <= passed <= 34

    def test_the_notes_say_what_a_table_does_not_withstand(self) -> None:
        assert TABLE_TRUST in simulate(held_once_each(50), plan_of(50), seed=1, evaluate=False).notes


class TestTextAndNumber:
    LABELS = ("b", "7", 7)

    def population(self) -> SparsePopulation:
        table = np.tile(np.array([[1, 1, 2]]), (300, 1))
        return population_of(table, labels=self.LABELS)

    def plans(self) -> tuple[Plan, Plan, Plan]:
        """Of a discovery under masks and without, and of a release above a bar."""
        masked = plan_of(300, threshold=4, max_threshold=4)
        plain = replace(masked, masking="none", participants=None, dropout_share=None)
        return masked, plain, replace(plain, release="truncated-laplace", mechanism="laplace")

    def test_text_and_number_of_the_same_name_are_one_row_under_masks(self) -> None:
        """As without: the counts are added up, and the noise is the same."""
        masked, plain, above = (
            simulate(self.population(), plan, seed=2, evaluate=True).release for plan in self.plans()
        )
        for release in (masked, plain, above):
            assert list(release.labels or ()) == ["7", "b"]
            assert release.histogram[0] == pytest.approx(900, abs=10)
        assert masked.histogram.tolist() == plain.histogram.tolist()

    @pytest.mark.parametrize("which", range(3))
    def test_nor_does_the_form_tell_which_of_two_users_wrote_a_number(self, lab: Any, which: int) -> None:
        """On a grid that knows no names beforehand, with the text on some nodes and the number on others."""
        plan, texts = self.plans()[which], [("7",), (7,)]
        for first, second in (texts, texts[::-1]):
            grid = lab.grid(lab.population(300, 1), 9, seed=5)
            for place, node in enumerate(grid.nodes.values()):
                part = population_of(
                    np.full((300 // 9 + (place < 300 % 9), 1), 2),
                    labels=first if place == 0 else second,
                )
                node.app = lab.app(part, seed=5)
            release = run_on_grid(grid, plan, source=SeededSource(5))
            assert [type(label) for label in release.labels or ()] == [str]
            assert release.histogram[0] == pytest.approx(600, abs=10)


@pytest.mark.parametrize("claimed", [2**63 - 1, -(2**63)])
def test_noise_is_added_before_a_sum_is_read_as_a_number(claimed: int) -> None:
    """A participant lies about a weight such that the others' decides whether the sum wraps around: noise hides it."""
    plan = plan_of(90)
    held = 60 << plan.discovery.bits

    class Lied:
        simulated = True

        def total(self, request: Any) -> Total:
            if request.round is not Round.DISCOVER:
                empty = np.zeros(request.measurement.masked_length, dtype=np.int64)
                return to_total(np.concatenate([[90], empty]), request, participants=9)
            shape = request.measurement.table
            lie, truth = (encode_table([name], [held], shape, salt=request.given.salt) for name in "ab")
            rows = lie.reshape(-1, shape.columns)
            rows[rows[:, 0] == 1, 1] = claimed
            total = to_total(np.concatenate([[90], lie + truth]), request, participants=9)
            assert not total.unread and total.keyed is not None
            assert total.keyed.values[:, 0].tolist() == [claimed, held]
            return total

    releases = [run_rounds(plan, Lied(), ledger=Ledger(), source=SeededSource(seed)) for seed in range(60)]
    shown = [list(release.labels or ()) for release in releases]
    assert all("b" in labels for labels in shown)
    assert 0 < sum("a" in labels for labels in shown) < 60
