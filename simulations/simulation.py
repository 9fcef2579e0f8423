"""Run both rounds over a population on this machine, and measure what only a simulation can know."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.client.populations import item_totals
from fedhist.display.tables import data_frame, html_table
from fedhist.display.text import visible
from fedhist.protocol.errors import InvalidInput, RoundFailed
from fedhist.protocol.events import Observer, PhaseEnded, ignore
from fedhist.protocol.histograms import Integers, Population, labels_of
from fedhist.protocol.item_lists import ItemOrigin, check_private, origin_of
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, Cost, Ledger
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Request, Round
from fedhist.server.advice import little_released
from fedhist.server.collection import RoundReport
from fedhist.server.coordinator import Asking, Planned, Released, State, run_rounds
from fedhist.server.releases.contract import Release
from fedhist.server.report import cohort_notes, release_document, release_notes, why_not_private
from fedhist.server.steps import length_tells
from fedhist.server.trace import tell_charges, tell_states
from fedhist.server.words import method, sender, users_words
from fedhist.simulations.clipped_sums import Measured, Measuring, measured
from fedhist.simulations.device_view import device_view
from fedhist.simulations.engines.contract import Engine, SimulatedTransport
from fedhist.simulations.engines.in_process import InProcess, open_in_process, reading
from fedhist.simulations.engines.passes import Answers, ItemTotals, Tally, alone
from fedhist.simulations.evaluate import ClippedUsers, Diagnostics, dense, diagnose
from fedhist.simulations.faults import FaultReport
from fedhist.simulations.given_users import check_hiding, with_given_users
from fedhist.simulations.population_checks import check_fits, check_labels, check_not_empty
from fedhist.simulations.workbench.spelling import in_python, python_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Result:
    """A release with what it cost, what was sent, how long it took, and how good it is, where known.

    Sizes that depend on the data are there only beside `diagnostics`: without them they are None, in `bytes_per_user`
    and in `rounds`. Times are here for the person who ran it, and in no view of it; the document to share (`to_json`)
    has them only beside `diagnostics`. Where the number of users is hidden they are 0.

    `story` computes what reports and figures of a simulation show beside the release, from the population that it
    keeps: NOT private, and only beside `diagnostics`.
    """

    release: Release
    total: Cost
    tight: Cost
    bytes_per_user: dict[str, int | None]
    seconds: dict[str, float] = field(repr=False)
    seed: int | None
    diagnostics: Diagnostics | None = None
    notes: tuple[str, ...] = field(default=())
    rounds: dict[str, RoundReport] = field(default_factory=dict)
    faults: FaultReport | None = None
    story: Callable[..., dict[str, Any]] | None = field(default=None, repr=False, compare=False)

    @property
    def threshold(self) -> float:
        """The bound that was used, in counts."""
        return self.release.threshold

    @property
    def relative_loss(self) -> float | None:
        """L1 error over the true total; None when the truth was not looked at."""
        return None if self.diagnostics is None else self.diagnostics.relative_loss

    @property
    def users(self) -> dict[str, int]:
        """The number of users in the sum, by round; fewer than the plan's where participants dropped out."""
        return {name: report.users for name, report in self.rounds.items()}

    @property
    def sizes_tell(self) -> tuple[str, ...]:
        """Which of the document's keys hold sizes that depend on the data. NOT private, like `diagnostics`."""
        plan = self.release.plan
        told = {
            "bytes_per_user": any(
                size and length_tells(plan, name) for name, size in self.bytes_per_user.items()
            ),
            "rounds": any(report.size and length_tells(plan, name) for name, report in self.rounds.items()),
        }
        return tuple(key for key, tells in told.items() if tells)

    @property
    def tells(self) -> tuple[str, ...]:
        """Which of the document's keys are not private. `items` stands for the list of items, in histogram.csv."""
        told: list[str] = []
        if self.diagnostics is not None:
            told += [*self.diagnostics.to_json(), *self.sizes_tell, "notes", "rounds", "seconds"]
            told += ["faults"] if self.faults is not None else []
        if self.release.item_origin.tells(self.release.plan.domain):
            told += ["items", "plan", "released_items", "significant_items"]
        return tuple(sorted(set(told)))

    @property
    def first_lines(self) -> list[str]:
        """What to know before all else: the users are people and it is not private, or hardly anything was found."""
        synthetic = self.release.item_origin is ItemOrigin.SYNTHETIC
        return [*([] if synthetic else why_not_private(self.release)), *little_released(self.release)]

    def __repr__(self) -> str:
        """The first lines, and what was released."""
        plan, items = self.release.plan, len(self.release.histogram)
        said = [*map(in_python, self.first_lines), f"{items:,} items of {plan.users:,} users"]
        return f"Result({'; '.join(said)}, threshold {self.threshold:,.4g})"

    def __str__(self) -> str:
        """What to know first, what it cost, and the ten largest items."""
        lines = [*map(in_python, self.first_lines)]
        lines.append(
            f"{users_words(self.release.plan)}, {len(self.release.histogram):,} items, {self._cost_text}"
        )
        return "\n".join([*lines, *largest_lines(self.release)])

    def __getitem__(self, item: str | int) -> dict[str, float]:
        """The released numbers of one item, by the columns of `to_frame`."""
        if item not in self:
            near = get_close_matches(str(item), map(str, self.release.names), n=1)
            raise KeyError(f"no item {item!r} was released{f'; did you mean {near[0]!r}?' if near else ''}")
        place = self.release.places[item]
        return {name: float(of[place]) for name, of in self._columns.items() if name != "item"}

    def __contains__(self, item: object) -> bool:
        """Whether the item was released."""
        return item in self.release.places

    __iter__ = None
    """Neither a mapping nor a sequence: `to_frame` has all rows."""

    def top(self, items: int = 10) -> Any:
        """The rows of `to_frame` with the largest values, in falling order."""
        rows = self.release.largest(items)
        columns = {name: [of[row] for row in rows] for name, of in self._columns.items()}
        return data_frame(columns, self.release.frame_kind, texts=("item",))

    @cached_property
    def _columns(self) -> dict[str, Sequence[str | int | float]]:
        return self.release.columns()

    @property
    def _cost_text(self) -> str:
        if math.isinf(self.tight.epsilon):
            return "epsilon none"
        return f"epsilon {self.tight.epsilon:.4g}, delta {self.tight.delta:.3g}"

    @property
    def sent(self) -> tuple[str, ...]:
        """What a user's device sent, round by round, in words."""
        return tuple(
            f"{name} withheld" if size is None else f"{name} {size:,} B"
            for name, size in self.bytes_per_user.items()
        )

    def _repr_html_(self) -> str:
        """How a notebook shows it: the summary, then the release."""
        warning = " (not private, simulation only)" if "bytes_per_user" in self.sizes_tell else ""
        plan = self.release.plan
        rows = [
            ("plan", users_words(plan)),
            ("users that answered", ", ".join(f"{name} {users:,}" for name, users in self.users.items())),
            ("method", f"{method(plan, self.release.mechanism)}, neighbours {plan.neighbours.value}"),
            ("privacy", self._cost_text),
            (f"sent by {sender(plan)}{warning}", ", ".join(self.sent)),
        ]
        if not self.release.found_nothing:
            rows.insert(1, ("threshold", f"{self.threshold:,.4g}"))
        reasons = why_not_private(self.release)
        rows += [("not private", reason) for reason in reasons]
        rows += [("note", note) for note in self.notes if note not in reasons]
        if self.faults is not None and self.faults.loss_without_faults is not None:
            without = f"{self.faults.loss_without_faults:.4f}"
            rows.insert(0, ("relative loss without faults (not private, simulation only)", without))
        if self.relative_loss is not None:
            rows.insert(0, ("relative loss (not private, simulation only)", f"{self.relative_loss:.4f}"))
        return html_table("Result", rows) + self.release._repr_html_()

    def to_frame(self) -> Any:
        """Every released item's name, value, estimate and lower limit, see `Release.to_frame`."""
        return self.release.to_frame()

    def plot(self, chart: str | None = None) -> Figure:
        """A chart with matplotlib, as `fedhist.figure` draws it: the released items unless another one is named."""
        from fedhist.simulations.workbench.reporting import figure

        return figure(self, chart)

    def to_json(self) -> dict[str, Any]:
        """One JSON document; `not_private` names the keys that were computed from the truth or depend on it."""
        known = self.diagnostics
        document = release_document(
            self.release,
            total=self.total,
            tight=self.tight,
            seed=self.seed,
            bytes_per_user=self.bytes_per_user,
            seconds=self.seconds if known is not None else dict.fromkeys(self.seconds),
            notes=self.notes,
            users=self.users,
        )
        document["rounds"] = {
            name: report.to_json(truth=known is not None) for name, report in self.rounds.items()
        }
        if known is not None:
            document |= known.to_json()
        if self.faults is not None:
            document["faults"] = self.faults.to_json()
            document["simulation_only"] |= self.faults.liars > 0
        return document | ({"not_private": list(self.tells)} if self.tells else {})


