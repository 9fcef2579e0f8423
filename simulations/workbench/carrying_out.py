"""One run from data to result: read, plan, check, charge, run, write. The command and `histogram` are thin over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import InvalidFile, InvalidInput, NotWritten
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.histograms import Population
from fedhist.protocol.item_lists import ItemOrigin, check_private, origin_of
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.window import window_in
from fedhist.server.disk import check_target
from fedhist.server.folder import recorded_run
from fedhist.server.report import name_notes
from fedhist.server.steps import check_runnable
from fedhist.server.totals import planned, total_words
from fedhist.server.trace import Recorder, to_all
from fedhist.simulations.datasets.loading import Loaded, Wanted, load
from fedhist.simulations.engines.contract import (
    DEFAULT_NODES,
    IN_PROCESS,
    ON_NODES,
    Engine,
    engine_named,
    worker_notes,
)
from fedhist.simulations.engines.in_process import checked_nodes
from fedhist.simulations.given_users import check_hiding, with_given_users
from fedhist.simulations.population_checks import check_fits, check_labels, check_not_empty
from fedhist.simulations.simulation import Result, simulate
from fedhist.simulations.workbench.checks import check_asked
from fedhist.simulations.workbench.watching import Watcher

OPEN_BY_DEFAULT = (
    "the data alone says which items there are, so they are found privately (--domain open): rare ones are left "
    "out. With a public list of items, --items-file, all of them are released"
)


@dataclass(frozen=True, kw_only=True)
class Asked(Wanted):
    """A run: its population, and everything beside the plan.

    Args:
        seed: makes it repeatable, noise and all; None draws from the operating system.
        ledger: the file to charge, made if missing.
        evaluate: whether to measure against the exact data; None for synthetic users alone.
        engine, nodes, ray_address: where the devices run.
        workers: the number of processes of the engine in-process; None is its own choice.
        dropout: the share of the nodes that gives no answer in a round.
        faulty: shares of faulty nodes by kind.
        trace: whether the folder gets a trace.
        notes: what the user should know of how the question was understood.
        returned: whether the caller gets the result itself. Then a folder that can't be written is a note of it.
        ledger_label: what the ledger calls the run; None is the name of the data.
    """

    seed: int | None = None
    ledger: Path | None = None
    evaluate: bool | None = None
    engine: str = "in-process"
    nodes: int | None = None
    ray_address: str | None = None
    workers: int | None = None
    dropout: float = 0.0
    faulty: Mapping[str, float] = field(default_factory=dict)
    trace: bool = False
    notes: tuple[str, ...] = ()
    returned: bool = False
    ledger_label: str | None = None

    @property
    def evaluated(self) -> bool:
        """Whether to measure against the exact data."""
        return self.item_origin is ItemOrigin.SYNTHETIC if self.evaluate is None else self.evaluate


@dataclass(frozen=True)
class Finished:
    """What a run left behind.

    Args:
        result: with all notes of the document.
        loaded: the population.
        document: what result.json holds.
        folder: what was written, None for nothing.
        files: the names of what is in it.
    """

    result: Result
    loaded: Loaded
    document: dict[str, Any]
    folder: Path | None
    files: tuple[str, ...]


def carry_out(
    asked: Asked,
    settings: Mapping[str, Any],
    *,
    target: Callable[[], Path | None],
    watcher: Watcher,
    on_plan: Callable[[Plan], Observer] = lambda plan: ignore,
) -> Finished:
    """Check everything, run all rounds, write the folder.

    Args:
        asked: the data, and how to run.
        settings: fields of the plan by name, without users and items; and maybe the totals of `plan_for_total`.
        target: the folder to write, None for none. Asked again before it is written: a default name may be taken by
            another run meanwhile.
        watcher: follows it.
        on_plan: called with the plan before anything is spent; what it returns observes the run.
    """
    asked, settings = with_domain(asked, settings)
    folder = target()
    if asked.trace and folder is None:
        raise InvalidInput(
            "--trace has no folder to write to", allowed="--trace with --out", code="trace-without-out"
        )
    check_target(folder)
    watcher.phase("population")
    loaded = load(asked, asked.seed, follow=watcher)
    plan = planned(**plan_fields(asked, settings, loaded.population))
    notes = (
        *_budget_notes(plan, settings),
        *worker_notes(with_given_users(loaded.population, plan), asked.workers),
    )
    loaded = replace(loaded, notes=(*asked.notes, *loaded.notes, *notes))
    check_ready(asked, loaded, plan)
    engine = engine_of(asked, plan)
    observe_too = on_plan(plan)
    written: list[str] = []
    with recorded_run(
        plan,
        target=folder,
        # The number of an open domain's names depends on the data, and so does the room that they need.
        labels=loaded.labels if asked.evaluated or plan.items else None,
        ledger=asked.ledger,
        label=asked.ledger_label or asked.label,
        trace=asked.trace,
        engine=asked.engine,
        simulated=asked.evaluated,
        tell=watcher.say,
    ) as recorded:
        recorder = recorded.recorder
        observe = to_all(recorder, watcher.observe, observe_too)
        result = simulate(
            loaded.population,
            plan,
            seed=asked.seed,
            evaluate=asked.evaluated,
            journal=recorded.journal,
            on_phase=watcher.phase,
            engine=engine,
            observe=observe,
            report=folder is not None,
        )
        result = replace(result, seconds={"population": loaded.seconds} | result.seconds)
        result = with_story(read_from(loaded, result), recorder, loaded)
        loaded = replace(loaded, notes=(*loaded.notes, *name_notes(result.release, loaded.labels)))
        document = result.to_json()
        document["notes"] = list(dict.fromkeys([*loaded.notes, *document["notes"]]))
        folder = target()
        if folder is not None:
            watcher.phase("write")
            from fedhist.simulations.report.run_page import write_report_of

            report = partial(write_report_of, name=folder.absolute().name, result=result)
            try:
                written = recorded.write(folder, document, result.release, loaded.labels, also=[report])
            except (InvalidFile, NotWritten):
                if not asked.returned:
                    raise
                # It is paid for: to raise would throw it away.
                document["notes"].insert(
                    0, f"{folder} can't be written: the result is here, and nowhere else"
                )
                folder = None
    result = replace(result, notes=tuple(document["notes"]))
    return Finished(result, loaded, document, folder, tuple(written))


def with_domain(asked: Asked, settings: Mapping[str, Any]) -> tuple[Asked, Mapping[str, Any]]:
    """What is asked, checked, with the domain that it has: open where the data alone says which items there are."""
    check_asked(asked, settings)
    domain, notes = settings.get("domain"), asked.notes
    if domain is None:
        found = asked.item_origin is ItemOrigin.DATA
        domain, notes = "open" if found else "closed", (*notes, *([OPEN_BY_DEFAULT] if found else []))
    asked = replace(asked, open_domain=domain == "open", notes=notes)
    check_items(asked, asked.item_origin)
    return asked, {**settings, "domain": domain}


def with_story(result: Result, recorder: Recorder, loaded: Loaded) -> Result:
    """The result, whose report knows what happened and the items' names."""
    if result.story is None:
        return result
    known = {"release": result.release, "events": recorder.events, "labels": loaded.labels}
    return replace(result, story=partial(result.story, **known))


