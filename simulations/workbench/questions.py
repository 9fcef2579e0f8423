"""Several questions about the same people, from a table to results: one budget, one entry in the ledger, one folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import InvalidFile, InvalidInput, NotWritten, RoundFailed
from fedhist.protocol.events import Observer, ignore
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.server.ledger.charged_run import charged_together
from fedhist.server.observation import to_all
from fedhist.server.report import name_notes
from fedhist.server.result_folder import check_room, check_target, new_folder, write_parts, write_results
from fedhist.server.shared_total import charges_of_all, plans_for_total
from fedhist.server.trace_file import Recorder
from fedhist.simulations.datasets.loading import Loaded, load
from fedhist.simulations.engines.contract import IN_PROCESS
from fedhist.simulations.simulation import Result, simulating
from fedhist.simulations.together import in_joint_sessions, one_by_one
from fedhist.simulations.workbench.answers import Answers
from fedhist.simulations.workbench.carrying_out import (
    Asked,
    check_ready,
    engine_of,
    plan_fields,
    read_from,
    with_domain,
    with_story,
)
from fedhist.simulations.workbench.watching import Watcher

COMMON_FIELDS = (
    "users", "items", "epsilon", "delta", "delta_select", "neighbours", "minimum_cohort", "masking", "participants",
    "corrupt_share", "dropout_share", "noise_from", "window",
)  # fmt: skip
"""What is the same for all questions, or follows from their total."""
OWN_FIELDS = tuple(name for name in FIELDS if name not in COMMON_FIELDS)
"""The fields of a plan that each question may set."""

_SEED_TAG = b"fedhist/1/questions/seed\x00"
_SEED_BYTES = 6
_NAME = re.compile(r"\w[\w .+-]{0,99}")


@dataclass(frozen=True)
class OneQuestion:
    """A question of several.

    Args:
        name: of the question, and of its folder.
        asked: its data, columns and items, and how to run.
        fields: of its plan.
        weight: its share of the precision of the noise, relative to the others.
    """

    name: str
    asked: Asked = field(repr=False)
    fields: Mapping[str, Any]
    weight: float = 1.0


def in_its_place(setting: str, known: Sequence[str]) -> str:
    """What to do about a setting that a question can't have."""
    if setting in ("epsilon", "delta", "delta_select", "delta-select"):
        return "give the question a weight"
    if setting.replace("-", "_") in COMMON_FIELDS:
        return "give it once, for all questions"
    close = get_close_matches(setting, known, 1)
    return f"did you mean {close[0]}?" if close else ""


def seed_of_question(seed: int | None, name: str) -> int | None:
    """The seed of one question: a run of its plan with this seed gives the same release."""
    if seed is None:
        return None
    text = f"{seed}\x00{name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(_SEED_TAG + text).digest()[:_SEED_BYTES], "little")