def simulate(
    population: Population,
    plan: Plan,
    *,
    seed: int | None = None,
    evaluate: bool | None = None,
    journal: Callable[[Charge], None] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
    engine: Engine = open_in_process,
    observe: Observer = ignore,
    report: bool = False,
) -> Result:
    """Both rounds over the population.

    Args:
        population: the users.
        plan: what to run; its users and items must be the population's.
        seed: makes the run repeatable, noise and all, so its release protects nobody from somebody who knows the
            seed. None draws from the operating system.
        evaluate: also measure the error against the true histogram, and sizes and times that depend on the data, none
            of which is private. A population without a single count has no relative error and is refused. Without
            `evaluate` it is noised like any other, and a list of items that was inferred from the data is refused.
            None is True for synthetic users, and False for all others.
        journal: called with each charge before its noise is drawn; a persistent ledger. Of users that are not
            synthetic it refuses a run that can't be private: seeded, or evaluated.
        on_phase: called with the name of each phase as it begins.
        engine: where the devices run, see `engine_named`; the release is the same on every engine.
        observe: called with each event of the run, see `fedhist.protocol.events`.
        report: measure what a report shows in the same pass as the truth; without it, one more pass when it is asked
            for.
    """
    origin, population = origin_of(population), with_given_users(population, plan)
    evaluate = origin is ItemOrigin.SYNTHETIC if evaluate is None else evaluate
    check_hiding(plan, evaluate=evaluate, counts=False)
    _check(population, plan, origin, seeded=seed is not None, evaluated=evaluate, charged=journal is not None)
    source: Source = SystemSource() if seed is None else SeededSource(seed)
    clock = _Stopwatch(on_phase, observe)
    tell = tell_states(observe, simulated=True)
    requests: dict[Round, Request] = {}
    ledger = Ledger(journal=tell_charges(observe, journal))

    def entered(state: State) -> None:
        clock.state(state)
        tell(state)
        if isinstance(state, Asking):
            requests[state.request.round] = state.request
        if observe is not ignore and isinstance(state, Asking):
            observe(device_view(state.request, labels_of(population)))

    if evaluate:
        clock.begin("truth")
        check_not_empty(population)
    starts_nodes = engine is not open_in_process
    if starts_nodes:
        clock.begin("engine")
    opened = engine(population, seed=seed, observe=observe)
    if not hasattr(opened, "__enter__"):
        raise InvalidInput(
            f"the engine opened a {type(opened).__name__}",
            allowed="a context manager of a SimulatedTransport, such as open_in_process returns",
            code="bad-engine",
        )
    diagnostics, measurements, struck = None, None, None
    with opened as transport:
        check_hiding(plan, evaluate=evaluate, counts=transport.counts)
        if evaluate:
            transport.along.append(ItemTotals())
        with _faults_named(transport, requests):
            release = run_rounds(plan, transport, ledger=ledger, source=source, on_state=entered)
        release = replace(release.named(labels_of(population)), item_origin=origin, evaluated=evaluate)
        struck = _struck(transport, requests, plan)
        if evaluate:
            clock.begin("truth")
            honest = None if struck is None else requests.get(Round.RELEASE)
            diagnostics, measurements, struck = _against_truth(
                transport, population, release, struck, honest, source=source, report=report
            )
        else:
            release = release.without_numbers()  # audited: numbers dropped
        if starts_nodes:
            clock.begin("engine")
    clock.begin("account")
    total, tight = ledger.basic(), ledger.tight()
    clock.stop()
    withheld = {r for r in Round if not evaluate and length_tells(plan, r.value)}
    sizes, reports = transport.bytes_per_user, transport.reports
    return Result(
        release=release,
        total=total,
        tight=tight,
        bytes_per_user={
            r.value: None if r in withheld and r in sizes else sizes.get(r, 0)
            for r in Round
            if plan.discovers or r is not Round.DISCOVER
        },
        seconds=dict.fromkeys(clock.seconds, 0.0) if plan.hides_users else clock.seconds,
        seed=seed,
        diagnostics=diagnostics,
        notes=(
            *cohort_notes(plan, {r.value: report.users for r, report in reports.items()}),
            *(() if struck is None else struck.notes),
            *_notes(release, diagnostics),
        ),
        rounds={r.value: _told(report, plan, sized=r not in withheld) for r, report in reports.items()},
        faults=struck,
        story=_story(population, release, measurements) if evaluate else None,
    )


