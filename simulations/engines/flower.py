"""The cohort on the virtual nodes of Flower's Simulation Engine, which runs them on Ray: many users to a node.

Flower calls a ServerApp and wants to keep the thread until it ends, and the coordinator wants to ask a transport. So
Flower runs in a thread of its own, and its ServerApp passes requests and totals between the two.

Virtual nodes do not vanish: every loss beyond the modelled dropouts is a failed round. Each reads its own users, mapped
into memory without a copy, and its key for signed masking.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

from fedhist.client.device import answer_population
from fedhist.client.policy import Policy
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput, RoundFailed
from fedhist.protocol.events import WHOLE_ROUND, Observer, ignore
from fedhist.protocol.histograms import Population, labels_of
from fedhist.protocol.masking.crypto import KEY_BYTES, Identity, draw_bytes
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.protocol.plan import Plan
from fedhist.protocol.plugins import files_for, files_of, load_files_once, registered
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import Request, Round, Total
from fedhist.server.collection import Dropped, Fault, RoundReport
from fedhist.server.steps import measurements_of
from fedhist.simulations.datasets.mapped_files import read_mapped, write_mapped
from fedhist.simulations.engines.contract import DEFAULT_NODES, SimulatedTransport
from fedhist.simulations.engines.in_process import device_source, message_bytes
from fedhist.simulations.engines.masked import numbered_identities, parts_of
from fedhist.simulations.engines.quiet import quieten
from fedhist.simulations.engines.ray import (
    check_address,
    check_installed,
    init_args,
    mark,
    on_loopback,
    start_ray,
)
from fedhist.simulations.faults import FaultAssignment, FaultKind, faults_of, inflated_population

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

    from fedhist.server.flower import GridTransport

_RAISED = re.compile(r"<class '([\w.]+)(\(\w+\))?'>")
_NODE_CODE = "RayTaskError"


@dataclass
class Losses:
    """Why nodes gave no answer, as Flower tells it: the names of the errors, never their texts."""

    errors: set[str] = field(default_factory=set)

    def note(self, reason: str) -> None:
        """An error in place of an answer; the reason begins with the error's class."""
        named = _RAISED.match(reason)
        self.errors.add("an unknown error" if named is None else named.group(1).rpartition(".")[2])

    def advice(self) -> str:
        """The likely cause, and what to do about it."""
        died = sorted(self.errors - {_NODE_CODE})
        if died:
            return (
                f"A Ray worker process ended ({', '.join(died)}), most likely for want of memory, and Flower keeps "
                "sending nodes to it. Free some memory, use fewer --nodes, or use --engine in-process, which needs no "
                "Ray and gives the same release"
            )
        return (
            "The nodes' own code failed there. --engine in-process gives the same release, or shows the error"
        )


def check_nobody_lost(report: RoundReport, silent: Mapping[str, int], losses: Losses) -> None:
    """RoundFailed if nodes are missing beyond the modelled drop-outs.

    Args:
        report: the round's.
        silent: the number of modelled drop-outs, by stage of a masked round, where those of a stage that did not ask
            them are missing in the next one; else of all nodes that are modelled to add nothing, as of the whole round.
        losses: why nodes gave no answer.
    """
    if report.stages:
        lost, due = sum(report.faults.values()), 0
        for name in MaskingStage:
            due += silent.get(name, 0)
            if name in report.stages:
                modelled = min(report.stages[name].asked - report.stages[name].answered, due)
                lost, due = lost - modelled, due - modelled
    else:
        lost = report.nodes - report.answered - silent.get(WHOLE_ROUND, 0)
    if lost > 0:
        beyond = f" ({lost} missing beyond the modelled drop-outs)" if any(silent.values()) else ""
        raise RoundFailed(
            f"round {report.round.value}: {report.answered} of {report.nodes} nodes answered{beyond}; "
            f"nothing was released. {losses.advice()}",
            code="nodes-lost",
        )


