"""`fedhist run`: both rounds over a population on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from fedhist.commands.masking_options import check_dropout, masking_options, masking_settings
from fedhist.commands.progress import Progress, progress_on
from fedhist.commands.summary import print_notes, print_result, print_trials, stdout_console
from fedhist.commands.terminal import line
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.labels.item_origin import ItemOrigin, check_public_items, origin_of
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.table_terms import table_notes
from fedhist.protocol.privacy.ledger import Charge
from fedhist.server.coordinator import check_runnable
from fedhist.server.observation import to_all
from fedhist.server.recorded_run import recorded_run
from fedhist.server.report import name_notes
from fedhist.server.result_folder import check_target, default_folder
from fedhist.simulations.datasets.loading import DEFAULT_ITEMS, DEFAULT_USERS, Loaded, Wanted, load
from fedhist.simulations.engines.contract import ENGINES, ON_NODES, ON_RAY, Engine, engine_named
from fedhist.simulations.engines.ray_runtime import check_address
from fedhist.simulations.report.narration import narrate
from fedhist.simulations.run_files import write_report_of
from fedhist.simulations.simulation import Result, check_labels, check_not_empty, mean_over_trials, simulate

MAX_TRIALS = 100_000
_CHOICE_HELP = "Budget of the threshold's choice; over a masked open domain that of the test for room, too."


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


@click.command(context_settings={"show_default": True})
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Population: .npz of 'fedhist data import' or scipy.sparse.save_npz (users x items), or .csv/.tsv/.jsonl/"
    ".parquet with columns user, item and optionally count, or synthetic:NAME?key=value of 'fedhist data list'. "
    "Without it, a synthetic heavy-tailed population.",
)
@click.option(
    "--items-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The public domain for data with names, one item a line. Without it the items are read off "
    "the data, which is not private: the result says so, and --ledger and --no-truth refuse it.",
)
@click.option(
    "--users", type=int, metavar="N", help=f"Users of the synthetic population. [default: {DEFAULT_USERS}]"
)
@click.option(
    "--items", type=int, metavar="D", help=f"Items of the synthetic population. [default: {DEFAULT_ITEMS}]"
)
@click.option(
    "--top-items",
    type=int,
    metavar="D",
    help="Keep the D most frequent items. The choice is read off the data, which is not private: the result says so, "
    "and --ledger and --no-truth refuse it.",
)
@click.option(
    "--normalise",
    type=click.Choice(["nfc", "casefold"]),
    default=None,
    help="Write items' names alike before counting: Unicode NFC, or NFKC and case folding. Without it, names stay "
    "as they are.",
)
@click.option(
    "--seed",
    type=int,
    metavar="S",
    help="Repeatable run, noise included: for simulation only. Without it noise comes from the operating "
    "system.",
)
@click.option(
    "--domain",
    type=click.Choice(["closed", "open"]),
    default="closed",
    help="A public list of items, all released; or items that nobody can list, released above a bar.",
)
@click.option(
    "--mechanism",
    type=click.Choice(["gaussian", "laplace"]),
    default=None,
    help="l2 clip and discrete Gaussian (delta > 0), or l1 clip and discrete Laplace (delta = 0; an open domain "
    "has random clip and delta > 0). [default: gaussian; laplace with --delta 0 or --domain open]",
)
@click.option(
    "--release",
    type=click.Choice(["truncated-laplace", "laplace-threshold", "laplace-threshold-paper"]),
    default=None,
    help="Noise and bar of an open domain. [default: truncated-laplace]",
)
@click.option(
    "--statistic",
    type=click.Choice(["plain", "bucketed"]),
    default=None,
    help="Round 1 over an open domain: sums by item, or a fixed-length vector of hashed buckets. "
    "[default: plain; bucketed with masking]",
)
@click.option("--buckets", type=int, default=4096, metavar="B", help="Buckets of --statistic bucketed.")
@click.option(
    "--score-sensitivity",
    type=click.Choice(["range", "paper"]),
    default="range",
    help="For exponential-v: the range of the score's change, or the paper's 5/2 of the largest threshold.",
)
@click.option(
    "--debias",
    type=click.Choice(["poisson"]),
    default=None,
    help="Clip each item of a closed domain by itself, with a share of the budget, and undo what clipping takes "
    "from Poisson counts: for one item or few.",
)
@click.option(
    "--selector",
    metavar="NAME",
    help="How the threshold is chosen. Closed: weighted-quantile, dpsgd, output-perturbation, m-quantile, quantile "
    "(laplace, --debias). Open: exponential-v, exponential-sharp. Both: fixed. Not private, for comparison: oracle; "
    "open also median, p90. [default: weighted-quantile; quantile for --debias; exponential-v for an open domain]",
)
@click.option("--threshold", type=float, metavar="C", help="The threshold, for --selector fixed.")
@click.option("--epsilon", type=float, default=1.0, metavar="E", help="Budget of the histogram.")
@click.option(
    "--delta",
    type=float,
    metavar="D",
    help="Budget of the histogram. [default: 1e-6; 0 for laplace over a closed domain]",
)
@click.option("--epsilon-select", type=float, default=0.1, metavar="E", help=_CHOICE_HELP)
@click.option(
    "--delta-select",
    type=float,
    metavar="D",
    help="Budget of the choice; spent by dpsgd, m-quantile and that test only. [default: 1e-6]",
)
@click.option(
    "--neighbours",
    type=click.Choice(["add-remove", "replace"]),
    default="add-remove",
    help="Which change of one user the guarantee hides.",
)
@click.option("--min-threshold", type=float, default=1.0, metavar="C", help="Smallest threshold considered.")
@click.option(
    "--max-threshold", type=float, default=1500.0, metavar="CM", help="Largest threshold considered: public."
)
@click.option("--candidates", type=int, default=128, metavar="K", help="How many thresholds are considered.")
@click.option(
    "--sparsity",
    type=int,
    metavar="S",
    help="Public bound on a user's distinct items, for round 1. [default: all items]",
)
@click.option(
    "--calibration",
    type=click.Choice(["analytic", "classic"]),
    default="analytic",
    help="Gaussian noise: exact (Balle & Wang), or the paper's formula (epsilon <= 1).",
)
@click.option(
    "--minimum-cohort", type=int, default=1, metavar="N", help="Release nothing if fewer users answer."
)
@click.option(
    "--trials", type=int, metavar="T", help="Repeat with seeds S, S+1, ... (S is 0 unless --seed is given)."
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Charge a persistent ledger, made if missing; see 'fedhist ledger'.",
)
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default="in-process",
    help="Where the devices run. The release is the same for the same seed.",
)
@click.option(
    "--nodes",
    type=int,
    metavar="N",
    help="Over how many nodes the users are spread: those of --engine flower-simulation, and the participants of "
    "--masking. [default: 100]",
)
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="For --engine flower-simulation: join the Ray cluster at HOST:PORT, or auto for the one in RAY_ADDRESS or "
    "recorded on this machine. All its machines must share TMPDIR. Without it, Ray runs on this machine alone.",
)
@masking_options
@click.option(
    "--no-truth",
    is_flag=True,
    help="Leave out everything measured against the truth, and times and sizes that depend on the data: for sharing.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="New folder for result.json, histogram.csv, plan.json and the report. [default: fedhist-run-TIME; none with "
    "--json]",
)
@click.option("--trace", is_flag=True, help="Also write what happened, as trace.jsonl; see 'fedhist trace'.")
@click.option("--no-report", is_flag=True, help="Leave out report.html and simulation.json.")
@click.option("--quiet", is_flag=True, help="No progress and no summary; errors and --json only.")
@click.option("--verbose", is_flag=True, help="Explain each step in the protocol's words, on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else.")
def run(**flags: Any) -> None:
    """Choose a contribution bound privately and release a private histogram.

    Without arguments: 50,000 synthetic users, both rounds, a summary and a result folder.
    """
    own = {f.name: flags.pop(f.name) for f in fields(Options) if f.name in flags}
    options = Options(
        truth=not flags.pop("no_truth"),
        report=not flags.pop("no_report"),
        open_domain=flags["domain"] == "open",
        **own,
    )
    _check(options, masked=flags["masking"] != "none")
    _check_items(options, options.item_origin)
    check_dropout(options.dropout, masking=flags["masking"])
    settings = _plan_settings(flags)
    started = datetime.now()
    target = _target(options, started)
    check_target(target)
    written: list[str] = []
    with progress_on(sys.stderr, quiet=options.quiet) as progress:
        progress.phase("population")
        loaded = load(options, options.seed or 0)
        items = None if options.open_domain else loaded.population.domain_size
        users = loaded.population.users
        plan = Plan(users=users, items=items, **masking_settings(settings, nodes=options.nodes, users=users))
        if settings["delta"] and plan.is_pure:
            unused = f"the laplace mechanism spends no delta: --delta {settings['delta']:g} is not used"
            loaded = replace(loaded, notes=(*loaded.notes, unused))
        _check_ready(options, loaded, plan)
        narrator = narrate(plan, progress.say, simulated=options.truth) if options.verbose else ignore
        for note in [] if options.quiet or options.as_json else table_notes(plan):
            progress.say(f"note: {note}")
        with recorded_run(
            plan,
            target=target,
            # How many names an open domain has is for the truth alone, and so is whether there is room for them.
            labels=loaded.labels if options.truth or not plan.is_open else None,
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
                report = partial(
                    write_report_of,
                    name=target.absolute().name,
                    document=document,
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


def _target(options: Options, started: datetime) -> Path | None:
    """The folder to write, if any."""
    return options.out if options.out is not None or options.as_json else default_folder(started)


def _check_ready(options: Options, loaded: Loaded, plan: Plan) -> None:
    """Refuse what can't run, before anything is charged."""
    # Again, of what was read: a file may have names that its list of contents did not show.
    _check_items(options, origin_of(loaded.population))
    check_runnable(plan, simulated=True)
    if options.truth:
        check_labels(loaded.population, plan)
        check_not_empty(loaded.population)


