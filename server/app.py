"""The Flower side of the server: a transport over a Grid, and a ServerApp that runs a plan on it.

`app` is the ServerApp of `flwr run`; its settings are the run-config. `run_on_grid` runs a plan on a Grid of your own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, sleep

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedhist.protocol.envelope import ANSWER, RECORD, Envelope, items_digest, new_run_name
from fedhist.protocol.errors import RoundFailed
from fedhist.protocol.events import Observer, RunEnded, ignore
from fedhist.protocol.item_list import parse_items, unreadable
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Labels, Request, Round, Total
from fedhist.server.charged_run import charged
from fedhist.server.collection import Collector, Fault, LabelTable, RoundReport, refusal_in
from fedhist.server.coordinator import check_runnable, run_rounds
from fedhist.server.grid_settings import GridSettings, read_settings
from fedhist.server.observation import tell_charges, tell_states
from fedhist.server.release import Release
from fedhist.server.report import release_document, release_notes
from fedhist.server.result_folder import check_target, new_folder, write_results
from fedhist.server.round_watch import RoundWatch
from fedhist.server.trace_file import TRACE_FILE, Recorder, kept_if_failed, write_trace

log = logging.getLogger("fedhist")
_POLL_SECONDS = 0.1


@dataclass
class GridTransport:
    """A transport over the nodes of a Flower Grid. Messages are `query.select` and `query.release`.

    Args:
        grid: where the nodes are.
        timeout: seconds that a round waits for answers; who has not answered then is left out.
        minimum_nodes: how many nodes to wait for before the run's first round; later rounds take who is there, and the
            plan's minimum cohort decides.
        node_timeout: for how many seconds; after that the round fails.
        labels: over a closed domain with names, the public list that the nodes must have too. Over an open domain,
            labels whose numbers are known beforehand, in simulations.
        simulated: True only where the whole population is at hand anyway.
        on_report: called with the report of each round, also of one that fails.
        observe: called with what happens in each round.
        run: the run's name, new for every run also of a seeded simulation.
        reports: the reports so far.
    """

    grid: Grid
    timeout: float = 600.0
    minimum_nodes: int = 1
    node_timeout: float = 60.0
    labels: Labels | None = None
    simulated: bool = False
    on_report: Callable[[RoundReport], None] = lambda report: None
    observe: Observer = ignore
    run: str = field(default_factory=lambda: new_run_name(source=SystemSource()))
    reports: dict[Round, RoundReport] = field(default_factory=dict)

    def total(self, request: Request) -> Total:
        """Ask every node, drop and count what is wrong, and add up the rest."""
        started = monotonic()
        nodes = self._nodes()
        envelope = Envelope(
            run=self.run,
            request=request,
            items_digest=b"" if request.plan.is_open else items_digest(self.labels),
        )
        known: Labels = self.labels or () if request.plan.is_open else ()
        collector = Collector(envelope, LabelTable(known))
        messages = [self._message(envelope, node) for node in nodes]
        log.info("round %s: asking %d nodes", request.round.value, len(nodes))
        watch = RoundWatch(self.observe, envelope, nodes)
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        _collect(collector, messages, replies, watch)
        report = RoundReport(
            round=request.round,
            nodes=len(nodes),
            answered=collector.answered,
            users=collector.users,
            faults=dict(collector.faults),
            size=collector.size,
            seconds=monotonic() - started,
        )
        self.reports[request.round] = report
        _tell(report)
        watch.end(report)
        self.on_report(report)
        return collector.total()

    def _nodes(self) -> Sequence[int]:
        """The nodes that are connected, once there are enough of them to begin."""
        due = 1 if self.reports else self.minimum_nodes
        until = monotonic() + self.node_timeout
        while True:
            nodes = sorted(self.grid.get_node_ids())
            if len(nodes) >= due:
                return nodes
            if monotonic() >= until:
                raise RoundFailed(
                    f"{len(nodes)} nodes are connected and {due} were to be waited for; nothing was released"
                )
            sleep(_POLL_SECONDS)

    def _message(self, envelope: Envelope, node: int) -> Message:
        fields = envelope.to_fields()
        content = RecordDict({RECORD: ConfigRecord({**fields})})
        round_ = envelope.request.round.value
        # An answer that comes after the round is of no use, so the message need not live longer.
        return Message(content, node, f"query.{round_}", ttl=self.timeout, group_id=round_)


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
) -> Release:
    """Both rounds over the nodes of a Grid whose ClientApp has our handlers, see `fedhist.client.app.mount`.

    Raises RoundFailed when too few users answer: nothing is released, and the ledger says what was spent.

    Args:
        grid: what Flower hands to a ServerApp's main function.
        plan: what to run. Selectors that are not private are refused.
        ledger: where each mechanism is charged before it draws noise; None uses one that ends with the call.
        source: where noise comes from. None is the operating system; anything else is for simulations.
        labels: the public list of a closed domain whose items have names, the same that the nodes have.
        timeout: seconds that a round waits for answers.
        minimum_nodes: how many nodes to wait for before the first round.
        node_timeout: for how many seconds; after that the round fails.
        on_report: called with what happened in each round: cohort sizes, faults, timings.
        observe: called with each event of the run, see `fedhist.protocol.events`; charges are told by the ledger.
    """
    transport = GridTransport(
        grid=grid,
        timeout=timeout,
        minimum_nodes=minimum_nodes,
        node_timeout=node_timeout,
        labels=labels,
        on_report=on_report,
        observe=observe,
    )
    return run_rounds(
        plan,
        transport,
        ledger=Ledger() if ledger is None else ledger,
        source=SystemSource() if source is None else source,
        on_state=tell_states(observe, simulated=False),
    )


def run_settings(grid: Grid, settings: GridSettings) -> Release:
    """Run what the settings say, charge their ledger, and write the result folder once all went well."""
    check_runnable(settings.plan, simulated=False)
    if settings.out is not None:
        check_target(settings.out)
    labels = _read_items(settings)
    reports: dict[Round, RoundReport] = {}
    observe = recorder = Recorder(settings.plan, simulated=False)
    with (
        kept_if_failed(recorder, settings.out if settings.trace else None, engine="flower"),
        charged(settings.ledger, settings.plan, label="flower") as journal,
    ):
        ledger = Ledger(journal=tell_charges(observe, journal))
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
            observe=observe,
        )
        observe(RunEnded(outcome="released", reason=None))
        if settings.out is not None:
            with new_folder(settings.out) as folder:
                write_results(folder, _document(release, ledger, settings, reports), release, labels)
                if settings.trace:
                    write_trace(folder / TRACE_FILE, recorder, engine="flower")
            log.info("result written")
    return release


def _document(
    release: Release, ledger: Ledger, settings: GridSettings, reports: dict[Round, RoundReport]
) -> dict[str, object]:
    document = release_document(
        release,
        total=ledger.basic(),
        tight=ledger.tight(),
        seed=settings.seed,
        bytes_per_user={r.value: round((report.size or 0) / report.users) for r, report in reports.items()},
        seconds={r.value: report.seconds for r, report in reports.items()},
        notes=release_notes(release),
    )
    return document | {"rounds": {r.value: report.to_json() for r, report in reports.items()}}


def _collect(
    collector: Collector, messages: Sequence[Message], replies: Iterable[Message], watch: RoundWatch
) -> None:
    """Match replies to requests by the request's id: an error reply does not come from the node that it is about."""
    node_of = {message.metadata.message_id: message.metadata.dst_node_id for message in messages}
    heard: set[str] = set()
    for reply in replies:
        asked = reply.metadata.reply_to_message_id
        if asked not in node_of:
            collector.drop(Fault.STRANGER)
        elif asked in heard:
            collector.drop(Fault.DUPLICATE)
        elif reply.has_error():
            heard.add(asked)
            collector.drop(Fault.ERROR)
            watch.dropped(node_of[asked], Fault.ERROR)
        elif reply.metadata.src_node_id != node_of[asked]:
            collector.drop(Fault.STRANGER)
        else:
            heard.add(asked)
            fields, data = _read(reply)
            watch.answered(node_of[asked], data, collector.add(fields, data), refusal_in(fields))
    for asked in [message for message in node_of if message not in heard]:
        collector.drop(Fault.NO_ANSWER)
        watch.dropped(node_of[asked], Fault.NO_ANSWER)


