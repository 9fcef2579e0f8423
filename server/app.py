"""The Flower side of the server: a transport over a Grid, and a ServerApp that runs a plan on it.

`app` is the ServerApp of `flwr run`; its settings are the run-config. `run_on_grid` runs a plan on a Grid of your own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import monotonic, sleep

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedhist.display.log_lines import log_shown
from fedhist.protocol.errors import MaskingFailed, RoundFailed, ids_in_words, names_by_reason
from fedhist.protocol.events import Heard, Observer, ignore
from fedhist.protocol.masking.masked_vector import next_session, terms_of, to_total
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Labels, Request, Round, Total
from fedhist.protocol.wire.envelope import (
    ANSWER,
    MASKING,
    RECORD,
    Envelope,
    items_digest,
    new_run_name,
)
from fedhist.server.advice import plan_notes
from fedhist.server.collection import (
    Collector,
    LabelTable,
    Reply,
    RoundReport,
    matched,
    numbered,
    refusal_in,
)
from fedhist.server.coordinator import run_rounds
from fedhist.server.drop_outs import Declined
from fedhist.server.grid_settings import GridSettings, listed_items, listed_keys, read_settings
from fedhist.server.masked_exchange import Advertisements, NodeExchange
from fedhist.server.masked_round import masked_sum
from fedhist.server.observation import tell_charges, tell_states
from fedhist.server.recorded_run import recorded_run
from fedhist.server.releases.contract import Release
from fedhist.server.report import cohort_notes, grid_document, users_answered
from fedhist.server.result_folder import check_target
from fedhist.server.round_watch import RoundWatch, names_of, tell_left_out, tell_round
from fedhist.server.steps import check_runnable
from fedhist.server.totals import total_words
from fedhist.server.withholding import length_tells

log = logging.getLogger("fedhist")
_POLL_SECONDS = 0.1
# How long to wait between looks for answers: twice as long after each that finds none.
_SHORTEST_WAIT, _LONGEST_WAIT = 0.05, 1.0
# Messages sent, or fetched, at once: the server holds no more than these, however many nodes there are.
_AT_ONCE = 64


@dataclass
class GridTransport:
    """A transport over the nodes of a Flower Grid. Messages are `query.select` and `query.release`.

    Args, beside those that `run_on_grid` describes:
        labels: over an open domain, labels whose numbers are known beforehand, in simulations.
        simulated: True only in a simulation, which has the whole population.
        on_error: called with Flower's reason for each error in place of an answer. It may quote users' data.
        run: the run's name, a new one for every run, even of a seeded simulation.
        reports: the reports so far.
        ahead: the advertisements for the next masked round, by its session, which came with the last one's unmasking.
        declined: the nodes that are not asked again in this run.
        not_asked: those of them that were connected when the last round began, by reason.
    """

    grid: Grid
    timeout: float = 600.0
    minimum_nodes: int = 1
    node_timeout: float = 60.0
    labels: Labels | None = None
    simulated: bool = False
    on_report: Callable[[RoundReport], None] = lambda report: None
    observe: Observer = ignore
    on_error: Callable[[str], None] = lambda reason: None
    run: str = field(default_factory=lambda: new_run_name(source=SystemSource()))
    reports: dict[Round, RoundReport] = field(default_factory=dict)
    directory: Mapping[int, bytes] | None = field(default=None, repr=False)
    ahead: dict[bytes, Advertisements] = field(default_factory=dict, repr=False)
    declined: Declined = field(default_factory=Declined)
    not_asked: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def total(self, request: Request) -> Total:
        """Ask every node, drop and count what is wrong, and add up the rest."""
        started = monotonic()
        envelope = Envelope(
            run=self.run,
            request=request,
            items_digest=items_digest(self.labels) if request.plan.items else b"",
        )
        ahead = self.ahead.get(terms_of(envelope).session, {}) if request.plan.is_masked else {}
        nodes = self._nodes(request.plan, ahead)
        known: Labels = () if request.plan.items else self.labels or ()
        log.info("round %s: asking %d nodes", request.round.value, len(nodes))
        if request.plan.is_masked:
            return self._masked_total(envelope, nodes, ahead, known, started)
        collector = Collector(envelope, LabelTable(known))
        watch = RoundWatch(self.observe, envelope, names_of(nodes), collector.tally)
        messages = (self.message(envelope, node, request.round.value) for node in nodes)
        watch.asked(dict.fromkeys(nodes, 0))
        for node, reply in matched(*self.ask(messages), watch.dropped):
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

    def _masked_total(
        self, envelope: Envelope, nodes: Sequence[int], ahead: Advertisements, known: Labels, started: float
    ) -> Total:
        """The same through a masking session. One that fails is reported, too."""
        send = partial(self._send, envelope)
        exchange = NodeExchange(send, envelope, nodes, self.declined, ahead, observe=self.observe)
        included, users = 0, 0
        left_out: Mapping[str, tuple[int, ...]] = {}
        complaints: Mapping[int, tuple[int, ...]] = {}
        try:
            outcome = masked_sum(
                terms_of(envelope),
                exchange,
                source=SystemSource(),
                directory=self.directory,
                on_ignored=exchange.refused,
            )
            included, left_out, complaints = len(outcome.included), outcome.left_out, outcome.complaints
            total = numbered(to_total(outcome.values, envelope.request, participants=included), known)
            users = total.users
        except MaskingFailed as failure:
            left_out, complaints = failure.left_out, failure.complaints
            raise
        finally:
            following = next_session(envelope)
            self.ahead = {} if following is None else {following: exchange.coming}
            named = {reason: exchange.nodes_of(ids) for reason, ids in left_out.items()}
            tell_left_out(self.observe, envelope, named, names_of(nodes))
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
                    complaints={
                        exchange.node_of[accuser]: exchange.nodes_of(accused)
                        for accuser, accused in complaints.items()
                    },
                    dropped=exchange.tally.dropped,
                    not_asked=self.not_asked,
                )
            )
        return total

    def _send(
        self, envelope: Envelope, stage: str, payloads: Sequence[tuple[int, bytes | None]]
    ) -> tuple[dict[str, int], Iterator[Reply]]:
        return self.ask(self.message(envelope, node, stage, payload) for node, payload in payloads)

    def _report(self, report: RoundReport) -> None:
        self.reports[report.round] = report
        log.info("%s", report.in_words())
        for reason, nodes in report.reasons.items():
            log.warning("%s, nodes %s: %s", reason.value, ids_in_words(nodes), reason.in_words)
        tell_round(self.observe, report)
        self.on_report(report)

    def _nodes(self, plan: Plan, ahead: Collection[int] = ()) -> Sequence[int]:
        """The nodes to ask, once enough are connected: at most as many as a masked plan has participants.

        Those that have advertised keys for the round `ahead` come first: they need not be asked for any.
        """
        due = max(1 if self.reports else self.minimum_nodes, plan.minimum_survivors)
        until = monotonic() + self.node_timeout
        while True:
            connected = sorted(self.grid.get_node_ids())
            nodes = [node for node in connected if node not in self.declined.reasons]
            self.not_asked = self.declined.among(connected)
            if len(nodes) >= due:
                if plan.participants is None or len(nodes) <= plan.participants:
                    return nodes
                drawn = [nodes[place] for place in np.argsort(SystemSource().words(len(nodes))).tolist()]
                drawn.sort(key=lambda node: node not in ahead)
                return sorted(drawn[: plan.participants])
            if monotonic() >= until:
                earlier = f" (not asked again: {names_by_reason(self.not_asked)})" if self.not_asked else ""
                raise RoundFailed(
                    f"{len(nodes)} nodes are connected and {due} are needed{earlier}; nothing was released"
                )
            sleep(_POLL_SECONDS)

    def ask(self, messages: Iterable[Message]) -> tuple[dict[str, int], Iterator[Reply]]:
        """Send the messages: the node of each by its id, and the replies as they come, until the round's time is up."""
        nodes: dict[str, int] = {}
        waiting: set[str] = set()
        coming = iter(messages)
        while some := list(islice(coming, _AT_ONCE)):
            waiting |= set(self.grid.push_messages(some))
            nodes |= {message.metadata.message_id: message.metadata.dst_node_id for message in some}
        return nodes, self._replies(waiting & set(nodes), len(nodes))

    def _replies(self, waiting: set[str], asked: int) -> Iterator[Reply]:
        """The replies to these messages. Flower's own `send_and_receive` looks every 3 s and holds all of them."""
        until, pause = monotonic() + self.timeout, _SHORTEST_WAIT
        while waiting and monotonic() < until:
            due = sorted(waiting)
            for first in range(0, len(due), _AT_ONCE):
                for message in self.grid.pull_messages(due[first : first + _AT_ONCE]):
                    waiting.discard(message.metadata.reply_to_message_id)
                    if message.has_error():
                        self.on_error(message.error.reason or "")
                    yield _read_reply(message)
            self.observe(Heard(answered=asked - len(waiting), asked=asked))
            pause = min(2 * pause, _LONGEST_WAIT) if len(waiting) == len(due) else _SHORTEST_WAIT
            if waiting:
                sleep(min(pause, max(until - monotonic(), 0)))

    def message(self, envelope: Envelope, node: int, kind: str, payload: bytes | None = None) -> Message:
        """The request to one node; a payload is what a stage of a masked round adds."""
        fields = envelope.to_fields()
        if payload is not None:
            fields[MASKING] = payload
        content = RecordDict({RECORD: ConfigRecord({**fields})})
        # An answer that comes after the round is of no use, so the message need not live longer.
        group = envelope.request.round.value
        return Message(content, node, f"query.{kind}", ttl=self.timeout, group_id=group)