_mapped = lru_cache(maxsize=1)(read_mapped)
"""Mapped once in each process, which serves many nodes."""


def read_part(folder: Path, number: int, parts: int) -> SparsePopulation:
    """The users of one node of `parts`, under their numbers in the whole population."""
    whole = _mapped(folder)
    start, stop = number * whole.users // parts, (number + 1) * whole.users // parts
    return whole.part(start, stop)


def write_secrets(folder: Path, nodes: int, *, source: Source) -> None:
    """A secret for each node, from which its key for signed masking is made. In a simulation all lie in one place."""
    (folder / "secrets.bin").write_bytes(draw_bytes(KEY_BYTES * nodes, source=source))


@lru_cache(maxsize=1)
def read_identities(folder: Path) -> Sequence[Identity]:
    """Each node's key with the directory of all."""
    data = (folder / "secrets.bin").read_bytes()
    return numbered_identities([data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)])


MAX_NODES = 10_000
# Virtual nodes do not vanish, so a round takes as long as it takes.
_ROUND_SECONDS = 7 * 24 * 3600.0
_START_SECONDS = 300.0
_STOP_SECONDS = 20.0


@contextmanager
def open_flower_simulation(
    population: Population,
    *,
    seed: int | None,
    nodes: int = DEFAULT_NODES,
    dropout: float = 0.0,
    faulty: Mapping[str, float] | None = None,
    ray_address: str | None = None,
    observe: Observer = ignore,
) -> Iterator[FlowerSimulation]:
    """A transport over the population on this many virtual nodes, until the block ends.

    The users lie in a temporary folder from which every node reads its own. The share `dropout` of the nodes falls
    silent in each round, and those of `faulty` fail or lie, see `fedhist.simulations.faults`. Ray is one of our own on
    this machine, or the cluster at `ray_address`, whose machines all have to see that folder.
    """
    _check(population, nodes)
    faults = faults_of(dropout, faulty)
    check_address(ray_address)
    quieten(loopback=on_loopback(ray_address))
    with tempfile.TemporaryDirectory(prefix="fedhist-nodes-") as name, _quiet_logs():
        folder = Path(name)
        write_mapped(population, folder)
        write_secrets(folder, nodes, source=device_source(seed).fork("identities"))
        transport = FlowerSimulation(
            population, folder, seed, nodes, ray_address, faults=faults, observe=observe
        )
        thread = Thread(target=transport.serve, name="flower-simulation", daemon=True)
        thread.start()
        try:
            problem = transport.started.get()
            if problem is not None:
                raise problem
            yield transport
        finally:
            transport.requests.put(None)
            thread.join(_STOP_SECONDS)
            import ray

            ray.shutdown()


