"""What leaves the server, and what a release rule is: it says what it measures and costs, and builds a release."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedhist.display.tables import BarLength, data_frame, html_table
from fedhist.display.text import visible
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Floats, Integers, Labels
from fedhist.protocol.item_lists import ItemOrigin, why_never_private
from fedhist.protocol.measurements import MEASUREMENTS
from fedhist.protocol.measurements.base import Bound, Given
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.bars import OpenNoise, bars_for
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.ledger import Charge, Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.server.selection.contract import Selection

_ROWS_SHOWN = 10
_LETTERS_SHOWN = 40


@dataclass(frozen=True, eq=False)
class ItemRelease:
    """Items clipped one by one, before and after debiasing; `Release.histogram` is after.

    Args:
        clipped: the noised clipped sums.
        thresholds: each item's bound, in counts.
        clipped_errors: standard error of the noise on `clipped`.
        errors: standard error of the noise on the debiased values, by the delta method.
    """

    clipped: Floats
    thresholds: Floats
    clipped_errors: Floats
    errors: Floats


@dataclass(frozen=True, eq=False)
class Inference:
    """What released values tell of every item; None for what they do not. `Release` explains each."""

    estimate: Floats | None = None
    at_least: Floats | None = None


@dataclass(frozen=True, eq=False)
class Release:
    """What leaves the server.

    Args:
        plan: what was run.
        threshold: the bound that was used, in counts.
        histogram: the noised clipped sum by item, in counts; values may be negative over a closed domain. Over an
            open one, only of the keys that passed the bar.
        standard_error: of the noise on each value, in counts; clipping bias is not in it.
        charges: the ledger's entries of this run.
        private: False when a step was not private (the oracle), and always where `why_never_private` has a reason.
        seeded: True when the noise can be removed by those who know the seed: simulations only.
        evaluated: True when it was compared with the exact data.
        labels: over an open domain, the released keys as their owners wrote them, in the order of `histogram`.
        keys: over an open domain, the same as the population's item numbers, for an evaluation. None without one: a
            population numbers its items by their exact counts, and a transport all keys that it sees.
        bar: over an open domain, what a noisy count had to exceed.
        discovery_share: where the run found its items, the share of the noise's precision that this took.
        mechanism: where the run chose it, the mechanism.
        item_release: the values before debiasing and every item's own bound and error, where items were clipped one
            by one.
        item_origin: what decided which items there are.
        infer: computes what the values tell of every item, from the release alone; None for the values themselves.
        listed: over a closed domain, what its public list calls the items, in the order of `histogram`; None for
            numbers.
        frame_kind: the kind of data frame that `to_frame` makes; None for polars.
    """

    plan: Plan
    threshold: float
    histogram: Floats = field(repr=False)
    standard_error: float
    charges: tuple[Charge, ...]
    private: bool
    seeded: bool
    evaluated: bool = False
    labels: Labels | None = field(default=None, repr=False)
    keys: Integers | None = field(default=None, repr=False)
    bar: int | None = None
    discovery_share: float | None = None
    mechanism: str | None = None
    item_release: ItemRelease | None = field(default=None, repr=False)
    item_origin: ItemOrigin = ItemOrigin.PUBLIC
    infer: Callable[[], Inference] | None = field(default=None, repr=False)
    listed: Labels | None = field(default=None, repr=False)
    frame_kind: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "private", self.private and not self.why_never_private)

    @property
    def why_never_private(self) -> list[str]:
        """Why it is not private whatever its mechanisms are."""
        return why_never_private(
            self.item_origin, self.plan.domain, seeded=self.seeded, evaluated=self.evaluated
        )

    @property
    def names(self) -> Labels:
        """What the released items are called, in the order of `histogram`; their numbers where they have no names."""
        named = self.listed if self.labels is None else self.labels
        return range(len(self.histogram)) if named is None else named

    @cached_property
    def inference(self) -> Inference:
        """What the values tell of every item, computed when it is asked for."""
        return Inference() if self.infer is None else self.infer()

    @property
    def estimate(self) -> Floats:
        """What to use for single items, in counts and not negative.

        Empirical Bayes over a closed domain (`server/estimates`); elsewhere the value itself.
        """
        known = self.inference.estimate
        return np.maximum(self.histogram, 0.0) if known is None else known

    @property
    def at_least(self) -> Floats:
        """A lower limit for each true count, that holds with at least the probability 0.95: `server/estimates/limits`.

        Never above the estimate. 0 where a rule has nothing to say.
        """
        known = self.inference.at_least
        return np.zeros(len(self.histogram)) if known is None else known

    @property
    def found_nothing(self) -> bool:
        """Whether a discovery found no item, so that there is neither a threshold nor a histogram."""
        return self.plan.discovers and self.discovery_share is None

    @property
    def round_plan(self) -> Plan:
        """The plan of the round that released: the run's, with the items and the mechanism that it settled on."""
        plan = self.plan
        if self.discovery_share is not None:
            plan = plan.discovered(len(self.histogram), self.discovery_share)
        return plan.way(self.mechanism)

    def without_numbers(self) -> Release:
        """The same without the numbers that a transport gave to keys."""
        return replace(self, keys=None)

    def named(self, labels: Labels | None) -> Release:
        """The same with these names for the items of a closed domain; an open one has found its own."""
        return self if self.plan.items is None else replace(self, listed=labels)

    def columns(self, labels: Labels | None = None) -> dict[str, Sequence[str | int | float]]:
        """Names and numbers of all items, as histogram.csv has them.

        Args:
            labels: other names for the items of a closed domain.
        """
        items = len(self.histogram)
        names = self.names if labels is None else self.named(labels).names
        if len(names) != items:
            raise InvalidInput(
                f"{len(names):,} labels for {items:,} items",
                allowed="one label for each released item, in order",
                code="wrong-number-of-labels",
            )
        found: dict[str, Sequence[str | int | float]] = {
            "item": names,
            "value": self.histogram.tolist(),
            "standard_error": [self.standard_error] * items,
            "estimate": self.estimate.tolist(),
            "at_least": self.at_least.tolist(),
        }
        if self.item_release is not None:
            before = self.item_release
            found["standard_error"] = before.errors.tolist()
            found["clipped_value"] = before.clipped.tolist()
            found["clipped_standard_error"] = before.clipped_errors.tolist()
            found["threshold"] = before.thresholds.tolist()
        return found

    def to_frame(self, labels: Labels | None = None) -> Any:
        """The same as a data frame, of the kind that the data came in: pandas, polars or pyarrow; else polars."""
        return data_frame(self.columns(labels), self.frame_kind, texts=("item",))

    @cached_property
    def places(self) -> dict[str | int, int]:
        """Where each released item is in the order of `histogram`."""
        return {name: place for place, name in enumerate(self.names)}

    def largest(self, most: int) -> list[int]:
        """The places of the largest values, in falling order."""
        places: list[int] = np.argsort(-self.histogram, kind="stable")[:most].tolist()
        return places

    def _repr_html_(self) -> str:
        """How a notebook shows it: the items of the largest values, with bars."""
        names, rows = self.names, self.largest(_ROWS_SHOWN)
        warning = "" if self.private else ", not private"
        title = f"Release{warning}: {len(rows)} of {len(self.histogram):,} items"
        if not self.found_nothing:
            title += f", threshold {self.threshold:,.4g}, standard error {self.standard_error:,.4g}"
        most = max(float(self.estimate[rows].max(initial=0.0)), 1e-9)
        shown = [
            (
                visible(names[row], _LETTERS_SHOWN),
                f"{self.estimate[row]:,.1f}",
                f"{self.at_least[row]:,.1f}",
                f"{self.histogram[row]:,.1f}",
                BarLength(self.estimate[row] / most),
            )
            for row in rows
        ]
        return html_table(title, shown, headings=("item", "estimate", "at least", "value", ""))