def _told(report: RoundReport, plan: Plan, *, sized: bool) -> RoundReport:
    """What a result says of a round."""
    seconds = 0.0 if plan.hides_users else report.seconds
    return replace(report, size=report.size if sized else None, seconds=seconds)


def _check(
    population: Population,
    plan: Plan,
    origin: ItemOrigin,
    *,
    seeded: bool,
    evaluated: bool,
    charged: bool,
) -> None:
    with python_words():
        check_private(origin, plan.domain, seeded=seeded, evaluated=evaluated, charged=charged)
    check_fits(population, plan)
    if evaluated:
        check_labels(population, plan)


def _against_truth(
    transport: SimulatedTransport,
    population: Population,
    release: Release,
    struck: FaultReport | None,
    honest: Request | None,
    *,
    source: Source,
    report: bool,
) -> tuple[Diagnostics, Measured | None, FaultReport | None]:
    """How good the release is, what a report shows of the users, and what faults did, from one pass of the engine.

    `honest` is the last request of a run with faults: clipping is measured on what all users would have answered.
    """
    crew = transport.crew or partial(alone, population)
    left, clipped = list(transport.along), ClippedUsers.by(release)
    clean: list[Tally[Any]] = [] if honest is None else [Answers(honest, source)]
    more = [Measuring.of(population, release)] if report else []
    sums = crew([*left, clipped, *clean, *more], reading(transport.observe, population))
    exact = (transport.found or sums)[0]
    clipped_users, *sums = sums[len(left) :]
    answered = sums[0] if clean else None
    diagnostics = diagnose(population, release, transport.totals, exact, clipped_users, clean=answered)
    if struck is not None:
        struck = _beside_no_faults(struck, transport, population, release.plan, exact, source=source)
    return diagnostics, measured(population, release, sums[-1], exact) if report else None, struck


