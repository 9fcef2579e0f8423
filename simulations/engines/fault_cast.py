"""Which nodes are faulty in which round of a simulation, drawn before the first one: the same on every engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fedhist.protocol.histograms import Population
from fedhist.protocol.masking.graph import share_of
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Round
from fedhist.simulations.faults import UNDER_MASKS, FaultKind, Faults

DROPOUT_STAGES = (
    MaskingStage.ADVERTISING,
    MaskingStage.SHARING,
    MaskingStage.MASKING,
    MaskingStage.UNMASKING,
)

Places = tuple[tuple[int, int], ...]
"""Ranges of places of users, (start, stop), rising."""


@dataclass(frozen=True)
class Cast:
    """Who plays which part. Node i of N has the users from i n/N to (i+1) n/N.

    Args:
        nodes: N.
        users: n.
        faulty: nodes that are faulty in all rounds.
        dropped: nodes that give no answer, by round without masks.
        silent: by round with masks, and by stage.
    """

    nodes: int
    users: int
    faulty: Mapping[int, FaultKind] = field(repr=False)
    dropped: Mapping[Round, frozenset[int]] = field(repr=False)
    silent: Mapping[Round, Mapping[str, Collection[int]]] = field(repr=False)

    @classmethod
    def drawn(cls, faults: Faults, nodes: int, users: int, *, source: Source) -> Cast:
        """Exactly these shares of the nodes, rounded down. Without masks no drop-out is faulty besides.

        Args:
            faults: the shares.
            nodes: their number.
            users: of all nodes together.
            source: a seeded one draws the same nodes on every engine.
        """
        draws = source.fork("faults")
        left = _shuffled(nodes, source=draws.fork("faulty"))
        faulty: dict[int, FaultKind] = {}
        for kind in FaultKind:
            count = share_of(nodes, faults.faulty.get(kind, 0.0))
            faulty |= dict.fromkeys(left[:count], kind)
            left = left[count:]
        dropped, silent = {}, {}
        for round_ in Round:
            order = _shuffled(nodes, source=draws.fork("dropout", round_.value))
            honest = [node for node in order if node not in faulty]
            dropped[round_] = frozenset(honest[: share_of(nodes, faults.dropout)])
            own = source.fork("masking", round_.value, "drop-outs")
            silent[round_] = dropouts(nodes, faults.dropout, source=own)
        return cls(nodes, users, faulty, dropped, silent)

    def missing(self, round_: Round, *, masked: bool) -> dict[int, FaultKind]:
        """The nodes whose answers are not in a round's sum, and why."""
        if masked:
            # A participant that falls silent at the last stage is in the sum all the same.
            stages = self.silent[round_].items()
            gone = (node for stage, nodes in stages if stage != MaskingStage.UNMASKING for node in nodes)
            return dict.fromkeys(gone, FaultKind.DROPOUT)
        seen: dict[int, FaultKind] = {
            node: kind for node, kind in self.faulty.items() if kind is not FaultKind.INFLATE
        }
        return seen | dict.fromkeys(self.dropped[round_], FaultKind.DROPOUT)

    def lying(self, round_: Round, *, masked: bool) -> dict[int, FaultKind]:
        """The nodes whose lies are in a round's sum, because the server can't see them."""
        missing = self.missing(round_, masked=masked)
        lies = UNDER_MASKS if masked else (FaultKind.INFLATE,)
        return {node: kind for node, kind in self.faulty.items() if kind in lies and node not in missing}

    def place(self, node: int) -> tuple[int, int]:
        """The users of a node, by place."""
        return node * self.users // self.nodes, (node + 1) * self.users // self.nodes

    def places(self, nodes: Iterable[int]) -> Places:
        """The users of these nodes."""
        return tuple(self.place(node) for node in sorted(nodes))

    def users_of(self, nodes: Iterable[int]) -> int:
        """The number of users of these nodes."""
        return sum(stop - start for start, stop in self.places(nodes))


def dropouts(participants: int, share: float, *, source: Source) -> Mapping[str, Collection[int]]:
    """Exactly this share of the participants, drawn at random and dealt to stages in turn, by stage.

    A participant that falls silent at the last stage is in the sum all the same.
    """
    gone = _shuffled(participants, source=source)[: share_of(participants, share)]
    return {stage: gone[place :: len(DROPOUT_STAGES)] for place, stage in enumerate(DROPOUT_STAGES)}


def others(places: Places, users: int) -> Places:
    """The ranges between these, of this number of users."""
    edges = [0, *(edge for place in places for edge in place), users]
    return tuple((start, stop) for start, stop in list(pairwise(edges))[::2] if stop > start)


def first_number(population: Population) -> int:
    """The number of the user at place 0."""
    return next(iter(population.shards())).first_user


def _shuffled(nodes: int, *, source: Source) -> list[int]:
    order: list[int] = np.argsort(source.words(nodes), kind="stable").tolist()
    return order
