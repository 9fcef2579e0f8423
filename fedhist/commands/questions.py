"""`fedhist run --question`: several histograms of the same people under one budget."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from fedhist.client.files.columns import Columns
from fedhist.commands.data_options import columns_of
from fedhist.commands.progress import progress_on
from fedhist.commands.run import announced, check_shown
from fedhist.commands.summary import print_notes, stdout_console
from fedhist.commands.terminal import echo, line, printing_what_is_in
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.events import Observer
from fedhist.protocol.labels.intervals import edges_of
from fedhist.protocol.labels.item_list import read_items
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.server.result_folder import default_folder
from fedhist.simulations.workbench.answers import HEADINGS, Answers
from fedhist.simulations.workbench.carrying_out import Asked
from fedhist.simulations.workbench.questions import OWN_FIELDS, OneQuestion, carry_out_together, in_its_place

_SETTINGS = (
    "item", "count", "items-file", "bins", "weight", *(name.replace("_", "-") for name in OWN_FIELDS),
)  # fmt: skip
# A colon before a setting; any other one belongs to a name or a path.
_BETWEEN = re.compile(r":(?=[a-z][a-z-]*=)")


def run_questions(texts: Sequence[str], flags: dict[str, Any]) -> None:
    """Run the questions, and print what came of them.

    Args:
        texts: what --question says, each NAME or NAME:setting=value:setting=value.
        flags: of the command, those that were given.
    """
    shown = {name: flags.pop(name) for name in ("as_json", "quiet", "verbose", "out")}
    check_shown(shown, trace=False)
    columns, total = columns_of(flags), {name: flags.pop(name) for name in ("total_epsilon", "total_delta")}
    if total["total_epsilon"] is None:
        raise InvalidInput(
            "--question without --total-epsilon",
            allowed="one budget for all questions: --total-epsilon, and maybe --total-delta",
        )
    common = Asked(
        columns=columns,
        report=not flags.pop("no_report"),
        **{one.name: flags.pop(one.name) for one in fields(Asked) if one.name in flags},
    )
    if common.synthetic is not None:
        raise InvalidInput(
            "--question without a table",
            allowed="--question with --data, a table with a column for each question",
        )
    started = datetime.now()

    def target() -> Path | None:
        return shown["out"] if shown["out"] is not None or shown["as_json"] else default_folder(started)

    with progress_on(sys.stderr, quiet=shown["quiet"], as_json=shown["as_json"]) as progress:

        def on_plan(name: str, plan: Plan) -> Observer:
            return announced(plan, progress, shown, common, about=f"{name}: ")

        answers, folder = carry_out_together(
            [_question(text, common, columns, flags) for text in texts],
            target=target,
            watcher=progress,
            on_plan=on_plan,
            **total,
        )
    for name, failure in answers.failed.items():
        echo(f"{name} failed: {failure}", err=True)
    with printing_what_is_in(folder):
        if shown["as_json"]:
            click.echo(json.dumps(answers.to_json(), allow_nan=False))
        elif not shown["quiet"]:
            _print(answers, folder)


def _question(text: str, common: Asked, columns: Columns, flags: Mapping[str, Any]) -> OneQuestion:
    """The question that a text asks."""
    name, *settings = _BETWEEN.split(text)
    given: dict[str, str] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in _SETTINGS:
            raise InvalidInput(
                f"--question {name} has the setting {key}",
                allowed="item, count, items-file, bins, weight and most options of a plan, such as max-threshold",
                advice=in_its_place(key, _SETTINGS),
            )
        if key in given or not value:
            raise InvalidInput(
                f"--question {name} has {key} {'twice' if key in given else 'without a value'}",
                allowed=f"{key}=VALUE, once",
            )
        given[key] = value
    asked = replace(
        common,
        columns=replace(
            columns,
            item=given.get("item", name),
            count=given.get("count", columns.count),
            bins=edges_of(given["bins"], name=f"bins of --question {name}") if "bins" in given else None,
        ),
        items_file=Path(given["items-file"]) if "items-file" in given else None,
    )
    own = {
        one: _value(name, one, given[flag]) for one in OWN_FIELDS if (flag := one.replace("_", "-")) in given
    }
    weight = _number(name, "weight", given.get("weight", "1"))
    return OneQuestion(name, asked, {**flags, **own}, weight)


def _value(question: str, field: str, text: str) -> Any:
    """The value of a field of the plan."""
    if field == "known_items":
        return "\n".join(read_items(Path(text)))
    kind = FIELDS[field].kind
    if kind is str:
        return text
    number = _number(question, field.replace("_", "-"), text)
    return int(number) if kind is int and number.is_integer() else number


def _number(question: str, setting: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{setting} of --question {question} is {text!r}", allowed="a number") from None


def _print(answers: Answers, folder: Path | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = stdout_console()
    truth = any(result.relative_loss is not None for result in answers.values())
    table = Table(title=escape(answers.cost_words), title_justify="left")
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if number else "left")
    if truth:
        table.add_column("relative loss (*)", justify="right")
    for row in answers.rows:
        result = answers.results.get(row[0])
        loss = "" if result is None or result.relative_loss is None else f"{result.relative_loss:.4f}"
        table.add_row(*(escape(line(cell)) for cell in row), *([loss] if truth else []))
    console.print(table)
    console.print(
        "choice and histogram: epsilon of each. Weights share out the precision of the noise, 1 / variance.",
        highlight=False,
    )
    if truth:
        console.print("(*) measured against the exact data: not private, simulation only", highlight=False)
    print_notes(console, answers.notes)
    for name, result in answers.items():
        print_notes(console, (f"{name}: {note}" for note in result.notes))
    if folder is not None:
        parts = ", ".join(f"{name}/" for name in answers)
        console.print(line(f"written: {folder}/result.json, {parts}"), markup=False, soft_wrap=True)