def _struck(
    transport: SimulatedTransport, requests: Mapping[Round, Request], plan: Plan
) -> FaultReport | None:
    """Whom faults struck in a run; None without any."""
    if not transport.faults or transport.assignment is None:
        return None
    return FaultReport.of(transport.faults, transport.assignment, requests, masked=plan.is_masked)


def _beside_no_faults(
    struck: FaultReport,
    transport: SimulatedTransport,
    population: Population,
    plan: Plan,
    truth: Integers,
    *,
    source: Source,
) -> FaultReport:
    """The report with the same run without faults, where the engine makes its passes; it is not charged."""
    clean = InProcess(population, source, masks=False, crew=transport.crew)
    release = run_rounds(plan, clean, ledger=Ledger(), source=source)
    released = dense(population, release, None).released
    error = np.abs(released[: len(truth)] - truth).sum() + np.abs(released[len(truth) :]).sum()
    return replace(
        struck, loss_without_faults=float(error / truth.sum()), threshold_without_faults=release.threshold
    )


class _Stopwatch:
    """Seconds by phase, from the coordinator's states."""

    def __init__(self, on_phase: Callable[[str], None], observe: Observer) -> None:
        self.seconds: dict[str, float] = {}
        self._on_phase, self._observe = on_phase, observe
        self._phase: str | None = None
        self._since = perf_counter()

    def state(self, state: State) -> None:
        """The phase of a state of the coordinator begins."""
        match state:
            case Planned():
                self.begin("plan")
            case Asking(request=request):
                self.begin(request.round.value)
            case Released():
                self.stop()

    def begin(self, phase: str) -> None:
        """The phase of this name begins, and the one before ends."""
        self.stop()
        self._phase, self._since = phase, perf_counter()
        self._on_phase(phase)

    def stop(self) -> None:
        """The phase ends."""
        if self._phase is not None:
            spent = perf_counter() - self._since
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + spent
            self._observe(PhaseEnded(phase=self._phase, seconds=spent))
            self._phase = None


