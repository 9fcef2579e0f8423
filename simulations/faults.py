"""Nodes that drop out, fail or lie in a simulation: which they are, what they send, and what is reported of them.

They are the same on every engine, drawn before the first round. Node i of N has the users from i n/N to (i+1) n/N.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any

import numpy as np

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import MAX_USER_TOTAL, Histograms, Population, labels_of
from fedhist.protocol.masking.graph import share_of
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Contribution, Request, Round
from fedhist.server.collection import Fault
from fedhist.simulations.engines.passes import Adding, Answers

_DROPOUT_STAGES = (
    MaskingStage.ADVERTISING,
    MaskingStage.SHARING,
    MaskingStage.MASKING,
    MaskingStage.UNMASKING,
)


class FaultKind(StrEnum):
    """How a node is faulty. Dropouts are others in each round; nodes that fail or lie do so in all rounds."""

    DROPOUT = "dropout"
    FAIL = "fail"
    INFLATE = "inflate"

    @property
    def seen_as(self) -> Fault:
        """How a server counts a node that adds nothing."""
        return Fault.ERROR if self is FaultKind.FAIL else Fault.NO_ANSWER


FAULTY = (FaultKind.FAIL, FaultKind.INFLATE)
"""The kinds of `--faulty`: an error instead of an answer, and a lie that no server can see, see `inflated`."""

ALLOWED = f"KIND=SHARE with {' or '.join(FAULTY)} for KIND, and a number from 0 to below 1 for SHARE"


@dataclass(frozen=True)
class Faults:
    """Shares of the nodes.

    Args:
        dropout: gives no answer in a round; others in each round.
        faulty: is faulty, in all rounds, by kind.
    """

    dropout: float = 0.0
    faulty: Mapping[FaultKind, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything goes wrong."""
        return bool(self.shares)

    @property
    def shares(self) -> dict[FaultKind, float]:
        """The shares that are above zero, by kind."""
        known = {FaultKind.DROPOUT: self.dropout, **self.faulty}
        return {kind: known[kind] for kind in FaultKind if known.get(kind, 0) > 0}


def faults_of(dropout: float = 0.0, faulty: Mapping[str, float] | None = None) -> Faults:
    """The faults with these shares. Refuses unknown kinds, and shares that leave no honest node."""
    if not _is_share(dropout):
        raise InvalidInput(
            f"--dropout is {dropout}", allowed="a number from 0 to below 1", code="bad-dropout"
        )
    if not isinstance(faulty, Mapping | None):
        raise InvalidInput(f"--faulty is {faulty!r}", allowed=ALLOWED, code="bad-faulty")
    for name, share in (faulty or {}).items():
        if name not in FAULTY:
            advice = "--dropout is an option of its own" if name == FaultKind.DROPOUT else ""
            raise InvalidInput(
                f"--faulty has no kind {name!r}", allowed=ALLOWED, advice=advice, code="unknown-fault"
            )
        if not _is_share(share):
            raise InvalidInput(f"--faulty {name}={share}", allowed=ALLOWED, code="bad-share")
    faults = Faults(float(dropout), {FaultKind(name): float(share) for name, share in (faulty or {}).items()})
    if (whole := sum(faults.shares.values())) >= 1:
        raise InvalidInput(
            f"--dropout and --faulty are {whole:g} of the nodes together",
            allowed="less than 1 in all",
            code="no-honest-node",
        )
    return faults


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


