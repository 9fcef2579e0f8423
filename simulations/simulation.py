"""Run both rounds over a population on this machine, and measure what only a simulation can know."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from fedhist.client.populations import item_totals
from fedhist.display.html_table import html_table
from fedhist.protocol.clips.clipping import entry_counts, entry_items, is_clipped, row_sums
from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.events import Observer, PhaseEnded, ignore
from fedhist.protocol.grid import Threshold, to_steps
from fedhist.protocol.histograms import Floats, Integers, Population, labels_of, names_of
from fedhist.protocol.labels.item_origin import check_public_items, origin_of
from fedhist.protocol.labels.renumbering import Renumbering, numbers_in
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.masking_terms import UNMASKED
from fedhist.protocol.privacy.ledger import Charge, Cost, Ledger
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Round, Total
from fedhist.protocol.wire.keyed_codec import label_bytes
from fedhist.server.collection import RoundReport
from fedhist.server.coordinator import Asking, Planned, Released, State, run_rounds
from fedhist.server.observation import tell_charges, tell_states
from fedhist.server.releases.contract import Release
from fedhist.server.report import cohort_notes, release_document, release_notes, why_not_private
from fedhist.server.selection.exponential_v import error_bound
from fedhist.server.steps import read_statistic, select_request
from fedhist.server.withholding import length_tells, shared_times
from fedhist.simulations.device_view import device_view
from fedhist.simulations.engines.contract import Engine
from fedhist.simulations.engines.in_process import exact_total, open_in_process


@dataclass(frozen=True)
class Diagnostics:
    """What the simulation knows of the truth. NOT private: never publish it for real users' data.

    All errors are l1 norms over the true total.

    Args:
        relative_loss: of the released values.
        estimate_loss: of the estimates.
        clipping_error: of the clipped sum before noise.
        noise_error: of the noise alone.
        clipped_users: share of users above the threshold.
        clipped_mass: share of all counts that clipping removed.
        precision, recall: of the released keys of an open domain against the items that somebody has.
        relative_loss_clipped: before debiasing, where items were debiased.
        bucketed_v_error, bucketed_v_error_chosen: how far V(C) by buckets is from V(C) by items, over V: the largest
            over all candidates, and at the chosen one.
    """

    relative_loss: float
    estimate_loss: float
    clipping_error: float
    noise_error: float
    clipped_users: float
    clipped_mass: float
    precision: float | None = None
    recall: float | None = None
    relative_loss_clipped: float | None = None
    bucketed_v_error: float | None = None
    bucketed_v_error_chosen: float | None = None

    def to_json(self) -> dict[str, Any]:
        """By name; `precision_recall` over an open domain only."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        keys = {name: known.pop(name) for name in ("precision", "recall") if name in known}
        return known | {"precision_recall": keys} if keys else known


@dataclass(frozen=True)
class Result:
    """A release with what it cost, what was sent, how long it took, and how good it is, where known.

    Sizes that depend on the data are there only beside `diagnostics`: without them they are None, in `bytes_per_user`
    and in `rounds`. Times are always here, for the person who ran it; the document to share (`to_json`) has them only
    beside `diagnostics`.
    """

    release: Release
    total: Cost
    tight: Cost
    bytes_per_user: dict[str, int | None]
    seconds: dict[str, float]
    seed: int | None
    diagnostics: Diagnostics | None = None
    notes: tuple[str, ...] = field(default=())
    rounds: dict[str, RoundReport] = field(default_factory=dict)

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
        if self.release.item_origin.tells(self.release.plan.domain):
            told += ["items", "plan", "released_items"]
        return tuple(sorted(set(told)))

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
        rows = [
            ("users that answered", ", ".join(f"{name} {users:,}" for name, users in self.users.items())),
            ("threshold", f"{self.threshold:,.4g}"),
            ("privacy", f"epsilon {self.tight.epsilon:.4g}, delta {self.tight.delta:.3g}"),
            (f"sent by a user{warning}", ", ".join(self.sent)),
        ]
        rows += [("not private", reason) for reason in why_not_private(self.release)]
        if self.relative_loss is not None:
            rows.insert(0, ("relative loss (not private, simulation only)", f"{self.relative_loss:.4f}"))
        return html_table("Result", rows) + self.release._repr_html_()

    def to_json(self) -> dict[str, Any]:
        """One JSON document; `not_private` names the keys that were computed from the truth or depend on it."""
        known = self.diagnostics
        document = release_document(
            self.release,
            total=self.total,
            tight=self.tight,
            seed=self.seed,
            bytes_per_user=self.bytes_per_user,
            seconds=shared_times(self.seconds, truth=known is not None),
            notes=self.notes,
            users=self.users,
        )
        document["rounds"] = {
            name: report.to_json(truth=known is not None) for name, report in self.rounds.items()
        }
        if known is not None:
            document |= known.to_json()
        return document | ({"not_private": list(self.tells)} if self.tells else {})


