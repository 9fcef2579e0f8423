"""The server over the nodes of a Flower Grid: its run-config, its messages, and both rounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedhist.display.text import errors_as_sentences, log_shown
from fedhist.protocol.errors import (
    InvalidFile,
    InvalidInput,
    InvalidPlan,
    MaskingFailed,
    RoundFailed,
    ids_in_words,
    names_by_reason,
)
from fedhist.protocol.events import Heard, Observer, ignore
from fedhist.protocol.item_lists import bin_labels, checked_edges, edges_of, read_items
from fedhist.protocol.masking.crypto import MAX_KEY_FILE_BYTES, parse_directory
from fedhist.protocol.masking.masked_vector import terms_of, to_total
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.plan.round_costs import MAX_PLAN_DELTA, run_cost
from fedhist.protocol.plan.window import Window
from fedhist.protocol.plugins import load_file
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Labels, Request, Round, Total
from fedhist.protocol.wire.envelope import (
    ANSWER,
    MASKING,
    RECORD,
    Envelope,
    Status,
    items_digest,
    new_run_name,
)
from fedhist.server.advice import plan_notes
from fedhist.server.collection import (
    Collector,
    Declined,
    LabelTable,
    Reply,
    RoundReport,
    RoundWatch,
    Tally,
    matched,
    names_of,
    numbered,
    refusal_in,
    tell_left_out,
    tell_round,
)
from fedhist.server.coordinator import run_rounds
from fedhist.server.disk import check_target
from fedhist.server.folder import recorded_run
from fedhist.server.masked import NodeExchange, masked_sum
from fedhist.server.releases.contract import Release
from fedhist.server.report import cohort_notes, grid_document, users_answered
from fedhist.server.schedule import ScheduleFile, WindowState, read_schedule, run_due
from fedhist.server.steps import check_runnable, length_tells
from fedhist.server.totals import planned, total_words
from fedhist.server.trace import tell_charges, tell_states

# What the run-config of a Flower app says: the plan's fields, and how to run it.
#
# Flower lets a user override only keys that pyproject.toml lists, and a key there has to have a value, so the empty
# text stands for "not given". `known-items` names a file on the server; its names are in the plan. With
# `campaign-folder` a schedule says all of that, and the run-config only how to wait.

Value = bool | float | int | str

FOLDER_KEY, AGAIN_KEY = "campaign-folder", "campaign-again"
"""The folder of a schedule, and windows of it that are lost and are to be charged and run once more."""
FOR_NODES = "synthetic-"
"""Keys that begin with it shape the data of virtual nodes; the server leaves them alone."""

_BESIDE_SCHEDULE = ("users", "directory", "timeout", "minimum_nodes", "node_timeout", "trace", "plugin")


@dataclass(frozen=True, kw_only=True)
class GridSettings:
    """How a ServerApp runs a plan.

    Args:
        plan: what to run.
        out: a new folder for the result; None writes none.
        ledger: a persistent ledger; None keeps none.
        items_file: the public list of a closed domain's items, equal to that of the nodes.
        bins: in its place, the edges of bins, equal to those of the nodes; they are the items.
        directory: for signed masking, the file of the participants' public keys, equal to that of the nodes.
        seed: makes a simulation repeatable; None draws from the operating system.
        timeout: seconds that a round waits for answers.
        minimum_nodes: how many nodes a run waits for before it begins.
        node_timeout: seconds that it waits for them.
        trace: also write what happened into the folder, see docs/trace.md.
        plugin: files with methods from outside, with a colon between them.
        total_epsilon, total_delta: the budget of all rounds together that the plan was made for, if it was.
    """

    plan: Plan
    out: Path | None = None
    ledger: Path | None = None
    items_file: Path | None = None
    bins: str | None = None
    directory: Path | None = None
    seed: int | None = None
    timeout: float = 600.0
    minimum_nodes: int = 1
    node_timeout: float = 60.0
    trace: bool = False
    plugin: str | None = None
    total_epsilon: float | None = None
    total_delta: float | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "node_timeout"):
            if not getattr(self, name) > 0:
                raise InvalidInput(
                    f"{_key(name)} is {getattr(self, name)}",
                    allowed="a positive number of seconds",
                    code="bad-timeout",
                )
        if self.minimum_nodes < 1:
            raise InvalidInput(
                f"minimum-nodes is {self.minimum_nodes}",
                allowed="a whole number, 1 or more",
                code="bad-minimum",
            )
        if self.bins is not None and self.items_file is not None:
            raise InvalidInput(
                "bins together with an items-file",
                allowed="one of the two",
                advice="the bins are the list of items, so leave the file out",
                code="bins-with-other-items",
            )
        if self.trace and self.out is None:
            raise InvalidInput(
                "trace without out",
                allowed="trace=true with a folder to write it into",
                code="trace-without-out",
            )
        if self.plan.is_signed != (self.directory is not None):
            raise InvalidInput(
                "signed masking and a directory of keys do not go together",
                allowed="a directory with masking secagg-signed, and only there",
                code="directory-without-signatures",
            )


def read_settings(config: Mapping[str, Value]) -> GridSettings:
    """The settings in a run-config. Keys are the fields' names with dashes; others are an error."""
    given = {
        name.replace("-", "_"): value
        for name, value in config.items()
        if value != "" and not name.startswith(FOR_NODES)
    }
    own = {f.name for f in fields(GridSettings)} - {"plan"}
    unknown = sorted(_key(name) for name in given if name not in FIELDS and name not in own)
    if unknown:
        raise InvalidInput(
            f"the run-config has the unknown keys {', '.join(unknown)}",
            allowed="the keys that pyproject.toml lists",
            code="unknown-key",
        )
    if "users" not in given:
        raise InvalidInput(
            "the run-config has no users",
            allowed="the public size of the cohort",
            advice="add users=1000",
            code="no-users",
        )
    if "plugin" in given:
        # Before the plan, which may name what they hold.
        for path in str(given["plugin"]).split(":"):
            load_file(path)
    chosen: dict[str, Any] = {name: value for name, value in given.items() if name in FIELDS}
    if isinstance(known := chosen.get("known_items"), str):
        chosen["known_items"] = "\n".join(read_items(Path(known)))
    running = running_settings({name: value for name, value in given.items() if name in own})
    if "bins" in running:
        chosen.setdefault("items", len(_bins(running["bins"])))
    totals = {name: running.get(name) for name in ("total_epsilon", "total_delta")}
    return GridSettings(plan=planned(**chosen, **totals), **running)