def _check(options: Options, *, masked: bool) -> None:
    if options.synthetic is None and (options.users is not None or options.items is not None):
        raise InvalidInput(
            "--users and --items shape the synthetic population and --data names a file",
            allowed="one or the other",
            advice="keep part of a file's items with --top-items",
        )
    if options.normalise is not None and options.synthetic is not None:
        raise InvalidInput(
            "--normalise without --data FILE", allowed="--normalise with a data file that has names"
        )
    if options.items_file is not None and (options.synthetic is not None or options.top_items is not None):
        raise InvalidInput(
            "--items-file names the domain of a data file",
            allowed="--items-file with --data, without --top-items",
        )
    if options.trace and options.as_json and options.out is None:
        raise InvalidInput("--trace with --json and no folder", allowed="--trace with --out")
    if options.quiet and options.verbose:
        raise InvalidInput("--quiet and --verbose", allowed="one or the other")
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
    sizes = {
        "--nodes": options.nodes,
        "--users": options.users,
        "--items": options.items,
        "--top-items": options.top_items,
    }
    for flag, value in sizes.items():
        if value is not None and value < 1:
            raise InvalidInput(f"{flag} is {value}", allowed="a whole number of at least 1")
    if options.trials is not None and not 1 <= options.trials <= MAX_TRIALS:
        raise InvalidInput(f"--trials is {options.trials}", allowed=f"a whole number from 1 to {MAX_TRIALS}")


def _check_items(options: Options, origin: ItemOrigin) -> None:
    """Refuse items that were read off the data where a private release is asked for."""
    for flag, given in (("--ledger", options.ledger is not None), ("--no-truth", not options.truth)):
        if given:
            check_public_items(origin, open_domain=options.open_domain, where=flag)


def _plan_settings(flags: dict[str, Any]) -> dict[str, Any]:
    """The plan's fields; --delta 0 alone asks for the mechanism that needs none."""
    mechanism = flags.pop("mechanism")
    if mechanism is None and flags["domain"] == "closed" and flags["delta"] == 0:
        mechanism = "laplace"
    return flags | {"mechanism": mechanism}


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
    if options.engine in ON_NODES and (plan.participants or options.nodes) is not None:
        own["nodes"] = plan.participants or options.nodes
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