def simulate(
    population: Population,
    plan: Plan,
    *,
    seed: int | None = None,
    truth: bool = True,
    journal: Callable[[Charge], None] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
    engine: Engine = open_in_process,
    observe: Observer = ignore,
) -> Result:
    """Both rounds over the population.

    Args:
        population: the users.
        plan: what to run; its users and items must be the population's.
        seed: makes the run repeatable, noise and all, so its release protects nobody from somebody who knows the
            seed. None draws from the operating system.
        truth: also measure the error against the true histogram, and sizes and times that depend on the data, none of
            which is private. A population without a single count has no relative error and is refused. Without
            `truth` it is noised like any other, and a list of items that was read off the data is refused.
        journal: called with each charge before its noise is drawn; a persistent ledger. It refuses a list of items that
            was read off the data.
        on_phase: called with the name of each phase as it begins.
        engine: where the devices run, see `engine_named`; the release is the same on every engine.
        observe: called with each event of the run, see `fedhist.protocol.events`.
    """
    origin = origin_of(population)
    if not truth:
        check_public_items(origin, plan.domain, where="a run without the truth (truth=False)")
    if journal is not None:
        check_public_items(origin, plan.domain, where="a ledger (journal)")
    check_fits(population, plan)
    if truth:
        check_labels(population, plan)
    source: Source = SystemSource() if seed is None else SeededSource(seed)
    ledger = Ledger(journal=tell_charges(observe, journal))
    clock = _Stopwatch(on_phase, observe)
    tell = tell_states(observe, simulated=True)

    def entered(state: State) -> None:
        clock.state(state)
        tell(state)
        # In a masked round the engine itself reports what both sides see.
        if observe is not ignore and isinstance(state, Asking) and not plan.is_masked:
            observe(device_view(state.request, population, source=source))

    exact = None
    if truth:
        clock.begin("truth")
        check_not_empty(population)
        exact = true_histogram(population)
    starts_nodes = engine is not open_in_process
    if starts_nodes:
        clock.begin("engine")
    with engine(population, seed=seed, observe=observe) as transport:
        release = run_rounds(plan, transport, ledger=ledger, source=source, on_state=entered)
        if origin.tells(plan.domain):
            release = replace(release, private=False, item_origin=origin)
        if starts_nodes:
            clock.begin("engine")
    clock.begin("account")
    total, tight = ledger.basic(), ledger.tight()
    diagnostics = None
    if exact is not None:
        clock.begin("truth")
        diagnostics = _diagnose(population, release, transport.totals, exact)
    clock.stop()
    withheld = {r for r in Round if not truth and length_tells(plan, r.value)}
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
        seconds=clock.seconds,
        seed=seed,
        diagnostics=diagnostics,
        notes=(
            *cohort_notes(plan, {r.value: report.users for r, report in reports.items()}),
            *_notes(release, diagnostics),
        ),
        rounds={
            r.value: replace(report, size=None) if r in withheld else report for r, report in reports.items()
        },
    )