def plan_fields(asked: Asked, settings: Mapping[str, Any], population: Population) -> dict[str, Any]:
    """The fields of a plan over this population."""
    fields = dict(settings)
    asked_for, read = window_in(fields.get("window")), asked.columns.window
    if asked_for != read:
        raise InvalidInput(
            f"the plan's window is {asked_for or 'none'}, and rows are read of {read or 'all times'}",
            allowed="a window with a time column, the same for all that is read",
        )
    participants = fields.get("participants")
    if asked.nodes is not None and participants not in (None, asked.nodes):
        raise InvalidInput(
            f"--nodes {asked.nodes} and {participants} participants",
            allowed="one of them: under masks the participants are the nodes",
            code="two-numbers-of-nodes",
        )
    if fields.get("masking", "none") != "none" and participants is None:
        default = min(DEFAULT_NODES, population.users)
        fields["participants"] = default if asked.nodes is None else asked.nodes
    items = None if asked.open_domain else population.domain_size
    return {"users": asked.users or population.users, "items": items, **fields}  # audited: given users


def _budget_notes(plan: Plan, settings: Mapping[str, Any]) -> list[str]:
    """What became of the budget that was asked for, where the plan has other numbers."""
    notes = []
    if settings.get("total_epsilon") is not None:
        notes.append(total_words(plan, settings["total_epsilon"]))
    for name in ("delta", "total_delta"):
        if settings.get(name) and plan.delta == 0:
            flag = f"--{name.replace('_', '-')} {settings[name]:g}"
            notes.append(f"the laplace mechanism spends no delta: {flag} is not used")
    return notes


def check_ready(asked: Asked, loaded: Loaded, plan: Plan) -> None:
    """Refuse what can't run, before anything is charged."""
    # Checked again on what was read: a file may have names that its list of contents did not show.
    check_items(asked, origin_of(loaded.population))
    counts = asked.engine not in (IN_PROCESS, "ray") or bool(asked.dropout or asked.faulty)
    check_hiding(plan, evaluate=asked.evaluated, counts=counts)
    check_fits(with_given_users(loaded.population, plan), plan)
    checked_nodes(loaded.population, asked.nodes)
    check_runnable(plan, simulated=True)
    if asked.evaluated:
        check_labels(loaded.population, plan)
        check_not_empty(loaded.population)


def check_items(asked: Asked, origin: ItemOrigin) -> None:
    """Refuse a run that can't be private where privacy is asked for."""
    check_private(
        origin,
        "open" if asked.open_domain else "closed",
        seeded=asked.seed is not None,
        evaluated=asked.evaluated,
        charged=asked.ledger is not None,
    )


def read_from(loaded: Loaded, result: Result) -> Result:
    """The result, with the names and the kind of frames of what was read."""
    release = replace(result.release.named(loaded.labels), frame_kind=loaded.frame_kind)
    return replace(result, release=release)


def engine_of(asked: Asked, plan: Plan) -> Engine:
    """The engine with its own settings; under masking its nodes are the plan's participants."""
    own: dict[str, Any] = {
        name: getattr(asked, name) for name in ("dropout", "faulty") if getattr(asked, name)
    }
    nodes = asked.nodes if plan.participants is None else plan.participants
    if (asked.engine in ON_NODES or own) and nodes is not None:
        own["nodes"] = nodes
    for name in ("ray_address", "workers"):
        if getattr(asked, name) is not None:
            own[name] = getattr(asked, name)
    return engine_named(asked.engine, **own)
