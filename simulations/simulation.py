"""Run both rounds over a population on this machine, and measure what only a simulation can know."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from fedhist.protocol.clipping import is_clipped, sum_items
from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.grid import Threshold, to_steps
from fedhist.protocol.histograms import Integers, Population
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, Cost, Ledger
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Round, Total
from fedhist.server.coordinator import Planned, Released, Releasing, Selecting, State, run_rounds
from fedhist.server.release import Release
from fedhist.simulations.engines.in_process import InProcess


@dataclass(frozen=True)
class Diagnostics:
    """What the simulation knows of the truth. NOT private: never publish it for real users' data.

    All errors are l1 norms over the true total.

    Args:
        relative_loss: of the release.
        clipping_error: of the clipped sum before noise.
        noise_error: of the noise alone.
        clipped_users: share of users above the threshold.
        clipped_mass: share of all counts that clipping removed.
        precision, recall: of the released keys of an open domain against the items that somebody has.
    """

    relative_loss: float
    clipping_error: float
    noise_error: float
    clipped_users: float
    clipped_mass: float
    precision: float | None = None
    recall: float | None = None

    def to_json(self) -> dict[str, Any]:
        """By name; `precision_recall` over an open domain only."""
        known = asdict(self)
        keys = {name: known.pop(name) for name in ("precision", "recall")}
        return known if self.recall is None else known | {"precision_recall": keys}


@dataclass(frozen=True)
class Result:
    """A release with what it cost, what was sent, how long it took, and how good it is, where known."""

    release: Release
    total: Cost
    tight: Cost
    bytes_per_user: dict[str, int]
    seconds: dict[str, float]
    seed: int | None
    diagnostics: Diagnostics | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def threshold(self) -> float:
        """The bound that was used, in counts."""
        return self.release.threshold

    @property
    def relative_loss(self) -> float | None:
        """L1 error over the true total; None when the truth was not looked at."""
        return None if self.diagnostics is None else self.diagnostics.relative_loss

    def to_json(self) -> dict[str, Any]:
        """One JSON document; `not_private` names the keys that were computed from the truth."""
        release = self.release
        document: dict[str, Any] = {
            "plan": release.plan.to_json(),
            "plan_digest": release.plan.digest.hex(),
            "seed": self.seed,
            "private": release.private,
            "simulation_only": release.seeded or not release.private,
            "threshold": release.threshold,
            "relative_loss": None,
            "standard_error": release.standard_error,
            "released_items": len(release.histogram),
            "ledger": [charge.to_json() for charge in release.charges],
            "total": self.total.to_json(),
            "tight": self.tight.to_json(),
            "bytes_per_user": self.bytes_per_user,
            "seconds": self.seconds,
            "notes": list(self.notes),
        }
        if self.diagnostics is not None:
            known = self.diagnostics.to_json()
            document |= known | {"not_private": sorted(known)}
        return document


def simulate(
    population: Population,
    plan: Plan,
    *,
    seed: int | None = None,
    truth: bool = True,
    journal: Callable[[Charge], None] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> Result:
    """Both rounds over the population.

    Args:
        population: the users.
        plan: what to run; its users and items must be the population's.
        seed: makes the run repeatable, noise and all, so its release protects nobody from whoever knows the
            seed. None draws from the operating system.
        truth: also measure the error against the true histogram, which is not private. A population without
            a single count has no relative error and is refused; without `truth` it gets its noise like any.
        journal: called with each charge before its noise is drawn; a persistent ledger.
        on_phase: called with the name of each phase as it begins.
    """
    _check_fits(population, plan)
    source: Source = SystemSource() if seed is None else SeededSource(seed)
    transport = InProcess(population, source)
    ledger = Ledger(journal=journal)
    clock = _Stopwatch(on_phase)
    exact = None
    if truth:
        clock.begin("truth")
        check_not_empty(population)
        exact = true_histogram(population)
    release = run_rounds(plan, transport, ledger=ledger, source=source, on_state=clock.state)
    clock.begin("account")
    total, tight = ledger.basic(), ledger.tight()
    diagnostics = None
    if exact is not None:
        clock.begin("truth")
        diagnostics = _diagnose(population, release, transport.totals[Round.RELEASE], exact)
    clock.stop()
    return Result(
        release=release,
        total=total,
        tight=tight,
        bytes_per_user={r.value: transport.bytes_per_user.get(r, 0) for r in Round},
        seconds=clock.seconds,
        seed=seed,
        diagnostics=diagnostics,
        notes=_notes(release, diagnostics),
    )


def true_histogram(population: Population) -> Integers:
    """The exact sum over users, by item."""
    truth = np.zeros(population.domain_size, dtype=np.int64)
    for shard in population.shards():
        truth += sum_items(shard)
    return truth


def mean_over_trials(results: Sequence[Result]) -> dict[str, Any]:
    """The document of the first result with `trials` beside it and the means over them at the top."""
    document = results[0].to_json()
    document["trials"] = [
        {"seed": r.seed, "threshold": r.threshold, "relative_loss": r.relative_loss} for r in results
    ]
    document["threshold"] = math.fsum(r.threshold for r in results) / len(results)
    known = [r.diagnostics for r in results if r.diagnostics is not None]
    if known:
        document |= _mean_diagnostics(known).to_json()
    document["seconds"] = {
        phase: math.fsum(r.seconds.get(phase, 0.0) for r in results) for phase in results[0].seconds
    }
    return document


def check_not_empty(population: Population) -> None:
    """Refuse a population in which nobody has anything; as a rule the first shard settles it."""
    if not any(
        bool((shard.counts[shard.offsets[0] : shard.offsets[-1]] > 0).any()) for shard in population.shards()
    ):
        raise InvalidPopulation(
            "no user has any item", allowed="a population with at least one count", advice="check the data"
        )


def _check_fits(population: Population, plan: Plan) -> None:
    items = None if plan.is_open else population.domain_size
    if (plan.users, plan.items) != (population.users, items):
        raise InvalidPopulation(
            f"the population has {population.users} users and {population.domain_size} items, and the plan "
            f"{plan.users} and {plan.items}",
            allowed="a plan made for this population",
        )


def _diagnose(population: Population, release: Release, total_of: Total, truth: Integers) -> Diagnostics:
    bits = release.plan.grid_bits
    threshold = Threshold(steps=to_steps(release.threshold, bits), bits=bits)
    clipped_users = sum(
        int(is_clipped(shard, threshold, norm=release.plan.norm).sum()) for shard in population.shards()
    )
    total = int(truth.sum())
    if release.plan.is_open:
        assert total_of.keyed is not None and release.keys is not None  # noqa: S101 - an open release has both
        clipped = np.zeros(population.domain_size)
        clipped[total_of.keyed.keys] = total_of.keyed.values[:, 0]
        released = np.zeros(population.domain_size)
        released[release.keys] = release.histogram
        present = int(np.count_nonzero(truth))
        shown = int(np.count_nonzero(truth[release.keys]))
        precision, recall = shown / max(len(release.keys), 1), shown / present
    else:
        clipped = np.ldexp(total_of.values.astype(np.float64), -bits)
        released, precision, recall = release.histogram, None, None
    return Diagnostics(
        relative_loss=float(np.abs(released - truth).sum() / total),
        clipping_error=float(np.abs(clipped - truth).sum() / total),
        noise_error=float(np.abs(released - clipped).sum() / total),
        clipped_users=clipped_users / population.users,
        clipped_mass=float(1 - clipped.sum() / total),
        precision=precision,
        recall=recall,
    )


def _notes(release: Release, diagnostics: Diagnostics | None) -> tuple[str, ...]:
    plan = release.plan
    notes = []
    if not release.private:
        notes.append(f"not private: the selector {plan.selector} read the exact statistic")
    if release.seeded:
        notes.append("simulation only: whoever knows the seed can subtract the noise")
    if plan.delta and plan.delta > 1 / plan.users:
        notes.append(f"delta {plan.delta:g} is above 1/users; smaller is usual")
    if plan.selector != "fixed" and release.threshold <= plan.min_threshold:
        notes.append("the smallest threshold was chosen: the noise may outweigh the data at this budget")
    if plan.selector != "fixed" and release.threshold >= plan.max_threshold:
        notes.append("the largest threshold was chosen: a higher --max-threshold may lose less")
    if diagnostics is not None and diagnostics.relative_loss > 1:
        notes.append(
            "an all-zero histogram would be nearer to the truth: raise epsilon or release fewer items"
        )
    return tuple(notes)


class _Stopwatch:
    """Seconds by phase, from the coordinator's states."""

    def __init__(self, on_phase: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._on_phase = on_phase
        self._phase: str | None = None
        self._since = perf_counter()

    def state(self, state: State) -> None:
        match state:
            case Planned():
                self.begin("plan")
            case Selecting():
                self.begin("select")
            case Releasing():
                self.begin("release")
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
            self._phase = None
