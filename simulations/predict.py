"""What to expect of a run, before any budget is spent: the run's own steps on public users, and its expected errors.

A prediction takes the steps of a run: it adds up what users send, finds items and scores thresholds, with the project's
own methods and whatever selectors are registered. What is random in a step is computed where its law is known, and
drawn for SEEDS seeds where it is not:

- the probabilities of the thresholds, for selectors that draw by score (`WeightedChoice.probabilities`);
- the errors of a release at each threshold (`clipped_sums`), from one pass for the clipping at all candidates;
- drawn: what a discovery finds, and the thresholds of other selectors; whole runs, of releases whose errors are not
  known: debiased counts, and rules from outside.

The population may stand for more users: all sums are scaled. Thresholds whose probabilities sum to 10^-6 are left out.

NOT private: a prediction is a function of the exact data it is given. Give it public data.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from fedhist.client.device import answer_population
from fedhist.client.populations import item_totals
from fedhist.protocol.errors import InvalidInput, InvalidPopulation
from fedhist.protocol.histograms import Floats, Histograms, Integers, Population, labels_of, names_of
from fedhist.protocol.items import Renumbering, numbers_in
from fedhist.protocol.keyed import Keyed
from fedhist.protocol.measurements.tails import norm_pairs
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.terms import UNMASKED
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.protocol.privacy.ledger import Charge, Cost
from fedhist.protocol.privacy.randomness import SeededSource, Source
from fedhist.protocol.rounds import Request, Total
from fedhist.server.advice import plan_warnings
from fedhist.server.declared import is_private
from fedhist.server.discovery import Discover, found_items
from fedhist.server.selection import selector_for
from fedhist.server.selection.contract import ScoringSelector
from fedhist.server.steps import planned_charges, select_request
from fedhist.server.totals import plan_for_total
from fedhist.simulations.clipped_sums import MAX_CELLS, Binning, ClippedSums, is_predicted, release_errors
from fedhist.simulations.evaluate import Diagnostics
from fedhist.simulations.simulation import simulate

SEEDS = 5
"""Draws of what has no known law."""

USELESS = 0.9
"""An error that is near that of an empty histogram, which is 1."""

CURVE_SHARES = np.geomspace(0.01, 0.5, 10)
"""Shares of round 1 that are tried for each total of a curve."""

SPLIT_SHARES = np.geomspace(0.005, 0.8, 25)
"""Shares of round 1 that are tried to split one total."""

FLATNESS = 0.05
"""A split whose error is at most this share above the best is as good in practice."""

PUBLIC_ONLY = (
    "a prediction is computed from the exact data that it is given and is not private: that data must be public, or a "
    "past release. Nothing was charged"
)

_UNLIKELY = 1e-6
_PLENTY = 1e6  # An epsilon at which a histogram has next to no noise.
_SEARCH_RATIO = 1.005  # The search for an epsilon ends here; the answer has three digits.


@dataclass(frozen=True)
class Prediction:
    """What to expect of a run of this plan on this population. Errors are l1 norms over the true total.

    Args:
        plan: what would be run.
        relative_loss: expected, of the release.
        clipping_error: expected, of the clipped sum before noise, with all items that are not found.
        noise_error: expected, of the noise alone; above a bar, with the keys that it withholds.
        threshold: the mean of the thresholds that may be chosen, in counts.
        threshold_low, threshold_high: nine choices out of ten lie between them, one in twenty below and one above.
        clipped_users: expected share of users above the threshold.
        released_items: expected number of released items.
        recall: over an open domain, the expected share of all keys in the data that are released.
        draws: of what has no known law; None when all was computed.
        sampling_error: standard error of `relative_loss` from these draws; 0 when nothing was drawn.
    """

    plan: Plan
    relative_loss: float
    clipping_error: float
    noise_error: float
    threshold: float
    threshold_low: float
    threshold_high: float
    clipped_users: float
    released_items: float
    recall: float | None
    draws: int | None
    sampling_error: float

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What a run would charge."""
        return planned_charges(self.plan)

    @property
    def total(self) -> Cost:
        """By basic composition."""
        return basic_total(self.charges)

    @property
    def tight(self) -> Cost:
        """By tight composition."""
        return tight_total(self.charges)

    @property
    def chooses(self) -> bool:
        """Whether choosing the threshold costs something."""
        return any(charge.round == "select" for charge in self.charges)


