"""What a contract is: named checks, for ours and others alike; and the small plans, users and sums that they use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import numpy as np

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.histograms import Floats, Histograms, Integers, Labels, Words
from fedhist.protocol.keyed import Keyed, KeyedSum
from fedhist.protocol.measurements.base import Measurement, Summed, Total
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SeededSource, Source

SubjectT = TypeVar("SubjectT")


class Contract(Generic[SubjectT]):
    """A table of checks by name. Each is a function of the subject that raises an AssertionError.

    Args:
        of: what the subjects are, for messages.
        around: what surrounds each check, such as the subject in its registry.
    """

    def __init__(
        self,
        of: str,
        around: Callable[[SubjectT], AbstractContextManager[object]] = lambda subject: nullcontext(),
    ) -> None:
        self.of, self._around = of, around
        self.checks: dict[str, Callable[[SubjectT], None]] = {}

    def check(self, function: Callable[[SubjectT], None]) -> Callable[[SubjectT], None]:
        """Enter a check, under the name of its function."""
        self.checks[function.__name__] = function
        return function

    def run(self, name: str, subject: SubjectT) -> None:
        """One check. Whatever goes wrong in it is an AssertionError that names it."""
        try:
            with self._around(subject):
                self.checks[name](subject)
        except Exception as problem:
            what = str(problem) if isinstance(problem, AssertionError) else repr(problem)
            raise AssertionError(f"{self.of}: {name}: {what}") from problem

    def run_all(self, subject: SubjectT, skip: Collection[str] = ()) -> None:
        """All checks but those to skip, until the first that fails."""
        unknown = sorted(set(skip) - set(self.checks))
        require(not unknown, f"there are no checks {', '.join(unknown)}; there are {', '.join(self.checks)}")
        for name in self.checks:
            if name not in skip:
                self.run(name, subject)


def require(condition: object, sentence: str) -> None:
    """Raise an AssertionError with this sentence unless the condition holds. Unlike `assert`, also under -O."""
    if not condition:
        raise AssertionError(sentence)


_SMALL: dict[str, Any] = {"users": 60, "max_threshold": 20.0, "candidates": 6}
_CLOSED: dict[str, Any] = _SMALL | {"items": 3}
_OPEN: dict[str, Any] = _SMALL | {"domain": "open", "epsilon": 4.0, "delta": 1e-3}
_MASKED: dict[str, Any] = {"masking": "secagg", "participants": 5}
_DEVICES: dict[str, Any] = _CLOSED | _MASKED | {"noise_from": "devices"}
_ABOVE_BAR: dict[str, Any] = _OPEN | {"release": "truncated-laplace"}
_DISCOVERED: dict[str, Any] = _OPEN
_DISCOVERED_MASKED: dict[str, Any] = _DISCOVERED | _MASKED | {"max_items": 20}

PLANS: dict[str, Plan] = {
    name: Plan(**settings)
    for name, settings in {
        "gaussian": _CLOSED,
        "laplace": _CLOSED | {"mechanism": "laplace"},
        "replace-one": _CLOSED | {"neighbours": "replace-one", "sparsity": 2},
        "auto": _CLOSED | {"mechanism": "auto"},
        "auto, replace-one": _CLOSED | {"mechanism": "auto", "neighbours": "replace-one"},
        "masked auto": _CLOSED | _MASKED | {"mechanism": "auto"},
        "debiased": _CLOSED | {"debias": "poisson", "mechanism": "laplace"},
        "debiased gaussian": _CLOSED | {"debias": "poisson", "mechanism": "gaussian"},
        "open": _ABOVE_BAR,
        "discovered": _DISCOVERED,
        "discovered laplace": _DISCOVERED | {"mechanism": "laplace"},
        "discovered, some known": _DISCOVERED | {"known_items": "fig\nplum"},
        "masked": _CLOSED | _MASKED,
        "masked debiased": _CLOSED | _MASKED | {"debias": "poisson"},
        "masked discovered": _DISCOVERED_MASKED,
        "device noise, weights": _DEVICES,
        "device noise, counts": _DEVICES | {"selector": "quantile", "mechanism": "laplace"},
        "device noise, laplace": _DEVICES | {"mechanism": "laplace"},
        "device noise, discovered": _DISCOVERED_MASKED | {"noise_from": "devices"},
    }.items()
}
"""One small plan of each kind. A subject is checked under those that it fits."""

OPEN_LABELS: Labels = ("apple", "pear", 7, "fig")
HUGE = 2**29


def variant(plan: Plan, **changes: Any) -> Plan | None:
    """The plan with these changes; None if there is no such plan."""
    document = plan.to_json() | changes
    document.pop("plugins", None)
    try:
        return Plan.from_json(document)
    except InvalidPlan:
        return None


def labels_for(plan: Plan) -> Labels:
    """Names for the items of a test population under the plan."""
    return OPEN_LABELS if plan.items is None else range(plan.items)


def histograms_of(rows: Sequence[Sequence[int]] | Integers, *, first_user: int = 0) -> Histograms:
    """Dense rows as histograms."""
    dense = np.asarray(rows, dtype=np.int64)
    users, items = np.nonzero(dense)
    return Histograms(
        offsets=np.searchsorted(users, np.arange(len(dense) + 1)),
        items=items,
        counts=dense[users, items],
        domain_size=dense.shape[1],
        first_user=first_user,
    )


def some_rows(plan: Plan, seed: int, users: int = 12) -> Integers:
    """Users of all sizes: none, few and many of each item, and one far above every threshold."""
    generator = np.random.Generator(np.random.Philox(seed))
    items = len(labels_for(plan))
    rows = generator.poisson(generator.choice([0.3, 3.0, 30.0], size=(users, 1)), size=(users, items))
    rows[0] = 0
    rows[1, generator.integers(items)] = HUGE
    return rows


def telling_rows(plan: Plan) -> Integers:
    """Users that move sums most: nothing, just above and far above candidates, in one item or in all alike."""
    items = len(labels_for(plan))
    sizes = np.unique(np.append((plan.candidate_steps >> plan.grid_bits) + 1, [1, HUGE // items]))
    single = [size * row for size in sizes for row in np.eye(items, dtype=np.int64)]
    alike = [np.full(items, size) for size in sizes]
    return np.array([np.zeros(items, dtype=np.int64), *single, *alike])


def measured(measurement: Measurement[Any], rows: Integers | Histograms, *, seed: int = 1) -> Summed:
    """The measurement of these users, the same for the same seed and user numbers."""
    users = rows if isinstance(rows, Histograms) else histograms_of(rows)
    draws = SeededSource(seed).fork("device", measurement.round.value)
    return measurement.with_labels(labels_for(measurement.plan)).of(users, source=draws)


def added(measurement: Measurement[Any], parts: Sequence[Summed]) -> Summed:
    """The sum of sums."""
    columns = measurement.shape.columns
    keyed = KeyedSum(columns)
    for part in parts:
        if part.keyed is not None:
            keyed.add(part.keyed)
    values: Integers = np.array([part.values for part in parts]).sum(axis=0)
    return Summed(values, keyed.total() if columns else None)


def total_of(
    measurement: Measurement[Any], rows: Integers, *, noise_seed: int | None = 1, seed: int = 1
) -> Total:
    """The sum over a cohort of these users, in the masked form where the plan masks: sessions would change nothing.

    Where devices add noise it holds all their shares, or none for a `noise_seed` of None.
    """
    plan, labels = measurement.plan, labels_for(measurement.plan)
    summed = measured(measurement, rows, seed=seed)
    if not plan.is_masked:
        return Total(len(rows), summed.values, summed.keyed, labels)
    vector = measurement.to_masked(summed, labels)
    participants = plan.masks.participants
    if measurement.share is not None and noise_seed is not None:
        for number in range(participants):
            noise = SeededSource(noise_seed).fork("noise", number, measurement.round.value)
            vector = vector + measurement.share.draw(len(vector), source=noise)
    return measurement.from_masked(vector, users=len(rows), shares=participants)


def part_of_reading(measurement: Measurement[Any], total: Total, name: str) -> Floats:
    """A part of the reading as floats, items first where there are items. `sum` is the sum before it is read."""
    if name == "sum":
        return total.values.astype(np.float64)
    reading = measurement.read(total)
    part = getattr(reading, name)
    if hasattr(part, "pieces"):
        return np.concatenate([piece.astype(np.float64) for piece in part.pieces()])
    if getattr(reading, "keys", None) is None:
        return np.asarray(part, dtype=np.float64)
    names = [str(label) for label in labels_for(measurement.plan)]
    dense = np.zeros(len(names))
    for key, value in zip(reading.keys.tolist(), part.tolist(), strict=True):
        dense[names.index(str(reading.labels[key]))] = value
    return dense


def by_label(keyed: Keyed | None, bins: int, labels: Labels | None) -> Mapping[object, list[int]]:
    """Sums by the name of their item and its bin, no matter who numbered them."""
    if keyed is None:
        return {}
    rows = zip(keyed.keys.tolist(), keyed.values.tolist(), strict=True)
    return {
        (str(key // bins if labels is None else labels[key // bins]), key % bins): row for key, row in rows
    }


class WatchedSource:
    """A seeded source that remembers what for something was drawn from it or from its forks."""

    seeded = True

    def __init__(self, seed: int) -> None:
        self._source: Source = SeededSource(seed)
        self._purpose: tuple[str | int, ...] = ()
        self.drawn: set[tuple[str | int, ...]] = set()

    def words(self, count: int) -> Words:
        """The next words."""
        self.drawn.add(self._purpose)
        return self._source.words(count)

    def user_words(self, users: Integers, draw: Integers | int = 0) -> Words:
        """The word of each user and draw."""
        self.drawn.add(self._purpose)
        return self._source.user_words(users, draw)

    def fork(self, *purpose: str | int) -> WatchedSource:
        """A stream for this purpose, watched alike."""
        forked = WatchedSource(0)
        forked._source, forked._purpose = self._source.fork(*purpose), (*self._purpose, *purpose)
        forked.drawn = self.drawn
        return forked