def run_on_grid(
    grid: Grid,
    plan: Plan,
    *,
    ledger: Ledger | None = None,
    source: Source | None = None,
    labels: Labels | None = None,
    timeout: float = 600.0,
    minimum_nodes: int = 1,
    node_timeout: float = 60.0,
    on_report: Callable[[RoundReport], None] = lambda report: None,
    observe: Observer = ignore,
    directory: Mapping[int, bytes] | None = None,
) -> Release:
    """Both rounds over the nodes of a Grid whose ClientApp has our handlers, see `fedhist.client.app.mount`.

    Raises RoundFailed when too few users answer: nothing is released, and the ledger says what was spent. The error
    says who did not answer and why. Nodes that refuse, or say that they failed, are not asked again in the run.

    Our lines go to the logger `fedhist`, and to stderr where the process has not set up logging for it.

    Args:
        grid: what Flower hands to a ServerApp's main function.
        plan: what to run. Selectors that are not private are refused.
        ledger: where each charge is written before its noise is drawn; None uses one that ends with the call.
        source: where noise comes from. None is the operating system; anything else is for simulations.
        labels: the public list of a closed domain whose items have names, the same that the nodes have.
        timeout: seconds that a round waits for answers; a node that has not answered by then is left out.
        minimum_nodes: the number of nodes to wait for before the first round. Later rounds ask the nodes that are
            connected, and the plan's minimum cohort decides.
        node_timeout: seconds to wait for those nodes; after that the round fails.
        on_report: called with what happened in each round, even one that fails: cohort sizes, faults, timings.
        observe: called with each event of the run, see `fedhist.protocol.events`; charges come from the ledger.
        directory: for signed masking, the participants' public keys, see `fedhist.protocol.masking.identities`.
    """
    transport = GridTransport(
        grid=grid,
        timeout=timeout,
        minimum_nodes=minimum_nodes,
        node_timeout=node_timeout,
        labels=labels,
        on_report=on_report,
        observe=observe,
        directory=directory,
    )
    with log_shown():
        try:
            release = run_rounds(
                plan,
                transport,
                ledger=Ledger() if ledger is None else ledger,
                source=SystemSource() if source is None else source,
                on_state=tell_states(observe, simulated=False),
            )
        except RoundFailed as failure:
            if transport.reports and (who := [*transport.reports.values()][-1].who_answered()):
                failure.explain(who)
            raise
    return release.named(labels)


