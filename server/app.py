"""The ServerApp that runs a plan over the nodes of a Flower Grid.

`app` is the ServerApp of `flwr run`; its settings are the run-config. `run_on_grid` runs a plan on a Grid of your own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedhist.display.log_lines import errors_as_sentences, log_shown
from fedhist.protocol.errors import InvalidInput, InvalidPlan, RoundFailed
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.round_costs import MAX_PLAN_DELTA, run_cost
from fedhist.protocol.plan.window import Window
from fedhist.protocol.plugins import load_file
from fedhist.protocol.privacy.ledger import Ledger
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource
from fedhist.protocol.rounds import Labels, Round
from fedhist.server.advice import plan_notes
from fedhist.server.collection import RoundReport
from fedhist.server.coordinator import run_rounds
from fedhist.server.grid_settings import (
    AGAIN_KEY,
    FOLDER_KEY,
    GridSettings,
    Value,
    beside_schedule,
    listed_items,
    listed_keys,
    read_settings,
)
from fedhist.server.grid_transport import GridTransport
from fedhist.server.observation import tell_charges, tell_states
from fedhist.server.recorded_run import recorded_run
from fedhist.server.releases.contract import Release
from fedhist.server.report import cohort_notes, grid_document, users_answered
from fedhist.server.result_folder import check_target
from fedhist.server.schedule import WindowState, read_schedule, run_due
from fedhist.server.steps import check_runnable
from fedhist.server.totals import total_words

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
        directory: for signed masking, the participants' public keys, see `fedhist.protocol.masking.identities`.
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
    for path in filter(None, str(config.get("plugin", "")).split(":")):
        load_file(path)
    schedule = read_schedule(Path(str(config[FOLDER_KEY])))
    users, beside = beside_schedule(config, schedule.plan.get("users"))

    def run(state: WindowState, fields: Mapping[str, Any]) -> None:
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
    done = run_due(schedule.folder, run, again=again, tell=lambda text: log.warning("%s", text))
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