@dataclass(frozen=True)
class RuleWords:
    """A release rule in words, for reports, traces and summaries.

    Args:
        work: what the server does with the sum, in two or three words.
        detail: the same as a sentence.
        noise: the name of the noise.
        adds: what its error is beside that of clipping.
        bias: what is said of values that clipping made smaller; empty where that is undone.
    """

    work: str
    detail: str
    noise: str
    adds: str = "noise alone"
    bias: str = "Clipping takes away, most from large items: values are too small on average"


class ReleaseRule(ABC):
    """One way to make a release. One file here, one line in the registry, and the contract suite runs it."""

    name: ClassVar[str]
    """In documents and errors."""

    version: ClassVar[str] = ""
    """Of one from outside, as its author counts."""

    measures: ClassVar[str]
    """The measurement that it releases."""

    def fits(self, plan: Plan) -> bool:
        """Whether it can release what this plan measures."""
        measured = MEASUREMENTS.get(self.measures)
        return measured is not None and measured.admitted(plan)

    @abstractmethod
    def charges(self, plan: Plan, threshold: Threshold | None) -> tuple[Charge, ...]:
        """What it costs; before the threshold is known (None), the most that it may cost."""

    @abstractmethod
    def build(
        self, plan: Plan, selection: Selection, reading: Any, *, ledger: Ledger, source: Source
    ) -> Release:
        """Draw, add, read, scale. Charged before. The only place where noise meets the sum.

        Under masks a sum is known modulo 2^width, and is read as a signed number only once the noise is in it: what
        comes out is a function of sum plus noise, whatever the other participants sent (`protocol/circle.py`).
        """

    @abstractmethod
    def words(self, plan: Plan) -> RuleWords:
        """What the server does with the sum, for people."""

    def warnings(self, plan: Plan) -> dict[str, str]:
        """Why such a plan's release can't be of use and what to change, by a short name; from the plan alone."""
        return {}

    most_epsilon: ClassVar[float] = math.inf
    """The largest epsilon that its noise is made for."""

    def multiplier(self, epsilon: float, delta: float) -> float:
        """The Gaussian's standard deviation for each unit of l2 sensitivity, of which a plan makes grid and price."""
        return noise_multiplier(epsilon, delta)

    def open_noises(self, plan: Plan, thresholds: Integers) -> list[OpenNoise]:
        """Over an open domain, the noise and the bar at each threshold; scores of thresholds ask for them, too."""
        return bars_for(
            "truncated-laplace",
            thresholds,
            epsilon=plan.epsilon,
            delta=plan.delta,
            neighbours=plan.neighbours,
        )

    def given(self, plan: Plan, selection: Selection, *, source: Source) -> Given:
        """What devices are told, beside the plan."""
        return Bound(selection.threshold)