def carry_out_together(
    questions: Sequence[OneQuestion],
    *,
    total_epsilon: float,
    total_delta: float | None,
    target: Callable[[], Path | None],
    watcher: Watcher,
    on_plan: Callable[[str, Plan], Observer] = lambda name, plan: ignore,
) -> tuple[Answers, Path | None]:
    """Check everything, charge all questions or none, run them, write one folder for all; the answers and the folder.

    Args:
        questions: about the same data.
        total_epsilon: of all of them together, see `plans_for_total`.
        total_delta: of all of them together.
        target: the folder to write, None for none. Asked again before it is written.
        watcher: follows the runs.
        on_plan: called with each question's name and plan before anything is spent; what it returns observes its run.

    Raises:
        RoundFailed: every question failed. If some did, it is in the answers.
    """
    _check_names([one.name for one in questions])
    settled = [_with_domain(one) for one in questions]
    folder = target()
    check_target(folder)
    watcher.phase("population")
    loaded = {one.name: load(one.asked, 0, follow=watcher) for one in settled}
    weights = {one.name: one.weight for one in settled}
    plans = plans_for_total(
        {one.name: plan_fields(one.asked, one.fields, loaded[one.name].population) for one in settled},
        total_epsilon=total_epsilon,
        total_delta=total_delta,
        weights=weights,
    )
    charges = charges_of_all(plans)
    for one in settled:
        check_ready(one.asked, loaded[one.name], plans[one.name])
        if folder is not None:
            names = loaded[one.name].labels if one.asked.evaluated or plans[one.name].items else None
            check_room(folder, plans[one.name], names)
    first = settled[0].asked
    recorders = {name: Recorder(plan, simulated=first.evaluated) for name, plan in plans.items()}
    observers = {name: on_plan(name, plan) for name, plan in plans.items()}
    with charged_together(first.ledger, plans, label=first.label) as journal_of:
        runs = {
            one.name: simulating(
                loaded[one.name].population,
                plans[one.name],
                seed=seed_of_question(first.seed, one.name),
                evaluate=first.evaluated,
                journal=journal_of(one.name),
                on_phase=watcher.phase,
                engine=engine_of(one.asked, plans[one.name]),
                observe=to_all(recorders[one.name], watcher.observe, observers[one.name]),
                report=first.report and folder is not None,
            )
            for one in settled
        }
        joint = first.engine == IN_PROCESS and all(plan.is_masked for plan in plans.values())
        outcomes = in_joint_sessions(runs) if joint else one_by_one(runs)
        answers = Answers(
            results={
                name: with_story(_noted(loaded[name], one), recorders[name], loaded[name])
                for name, one in outcomes.items()
                if not isinstance(one, RoundFailed)
            },
            failed={name: one for name, one in outcomes.items() if isinstance(one, RoundFailed)},
            plans=plans,
            weights=weights,
            total=tight_total(charges),
            basic=basic_total(charges),
            seed=first.seed,
            notes=(*first.notes, *_failure_notes(outcomes)),
        )
        if not answers:
            raise next(iter(answers.failed.values()))
        folder = target()
        if folder is not None:
            watcher.phase("write")
            try:
                _write(folder, answers, loaded, report=first.report)
            except (InvalidFile, NotWritten):
                if not first.returned:
                    raise
                # It is paid for: to raise would throw it away.
                note = f"{folder} can't be written: the answers are here, and nowhere else"
                answers, folder = replace(answers, notes=(note, *answers.notes)), None
    return answers, folder


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name) or name == "result.json":
            raise InvalidInput(
                f"a question is called {name!r}",
                allowed="letters, digits, spaces and _ . + - after a letter or digit, 100 at most: it names a folder",
                advice="name the question otherwise, and its column with item=",
            )
    folded = [name.casefold() for name in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            raise InvalidInput(
                f"two questions are called {name}",
                allowed="questions with different names, also in capitals",
                advice="name one of them otherwise, and its column with item=",
            )


def _with_domain(question: OneQuestion) -> OneQuestion:
    asked, fields = with_domain(question.asked, question.fields)
    # Without a note: that is usual for several questions.
    return replace(question, asked=replace(asked, notes=question.asked.notes), fields=fields)


def _noted(loaded: Loaded, result: Result) -> Result:
    """The result with names, and with the notes of its data."""
    named = read_from(loaded, result)
    notes = dict.fromkeys([*loaded.notes, *named.notes, *name_notes(named.release, loaded.labels)])
    seconds = {"population": loaded.seconds} | named.seconds
    return replace(named, notes=tuple(notes), seconds=seconds)


def _failure_notes(outcomes: Mapping[str, Result | RoundFailed]) -> list[str]:
    return [
        # Without the words of the error, which may hold what was counted.
        f"{name} failed ({type(outcome).__name__}) and has no answer; what it charged is spent"
        for name, outcome in outcomes.items()
        if isinstance(outcome, RoundFailed)
    ]


def _write(folder: Path, answers: Answers, loaded: Mapping[str, Loaded], *, report: bool) -> None:
    """One folder for each question that was answered, and a result.json for all."""
    whole = answers.to_json()
    # What one answer cost is not what all of them did, and a report may be all that somebody sees.
    together = {"questions": len(whole["questions"]), **whole["tight"]}

    def written(name: str) -> Callable[[Path], None]:
        def write(part: Path) -> None:
            result = answers.results[name]
            write_results(
                part, result.to_json() | {"together": together}, result.release, loaded[name].labels
            )
            if report:
                from fedhist.simulations.run_files import write_report_of

                write_report_of(part, name=name, result=result)

        return write

    with new_folder(folder) as partial:
        write_parts(partial, whole, {name: written(name) for name in answers})