@dataclass
class Predictor:
    """Predicts runs of any plan over one public population, and keeps the sums that other plans share.

    Args:
        population: public users.
        users: the number of users that they stand for; None for themselves.
        seed: of what is drawn.
    """

    population: Population
    users: int | None = None
    seed: int = 0
    _sums: dict[tuple[object, ...], Total] = field(default_factory=dict, repr=False)
    _tables: dict[tuple[object, ...], ClippedSums] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._scale = (self.users or self.population.users) / self.population.users
        self._truth = item_totals(self.population)
        if not self._truth.any():
            raise InvalidPopulation(
                "no user has any item",
                allowed="a population with at least one count",
                advice="check the data",
                code="no-items",
            )

    def predict(self, plan: Plan) -> Prediction:
        """What to expect of a run; raises what the run would raise for its plan."""
        self._check(plan)
        after = plan.releasing
        selector = selector_for(after)
        scored = isinstance(selector, ScoringSelector) or not is_private(selector, after)
        known = is_predicted(after.one_way)
        drawn = not known or plan.discovers or not (scored or not selector.reads)
        seeds = range(self.seed, self.seed + (SEEDS if drawn else 1))
        runs = [self._run(plan, SeededSource(seed)) if known else self._whole(plan, seed) for seed in seeds]
        every = np.concatenate(runs, axis=1)
        chances, thresholds = every[0] / len(runs), every[1]
        _, threshold, loss, clipping, noise, clipped, shown = (every @ chances).tolist()
        order = np.argsort(thresholds, kind="stable")
        low, high = (
            float(thresholds[order][min(np.searchsorted(np.cumsum(chances[order]), share), len(order) - 1)])
            for share in (0.05, 0.95)
        )
        losses = [float(run[2] @ run[0]) for run in runs]
        return Prediction(
            plan=plan,
            relative_loss=loss,
            clipping_error=clipping,
            noise_error=noise,
            threshold=threshold,
            threshold_low=low,
            threshold_high=high,
            clipped_users=clipped,
            released_items=shown,
            recall=min(shown / int(np.count_nonzero(self._truth)), 1.0) if plan.is_open else None,
            draws=SEEDS if drawn else None,
            sampling_error=statistics.stdev(losses) / math.sqrt(SEEDS) if drawn else 0.0,
        )

    def _check(self, plan: Plan) -> None:
        users, items = round(self._scale * self.population.users), self.population.domain_size
        if plan.users != users or plan.items not in (None, items):
            raise InvalidInput(
                f"the plan is for {plan.users:,} users and {plan.items} items, and the population has {users:,} and "
                f"{items:,}",
                allowed="a plan for this population",
                code="other-size",
            )

    def _whole(self, plan: Plan, seed: int) -> Floats:
        """A whole run: of single items, or by a rule from outside, whose errors are not known beforehand."""
        if self._scale != 1:
            raise InvalidInput(
                f"whole runs predict this release, and {self.population.users:,} users stand for {plan.users:,}",
                allowed=f"up to {self.population.users:,} made-up users, or data",
                advice="lower --users",
                code="not-predicted",
            )
        result = simulate(self.population, plan, seed=seed, evaluate=True)
        found = cast(Diagnostics, result.diagnostics)
        shown = len(result.release.histogram)
        errors = (found.relative_loss, found.clipping_error, found.noise_error, found.clipped_users, shown)
        return np.array([1.0, result.threshold, *errors])[:, np.newaxis]

    def _run(self, plan: Plan, source: Source) -> Floats:
        """The ways that a run may take from here: a row each for probability, threshold, loss and so on."""
        if not plan.discovers:
            return self._chosen(plan, self.population, source)
        plan = Plan.from_json(plan.to_json() | UNMASKED)
        request = Discover().request(plan, None, source=source)
        found, share = found_items(
            plan, request.measurement.read(self._total(request, self.population)), source=source
        )
        keys = (*plan.known, *found)
        if not keys:
            return np.array([[1.0], [0], [1], [1], [0], [0], [0]])
        listed = Renumbering(numbers_in(keys, names_of(self.population)), len(keys))
        narrowed = _Listed(self.population.users, len(keys), [*map(listed.of, self.population.shards())])
        missed = self._scale * float(self._truth[listed.numbers < 0].sum())
        return self._chosen(plan.discovered(len(keys), share), narrowed, source, missed)

    def _chosen(self, plan: Plan, population: Population, source: Source, missed: float = 0.0) -> Floats:
        """The same for a plan that knows its items, or releases above a bar."""
        selector = selector_for(plan)
        statistic = None
        if selector.reads:
            request = select_request(plan)
            statistic = request.measurement.read(self._total(request, population))
        if not isinstance(selector, ScoringSelector):
            chosen = selector.select(plan, statistic, source=source)
            ways = [(plan.way(chosen.mechanism), np.array([chosen.threshold.steps]), np.ones(1))]
        elif plan.chooses_mechanism:
            pairs, chances = norm_pairs(plan), selector.choice(plan, statistic).probabilities()
            ways = [*zip(plan.ways.values(), (pairs.l2, pairs.l1), np.split(chances, 2), strict=True)]
        else:
            ways = [(plan, plan.candidate_steps, selector.choice(plan, statistic).probabilities())]
        return np.concatenate([self._errors(*way, population, missed) for way in ways], axis=1)

    def _total(self, request: Request, population: Population) -> Total:
        """What all users send, scaled; kept for other plans that share it."""
        if population is self.population and request.key in self._sums:
            return self._sums[request.key]
        sent = answer_population(request, population, source=SeededSource(self.seed))
        keyed = None if sent.keyed is None else Keyed(sent.keyed.keys, self._scaled(sent.keyed.values))
        total = Total(request.plan.users, self._scaled(sent.values), keyed, labels_of(population))
        # A key that holds the plan is its own.
        if population is self.population and request.plan not in request.key:
            self._sums[request.key] = total
        return total

    def _scaled(self, values: Integers) -> Integers:
        return values if self._scale == 1 else np.rint(values * self._scale).astype(np.int64)

    def _errors(
        self, plan: Plan, steps: Integers, chances: Floats, population: Population, missed: float
    ) -> Floats:
        """The rows of `_run` for these thresholds."""
        order = np.argsort(chances)
        places = np.sort(order[np.cumsum(chances[order]) > _UNLIKELY])
        if not len(places):
            return np.zeros((7, 0))
        if population.domain_size * len(steps) > MAX_CELLS:
            steps, chances, places = steps[places], chances[places], np.arange(len(places))
        table = self._table(plan, steps, population, missed)
        errors, kept = release_errors(plan, table, steps, places), chances[places]
        clipped = table.users_above[places] / plan.users
        parts = (table.thresholds[places], errors.loss, errors.clipping, errors.noise, clipped, errors.shown)
        return np.stack([kept * (chances.sum() / kept.sum()), *parts])

    def _table(self, plan: Plan, steps: Integers, population: Population, missed: float) -> ClippedSums:
        key = (steps.tobytes(), plan.grid_bits, plan.norm)
        if population is self.population and key in self._tables:
            return self._tables[key]
        binning = Binning(steps, bits=plan.grid_bits, norm=plan.norm, items=population.domain_size)
        for shard in population.shards():
            binning.add(shard)
        table = binning.result().table(steps, bits=plan.grid_bits, scale=self._scale, missed=missed)
        if population is self.population:
            self._tables[key] = table
        return table