@dataclass
class FlowerSimulation(SimulatedTransport):
    """The coordinator's side: hands a request to the ServerApp and waits for the total."""

    population: Population = field(repr=False)
    folder: Path = field(repr=False)
    seed: int | None
    nodes: int
    ray_address: str | None = None
    requests: Queue[Request | None] = field(default_factory=Queue, repr=False)
    answers: Queue[Total | BaseException] = field(default_factory=Queue, repr=False)
    losses: Losses = field(default_factory=Losses, repr=False)
    started: Queue[BaseException | None] = field(default_factory=Queue, repr=False)

    def __post_init__(self) -> None:
        # Before the nodes get it: without a seed nobody can draw the same again.
        self.assigned(self.population, self.nodes, source=device_source(self.seed))

    def total(self, request: Request) -> Total:
        """The sum over all nodes, less the modelled drop-outs. RoundFailed if any other is missing."""
        participants = request.plan.participants
        if participants not in (None, self.nodes):
            raise InvalidInput(
                f"the plan is for {participants} participants and there are {self.nodes} nodes",
                allowed="as many nodes as participants",
                advice="choose --nodes",
                code="other-number-of-nodes",
            )
        files_for(request.plan.plugins, "virtual nodes")
        self.requests.put(request)
        answer = self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        source, report = device_source(self.seed), self.reports[request.round]
        self.bytes_per_user[request.round] = (
            round((report.size or 0) / report.nodes)
            if report.stages
            else message_bytes(request, self.population, source=source)
        )
        self.totals[request.round] = answer
        if request.measurement.share is not None:
            self.totals[request.round] = self._without_noise(request, source)
        return answer

    def _without_noise(self, request: Request, source: Source) -> Total:
        """The sum over the nodes in the answer."""
        nodes, round_ = self.assignment, request.round
        gone = {} if nodes is None else nodes.missing(round_, masked=True)
        lying = set() if nodes is None else nodes.lying(round_, masked=True)
        users, values = 0, np.zeros(request.measurement.shape.length, dtype=np.int64)
        for number, part in enumerate(parts_of(self.population, self.nodes)):
            if number not in gone:
                claimed = inflated_population(part) if number in lying else part
                answered = answer_population(request, claimed, source=source)
                users, values = users + answered.users, values + answered.values
        return Total(users=users, values=values)

    def serve(self) -> None:
        """Start Ray, and run Flower on it until there are no more requests. Whatever ends it early is an answer too."""
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        try:
            start_ray(self.ray_address, mark(self.folder))
        except InvalidInput as error:
            self.started.put(error)
            return
        except BaseException as error:
            self.started.put(_ended(f"Ray could not be started ({type(error).__name__})", error))
            return
        self.started.put(None)
        server = ServerApp()
        server.main()(self._pass_on)
        try:
            run_simulation(
                server_app=server,
                client_app=node_app(
                    self.folder,
                    self.seed,
                    assignment=self.assignment,
                    plugins=files_of(registered()),
                ),
                num_supernodes=self.nodes,
                backend_config={
                    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                    # Flower uses the Ray that runs; should it ever start one itself, then the same.
                    "init_args": init_args(self.ray_address),
                },
            )
        except BaseException as error:
            self.answers.put(_ended(f"Flower's simulation ended with {type(error).__name__}", error))
        else:
            self.answers.put(_ended("Flower's simulation ended"))

    def _pass_on(self, grid: Grid, context: Context) -> None:
        """The ServerApp's main function."""
        transport: GridTransport | None = None
        plan: Plan | None = None
        while (request := self.requests.get()) is not None:
            first = next(iter(measurements_of(request.plan)))
            if transport is None or request.round is first or request.plan != plan:
                # A run of its own, or nodes would take its requests for second thoughts about the one before.
                transport, plan = self._transport(grid, request.plan), request.plan
            try:
                self.answers.put(self._total_of_all(transport, request))
            except Exception as error:
                self.answers.put(error)

    def _total_of_all(self, transport: GridTransport, request: Request) -> Total:
        """The round's total. A loss comes before what it led to, such as too few survivors."""
        self.losses.errors.clear()
        transport.reports.pop(request.round, None)
        masked, round_ = request.plan.is_masked, request.round
        silent, due = dict[str, int](), self.population.users
        if self.assignment is not None:
            missing = self.assignment.missing(round_, masked=masked)
            stages = self.assignment.silent[round_] if masked else {WHOLE_ROUND: missing}
            silent = {stage: len(nodes) for stage, nodes in stages.items()}
            due -= self.assignment.users_of(missing)
        try:
            total = transport.total(request)
        finally:
            if request.round in transport.reports:
                check_nobody_lost(transport.reports[request.round], silent, self.losses)
        if total.users != due:
            who = "all nodes" if due == self.population.users else "all other nodes"
            raise RoundFailed(
                f"round {round_.value}: {who} answered, for {total.users:,} of {due:,} users; nothing was released. "
                "Something changed the users' files; run it again",
                code="users-missing",
            )
        return total

    def _note(self, report: RoundReport) -> None:
        """Keep a round's report. A virtual node can't be silent: it fails, and is counted as what it stands for."""
        if not report.stages:
            # Which of the nodes that failed stand for silent ones is not known here, so their ids are left out.
            dropped: Dropped = {fault: who for fault, who in report.dropped.items() if fault != Fault.ERROR}
            report = replace(report, faults=self._as_modelled(report), dropped=dropped)
        self.reports[report.round] = report

    def _as_modelled(self, report: RoundReport) -> dict[Fault, int]:
        faults, nodes = Counter(report.faults), self.assignment
        missing = {} if nodes is None else nodes.missing(report.round, masked=False)
        silent = [kind for kind in missing.values() if kind.seen_as is Fault.NO_ANSWER]
        moved = min(len(silent), faults[Fault.ERROR])
        return dict(+(faults + Counter({Fault.NO_ANSWER: moved}) - Counter({Fault.ERROR: moved})))

    def _transport(self, grid: Grid, plan: Plan) -> GridTransport:
        from fedhist.server.flower import GridTransport

        # Numbers that are known beforehand, so that the totals are the very ones of the other engines.
        labels = labels_of(self.population)
        if labels is None and plan.items is None:
            labels = range(self.population.domain_size)
        return GridTransport(
            grid=grid,
            timeout=_ROUND_SECONDS,
            minimum_nodes=self.nodes,
            node_timeout=_START_SECONDS,
            labels=labels,
            simulated=True,
            on_report=self._note,
            observe=self.observe,
            on_error=self.losses.note,
            directory=read_identities(self.folder)[0].directory if plan.is_signed else None,
        )