def running_settings(given: Mapping[str, Value]) -> dict[str, Any]:
    """These settings beside the plan, each of the type that it has."""
    return {name: _convert(name, value) for name, value in given.items()}


def listed_items(settings: GridSettings) -> list[str] | None:
    """The items in the file that the settings name, or the bins; None if they name none."""
    if settings.bins is not None:
        return _bins(settings.bins)
    path = settings.items_file
    if path is None:
        return None
    return read_items(path)


def listed_keys(settings: GridSettings) -> Mapping[int, bytes] | None:
    """The public keys in the file that the settings name; None if they name none."""
    path = settings.directory
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return parse_directory(file.read(MAX_KEY_FILE_BYTES + 1), name=str(path))
    except OSError:
        raise InvalidFile(f"{path} can't be read", allowed="a file of public keys") from None


def _bins(edges: str) -> list[str]:
    return bin_labels(checked_edges(edges_of(edges, name="bins")))


def _convert(name: str, value: Value) -> Path | int | float | bool | str:
    if name in ("plugin", "bins") and isinstance(value, str):
        return value
    if name == "trace" and isinstance(value, bool):
        return value
    if name in ("out", "ledger", "items_file", "directory") and isinstance(value, str):
        return Path(value)
    if (
        name in ("timeout", "node_timeout", "total_epsilon", "total_delta")
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    ):
        return float(value)
    if name in ("seed", "minimum_nodes") and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise InvalidInput(
        f"{_key(name)} is of the wrong type",
        allowed="text for paths and bins, true or false for trace, numbers for the others",
        code="bad-value",
    )


def _key(name: str) -> str:
    return name.replace("_", "-")


# Messages over a Flower Grid: the nodes that are connected, and requests with their replies as they come.

_POLL_SECONDS = 0.1
# How long to wait between looks for answers: twice as long after each that finds none.
_SHORTEST_WAIT, _LONGEST_WAIT = 0.05, 1.0
# Messages sent, or fetched, at once: the server holds no more than these, however many nodes there are.
_AT_ONCE = 64