@dataclass(frozen=True, eq=False)
class _Listed:
    """Users over the items that a discovery found."""

    users: int
    domain_size: int
    held: Sequence[Histograms] = field(repr=False)

    def shards(self) -> Iterator[Histograms]:
        """All of them."""
        return iter(self.held)


@dataclass(frozen=True)
class Outlook:
    """A population to predict from and the settings that all plans share.

    Args:
        predictor: reads the public population.
        settings: fields of `Plan`, with the users and items of the population.
        total_delta: a delta for all rounds together; None leaves the deltas to the settings.
        choice: the epsilon of the choice in a plan for a total; None is the default split.
    """

    predictor: Predictor
    settings: Mapping[str, Any] = field(repr=False)
    total_delta: float | None = None
    choice: float | None = None

    def plan(self, epsilon: float, epsilon_select: float | None = None) -> Plan:
        """The plan with this budget of the histogram, and that of the choice if it is not the settings' own.

        A total delta is the histogram's; a selector that spends delta too gets a share in proportion to the epsilons.
        """
        choice = {} if epsilon_select is None else {"epsilon_select": epsilon_select}
        plan = Plan(**dict(self.settings) | {"epsilon": epsilon} | choice)
        if self.total_delta is None or not plan.delta:
            return plan
        if not any(charge.delta > 0 for charge in selector_for(plan.releasing).charges(plan.releasing)):
            return replace(plan, delta=self.total_delta)
        share = plan.epsilon_select / (plan.epsilon + plan.epsilon_select)
        return replace(plan, delta=self.total_delta * (1 - share), delta_select=self.total_delta * share)

    def split(self, total: float, share: float | None = None) -> Plan:
        """The plan for a total epsilon that spends this share of it on round 1; None is the split of a run."""
        choice = self.choice if share is None else round_digits(total * share, 3)
        fields = {name: value for name, value in self.settings.items() if name != "epsilon_select"}
        after = Plan(**fields).releasing
        selector = selector_for(after)
        if not selector.reads or not is_private(selector, after):
            raise InvalidInput(
                f"a budget can't be split with the selector {selector.name}, which spends none on round 1",
                allowed="selectors that choose the threshold privately",
                advice="leave out --total-epsilon and --best-split, or choose another --selector",
            )
        return plan_for_total(
            total_epsilon=total, total_delta=self.total_delta, epsilon_select=choice, **fields
        )

    def loss_at(self, total: float, share: float) -> float:
        """The predicted error of a split, to compare splits by.

        Where items are discovered, a tight solution takes seconds. There one of them stands for all: what the choice
        takes from epsilon grows like its square, and is never more than by addition.
        """
        if not Plan(**self.settings).discovers:
            return self.predictor.predict(self.split(total, share)).relative_loss
        choice, solved = round_digits(total * share, 3), self.split(total)
        taken = max(total - solved.epsilon, 0.0) * (choice / solved.epsilon_select) ** 2
        return self.predictor.predict(self.plan(total - min(choice, taken), choice)).relative_loss