@dataclass(frozen=True)
class FaultAssignment:
    """Which nodes are faulty.

    Args:
        nodes: their number.
        users: of all nodes together.
        faulty: nodes that fail or lie, in all rounds.
        dropped: nodes that drop out, by round without masks.
        silent: nodes that send nothing from a stage on, by round with masks; one that fails sends nothing at all.
    """

    nodes: int
    users: int
    faulty: Mapping[int, FaultKind] = field(repr=False)
    dropped: Mapping[Round, Collection[int]] = field(repr=False)
    silent: Mapping[Round, Mapping[str, Collection[int]]] = field(repr=False)

    @classmethod
    def drawn(cls, faults: Faults, nodes: int, users: int, *, source: Source) -> FaultAssignment:
        """Exactly these shares of the nodes, rounded down. Without masks no dropout is faulty besides."""
        draws = source.fork("faults")
        left = _shuffled(nodes, source=draws.fork("faulty"))
        faulty: dict[int, FaultKind] = {}
        for kind in FAULTY:
            count = share_of(nodes, faults.faulty.get(kind, 0.0))
            faulty |= dict.fromkeys(left[:count], kind)
            left = left[count:]
        failing = [node for node, kind in faulty.items() if kind is FaultKind.FAIL]
        gone, dropped, silent = share_of(nodes, faults.dropout), {}, {}
        for round_ in Round:
            order = _shuffled(nodes, source=draws.fork("dropout", round_.value))
            dropped[round_] = [node for node in order if node not in faulty][:gone]
            order = _shuffled(nodes, source=source.fork("masking", round_.value, "drop-outs"))
            dealt = [node for node in order if node not in failing][:gone]
            stages = {stage.value: dealt[place::4] for place, stage in enumerate(_DROPOUT_STAGES)}
            silent[round_] = stages | {MaskingStage.ADVERTISING.value: dealt[::4] + failing}
        return cls(nodes, users, faulty, dropped, silent)

    def struck(self, round_: Round, *, masked: bool) -> dict[int, FaultKind]:
        """What each faulty node does in a round. One that drops out at the last stage is in the sum all the same."""
        stages = [nodes for stage, nodes in self.silent[round_].items() if stage != MaskingStage.UNMASKING]
        gone = [node for nodes in stages for node in nodes] if masked else self.dropped[round_]
        failing = {node: kind for node, kind in self.faulty.items() if kind is FaultKind.FAIL}
        return {**self.faulty, **dict.fromkeys(gone, FaultKind.DROPOUT), **failing}

    def missing(self, round_: Round, *, masked: bool) -> dict[int, FaultKind]:
        """The nodes whose answers are not in a round's sum, and why."""
        return {
            node: kind
            for node, kind in self.struck(round_, masked=masked).items()
            if kind is not FaultKind.INFLATE
        }

    def lying(self, round_: Round, *, masked: bool) -> set[int]:
        """The nodes whose lies are in a round's sum."""
        return {
            node for node, kind in self.struck(round_, masked=masked).items() if kind is FaultKind.INFLATE
        }

    def unheard(self, round_: Round, stage: str) -> set[int]:
        """The nodes that do not answer in this stage: those that drop out in it or before.

        A round after the first asks only those for keys that have not advertised any; the others it would have asked
        then drop out in the next stage.
        """
        if stage == round_.value:
            return {*self.missing(round_, masked=False)}
        stages = [one.value for one in MaskingStage]
        until = stages[: stages.index(stage) + 1] if stage in stages else []
        return {node for one in until for node in self.silent[round_].get(one, ())}

    def users_of(self, nodes: Iterable[int]) -> int:
        """The number of users of these nodes."""
        return sum((node + 1) * self.users // self.nodes - node * self.users // self.nodes for node in nodes)


def _shuffled(nodes: int, *, source: Source) -> list[int]:
    order: list[int] = np.argsort(source.words(nodes), kind="stable").tolist()
    return order


def inflated(users: int, domain_size: int, first_user: int) -> Histograms:
    """What a liar claims: as many users as it has, each with the last item alone, as often as a user may have it.

    What the honest code makes of them is the largest that this number of users can send for one item.
    """
    return Histograms(
        offsets=np.arange(users + 1),
        items=np.full(users, domain_size - 1),
        counts=np.full(users, MAX_USER_TOTAL),
        domain_size=domain_size,
        first_user=first_user,
    )


def inflated_population(population: Population) -> Population:
    """The users that a lying node claims to have."""
    return SparsePopulation(
        inflated(population.users, population.domain_size, first_number(population)),
        labels=labels_of(population),
    )


def first_number(population: Population) -> int:
    """The number of the first user."""
    return next(iter(population.shards())).first_user


@dataclass(frozen=True, eq=False)
class FaultyAnswers:
    """The tally of a round without masks: users of missing nodes are left out, and those of liars inflated.

    Args:
        answers: the tally of honest users.
        assignment: which nodes are faulty.
        first_user: the number of the first user of the first node.
    """

    answers: Answers
    assignment: FaultAssignment
    first_user: int

    @property
    def request(self) -> Request:
        """What is asked."""
        return self.answers.request

    def begin(self, population: Population) -> _Adding:
        """Nobody yet."""
        return _Adding(self, self.answers.begin(population))

    def plus(self, sums: Sequence[Contribution]) -> Contribution:
        """As of honest users."""
        return self.answers.plus(sums)


class _Adding:
    def __init__(self, tally: FaultyAnswers, adding: Adding[Contribution]) -> None:
        self._adding, self._first_user, nodes = adding, tally.first_user, tally.assignment
        self._kind_of = nodes.struck(tally.answers.request.round, masked=False).get
        self._starts = np.arange(nodes.nodes + 1) * nodes.users // nodes.nodes

    def add(self, shard: Histograms) -> None:
        """The sum grows by consecutive nodes of one kind at a time."""
        starts = self._starts + self._first_user - shard.first_user
        low, high = np.searchsorted(starts, 0, "right") - 1, np.searchsorted(starts, shard.users)
        for kind, group in groupby(range(low, high), self._kind_of):
            nodes = [*group]
            users = shard.rows(max(starts[nodes[0]], 0), min(starts[nodes[-1] + 1], shard.users))
            if kind is FaultKind.INFLATE:
                users = inflated(users.users, users.domain_size, users.first_user)
            if kind in (None, FaultKind.INFLATE):
                self._adding.add(users)

    def result(self) -> Contribution:
        return self._adding.result()


@dataclass(frozen=True)
class FaultReport:
    """Which faults were simulated, and whom they struck.

    Args:
        nodes: the number of nodes.
        shares: of the nodes, by kind.
        rounds: the number of nodes that were struck, by round and by kind.
        loss_without_faults: the relative loss of the same run, with the same seed, without faults. NOT private; None
            unless the run is evaluated.
        threshold_without_faults: its threshold, likewise.
    """

    nodes: int
    shares: dict[str, float]
    rounds: dict[str, dict[str, int]]
    loss_without_faults: float | None = None
    threshold_without_faults: float | None = None

    @classmethod
    def of(
        cls, faults: Faults, assignment: FaultAssignment, asked: Iterable[Round], *, masked: bool
    ) -> FaultReport:
        """Of a run that asked in these rounds."""
        shares, rounds = {kind.value: share for kind, share in faults.shares.items()}, {}
        for round_ in asked:
            counts = Counter(assignment.struck(round_, masked=masked).values())
            rounds[round_.value] = {kind.value: counts[kind] for kind in FaultKind if counts[kind]}
        return cls(assignment.nodes, shares, rounds)

    @property
    def struck(self) -> bool:
        """Whether any node was faulty: a small share of few nodes is none."""
        return any(self.rounds.values())

    @property
    def liars(self) -> int:
        """The number of nodes whose lies are in a sum, so that the release is of no use to anybody."""
        return max((one.get(FaultKind.INFLATE.value, 0) for one in self.rounds.values()), default=0)

    @property
    def notes(self) -> tuple[str, ...]:
        """For the reader of a release that has lies in it."""
        said = f"simulation only: {self.liars:,} of {self.nodes:,} nodes made their answers up (--faulty)"
        return (said,) if self.liars else ()

    def to_json(self) -> dict[str, Any]:
        """By name, without what is not known."""
        return {name: value for name, value in asdict(self).items() if value is not None}