def true_histogram(population: Population) -> Integers:
    """The exact sum over users, by item."""
    return item_totals(population)


def mean_over_trials(results: Sequence[Result]) -> dict[str, Any]:
    """The document of the first result with `trials` beside it and the means over them at the top."""
    document = results[0].to_json()
    document["trials"] = [
        {"seed": r.seed, "threshold": r.threshold, "relative_loss": r.relative_loss} for r in results
    ]
    document["threshold"] = math.fsum(r.threshold for r in results) / len(results)
    document["released_items"] = math.fsum(len(r.release.histogram) for r in results) / len(results)
    known = [r.diagnostics for r in results if r.diagnostics is not None]
    if known:
        values = {name: [getattr(one, name) for one in known] for name in asdict(known[0])}
        means = {name: math.fsum(of) / len(of) for name, of in values.items() if None not in of}
        document |= Diagnostics(**means).to_json()
    spent = {phase: math.fsum(r.seconds.get(phase, 0.0) for r in results) for phase in results[0].seconds}
    document["seconds"] = shared_times(spent, truth=bool(known))
    return document


def check_not_empty(population: Population) -> None:
    """Refuse a population in which nobody has anything; as a rule the first shard settles it."""
    if not any(
        bool((shard.counts[shard.offsets[0] : shard.offsets[-1]] > 0).any()) for shard in population.shards()
    ):
        raise InvalidPopulation(
            "no user has any item", allowed="a population with at least one count", advice="check the data"
        )


def check_labels(population: Population, plan: Plan) -> None:
    """Refuse a name that is too long for a message; a closed domain's names never travel.

    For simulations with the truth, which know all names beforehand: the refusal tells of one user's item. Devices, and
    runs without the truth, leave such items out.
    """
    if plan.items is not None:
        return
    longest = max((len(label_bytes(label)) for label in labels_of(population) or ()), default=0)
    if plan.has_table and longest > plan.label_bytes:
        raise InvalidPopulation(
            f"an item's name has {longest} bytes",
            allowed=f"up to {plan.label_bytes:,} bytes of UTF-8 under masking, the plan's label_bytes",
            advice="raise --label-bytes, or shorten or hash long names",
        )


def check_fits(population: Population, plan: Plan) -> None:
    """Refuse a plan that was made for another population."""
    if plan.users != population.users or plan.items not in (None, population.domain_size):
        planned = f"{plan.users} users" + ("" if plan.items is None else f" and {plan.items} items")
        raise InvalidPopulation(
            f"the population has {population.users} users and {population.domain_size} items, but the plan is for "
            f"{planned}",
            allowed="a plan made for this population",
        )


def _diagnose(
    population: Population, release: Release, totals: Mapping[Round, Total], truth: Integers
) -> Diagnostics:
    plan, total = release.plan, int(truth.sum())
    numbers = released_numbers(population, release)
    clipped, released, estimated = _dense(population, release, numbers, totals.get(Round.RELEASE))
    # Known items that nobody holds are released, too, and their true count is 0.
    truth = np.concatenate([truth, np.zeros(len(clipped) - len(truth), dtype=np.int64)])
    losses = {
        "relative_loss": np.abs(released - truth).sum() / total,
        "estimate_loss": np.abs(estimated - truth).sum() / total,
        "clipping_error": np.abs(clipped - truth).sum() / total,
        "noise_error": np.abs(released - clipped).sum() / total,
        "clipped_users": _clipped_users(population, release) / population.users,
        "clipped_mass": 1 - clipped.sum() / total,
    }
    if plan.is_open:
        shown = np.count_nonzero(truth[numbers])
        losses["precision"] = shown / max(len(numbers), 1)
        losses["recall"] = shown / np.count_nonzero(truth)
    if release.item_release is not None:
        before = release.item_release.clipped
        losses["relative_loss_clipped"] = np.abs(before - truth).sum() / total
        losses["noise_error"] = np.abs(before - clipped).sum() / total
    if plan.statistic == "bucketed" and Round.SELECT in totals:
        losses |= _bucketing_errors(population, release, totals[Round.SELECT])
    return Diagnostics(**{name: float(loss) for name, loss in losses.items()})