def _read(reply: Message) -> tuple[dict[str, object], bytes | None]:
    """A reply's fields and bytes; whatever is not there or of another type is left out."""
    if not reply.has_content():
        return {}, None
    fields: dict[str, object] = dict(reply.content.config_records.get(RECORD, {}))
    arrays = reply.content.array_records.get(ANSWER)
    array = None if arrays is None else arrays.get("answer")
    return fields, None if array is None or array.dtype != "uint8" else array.data


def _tell(report: RoundReport) -> None:
    faults = ", ".join(f"{count} {fault.value}" for fault, count in sorted(report.faults.items()))
    log.info(
        "round %s: %d of %d nodes, %d users, %.2f s%s",
        report.round.value,
        report.answered,
        report.nodes,
        report.users,
        report.seconds,
        f"; dropped: {faults}" if faults else "",
    )


def _read_items(settings: GridSettings) -> list[str] | None:
    path = settings.items_file
    if path is None:
        return None
    try:
        return parse_items(path.read_bytes(), name=str(path))
    except OSError:
        raise unreadable(str(path)) from None


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the plan in the run-config. An error ends the Flower run as failed."""
    settings = read_settings(context.run_config)
    with _told_on_stderr():
        run_settings(grid, settings)


@contextmanager
def _told_on_stderr() -> Iterator[None]:
    """Our log where Flower looks for a ServerApp's output, unless the process has set up logging itself."""
    if log.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), log.level
    handler.setFormatter(logging.Formatter("fedhist: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