def curve(outlook: Outlook, epsilons: Sequence[float], *, totals: bool) -> list[Prediction]:
    """A prediction for each epsilon: of the histogram, or with `totals` of all rounds at the best of CURVE_SHARES."""

    def plan(epsilon: float) -> Plan:
        if not totals:
            return outlook.plan(epsilon)
        share = min(CURVE_SHARES.tolist(), key=lambda one: outlook.loss_at(epsilon, one))
        return outlook.split(epsilon, share)

    return [outlook.predictor.predict(plan(epsilon)) for epsilon in epsilons]


def split_total(outlook: Outlook, total: float) -> dict[str, Any]:
    """How the error depends on the share of a total epsilon that round 1 gets, of SPLIT_SHARES, as JSON.

    All splits from `flat_from` to `flat_to` have an error of at most 1 + FLATNESS times the best, and twice the
    sampling error if something was drawn.
    """
    rows = [outlook.predictor.predict(outlook.split(total, share)) for share in SPLIT_SHARES.tolist()]
    shares = [row.plan.epsilon_select / total for row in rows]
    losses = np.array([row.relative_loss for row in rows])
    place = int(losses.argmin())
    best, usual = rows[place], outlook.predictor.predict(outlook.split(total))
    # The run of good splits around the best one: beyond a bad one others might be good by chance.
    bad = np.flatnonzero(losses > losses[place] * (1 + FLATNESS) + 2 * best.sampling_error)
    low = shares[int(bad[bad < place].max(initial=-1)) + 1]
    high = shares[int(bad[bad > place].min(initial=len(losses))) - 1]
    more = max(usual.relative_loss / max(best.relative_loss, 1e-12) - 1, 0)
    histogram = "finding items and releasing them" if best.plan.discovers else "the histogram"
    words = (
        f"{best.plan.epsilon_select:.4g} ({shares[place]:.1%}) for the threshold and {best.plan.epsilon:.4g} for "
        f"{histogram}: predicted error {best.relative_loss:.4f}. Of {len(shares)} splits tried, all that give the "
        f"threshold {low:.1%} to {high:.1%} come within {FLATNESS:.0%} of that error. A run that is given the total "
        f"alone spends {usual.plan.epsilon_select:.4g} on the threshold: predicted error {usual.relative_loss:.4f}, "
        f"{more:.1%} more than the best. {_run_words(best, total)}."
    )
    return {
        "total_epsilon": total,
        "best_share": shares[place],
        "flat_from": low,
        "flat_to": high,
        "flat_within": FLATNESS,
        "tried": [
            {"share": share, "relative_loss": loss}
            for share, loss in zip(shares, losses.tolist(), strict=True)
        ],
        "row": row_of(best),
        "usual_row": row_of(usual),
        "words": words,
    }