def run_settings(grid: Grid, settings: GridSettings) -> Release:
    """Run what the settings say, charge their ledger, and write the result folder once all went well."""
    check_runnable(settings.plan, simulated=False)
    check_target(settings.out)
    labels = listed_items(settings)
    directory = listed_keys(settings)
    if settings.total_epsilon is not None:
        log.info("%s", total_words(settings.plan, settings.total_epsilon))
    for note in plan_notes(settings.plan):
        log.warning("%s", note)
    reports: dict[Round, RoundReport] = {}
    with recorded_run(
        settings.plan,
        target=settings.out,
        labels=labels,
        ledger=settings.ledger,
        label="flower",
        trace=settings.trace,
        engine="flower",
        simulated=False,
    ) as run:
        ledger = Ledger(journal=tell_charges(run.recorder, run.journal))
        release = run_on_grid(
            grid,
            settings.plan,
            ledger=ledger,
            source=None if settings.seed is None else SeededSource(settings.seed),
            labels=labels,
            timeout=settings.timeout,
            minimum_nodes=settings.minimum_nodes,
            node_timeout=settings.node_timeout,
            on_report=lambda report: reports.update({report.round: report}),
            observe=run.recorder,
            directory=directory,
        )
        for note in cohort_notes(settings.plan, users_answered(reports)):
            log.warning("%s", note)
        if settings.out is not None:
            document = grid_document(release, ledger, reports, labels, seed=settings.seed)
            run.write(settings.out, document, release, labels)
            log.info("result written")
    return release


def _read_reply(message: Message) -> Reply:
    """A reply with its header and its answer; anything missing or of another type is left out."""
    fields: dict[str, object] = {}
    data = None
    if message.has_content():
        fields = dict(message.content.config_records.get(RECORD, {}))
        arrays = message.content.array_records.get(ANSWER)
        array = None if arrays is None else arrays.get("answer")
        data = None if array is None or array.dtype != "uint8" else array.data
    metadata = message.metadata
    return Reply(metadata.reply_to_message_id, metadata.src_node_id, message.has_error(), fields, data)


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the plan in the run-config. An error ends the Flower run as failed."""
    settings = read_settings(context.run_config)
    with log_shown():
        run_settings(grid, settings)