def released_numbers(population: Population, release: Release) -> Integers:
    """The population's number of each released item; numbers beyond its own for items that it does not have."""
    if release.keys is not None or release.labels is None:
        return np.arange(len(release.histogram)) if release.keys is None else release.keys
    places = numbers_in(release.labels, names_of(population))
    numbers = population.domain_size + np.arange(len(release.labels))
    held = np.flatnonzero(places >= 0)[::-1]
    numbers[places[held]] = held
    return numbers


def _dense(
    population: Population, release: Release, numbers: Integers, total: Total | None
) -> tuple[Floats, Floats, Floats]:
    """The clipped sums, the values and the estimates of all items, released or not; first those of the population."""
    size = max(population.domain_size, int(numbers.max(initial=-1)) + 1)
    clipped, released, estimated = np.zeros(size), np.zeros(size), np.zeros(size)
    released[numbers], estimated[numbers] = release.histogram, release.estimate
    if total is not None and total.keyed is not None:
        clipped[total.keyed.keys] = total.keyed.values[:, 0]
    elif total is not None:
        clipped[numbers] = np.ldexp(
            total.values[: len(numbers)].astype(np.float64), -release.round_plan.grid_bits
        )
    return clipped, released, estimated


def _clipped_users(population: Population, release: Release) -> int:
    plan = release.round_plan
    if release.item_release is None:
        threshold = Threshold(steps=to_steps(release.threshold, plan.grid_bits), bits=plan.grid_bits)
        shards = population.shards()
        if release.plan.discovers and release.labels is not None:
            listed = Renumbering(numbers_in(release.labels, names_of(population)), len(release.labels))
            shards = map(listed.of, shards)
        return sum(int(is_clipped(shard, threshold, norm=plan.norm).sum()) for shard in shards)
    clipped, bounds = 0, release.item_release.thresholds
    for shard in population.shards():
        above = entry_counts(shard) > bounds[entry_items(shard)]
        clipped += int(np.count_nonzero(row_sums(above.astype(np.int64), shard.offsets)))
    return clipped


def _bucketing_errors(population: Population, release: Release, total: Total) -> dict[str, float]:
    """V by buckets against V by items, at every candidate and at the chosen one."""
    plan = Plan.from_json(release.plan.to_json() | UNMASKED | {"statistic": "plain"})
    exact = exact_total(select_request(plan), population, source=SystemSource())
    steps = plan.candidate_steps
    by_item = error_bound(plan, read_statistic(plan, exact))
    by_bucket = error_bound(plan, read_statistic(release.plan, total))
    errors = np.abs(by_bucket / by_item - 1)
    chosen = int(np.searchsorted(steps, to_steps(release.threshold, plan.grid_bits)))
    return {"bucketed_v_error": errors.max(), "bucketed_v_error_chosen": errors[chosen]}


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


class _Stopwatch:
    """Seconds by phase, from the coordinator's states."""

    def __init__(self, on_phase: Callable[[str], None], observe: Observer) -> None:
        self.seconds: dict[str, float] = {}
        self._on_phase, self._observe = on_phase, observe
        self._phase: str | None = None
        self._since = perf_counter()

    def state(self, state: State) -> None:
        match state:
            case Planned():
                self.begin("plan")
            case Asking(request=request):
                self.begin(request.round.value)
            case Released():
                self.stop()

    def begin(self, phase: str) -> None:
        self.stop()
        self._phase, self._since = phase, perf_counter()
        self._on_phase(phase)

    def stop(self) -> None:
        if self._phase is not None:
            spent = perf_counter() - self._since
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + spent
            self._observe(PhaseEnded(phase=self._phase, seconds=spent))
            self._phase = None