def node_app(
    folder: Path,
    seed: int | None,
    *,
    assignment: FaultAssignment | None = None,
    plugins: tuple[str, ...] = (),
) -> ClientApp:
    """The ClientApp of a virtual node: its users are a part of the population in the folder, its plugins ours."""
    from flwr.clientapp import ClientApp

    from fedhist.client.flower import mount

    def load(context: Context) -> Population:
        number = node_number(context)
        part = read_part(folder, number, int(context.node_config["num-partitions"]))
        lies = assignment is not None and assignment.faulty.get(number) is FaultKind.INFLATE
        return inflated_population(part) if lies else part

    return mount(
        ClientApp(mods=None if assignment is None else [partial(answer_or_drop_out, assignment)]),
        load,
        # Every virtual node has an identity, and takes part in rounds of any kind.
        policy=Policy(minimum_masking="none"),
        source=lambda context: device_source(seed),
        identity=lambda context: read_identities(folder)[node_number(context)],
        simulated=lambda context: True,
        plugins=lambda context: load_files_once(plugins),
    )


def answer_or_drop_out(
    assignment: FaultAssignment,
    message: Message,
    context: Context,
    answer: Callable[[Message, Context], Message],
) -> Message:
    """Goes before the handlers of a virtual node of Flower: one that does not answer fails instead."""
    stage = message.metadata.message_type.removeprefix("query.")
    if node_number(context) in assignment.unheard(Round(message.metadata.group_id), stage):
        raise RoundFailed("a dropout of the simulation")
    return answer(message, context)


def node_number(context: Context) -> int:
    """The number of a virtual node of Flower."""
    return int(context.node_config["partition-id"])


def _check(population: Population, nodes: int) -> None:
    if not 1 <= nodes <= min(MAX_NODES, population.users):
        raise InvalidInput(
            f"{population.users} users can't be spread over {nodes} nodes",
            allowed=f"1 to {MAX_NODES} nodes with at least one user each",
            advice="choose --nodes",
            code="bad-nodes",
        )
    check_installed()


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Flower's own log has every message; ours has the rounds."""
    logger = logging.getLogger("flwr")
    before = logger.level
    import flwr.simulation  # noqa: F401 - sets the level when it is imported

    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _ended(problem: str, cause: BaseException | None = None) -> RoundFailed:
    failed = RoundFailed(f"{problem}; nothing was released")
    failed.__cause__ = cause
    return failed
