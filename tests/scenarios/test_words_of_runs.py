"""What is said of a run, for every kind of plan, against the messages that were really sent."""

from __future__ import annotations

import html
import math
import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from fedhist import Plan, SparsePopulation, simulate
from fedhist.testing import PLANS
from tests.support.api import (
    BarChart,
    Charged,
    Event,
    LineChart,
    Round,
    RoundAsked,
    RunData,
    Viewed,
    decode,
    headline,
    histograms_of,
    labels_for,
    length_tells,
    lines_of,
    number,
    read_run,
    round_words,
    run_charts,
    run_page,
    simulation_document,
    some_rows,
    timeline,
    write_results,
    write_simulation,
)
from tests.support.api import in_process_module as in_process
from tests.support.api import masked_module as masked_in_process

_SMALL: dict[str, Any] = {"users": 60, "max_threshold": 20.0, "candidates": 6}
KINDS = PLANS | {
    "fixed": Plan(users=60, items=3, selector="fixed", threshold=7.0),
    "one item, one user": Plan(users=1, items=1, max_threshold=20.0, candidates=6),
    "not private": Plan(**_SMALL, items=3, selector="oracle"),
    "other noise for the choice": Plan(**_SMALL, items=3, selector="dpsgd"),
    "a large epsilon": Plan(**_SMALL, items=3, epsilon=40.0),
    "nothing found": Plan(**_SMALL, domain="open", epsilon=0.05),
    "nothing above the bar": Plan(**_SMALL, domain="open", release="truncated-laplace", epsilon=0.05),
}
kinds = pytest.mark.parametrize("kind", KINDS)
ONE_OF_SEVERAL = re.compile(
    r"(?<![\d.,])1 (items|users|participants|values|counts|nodes|trials|(noisy )?whole numbers)\b"
)