def enough_nodes(
    grid: Grid, due: int, *, timeout: float, declined: Declined
) -> tuple[list[int], dict[str, tuple[int, ...]]]:
    """The nodes that are connected and have not declined, once they are enough, and those that have, by reason.

    Args:
        grid: where to look.
        due: the number of nodes that are enough.
        timeout: seconds to wait for them. RoundFailed after that.
        declined: the nodes that are not to be asked.
    """
    until = monotonic() + timeout
    while True:
        connected = sorted(set(grid.get_node_ids()))
        nodes = [node for node in connected if node not in declined.reasons]
        not_asked = declined.among(connected)
        if len(nodes) >= due:
            return nodes, not_asked
        if monotonic() >= until:
            earlier = f" (not asked again: {names_by_reason(not_asked)})" if not_asked else ""
            raise RoundFailed(
                f"{len(nodes)} nodes are connected and {due} are needed{earlier}; nothing was released",
                code="too-few-nodes",
            )
        sleep(_POLL_SECONDS)


def ask(
    grid: Grid,
    messages: Iterable[Message],
    *,
    timeout: float,
    observe: Observer = ignore,
    on_error: Callable[[str], None] = lambda reason: None,
) -> tuple[dict[str, int], Iterator[Reply]]:
    """Send the messages: the node of each by its id, and the replies as they come, until the time is up.

    Args:
        grid: where to.
        messages: what to send.
        timeout: seconds to wait for replies.
        observe: called with the number of replies so far.
        on_error: called with Flower's reason for each error in place of an answer. It may quote users' data.
    """
    nodes: dict[str, int] = {}
    waiting: set[str] = set()
    coming = iter(messages)
    while some := list(islice(coming, _AT_ONCE)):
        waiting |= set(grid.push_messages(some))
        nodes |= {message.metadata.message_id: message.metadata.dst_node_id for message in some}
    return nodes, _replies(
        grid, waiting & set(nodes), asked=len(nodes), timeout=timeout, observe=observe, on_error=on_error
    )


def _replies(
    grid: Grid,
    waiting: set[str],
    *,
    asked: int,
    timeout: float,
    observe: Observer,
    on_error: Callable[[str], None],
) -> Iterator[Reply]:
    """The replies to these messages. Flower's own `send_and_receive` looks every 3 s and holds all of them."""
    until, pause = monotonic() + timeout, _SHORTEST_WAIT
    while waiting and monotonic() < until:
        due = sorted(waiting)
        for first in range(0, len(due), _AT_ONCE):
            for message in grid.pull_messages(due[first : first + _AT_ONCE]):
                waiting.discard(message.metadata.reply_to_message_id)
                if message.has_error():
                    on_error(message.error.reason or "")
                yield _read_reply(message)
        observe(Heard(answered=asked - len(waiting), asked=asked))
        pause = min(2 * pause, _LONGEST_WAIT) if len(waiting) == len(due) else _SHORTEST_WAIT
        if waiting:
            sleep(min(pause, max(until - monotonic(), 0)))


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


# The transport over the nodes of a Flower Grid: each round's requests, plain or masked, and the sum of the answers.


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


# The ServerApp that runs a plan over the nodes of a Flower Grid.
#
# `app` is the ServerApp of `flwr run`; its settings are the run-config. `run_on_grid` runs a plan on a Grid of your
# own.

log = logging.getLogger("fedhist")
errors_as_sentences()

_SIMULATION = "flwr-simulation"
"""What Flower calls the task of a run whose nodes it simulates, in the record of the run that it gives a ServerApp."""


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
    """Both rounds over the nodes of a Grid whose ClientApp has our handlers, see `fedhist.client.mount`.

    Raises RoundFailed when too few users answer: nothing is released, and the ledger says what was spent. The error
    says who did not answer and why. Nodes that refuse, or say that they failed, are not asked again in the run.

    Our lines go to the logger `fedhist`, and to stderr where the process has not set up logging for it.

    Args:
        grid: what Flower hands to a ServerApp's main function.
        plan: what to run. Selectors that are not private are refused.
        ledger: where each charge is written before its noise is drawn; None uses one that ends with the call.
        source: where noise comes from. None is the operating system; anything else is for simulations, and nodes with
            real users refuse it.
        labels: the public list of a closed domain whose items have names, the same that the nodes have.
        timeout: seconds that a round waits for answers; a node that has not answered by then is left out.
        minimum_nodes: the number of nodes to wait for before the first round. Later rounds ask the nodes that are
            connected, and the plan's minimum cohort decides.
        node_timeout: seconds to wait for those nodes; after that the round fails.
        on_report: called with what happened in each round, even one that fails: cohort sizes, faults, timings.
        observe: called with each event of the run, see `fedhist.protocol.events`; charges come from the ledger.
        directory: for signed masking, the participants' public keys, see `fedhist.protocol.masking.crypto`.
    """
    _check_delta(plan)
    drawing = SystemSource() if source is None else source
    transport = GridTransport(
        grid=grid,
        seeded=drawing.seeded,
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
                source=drawing,
                on_state=tell_states(observe, simulated=False),
            )
        except RoundFailed as failure:
            if transport.reports and (who := [*transport.reports.values()][-1].who_answered()):
                failure.explain(who)
            raise
    return release.named(labels)