def epsilon_for(
    outlook: Outlook, error: float, epsilons: Sequence[float], rows: Sequence[Prediction], *, totals: bool
) -> dict[str, Any]:
    """The least epsilon whose predicted error is at most `error`, by halves between the rows of the curve, as JSON.

    Out of reach, it is where the range has its least error, with what would help.
    """
    losses = [row.relative_loss for row in rows]
    reached = [place for place, loss in enumerate(losses) if loss <= error]
    place = reached[0] if reached else int(np.argmin(losses))
    high, found = epsilons[place], rows[place]
    low = epsilons[place - 1] if reached and place else high
    while high / low > _SEARCH_RATIO:
        middle = min(round_digits(math.sqrt(low * high), 4, up=True), high)
        (tried,) = curve(outlook, [middle], totals=totals)
        if tried.relative_loss <= error:
            high, found = middle, tried
        else:
            low = middle
    kind, at_start = "a total epsilon of" if totals else "epsilon", reached[:1] == [0]
    if reached:
        enough = ", the smallest of the range, is already enough" if at_start else ""
        words = (
            f"{kind} {high:.4g}{enough}: predicted error {found.relative_loss:.4f}, threshold about "
            f"{counts_text(found.threshold, 3)}. {_run_words(found, high if totals else None)}."
        )
    else:
        least = round_digits(found.relative_loss, 4, up=True)
        words = (
            f"none of this range is predicted to reach it. The least error is {least:g}, at {kind} {high:.4g}; "
            f"{_advice(outlook, error, outlook.plan(epsilons[-1]), totals=totals)}."
        )
    return {
        "error": error,
        "reached": bool(reached),
        "epsilon": high if reached else None,
        "epsilon_is": "total" if totals else "histogram",
        "at_start_of_range": at_start,
        "least_error": None if reached else found.relative_loss,
        "least_at_epsilon": None if reached else high,
        "row": row_of(found),
        "words": words,
    }


