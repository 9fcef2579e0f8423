"""What faulty nodes did to a run: who is missing, who lied, and what that changed. The effect is NOT private."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.histograms import Integers, Population
from fedhist.protocol.keyed import Keyed, KeyedSum
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Contribution, Request, Round, Total
from fedhist.server.coordinator import run_rounds
from fedhist.server.releases.contract import Release
from fedhist.simulations.diagnostics import dense
from fedhist.simulations.engines.contract import SimulatedTransport
from fedhist.simulations.engines.fault_cast import Cast, first_number, others
from fedhist.simulations.engines.faulty_answers import among, taken_away
from fedhist.simulations.engines.in_process import plain_round
from fedhist.simulations.engines.masked_in_process import unmasked_total
from fedhist.simulations.engines.passes import Answers, ItemTotals, Tally
from fedhist.simulations.faults import FaultKind, Faults


@dataclass(frozen=True)
class FaultyRoundReport:
    """The faulty nodes of one round.

    Args:
        missing: the number of nodes whose answers are not in the sum, by kind.
        lying: of nodes whose lies are in the sum, by kind.
        users_missing: the users of the missing nodes.
        users_lying: the users of the lying nodes.
    """

    missing: dict[str, int]
    lying: dict[str, int]
    users_missing: int
    users_lying: int


@dataclass(frozen=True)
class FaultEffect:
    """What faults changed. NOT private: computed from the exact data. Shares are of the true total of all users.

    Args:
        loss_without_faults: the relative loss of the same run, with the same seed, if no node were faulty.
        threshold_without_faults: the threshold that it would have chosen.
        loss_of_answered: the loss of this run against the true histogram of those users alone who are in its sum.
        missing: what the missing users would have added to the sum of round 2, before noise; None without a round 2.
        lies: how far lies moved that sum, as the l1 norm of what liars sent less what they should have sent.
    """

    loss_without_faults: float
    threshold_without_faults: float
    loss_of_answered: float
    missing: float | None = None
    lies: float | None = None


@dataclass(frozen=True)
class FaultReport:
    """Which faults were simulated, whom they struck, and what they changed, where the truth is known."""

    nodes: int
    shares: dict[str, float]
    rounds: dict[str, FaultyRoundReport]
    effect: FaultEffect | None = None

    @property
    def lies(self) -> bool:
        """Whether somebody's lies are in a sum, so that the release is of no use to anybody."""
        return any(one.lying for one in self.rounds.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """For the reader of a release that has lies in it."""
        nodes = max((sum(one.lying.values()) for one in self.rounds.values()), default=0)
        said = f"simulation only: {nodes:,} of {self.nodes:,} nodes made their answers up (--faulty)"
        return (said,) if self.lies else ()

    def to_json(self) -> dict[str, Any]:
        """By name; `effect` only beside the truth."""
        document = asdict(self)
        return document if self.effect is not None else {k: v for k, v in document.items() if k != "effect"}


def _by_kind(kinds: Iterable[FaultKind]) -> dict[str, int]:
    counted = Counter(kinds)
    return {kind.value: counted[kind] for kind in FaultKind if counted[kind]}


@contextmanager
def reasons_told(transport: SimulatedTransport, asked: Mapping[Round, object]) -> Iterator[None]:
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


def effects_of(
    transport: SimulatedTransport,
    population: Population,
    plan: Plan,
    requests: Mapping[Round, Request],
    *,
    source: Source,
) -> Effects | None:
    """Measures the effects of a run's faults; None for a run without."""
    if not transport.faults or transport.cast is None:
        return None
    return Effects(transport.faults, transport.cast, population, plan, requests, source=source)


class Effects:
    """Measures what faults changed: tallies for one more pass over the users, and what follows from their sums.

    Args:
        faults: what was simulated.
        cast: who was faulty.
        population: all users.
        plan: of the run.
        requests: of its rounds.
        source: for what users draw; a seeded one draws the same again.
    """

    def __init__(
        self,
        faults: Faults,
        cast: Cast,
        population: Population,
        plan: Plan,
        requests: Mapping[Round, Request],
        *,
        source: Source,
    ) -> None:
        self._faults, self._cast, self._population, self._plan = faults, cast, population, plan
        self._rounds, self._request, self._source = [*requests], requests.get(Round.RELEASE), source
        self._missing = cast.missing(Round.RELEASE, masked=plan.is_masked)
        self._lying = cast.lying(Round.RELEASE, masked=plan.is_masked)

    def report(self, effect: FaultEffect | None) -> FaultReport:
        """Whom the faults struck, and this effect."""
        cast, rounds = self._cast, {}
        for round_ in self._rounds:
            missing = cast.missing(round_, masked=self._plan.is_masked)
            lying = cast.lying(round_, masked=self._plan.is_masked)
            rounds[round_.value] = FaultyRoundReport(
                missing=_by_kind(missing.values()),
                lying=_by_kind(lying.values()),
                users_missing=cast.users_of(missing),
                users_lying=cast.users_of(lying),
            )
        shares = {kind.value: share for kind, share in self._faults.shares.items()}
        return FaultReport(cast.nodes, shares, rounds, effect)

    @property
    def tallies(self) -> list[Tally[Any]]:
        """The truth of the users in the sum, then what all, missing and lying users should and did send."""
        cast, first = self._cast, first_number(self._population)
        missing = cast.places(self._missing)
        tallies: list[Tally[Any]] = [among(ItemTotals(), others(missing, self._population.users), first)]
        if self._request is not None:
            answers = Answers(self._request, self._source)
            inflating = [node for node, kind in self._lying.items() if kind is FaultKind.INFLATE]
            liars = cast.places(inflating)
            tallies += [
                answers,
                among(answers, missing, first),
                among(answers, liars, first),
                among(answers, liars, first, lying=True),
            ]
        return tallies

    def clean(self, sums: Sequence[Any]) -> Total | None:
        """The sum of round 2 over all users, at the threshold of this run, as if nobody were faulty."""
        if self._request is None:
            return None
        summed: Contribution = sums[1]
        return Total(summed.users, summed.values, summed.keyed)

    def measured(
        self, release: Release, truth: Integers, sums: Sequence[Any], transport: SimulatedTransport
    ) -> FaultEffect:
        """The effect, from the sums of the tallies."""
        without = self._without_faults(transport)
        effect = FaultEffect(
            loss_without_faults=_loss(self._population, without, truth),
            threshold_without_faults=without.threshold,
            loss_of_answered=_loss(self._population, release, sums[0]),
        )
        if self._request is None:
            return effect
        total = int(truth.sum())
        _, _, missing, honest, inflated = sums
        return replace(
            effect,
            missing=self._counts([(1, missing)], 0) / total,
            lies=self._counts([(1, inflated), (-1, honest)], self._taken()) / total,
        )

    def _taken(self) -> int:
        """What nodes out of bounds took from every value of the sum."""
        out = [node for node, kind in self._lying.items() if kind is FaultKind.OUT_OF_BOUNDS]
        return (
            sum(taken_away(self._request, self._cast.users_of([node])) for node in out)
            if self._request
            else 0
        )

    def _counts(self, parts: Sequence[tuple[int, Contribution]], more: int) -> float:
        """The l1 norm of a sum of contributions with signs, and of this on every value, in counts."""
        if self._request is None:
            return 0.0
        if parts[0][1].keyed is not None:
            added = KeyedSum(self._request.measurement.shape.columns)
            for sign, one in parts:
                if one.keyed is not None:
                    added.add(Keyed(one.keyed.keys, sign * one.keyed.values))
            return float(np.abs(added.total().values[:, 0]).sum())
        plan = self._request.round_plan
        values = sum(sign * one.values[: plan.closed.items] for sign, one in parts) + more
        return float(np.ldexp(np.abs(values).sum(dtype=np.float64), -plan.grid_bits))

    def _without_faults(self, transport: SimulatedTransport) -> Release:
        """The same run, without faults: where the engine makes its passes, and without charges of its own."""
        clean = _NoFaults(self._population, self._source, crew=transport.crew)
        return run_rounds(self._plan, clean, ledger=Ledger(), source=self._source)


@dataclass
class _NoFaults(SimulatedTransport):
    """The cohort as it would be. Under masks, the sum of what the participants would have masked."""

    population: Population
    source: Source

    def total(self, request: Request) -> Total:
        if request.plan.is_masked:
            return unmasked_total(request, self.population, source=self.source)
        return plain_round(self, request, self.population, source=self.source)


def _loss(population: Population, release: Release, truth: Integers) -> float:
    """The l1 error of a release over the total of the truth."""
    released = dense(population, release, None).released
    error = np.abs(released[: len(truth)] - truth).sum() + np.abs(released[len(truth) :]).sum()
    return float(error / max(int(truth.sum()), 1))


def effect_words(effect: Mapping[str, Any], *, loss: float, threshold: float) -> list[str]:
    """The effect in sentences, from the numbers of a document."""
    without = effect["loss_without_faults"]
    words = [
        f"The relative loss is {loss:.4f}, and the same run without faults would have had {without:.4f}.",
        f"Against the users in the sum alone it is {effect['loss_of_answered']:.4f}.",
    ]
    if effect["threshold_without_faults"] != threshold:
        words.append(
            f"The threshold is {threshold:,.4g}, and would have been {effect['threshold_without_faults']:,.4g}."
        )
    if effect.get("missing"):
        words.append(f"Missing users would have added {effect['missing']:.2%} of all counts, before noise.")
    if effect.get("lies"):
        words.append(f"Lies moved the sum by {effect['lies']:.2%} of all counts, before noise.")
    return words


def kind_words(faults: Mapping[str, Any], *, masked: bool, threshold: float | None) -> list[str]:
    """A sentence for each kind of fault that struck the last round, from the numbers of a document."""
    rounds: Mapping[str, Mapping[str, Any]] = faults["rounds"]
    if not rounds:
        return []
    last = list(rounds.values())[-1]
    unseen = "The server sees masked numbers alone: the lies are in the sum." if masked else ""
    bound = "" if threshold is None else f", {threshold:,.4g}"
    words = {
        "dropout": "dropped out. The server goes on with the rest; in every round others drop out.",
        "slow": "answered after the time limit. Nobody waits for them: to the server they gave no answer.",
        "fail": "answered with an error, which the server counted.",
        "malformed": "sent bytes that can't be read. The server dropped and counted them.",
        "out-of-bounds": f"sent values below zero. {unseen or 'The server checked, dropped and counted them.'}",
        "inflate": "lied within the bounds: all their users claim the last item alone. No server can see that. "
        f"Clipping limits each of their users to the threshold{bound}.",
    }
    counted = {**last["missing"], **last["lying"]}
    return [
        f"{count:,} of {faults['nodes']:,} nodes {words[kind]}"
        for kind, count in counted.items()
        if kind in words
    ]
