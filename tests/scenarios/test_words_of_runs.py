"""What is said of a run, for every kind of plan, against the messages that were really sent."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.events import Charged, Event, RoundAsked, StateEntered, Viewed
from fedhist.protocol.masking.masked_vector import terms_of
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Round
from fedhist.protocol.wire.codec import decode
from fedhist.server.result_folder import write_results
from fedhist.server.words import round_words
from fedhist.simulations.engines import in_process, masked_in_process
from fedhist.simulations.report.diagram import SERVER, run_steps
from fedhist.simulations.report.narration import in_words
from fedhist.simulations.report.run_data import read_run
from fedhist.simulations.report.run_page import run_page
from fedhist.simulations.simulation import simulate
from fedhist.simulations.simulation_file import simulation_document, write_simulation
from fedhist.testing.cases import PLANS, histograms_of, labels_for, some_rows

KINDS = PLANS | {"fixed": Plan(users=60, items=3, selector="fixed", threshold=7.0)}
kinds = pytest.mark.parametrize("kind", KINDS)


@dataclass
class Run:
    """A run that was watched: its events, the numbers of values that were sent, and its page."""

    plan: Plan
    events: list[Event] = field(default_factory=list)
    sent: dict[Round, int] = field(default_factory=dict)

    def simulate(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        encode, terms = in_process.encode, masked_in_process.joint_terms

        def encoded(contribution, request, labels):
            data = encode(contribution, request, labels)
            if request.plan == self.plan:
                self.sent[request.round] = len(decode(data, request)[0].values)
            return data

        def masked(envelopes):
            # One value of the masked vector is the number of users.
            (envelope,) = envelopes
            self.sent[envelope.request.round] = terms_of(envelope).length - 1
            return terms(envelopes)

        monkeypatch.setattr(in_process, "encode", encoded)
        monkeypatch.setattr(masked_in_process, "joint_terms", masked)
        rows = some_rows(self.plan, seed=3, users=self.plan.users)
        labels = None if self.plan.items else labels_for(self.plan)
        population = SparsePopulation(histograms_of(rows), labels=labels)
        self.result = simulate(population, self.plan, seed=2, observe=self.events.append)
        write_results(folder, self.result.to_json(), self.result.release, labels)
        write_simulation(folder, simulation_document(population, self.result.release, self.events, labels))
        self.data = read_run(folder)
        self.steps = list(run_steps(self.data))
        self.page = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", run_page(self.data))).split())

    def place(self, kind: type[Event], round_: Round) -> int:
        """Where in the run the first event of this kind and round is."""
        named = [
            getattr(event, "charge", {"round": getattr(event, "round", "")})["round"] for event in self.events
        ]
        return next(
            i for i, event in enumerate(self.events) if isinstance(event, kind) and named[i] == round_
        )


@pytest.fixture
def run(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    watched = Run(KINDS[kind])
    watched.simulate(monkeypatch, tmp_path)
    return watched


@kinds
def test_the_numbers_in_the_words_are_those_of_the_messages(run: Run) -> None:
    words = round_words(run.plan)
    assert set(words) == set(run.sent)
    for round_, said in words.items():
        numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", said.sends)]
        assert numbers == ([run.sent[round_]] if numbers else [])
        (answer,) = [step for step in run.steps if step.round == round_ and said.sends in step.title]
        assert answer.title.startswith("masked: ") == run.plan.is_masked
        assert any(step.detail == said.detail for step in run.steps)
        assert said.detail in run.page
        # Only items with names, and tables whose length follows from the threshold, are told without a number.
        assert numbers or run.plan.items is None


@kinds
def test_a_round_is_said_to_be_charged_when_it_was(run: Run) -> None:
    paid = {charge.round for charge in run.result.release.charges}
    # A discovery is charged for the release, too.
    assert paid == {*run.sent} - (
        {Round.RELEASE} if run.plan.discovers and not run.plan.noise_by_devices else set()
    )
    for round_ in run.sent:
        if round_ not in paid:
            assert not any("ledger is charged" in step.detail for step in run.steps if step.round == round_)
            continue
        first = run.place(Charged, round_) < run.place(RoundAsked, round_)
        steps = [step for step in run.steps if step.round == round_]
        charged = next(i for i, step in enumerate(steps) if "ledger is charged" in step.detail)
        asked = next(i for i, step in enumerate(steps) if step.start == SERVER != step.end)
        assert (charged < asked) == first
        assert sum("ledger is charged" in step.detail for step in steps) == 1


@kinds
def test_what_a_user_contributes_is_said_as_it_is_clipped(run: Run) -> None:
    items = run.result.release.item_release
    assert ("Each item has a C of its own" in run.page) == (items is not None)
    states = [in_words(event, run.plan) for event in run.events if isinstance(event, StateEntered)]
    assert any("largest threshold" in words for words in states) == (
        items is not None and len(items.thresholds) > 1
    )
    assert any("drawn at random" in words for words in states) == (
        run.plan.items is None and not run.plan.discovers
    )


@kinds
def test_masked_values_are_not_said_to_be_sent_as_they_were(run: Run) -> None:
    views = [event for event in run.events if isinstance(event, Viewed)]
    assert {view.round for view in views} == {round_.value for round_ in run.sent}
    assert all(view.masked == run.plan.is_masked for view in views)
    assert all((view.had == view.seen) != run.plan.is_masked for view in views)
    assert ("the device sends" in run.page) != run.plan.is_masked
    assert ("before noise and masks" in run.page) == run.plan.is_masked


@kinds
def test_the_choice_is_compared_with_the_best_by_its_numbers(run: Run) -> None:
    curve = run.data.simulation["curve"]
    assert "lands near" not in run.page
    if curve is None:
        return
    said = re.search(r"The one of this run (is the best|loses (\d+)% more)", run.page)
    nearest = min(
        range(len(curve["thresholds"])), key=lambda i: abs(curve["thresholds"][i] / run.data.threshold - 1)
    )
    more = curve["loss"][nearest] / min(curve["loss"]) - 1
    assert said and (said[2] is None) == (more < 0.005)
    assert said[2] is None or int(said[2]) == pytest.approx(100 * more, abs=1.5)
