"""A round without masks in which nodes are faulty, for engines that have no nodes of their own.

Honest users are summed as ever, those of faulty nodes left out. What faulty nodes answer is made by the code of a node,
spoiled, and offered to the server's collector, which drops and counts it, or can't see anything wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter

from fedhist.client.device import answer_population
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import Observer
from fedhist.protocol.histograms import Divisible, Population, labels_of
from fedhist.protocol.keyed import KeyedSum
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Contribution, Request, Total
from fedhist.protocol.wire.codec import encode
from fedhist.protocol.wire.envelope import Envelope, Status
from fedhist.server.collection import Collector, LabelTable, RoundReport
from fedhist.server.drop_outs import Fault
from fedhist.server.round_watch import RoundWatch, names_of, tell_round
from fedhist.simulations.engines.fault_cast import Cast, first_number, others
from fedhist.simulations.engines.faulty_answers import Among, among, spoiled, told
from fedhist.simulations.engines.masked_in_process import parts_of
from fedhist.simulations.engines.passes import Answers
from fedhist.simulations.faults import UNHEARD, FaultKind

# A run's name has no part in a sum.
_RUN_NAME = "0" * 32
SEEN_AS = {
    FaultKind.DROPOUT: Fault.NO_ANSWER,
    FaultKind.SLOW: Fault.NO_ANSWER,
    FaultKind.FAIL: Fault.ERROR,
    FaultKind.MALFORMED: Fault.MALFORMED,
    FaultKind.OUT_OF_BOUNDS: Fault.OUT_OF_BOUNDS,
}
"""How a server counts a node of each kind. Nobody waits for one that is slow: it is counted when the round is over."""


class FaultyRound:
    """One round.

    Args:
        cast: who is faulty.
        request: what is asked.
        population: all users.
        source: for what users draw.
        observe: called with the events.
    """

    def __init__(
        self, cast: Cast, request: Request, population: Population, *, source: Source, observe: Observer
    ) -> None:
        self._began = perf_counter()
        self._request, self._population, self._source = request, population, source
        self._observe, self._nodes = observe, cast.nodes
        missing = cast.missing(request.round, masked=False)
        self._faulty = missing | cast.lying(request.round, masked=False)
        self._honest = others(cast.places(self._faulty), population.users)
        self._cast = cast
        envelope = Envelope(_RUN_NAME, request)
        known = () if request.plan.items else labels_of(population) or range(population.domain_size)
        self._collector = Collector(envelope, LabelTable(known))
        self._watch = RoundWatch(observe, envelope, names_of(range(cast.nodes)), self._collector.tally)
        self._watch.asked(dict.fromkeys(range(cast.nodes), 0))

    @property
    def tally(self) -> Among:
        """The sum over the users of honest nodes."""
        return among(Answers(self._request, self._source), self._honest, first_number(self._population))

    def end(self, honest: Contribution) -> tuple[Total, RoundReport]:
        """The total with what faulty nodes added to it, and the report. `honest` is the sum of the tally."""
        self._hear()
        collector, request = self._collector, self._request
        due = sum(stop - start for start, stop in self._honest)
        if honest.users != due:
            raise RoundFailed(
                f"round {request.round.value}: the shards of honest nodes hold {honest.users:,} users and the "
                f"population says {due:,}; nothing was released. Check the population's shards"
            )
        report = RoundReport(
            round=request.round,
            nodes=self._nodes,
            answered=self._nodes - len(self._faulty) + collector.answered,
            users=honest.users + collector.users,
            faults=dict(collector.tally.faults),
            size=None,
            seconds=perf_counter() - self._began,
        )
        tell_round(self._observe, report)
        values, keyed = honest.values, honest.keyed
        if collector.answered:
            lies = collector.total()
            values = values + lies.values
            if keyed is not None and lies.keyed is not None:
                added = KeyedSum(keyed.values.shape[1])
                for one in (keyed, lies.keyed):
                    added.add(one)
                keyed = added.total()
        return Total(report.users, values, keyed, labels_of(self._population)), report

    def _hear(self) -> None:
        """Offer the faulty nodes' answers to the server."""
        heard = [node for node, kind in self._faulty.items() if kind not in UNHEARD]
        parts = dict(node_parts(self._population, self._cast, heard))
        fields = self._collector.envelope.reply_fields(Status.ANSWER)
        for node, kind in sorted(self._faulty.items()):
            if node not in parts:
                self._watch.dropped(SEEN_AS[kind], node)
                continue
            held = told(parts[node], kind)
            contribution = answer_population(self._request, held, source=self._source)
            data = spoiled(kind, encode(contribution, self._request, labels_of(held)), self._request)
            self._watch.answered(node, data, self._collector.add(fields, data), None)


def node_parts(population: Population, cast: Cast, nodes: Iterable[int]) -> Iterator[tuple[int, Population]]:
    """The users of these nodes."""
    wanted = set(nodes)
    if isinstance(population, Divisible):
        yield from ((node, population.part(*cast.place(node))) for node in sorted(wanted))
    elif wanted:
        yield from ((n, part) for n, part in enumerate(parts_of(population, cast.nodes)) if n in wanted)
