"""`fedhist run`: both rounds over a population on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from fedhist.commands.checks import check_count, check_population, check_trials
from fedhist.commands.data_options import columns_of
from fedhist.commands.plan_options import mechanism_for
from fedhist.commands.progress import Progress, progress_on
from fedhist.commands.summary import print_notes, print_result, print_trials, stdout_console
from fedhist.commands.terminal import line
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.labels.item_origin import ItemOrigin, check_public_items, origin_of
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge
from fedhist.server.advice import plan_notes
from fedhist.server.observation import to_all
from fedhist.server.recorded_run import recorded_run
from fedhist.server.report import name_notes
from fedhist.server.result_folder import check_target, default_folder
from fedhist.server.steps import check_runnable
from fedhist.server.totals import planned, total_words
from fedhist.simulations.datasets.loading import Loaded, Wanted, load
from fedhist.simulations.engines.contract import ON_NODES, ON_RAY, Engine, engine_named
from fedhist.simulations.engines.ray_runtime import check_address
from fedhist.simulations.report.narration import narrate
from fedhist.simulations.simulation import Result, check_labels, check_not_empty, mean_over_trials, simulate

DEFAULT_PARTICIPANTS = 100


@dataclass(frozen=True, kw_only=True)
class Options(Wanted):
    """What the command line says that is not the plan."""

    seed: int | None
    trials: int | None
    out: Path | None
    ledger: Path | None
    truth: bool
    as_json: bool
    engine: str
    nodes: int | None
    ray_address: str | None
    trace: bool
    report: bool
    quiet: bool
    verbose: bool
    dropout: float


def run_here(flags: dict[str, Any]) -> None:
    """Check everything, run both rounds, write and print."""
    own = {f.name: flags.pop(f.name) for f in fields(Options) if f.name in flags}
    options = Options(
        columns=columns_of(flags),
        truth=not flags.pop("no_truth"),
        report=not flags.pop("no_report"),
        open_domain=flags["domain"] == "open",
        **own,
    )
    _check(options, masked=flags["masking"] != "none")
    _check_items(options, options.item_origin)
    named = mechanism_for(flags["mechanism"], domain=flags["domain"], no_delta=flags["delta"] == 0)
    settings = flags | {"mechanism": named}
    started = datetime.now()
    target = _target(options, started)
    check_target(target)
    written: list[str] = []
    with progress_on(sys.stderr, quiet=options.quiet) as progress:
        progress.phase("population")
        loaded = load(options, options.seed or 0)
        items = None if options.open_domain else loaded.population.domain_size
        users = loaded.population.users
        if settings["masking"] != "none":
            default = min(DEFAULT_PARTICIPANTS, users)
            settings["participants"] = default if options.nodes is None else options.nodes
        plan = planned(users=users, items=items, **settings)
        loaded = replace(loaded, notes=(*loaded.notes, *_budget_notes(plan, settings)))
        _check_ready(options, loaded, plan)
        narrator = narrate(plan, progress.say, simulated=options.truth) if options.verbose else ignore
        for note in [] if options.quiet or options.as_json else plan_notes(plan):
            progress.say(f"note: {note}")
        with recorded_run(
            plan,
            target=target,
            # The number of an open domain's names depends on the data, and so does the room that they need.
            labels=loaded.labels if options.truth or plan.items else None,
            ledger=options.ledger,
            label=options.label,
            trials=options.trials or 1,
            trace=options.trace,
            engine=options.engine,
            simulated=options.truth,
            tell=progress.say,
        ) as recorded:
            observe = to_all(recorded.recorder, progress.observe, narrator)
            results = list(_trials(options, plan, loaded, recorded.journal, progress, observe=observe))
            loaded = replace(loaded, notes=(*loaded.notes, *name_notes(results[0].release, loaded.labels)))
            document = _document(options, results, loaded.notes)
            # Asked again: another run in this folder may have taken the default name meanwhile.
            target = _target(options, started)
            if target is not None:
                progress.phase("write")
                from fedhist.simulations.run_files import write_report_of

                report = partial(
                    write_report_of,
                    name=target.absolute().name,
                    result=results[0],
                    loaded=loaded,
                    recorder=recorded.recorder,
                )
                also = [report] if options.report else []
                written = recorded.write(target, document, results[0].release, loaded.labels, also=also)
    if options.as_json:
        click.echo(json.dumps(document, allow_nan=False))
    elif not options.quiet:
        _print(options, results, loaded, None if target is None else f"{target}/{', '.join(written)}")


def _budget_notes(plan: Plan, settings: Mapping[str, Any]) -> list[str]:
    """What became of the budget that was asked for, where the plan has other numbers."""
    notes = []
    if settings["total_epsilon"] is not None:
        notes.append(total_words(plan, settings["total_epsilon"]))
    for name in ("delta", "total_delta"):
        if settings[name] and plan.is_pure:
            flag = f"--{name.replace('_', '-')} {settings[name]:g}"
            notes.append(f"the laplace mechanism spends no delta: {flag} is not used")
    return notes


def _target(options: Options, started: datetime) -> Path | None:
    """The folder to write, if any."""
    return options.out if options.out is not None or options.as_json else default_folder(started)


def _check_ready(options: Options, loaded: Loaded, plan: Plan) -> None:
    """Refuse what can't run, before anything is charged."""
    # Checked again on what was read: a file may have names that its list of contents did not show.
    _check_items(options, origin_of(loaded.population))
    check_runnable(plan, simulated=True)
    if options.truth:
        check_labels(loaded.population, plan)
        check_not_empty(loaded.population)