def run_settings(grid: Grid, settings: GridSettings, *, label: str = "flower") -> Release:
    """Run what the settings say, charge their ledger, and write the result folder once all went well.

    The ledger calls the run by its label.
    """
    check_runnable(settings.plan, simulated=False)
    _check_delta(settings.plan)
    if settings.seed is not None and grid.run.primary_task_type != _SIMULATION:
        raise InvalidInput(
            "the run-config has a seed, and the run is no simulation: anyone who knows the seed can take the noise off",
            allowed="a seed where Flower simulates the nodes",
            advice="leave seed out; no node was asked, and nothing was spent",
            code="seed-in-a-deployment",
        )
    if settings.seed is not None and settings.ledger is not None:
        # Only the nodes know whether their users are synthetic.
        raise InvalidInput(
            "the run-config has a seed and a ledger: a seeded run protects nobody, so nobody can be charged for it",
            allowed="one of the two",
            advice="leave seed out; no node was asked, and nothing was spent",
            code="seed-with-ledger",
        )
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
        label=label,
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


def _check_delta(plan: Plan) -> None:
    """Refuse what no node answers that has not raised its own cap."""
    delta = run_cost(plan).delta
    if delta > MAX_PLAN_DELTA:
        raise InvalidPlan(
            f"all rounds of the plan may cost delta {delta:g}",
            allowed=f"up to {MAX_PLAN_DELTA:g}, which is what nodes with real users answer",
            advice="lower --delta and --delta-select to well below 1 over the number of users",
            code="delta-too-large",
        )


def run_schedule(grid: Grid, config: Mapping[str, Value]) -> list[Window]:
    """Run what is due of the schedule that a run-config names, over the nodes; the windows that were released."""
    given = {
        name.replace("-", "_"): value
        for name, value in config.items()
        if value != "" and name not in (FOLDER_KEY, AGAIN_KEY) and not name.startswith(FOR_NODES)
    }
    if said := sorted(_key(name) for name in given if name not in _BESIDE_SCHEDULE):
        raise InvalidInput(
            f"the run-config has {FOLDER_KEY} together with {', '.join(said)}",
            allowed=f"{FOLDER_KEY} with {', '.join(map(_key, _BESIDE_SCHEDULE))}",
            advice="the schedule's own file says the rest",
            code="unknown-key",
        )
    for path in filter(None, str(given.get("plugin", "")).split(":")):
        load_file(path)
    found = read_schedule(Path(str(config[FOLDER_KEY])))
    users = given.pop("users", found.plan.get("users"))
    if users is None:
        raise InvalidInput(
            "the schedule and the run-config have no users",
            allowed="the public size of the cohort",
            advice="add users=1000 to the run-config, or to [plan] in the schedule's file",
            code="no-users",
        )
    beside = running_settings(given)

    def run(schedule: ScheduleFile, state: WindowState, fields: Mapping[str, Any]) -> None:
        log.info("window %s", state.window)
        settings = GridSettings(
            plan=Plan(**dict(fields) | {"users": users}),
            out=state.folder,
            ledger=schedule.ledger,
            items_file=schedule.items,
            bins=schedule.columns.get("bins"),
            **beside,
        )
        run_settings(grid, settings, label=state.label)

    again = [text for text in str(config.get(AGAIN_KEY, "")).split(",") if text.strip()]
    done = run_due(found.folder, run, again=again, tell=lambda text: log.warning("%s", text))
    log.info("released: %s", ", ".join(map(str, done)) or "nothing is due")
    return done


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the plan in the run-config, or what is due of its schedule. An error ends the Flower run as failed."""
    config = context.run_config
    with log_shown():
        if config.get(FOLDER_KEY):
            run_schedule(grid, config)
        else:
            run_settings(grid, read_settings(config))