@dataclass
class Run:
    """A run that was watched: its events, the numbers of values that were sent, and its page."""

    plan: Plan
    events: list[Event] = field(default_factory=list)
    sent: dict[Round, int] = field(default_factory=dict)

    def simulate(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        encode, terms = in_process.encode, masked_in_process.terms_of

        def encoded(contribution, request, labels):
            data = encode(contribution, request, labels)
            if request.plan == self.plan:
                self.sent[request.round] = len(decode(data, request)[0].values)
            return data

        def masked(envelope):
            found = terms(envelope)
            # One value of the masked vector is the number of users.
            self.sent[envelope.request.round] = found.length - 1
            return found

        monkeypatch.setattr(in_process, "encode", encoded)
        monkeypatch.setattr(masked_in_process, "terms_of", masked)
        rows = some_rows(self.plan, seed=3, users=max(self.plan.users, 2))[-self.plan.users :]
        labels = None if self.plan.items else labels_for(self.plan)
        population = SparsePopulation(histograms_of(rows), labels=labels)
        self.result = simulate(population, self.plan, seed=2, evaluate=True, observe=self.events.append)
        self.private = all(charge.private for charge in self.result.release.charges)
        write_results(folder, self.result.to_json(), self.result.release, labels)
        write_simulation(folder, simulation_document(population, self.result.release, self.events, labels))
        self.data = read_run(folder)
        self.told = [words for _, words in timeline(lines_of(self.data), self.plan)]
        self.page = words_of(self.data)

    def place(self, kind: type[Event], round_: Round) -> int:
        """Where in the run the first event of this kind and round is."""
        named = [
            getattr(event, "charge", {"round": getattr(event, "round", "")})["round"] for event in self.events
        ]
        return next(
            i for i, event in enumerate(self.events) if isinstance(event, kind) and named[i] == round_
        )


def words_of(data: RunData, *, without: str = "") -> str:
    """What a reader of the page sees, without the elements of these names."""
    body = run_page(data).split("<main>")[1].split("</main>")[0]
    body = re.sub(rf"<({without}).*?</\1>", " ", body, flags=re.DOTALL) if without else body
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


@cache
def watched(kind: str) -> Run:
    """A run of this kind, for all tests."""
    run = Run(KINDS[kind])
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        run.simulate(patch, Path(folder))
    return run


@pytest.fixture
def run(kind: str) -> Run:
    return watched(kind)


@kinds
def test_the_numbers_in_the_words_are_those_of_the_messages(run: Run) -> None:
    words = round_words(run.plan)
    if run.data.found_nothing:
        words = {Round.DISCOVER: words[Round.DISCOVER]}
    assert set(words) == set(run.sent)
    for round_, said in words.items():
        numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", said.sends)]
        assert numbers == ([run.sent[round_]] if numbers else [])
        (question,) = (told for told in run.told if f"Round {round_.value}: the server asks for" in told)
        masked = ", masked" if run.plan.is_masked else ""
        assert question.endswith(f"{said.detail} An answer holds {said.sends}{masked}.")
        assert question in run.page
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
        charged = [
            i for i, told in enumerate(run.told) if told.startswith(f"Charged for round {round_.value}:")
        ]
        assert bool(charged) == (round_ in paid)
        if round_ in paid:
            asks = (told.startswith("The server asks") and round_.value in told for told in run.told)
            first = run.place(Charged, round_) < run.place(RoundAsked, round_)
            assert (charged[-1] < [*asks].index(True)) == first


@kinds
def test_masked_values_are_not_said_to_be_sent_as_they_were(run: Run) -> None:
    views = [event for event in run.events if isinstance(event, Viewed)]
    assert {view.round for view in views} == {round_.value for round_ in run.sent}
    assert all(view.masked == run.plan.is_masked for view in views)
    assert all((view.had == view.seen) != run.plan.is_masked for view in views)
    assert ("the device sends" in run.page) != run.plan.is_masked
    assert ("before noise and masks" in run.page) == run.plan.is_masked


@kinds
def test_the_sentence_to_forward_has_the_numbers_of_the_release(run: Run) -> None:
    release, said = run.result.release, " ".join(headline(run.data).split())
    assert said in run.page
    assert said.startswith("Simulation: ")
    cost = run.result.tight
    private = run.private and math.isfinite(cost.epsilon)
    assert ("not private" in said) != private
    assert (f"epsilon {number(cost.epsilon)}" in said) == private
    assert (f", delta {cost.delta:.3g}" in said) == (private and cost.delta > 0)
    people = "1 user" if run.plan.users == 1 else f"{run.plan.users} users"
    assert people in said
    items = len(release.histogram)
    assert (f"{items} item{'' if items == 1 else 's'} counted" in said) == (items > 0)
    assert ("nothing was released" in said) == release.found_nothing
    assert ("only the threshold was released" in said) == (items == 0 and not release.found_nothing)


@kinds
def test_users_that_are_said_to_be_clipped_are(run: Run) -> None:
    chart = run_charts(run.data).get("users")
    assert isinstance(chart, LineChart)
    marked = "those right of the threshold are clipped" in chart.title
    assert marked == (not run.data.found_nothing and run.plan.thresholds == 1) == bool(chart.rules)
    if not marked:
        return
    clipped = round(run.data.document["clipped_users"] * run.plan.users)
    bins = list(zip(chart.lines[0].xs, chart.lines[0].xs[1:], chart.lines[0].ys, strict=False))
    # The first bin has the users of norm one, too, whom a threshold of one leaves as they are.
    surely = sum(users for low, _, users in bins if low >= run.data.threshold and low > bins[0][0])
    perhaps = sum(users for low, high, users in bins if low <= run.data.threshold < high)
    assert surely <= clipped <= surely + perhaps


@kinds
def test_the_cost_is_said_for_the_neighbours_and_the_trust_of_the_plan(run: Run) -> None:
    plan, document = run.plan, run.data.document
    private = run.private and document["tight"]["epsilon"] is not None
    assert ("What follows holds without that." in run.page) == private
    useful = private and document["tight"]["epsilon"] <= 12
    assert ("With or without any one user's data" in run.page) == (useful and plan.neighbours == "zero-out")
    assert ("Whatever data any one user had" in run.page) == (useful and plan.neighbours == "replace-one")
    assert ("An epsilon this large" in run.page) == (private and not useful)
    assert ("The server is trusted" in run.page) == (private and not plan.is_masked)
    noisy = plan.noise_by_devices
    assert ("the server saw sums only" in run.page) == (private and plan.is_masked and not noisy)
    assert ("the server saw noisy sums only" in run.page) == (private and noisy)
    if noisy:
        # Answers that are results already are charged before they are asked for.
        assert all(run.place(Charged, round_) < run.place(RoundAsked, round_) for round_ in run.sent)
    assert ("read the exact statistic" in run.page.lower()) == (plan.selector == "oracle")
    if private:
        assert document["tight"]["epsilon"] <= document["total"]["epsilon"] * (1 + 1e-9)
        *parts, total, tight = run_charts(run.data)["budget"].bars
        assert sum(part.value for part in parts) == pytest.approx(document["total"]["epsilon"])
        assert (total.value, tight.value) == pytest.approx(
            (document["total"]["epsilon"], document["tight"]["epsilon"])
        )
    elif "budget" in run_charts(run.data):
        assert not any("total" in bar.label for bar in run_charts(run.data)["budget"].bars)


@kinds
def test_chances_are_those_of_the_draw(run: Run) -> None:
    seen = run.data.exact["scores"]
    told = re.search(r"ine of ten draws lie between ([\d.,]+) and ([\d.,]+);", run.page)
    drawn = told is not None
    assert drawn == (seen is not None and seen["chances"] is not None)
    charged = [charge.name for charge in run.result.release.charges if charge.round == "select"]
    assert drawn == (charged == ["exponential-mechanism"] and run.plan.thresholds == 1)
    if not drawn:
        return
    chances, base = np.array(seen["chances"]), np.array(seen["base"])
    low, high = (float(end.replace(",", "")) for end in told.groups())
    xs = np.array(seen["candidates"])
    between = (xs >= low * (1 - 1e-3)) & (xs <= high * (1 + 1e-3))
    assert chances[between].sum() >= 0.899 * chances.sum()
    both = run.plan.chooses_mechanism
    assert chances.sum() == pytest.approx(1) or (both and 0 < chances.sum() < 1)
    assert both == ("The run chose" in run.page) or chances.sum() > 0.999
    # What the score adds to the base measure's logarithm is in proportion to the score.
    added = np.log(chances) - np.log(base)
    scores = np.array(seen["scores"])
    if np.ptp(scores) == 0:
        return
    slope = np.polyfit(scores - scores.max(), added, 1)[0]
    assert slope > 0
    assert np.allclose(
        added - added.max(), (scores - scores[added.argmax()]) * slope, atol=1e-6 + 1e-6 * np.ptp(added)
    )


@kinds
def test_every_released_value_has_its_limit_and_true_count_and_one_is_no_plural(run: Run) -> None:
    charts = run_charts(run.data)
    shown = charts.get("released")
    assert (shown is None) == (len(run.data.values) == 0)
    if isinstance(shown, BarChart):
        assert all(bar.low is None is bar.high and bar.mark is not None for bar in shown.bars)
        largest = int(run.data.estimates.argmax())
        estimate, least = run.data.estimates[largest], run.data.at_least[largest]
        assert f"is {number(estimate)}, and the count at least {number(least)} (95 %)" in run.page
        assert f"” is {run.data.true[largest]:,}. not private" in run.page
        assert "item estimate at least value" in run.page and "true count (not private)" in run.page
    told = words_of(run.data, without="svg|table")
    found = ONE_OF_SEVERAL.search(told)
    assert found is None, told[found.start() - 60 : found.end() + 40]
    assert not re.search(r"\b(nan|None|inf)\b", run.page)


@pytest.mark.parametrize("kind", ["gaussian", "masked discovered", "open", "debiased"])
def test_without_the_truth_no_sentence_is_about_it(kind: str) -> None:
    run = watched(kind).data
    hidden = (
        "relative_loss",
        "estimate_loss",
        "clipping_error",
        "noise_error",
        "clipped_users",
        "clipped_mass",
    )
    shared = {name: value for name, value in run.document.items() if name not in hidden}
    shared["seconds"] = dict.fromkeys(shared["seconds"])
    shared["bytes_per_user"] = {
        name: None if length_tells(run.plan, name) else size
        for name, size in shared["bytes_per_user"].items()
    }
    shared["rounds"] = {
        name: report | {"seconds": None, "bytes": shared["bytes_per_user"][name], "stages": {}}
        for name, report in shared["rounds"].items()
    }
    words = words_of(replace(run, document=shared, exact={}))
    assert "not private, simulation only" not in words
    for about in ("Relative loss", "true count", "draws lie", "those right of", "of the users"):
        assert about not in words


def test_a_list_that_was_read_off_the_data_is_called_so() -> None:
    run = watched("gaussian").data
    note = "not private: the items were inferred from the data"
    told = {"private": False, "not_private": ["items"], "notes": [note]}
    words = words_of(replace(run, document=run.document | told))
    assert "of a list that was inferred from the data" in words
    assert "The items were inferred from the data." in words
    assert "With or without" not in words
    assert words.count("do not publish") == 1


def test_what_is_not_private_is_said_once() -> None:
    """On the card of the cost; a note below it is about something else, or about a run that is not private at all."""
    run = watched("gaussian").data
    seeded, seeds = (
        "seeded run, not private: anyone who knows the seed can subtract the noise",
        "subtract the noise",
    )
    assert words_of(replace(run, document=run.document | {"notes": [seeded]})).count(seeds) == 1
    exact = "not private: the oracle read the exact statistic"
    words = words_of(replace(run, document=run.document | {"notes": [seeded, exact]}))
    assert words.count(seeds) == 1 and words.count("the oracle read the exact statistic") == 0
    assert words.count("The oracle read the exact statistic") == 1