def _check(options: Options, *, masked: bool) -> None:
    check_population(options)
    check_count("--nodes", options.nodes)
    check_trials(options.trials)
    if options.trace and options.as_json and options.out is None:
        raise InvalidInput(
            "--trace has no folder to write to", allowed="--trace with --out, or without --json"
        )
    if options.quiet and options.verbose:
        raise InvalidInput("--quiet and --verbose contradict each other", allowed="one or the other")
    if options.nodes is not None and options.engine not in ON_NODES and not masked:
        raise InvalidInput(
            f"the engine {options.engine} has no nodes",
            allowed=f"--nodes with --engine {', '.join(ON_NODES)}, or with --masking",
        )
    if options.ray_address is not None and options.engine not in ON_RAY:
        raise InvalidInput(
            f"the engine {options.engine} does not use Ray",
            allowed=f"--ray-address with --engine {', '.join(ON_RAY)}",
        )
    check_address(options.ray_address)
    if not 0 <= options.dropout < 1:
        raise InvalidInput(f"--dropout is {options.dropout:g}", allowed="a number from 0 to below 1")
    if options.dropout and not masked:
        raise InvalidInput(
            "--dropout without masking", allowed="--dropout with --masking secagg or secagg-signed"
        )


def _check_items(options: Options, origin: ItemOrigin) -> None:
    """Refuse items that were read off the data where a private release is asked for."""
    for flag, given in (("--ledger", options.ledger is not None), ("--no-truth", not options.truth)):
        if given:
            check_public_items(origin, "open" if options.open_domain else "closed", where=flag)


def _trials(
    options: Options,
    plan: Plan,
    loaded: Loaded,
    journal: Callable[[Charge], None] | None,
    progress: Progress,
    *,
    observe: Observer,
) -> Iterator[Result]:
    """One result, or one for each of the seeds S, S+1, ...; each seed draws a synthetic population anew.

    The first one is observed: a trace and a report are of one run.
    """
    first = options.seed
    if options.trials is not None and first is None:
        first = 0
    trials = options.trials or 1
    engine = _engine(options, plan)
    for number in range(trials):
        progress.trial(number + 1, trials)
        seed = None if first is None else first + number
        again = number > 0 and options.synthetic is not None
        trial = load(options, seed or 0) if again else loaded
        result = simulate(
            progress.watch(trial.population),
            plan,
            seed=seed,
            truth=options.truth,
            journal=journal,
            on_phase=progress.phase,
            engine=engine,
            observe=observe if number == 0 else progress.observe,
        )
        loading = trial.seconds if number == 0 or again else 0.0
        yield replace(result, seconds={"population": loading} | result.seconds)


def _engine(options: Options, plan: Plan) -> Engine:
    """The engine with its own settings; under masking its nodes are the plan's participants."""
    own: dict[str, Any] = {"dropout": options.dropout} if options.dropout else {}
    nodes = plan.masks.participants if plan.is_masked else options.nodes
    if options.engine in ON_NODES and nodes is not None:
        own["nodes"] = nodes
    if options.ray_address is not None:
        own["ray_address"] = options.ray_address
    return engine_named(options.engine, **own)


def _document(options: Options, results: Sequence[Result], notes: Sequence[str]) -> dict[str, Any]:
    document = results[0].to_json() if options.trials is None else mean_over_trials(results)
    return document | {"notes": list(dict.fromkeys([*notes, *document["notes"]]))}


def _print(options: Options, results: Sequence[Result], loaded: Loaded, written: str | None) -> None:
    console = stdout_console()
    print_result(console, results[0], source_name=loaded.name)
    print_notes(console, (note for note in loaded.notes if note not in results[0].notes))
    if options.trials is not None:
        print_trials(console, results)
    if written is not None:
        console.print(line(f"written: {written}"), markup=False, soft_wrap=True)
