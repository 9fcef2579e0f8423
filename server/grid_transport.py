"""The transport over the nodes of a Flower Grid: each round's requests, plain or masked, and the sum of the answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedhist.protocol.errors import MaskingFailed, ids_in_words
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.masking.masked_vector import terms_of, to_total
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.protocol.rounds import Labels, Request, Round, Total
from fedhist.protocol.wire.envelope import MASKING, RECORD, Envelope, Status, items_digest, new_run_name
from fedhist.server.collection import Collector, LabelTable, Reply, RoundReport, matched, numbered, refusal_in
from fedhist.server.drop_outs import Declined, Tally
from fedhist.server.grid_messages import ask, enough_nodes
from fedhist.server.masked_exchange import NodeExchange
from fedhist.server.masked_round import masked_sum
from fedhist.server.round_watch import RoundWatch, names_of, tell_left_out, tell_round
from fedhist.server.withholding import length_tells

log = logging.getLogger("fedhist")


@dataclass
class GridTransport:
    """A transport over the nodes of a Flower Grid. Messages are `query.select` and `query.release`.

    Args, beside those that `run_on_grid` describes:
        labels: over an open domain, labels whose numbers are known beforehand, in simulations.
        simulated: True only in a simulation, which has the whole population.
        seeded: whether the server's noise comes from a seed, which real nodes refuse.
        on_error: called with Flower's reason for each error in place of an answer. It may quote users' data.
        run: the run's name, a new one for every run, even of a seeded simulation.
        reports: the reports so far.
        declined: the nodes that are not asked again in this run.
        took_part: those that the last masked round asked, who come first in the next one.
        not_asked: those of them that were connected when the last round began, by reason.
    """

    grid: Grid
    timeout: float = 600.0
    minimum_nodes: int = 1
    node_timeout: float = 60.0
    labels: Labels | None = None
    simulated: bool = False
    seeded: bool = False
    on_report: Callable[[RoundReport], None] = lambda report: None
    observe: Observer = ignore
    on_error: Callable[[str], None] = lambda reason: None
    run: str = field(default_factory=lambda: new_run_name(source=SystemSource()))
    reports: dict[Round, RoundReport] = field(default_factory=dict)
    directory: Mapping[int, bytes] | None = field(default=None, repr=False)
    declined: Declined = field(default_factory=Declined)
    took_part: Sequence[int] = ()
    not_asked: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def total(self, request: Request) -> Total:
        """Ask every node, drop and count what is wrong, and add up the rest."""
        started = monotonic()
        envelope = Envelope(
            run=self.run,
            request=request,
            items_digest=items_digest(self.labels) if request.plan.items else b"",
            seeded=self.seeded,
        )
        nodes = self._nodes(request.plan)
        known: Labels = () if request.plan.items else self.labels or ()
        log.info("round %s: asking %d nodes", request.round.value, len(nodes))
        if request.plan.is_masked:
            return self._masked_total(envelope, nodes, known, started)
        collector = Collector(envelope, LabelTable(known))
        watch = RoundWatch(self.observe, envelope, names_of(nodes), collector.tally)
        watch.asked(dict.fromkeys(nodes, 0))
        asked = self._ask(envelope, request.round.value, ((node, None) for node in nodes))
        for node, reply in matched(*asked, watch.dropped):
            fault = collector.add(reply.fields, reply.data)
            watch.answered(node, reply.data, fault, self.declined.note(node, refusal_in(reply.fields)))
        self._report(
            RoundReport(
                round=request.round,
                nodes=len(nodes),
                answered=collector.answered,
                users=collector.users,
                faults=dict(collector.tally.faults),
                # How large the answers are can depend on users' data.
                size=None
                if length_tells(request.plan, request.round.value) and not self.simulated
                else collector.size,
                seconds=monotonic() - started,
                dropped=collector.tally.dropped,
                not_asked=self.not_asked,
            )
        )
        return collector.total()

    def _masked_total(self, envelope: Envelope, nodes: Sequence[int], known: Labels, started: float) -> Total:
        """The same through a masking session. One that fails is reported, too."""
        names = names_of(nodes)

        def watch(stage: str, tally: Tally) -> RoundWatch:
            return RoundWatch(self.observe, envelope, names, tally, stage=stage)

        exchange = NodeExchange(
            send=partial(self._ask, envelope),
            terms=terms_of(envelope),
            header=envelope.reply_fields(Status.ANSWER),
            nodes=nodes,
            declined=self.declined,
            watch=watch,
        )
        included, users = 0, 0
        left_out: Mapping[str, tuple[int, ...]] = {}
        complaints: Mapping[int, tuple[int, ...]] = {}
        try:
            outcome = masked_sum(
                exchange.terms,
                exchange,
                source=SystemSource(),
                directory=self.directory,
                on_ignored=exchange.ignored,
            )
            included, left_out, complaints = len(outcome.included), outcome.left_out, outcome.complaints
            total = numbered(to_total(outcome.values, envelope.request, participants=included), known)
            users = total.users
        except MaskingFailed as failure:
            left_out, complaints = failure.left_out, failure.complaints
            raise
        finally:
            named = {reason: exchange.nodes_of(ids) for reason, ids in left_out.items()}
            tell_left_out(self.observe, envelope, named, names)
            self._report(
                RoundReport(
                    round=envelope.request.round,
                    nodes=len(nodes),
                    answered=included,
                    users=users,
                    faults=dict(exchange.tally.faults),
                    size=exchange.size,
                    seconds=monotonic() - started,
                    stages=exchange.stages,
                    left_out=named,
                    complaints=exchange.complaints(complaints),
                    dropped=exchange.tally.dropped,
                    not_asked=self.not_asked,
                )
            )
        return total

    def _report(self, report: RoundReport) -> None:
        self.reports[report.round] = report
        log.info("%s", report.in_words())
        for reason, nodes in report.reasons.items():
            log.warning("%s, nodes %s: %s", reason.value, ids_in_words(nodes), reason.in_words)
        tell_round(self.observe, report)
        self.on_report(report)

    def _nodes(self, plan: Plan) -> Sequence[int]:
        """The nodes to ask, once enough are connected: at most as many as a masked plan has participants."""
        due = max(1 if self.reports else self.minimum_nodes, plan.minimum_survivors)
        nodes, self.not_asked = enough_nodes(
            self.grid,
            due,
            timeout=self.node_timeout,
            declined=self.declined,
        )
        if plan.participants is None or len(nodes) <= plan.participants:
            return nodes
        drawn = [nodes[place] for place in np.argsort(SystemSource().words(len(nodes))).tolist()]
        drawn.sort(key=lambda node: node not in self.took_part)
        self.took_part = sorted(drawn[: plan.participants])
        return self.took_part

    def _ask(
        self, envelope: Envelope, kind: str, payloads: Iterable[tuple[int, bytes | None]]
    ) -> tuple[dict[str, int], Iterator[Reply]]:
        """Send nodes their requests of this kind. A payload is what a stage of a masked round adds."""
        messages = (self._message(envelope, node, kind, payload) for node, payload in payloads)
        return ask(self.grid, messages, timeout=self.timeout, observe=self.observe, on_error=self.on_error)

    def _message(self, envelope: Envelope, node: int, kind: str, payload: bytes | None) -> Message:
        fields = envelope.to_fields()
        if payload is not None:
            fields[MASKING] = payload
        content = RecordDict({RECORD: ConfigRecord({**fields})})
        # An answer that comes after the round is of no use, so the message need not live longer.
        group = envelope.request.round.value
        return Message(content, node, f"query.{kind}", ttl=self.timeout, group_id=group)