@contextmanager
def _faults_named(transport: SimulatedTransport, asked: Mapping[Round, object]) -> Iterator[None]:
    """A round that fails in here says which faults led to it."""
    try:
        yield
    except RoundFailed as error:
        report = transport.reports.get([*asked][-1]) if asked else None
        if not transport.faults or report is None or not report.faults or type(error) is not RoundFailed:
            raise
        reasons = ", ".join(f"{count} {fault.value}" for fault, count in sorted(report.faults.items()))
        cohort = f"Of {report.nodes} nodes {report.answered} are in the sum; dropped: {reasons}"
        raise RoundFailed(f"{error}. {cohort}") from error


def _story(
    population: Population, release: Release, measurements: Measured | None
) -> Callable[..., dict[str, Any]]:
    """What a report of this run shows, without its scores and messages, which only events tell."""
    from fedhist.simulations.evaluate import simulation_document

    return partial(
        simulation_document,
        population=population,
        release=release,
        events=(),
        labels=labels_of(population),
        measured=measurements,
    )


def largest_lines(release: Release) -> list[str]:
    """The ten largest released items, as lines of a table."""
    rows = release.largest(10)
    if not rows:
        return []
    names = ["item", *(visible(release.names[row], 40) for row in rows)]
    estimates = ["estimate", *(f"{release.estimate[row]:,.1f}" for row in rows)]
    limits = ["at least", *(f"{release.at_least[row]:,.1f}" for row in rows)]
    wide, count, limit = (max(map(len, column)) for column in (names, estimates, limits))
    return [
        f"{name:<{wide}}  {estimate:>{count}}  {least:>{limit}}"
        for name, estimate, least in zip(names, estimates, limits, strict=True)
    ]


def true_histogram(population: Population) -> Integers:
    """The exact sum over users, by item."""
    return item_totals(population)


def _notes(release: Release, diagnostics: Diagnostics | None) -> tuple[str, ...]:
    notes = release_notes(release)
    if diagnostics is not None and diagnostics.relative_loss > 1:
        notes.append(
            "an all-zero histogram would be nearer to the truth: raise epsilon or release fewer items"
        )
    if (before := release.item_release) is not None:
        # When to trust the debiased values: the paper's warning, and what the release itself can tell.
        doubtful = int((before.errors > np.abs(release.histogram - before.clipped)).sum())
        note = (
            "debiasing assumes Poisson counts with similar rates: it undershoots where rates differ much, and "
            "overshoots where counts vary less than Poisson"
        )
        if doubtful:
            items = len(release.histogram)
            note += f"; for {doubtful:,} of {items:,} items its noise is larger than its correction"
        notes.append(note)
    return tuple(notes)