def _advice(outlook: Outlook, error: float, plan: Plan, *, totals: bool) -> str:
    """What would help where no epsilon reaches an error."""
    flag, largest = "--threshold", plan.threshold
    if largest is None:
        flag, largest = "--max-threshold", math.ldexp(plan.step_range[1], -plan.grid_bits)
    fixed = replace(plan, selector="fixed", threshold=largest)
    floor = outlook.predictor.predict(fixed).clipping_error
    if floor > error:
        return f"clipping at the threshold {largest:g} alone costs {floor:.4f}: raise {flag}"
    if plan.threshold is None and not totals:
        chosen = outlook.predictor.predict(replace(plan, epsilon=_PLENTY)).relative_loss
        if chosen > error:
            return (
                f"no epsilon will do: choosing the threshold with epsilon' = {plan.epsilon_select:g} alone costs "
                f"{chosen:.4f}; raise --epsilon-select, or let --best-split choose it"
            )
    return "raise the end of --epsilon, or plan for more users or fewer items"


def round_digits(value: float, digits: int, *, up: bool = False) -> float:
    """Rounded to this number of significant digits, to the nearest or up."""
    rounded = float(f"{value:.{digits}g}")
    if up and rounded < value:
        step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
        rounded = float(f"{rounded + step:.{digits}g}")
    return rounded


def row_of(prediction: Prediction) -> dict[str, Any]:
    """One prediction, flat: the budget, the expected errors and thresholds, and the cost of both rounds together."""
    plan, total, tight = prediction.plan, prediction.total.to_json(), prediction.tight.to_json()
    return {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "epsilon_select": plan.epsilon_select if prediction.chooses else 0.0,
        "delta_select": sum(charge.delta for charge in prediction.charges if charge.round == "select"),
        "relative_loss": prediction.relative_loss,
        "relative_loss_error": prediction.sampling_error,
        "clipping_error": prediction.clipping_error,
        "noise_error": prediction.noise_error,
        "threshold": prediction.threshold,
        "threshold_low": prediction.threshold_low,
        "threshold_high": prediction.threshold_high,
        "clipped_users": prediction.clipped_users,
        "released_items": prediction.released_items,
        "recall": prediction.recall,
        "draws": prediction.draws,
        "total_epsilon": total["epsilon"],
        "total_delta": total["delta"],
        "tight_epsilon": tight["epsilon"],
        "tight_delta": tight["delta"],
    }


def notes_of_rows(rows: Sequence[Prediction]) -> list[str]:
    """What plans with rising epsilons can't achieve, once each: with the largest epsilon that still has it."""
    largest: dict[str, tuple[Plan, str]] = {}
    for row in rows:
        said = plan_warnings(row.plan)
        if row.relative_loss >= USELESS and not {"users", "noise", "bar"} & set(said):
            said["useless"] = (
                f"the predicted error is {row.relative_loss:.2f}, and that of an empty histogram is 1: such a run "
                "spends its budget on nothing. Raise epsilon, ask more users, or release fewer items"
            )
        largest |= {name: (row.plan, text) for name, text in said.items()}
    last = rows[-1].plan
    return [
        text if plan is last else f"up to epsilon {plan.epsilon:.4g}, {text}"
        for plan, text in largest.values()
    ]


def _run_words(row: Prediction, total: float | None) -> str:
    """The budget as flags of `fedhist run`, for a total where that was asked for, and the cost."""
    plan, cost, selects = row.plan, row.total, [one for one in row.charges if one.round == "select"]
    words = (
        f"Run with --epsilon {plan.epsilon:.6g}" if total is None else f"Run with --total-epsilon {total:.6g}"
    )
    for flag, value in (
        ("--delta", plan.delta),
        ("--epsilon-select", plan.epsilon_select if selects else 0),
        ("--delta-select", plan.delta_select if any(one.delta > 0 for one in selects) else 0),
    ):
        words += f" {flag} {value:.6g}" if value else ""
    if math.isinf(cost.epsilon):
        return f"{words}; the selector {plan.selector} is not private"
    return (
        f"{words}; the whole run costs epsilon {cost.epsilon:.4g} by basic and {row.tight.epsilon:.4g} by tight "
        f"composition, delta {cost.delta:.3g}"
    )


def counts_text(value: float, digits: int) -> str:
    """Rounded to this number of significant digits, and never written with an exponent."""
    return f"{round_digits(value, digits):,.12g}"
