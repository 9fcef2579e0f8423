"""What `fedhist campaign` does, and how it says so."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from fedhist.client.files.columns import column_number
from fedhist.commands.progress import progress_on
from fedhist.commands.summary import epsilon_text, stdout_console
from fedhist.commands.terminal import echo, line, printing_what_is_in
from fedhist.display.visible_text import visible
from fedhist.protocol.errors import FedhistError
from fedhist.protocol.labels.item_list import read_items
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.privacy.concentrated import Spending
from fedhist.server.advice import plan_warnings
from fedhist.server.campaign.budget import SOME_ITEMS, SOME_USERS, WindowBudget
from fedhist.server.campaign.definition import Definition
from fedhist.server.campaign.state import KIND, WindowState, ledger_of, opened, states_of
from fedhist.server.ledger.budget_file import BudgetFile
from fedhist.simulations.workbench.campaign_runs import (
    HEADINGS,
    HowToRun,
    LocalRunner,
    define,
    room_left,
    row_of,
    run_and_draw,
    spent_on,
    write_page,
)

_READING = {
    "user_column": "user",
    "item_column": "item",
    "count_column": "count",
    "time_column": "time",
    "separator": "separator",
    "bins": "bins",
    "normalise": "normalise",
}
_USUAL_EPSILON = 11.0
# All windows come this near to the total, or to what is left of the ledger's limit, whichever is less.
_NEARLY = 0.99


def define_campaign(folder: Path, flags: dict[str, Any]) -> None:
    """Make a campaign, and say what it will cost."""
    reading = {name: flags.pop(flag) for flag, name in _READING.items()}
    if flags.pop("no_header"):
        reading |= {
            name: column_number(reading[name] or name)
            for name in ("user", "item", "count", "time")
            if reading[name] or name in ("user", "item")
        }
    plan = {name: flags.pop(name) for name in tuple(flags) if name in FIELDS}
    plan |= {"participants": flags["nodes"] if plan["masking"] != "none" else None}
    items_file = flags["items_file"]
    made = define(
        folder,
        windows=flags["windows"],
        ledger=flags["ledger"],
        total_epsilon=flags["total_epsilon"],
        total_delta=flags["total_delta"],
        reading={name: value for name, value in reading.items() if value is not None},
        items=None if items_file is None else read_items(items_file),
        plan=plan,
        **{name: flags[name] for name in ("thresholds", "discover", "spare", "delay")},
    )
    for text in _described(made):
        echo(text)
    for note in campaign_notes(made):
        echo(f"note: {note}", err=True)
    name = visible(folder)
    echo(f"written: {name}")
    echo(f"next: fedhist campaign run {name} --data FILE")


def _described(made: Definition) -> list[str]:
    """What it is and what it costs."""
    windows, total = made.windows, made.total
    spare = f", with room for {made.spare:,} more" if made.spare else ""
    due = made.due_from(windows[0])
    lines = [
        f"calendar: {len(windows):,} windows, {windows[0]} to {windows[-1]}; the first is due from {due:%Y-%m-%d}, "
        "0:00 UTC",
        f"total:    epsilon {total.epsilon:g}, delta {total.delta:.3g}, for one user, ever, in {visible(made.ledger)}",
    ]
    if made.later == made.first:
        lines.append(f"a window: {_window_cost(made.first)}")
    else:
        lines.append(f"first:    {_window_cost(made.first)}")
        lines.append(f"later:    {_window_cost(made.later)}")
    whole = _cost_of_all(made)
    all_, sum_ = total.claimed(whole), whole.epsilon
    lines.append(
        f"all:      epsilon {epsilon_text(all_)} at delta {total.delta:.3g}, as the ledger counts{spare}; added up it "
        f"would be {epsilon_text(sum_)}"
    )
    return lines


def _cost_of_all(made: Definition) -> Spending:
    """What all windows cost together, with spare ones."""
    return made.first.cost + made.later.cost.times(len(made.windows) + made.spare - 1)


def _window_cost(budget: WindowBudget) -> str:
    own, chosen = budget.cost, budget.cost.epsilon - budget.fields["epsilon"]
    parts = f"{budget.fields['epsilon']:.4g} for the histogram"
    if chosen > 0:
        parts += f", {chosen:.4g} for the choice of the threshold"
    return f"epsilon {own.epsilon:.4g}, delta {own.delta:.3g}: {parts}"


def campaign_notes(made: Definition) -> list[str]:
    """What can only be useless or weak, by the plan alone."""
    users, notes = made.plan.get("users"), []
    if made.total.epsilon > _USUAL_EPSILON:
        odds = min(math.exp(min(made.total.epsilon, 99.0)), 1e6)
        notes.append(
            f"the total epsilon {made.total.epsilon:g} protects hardly anybody: a guess whether somebody is in the "
            f"data may be wrong less than once in {odds:,.0f} times; at most 10 is usual"
        )
    if users is not None and made.total.delta > 1 / users:
        notes.append(f"the total delta {made.total.delta:g} is above 1/users; lower --total-delta")
    size: dict[str, Any] = {"users": users or SOME_USERS, "window": made.windows[0].text}
    if made.plan["domain"] == "closed":
        size["items"] = made.plan.get("items") or len(made.items or ()) or SOME_ITEMS
    warnings = plan_warnings(Plan(**dict(made.plan) | dict(made.first.fields) | size))
    for name, text in warnings.items():
        if users is not None:
            notes.append(f"each window: {text}")
        elif name not in ("users", "delta"):
            notes.append(f"each window, even with {SOME_USERS:,} users: {text}")
    notes += _less_than_the_total(made)
    others = [
        run for run in ledger_of(made).runs() if run.plan.get("kind") == KIND and run.label != made.label
    ]
    if others:
        notes.append(
            f"the ledger has {len(others):,} other campaign{'s' if len(others) > 1 else ''}: windows that were not run "
            "yet are not counted here, and may take the room of this one's last windows"
        )
    if "time" not in made.reading:
        notes.append("without --time-column only nodes of Flower, which name their own, can run it")
    if users is None and "time" not in made.reading:
        notes.append("nodes of Flower need the number of users: give it with --users")
    return notes


def _less_than_the_total(made: Definition) -> list[str]:
    """A note if other runs, or a lower limit, leave less in the ledger than the total."""
    budget, total = ledger_of(made), made.total
    limit, whole = budget.limit, _cost_of_all(made)
    if limit is None or total.claimed(whole) > _NEARLY * total.epsilon:
        return []
    if limit.claimed(budget.counted() + whole) < _NEARLY * limit.epsilon:
        return []
    return [
        f"the ledger's limit, epsilon {limit.epsilon:g}, has no room for a total of {total.epsilon:g}: the windows "
        "share what its other runs leave"
    ]


def run_campaign(folder: Path, flags: dict[str, Any]) -> None:
    """Run what is due, and print what came of it."""
    as_json, quiet = flags.pop("as_json"), flags.pop("quiet")
    definition = opened(folder, moved=flags["moved"])
    how = HowToRun(
        **{one.name: flags.pop(one.name) for one in fields(HowToRun) if one.name in flags},
    )
    with progress_on(sys.stderr, quiet=quiet, as_json=as_json) as progress:
        runner = LocalRunner(definition, flags["data"], how, progress)
        try:
            run_and_draw(
                folder,
                runner,
                again=flags["again"],
                until=flags["until"],
                tell=lambda text: progress.say(f"note: {text}"),
            )
        except FedhistError as error:
            if runner.results:
                error.add_note(f"Released before that: {', '.join(runner.results)}.")
            raise
    with printing_what_is_in(definition.place):
        _print_run(definition, list(runner.results), as_json=as_json, quiet=quiet)


def _print_run(definition: Definition, done: Sequence[str], *, as_json: bool, quiet: bool) -> None:
    budget = ledger_of(definition)
    states, now = states_of(definition, budget.runs()), datetime.now(UTC)
    if as_json:
        click.echo(
            json.dumps({"released": done} | _document(definition, states, budget, now), allow_nan=False)
        )
        return
    if quiet:
        return
    for state in states:
        if state.window.text in done:
            echo(f"released: {state.window} in {visible(state.folder)}")
    if not done:
        echo("nothing is due")
    for text in _where_it_stands(definition, states, budget, now):
        echo(text)


def show_campaign(folder: Path, *, moved: bool, as_json: bool) -> None:
    """Print the calendar, and draw the page."""
    definition = opened(folder, moved=moved)
    budget = ledger_of(definition)
    states, now = states_of(definition, budget.runs()), datetime.now(UTC)
    page: Path | None = None
    try:
        page = write_page(definition)
    except FedhistError as problem:
        # A folder of somebody else's may be looked at.
        echo(f"note: {problem}", err=True)
    if as_json:
        click.echo(json.dumps(_document(definition, states, budget, now), allow_nan=False))
        return
    from rich.markup import escape
    from rich.table import Table

    console = stdout_console()
    table = Table(title=escape(line(f"campaign {definition.place.name}")), title_justify="left")
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if place < 2 else "right")
    for state in states:
        table.add_row(*(escape(line(cell)) for cell in row_of(state, now)))
    console.print(table)
    for text in _where_it_stands(definition, states, budget, now):
        console.print(line(text), markup=False, highlight=False, soft_wrap=True)
    if page is not None:
        console.print(line(f"page: {page}"), markup=False, highlight=False, soft_wrap=True)


def _where_it_stands(
    definition: Definition, states: Sequence[WindowState], budget: BudgetFile, now: datetime
) -> list[str]:
    """What is spent and left, whether the rest fits, and what is next."""
    total, limit, left = definition.total, budget.limit, budget.left()
    spent = total.claimed(spent_on(states))
    lines = [
        f"spent: epsilon {epsilon_text(spent)} of {total.epsilon:g} at delta {total.delta:.3g}, for one user, ever",
    ]
    if limit is not None and left is not None:
        lines.append(
            f"left:  epsilon {epsilon_text(round(left.epsilon, 4))} of the ledger's {limit.epsilon:g}, all its runs "
            "counted"
        )
    name = visible(definition.place.name)
    for state in states:
        if state.status(now) == "broken off":
            lines.append(
                f"note:  {state.window} was charged and not released; 'fedhist campaign run {name} --again "
                f"{state.window}' charges and runs it once more"
            )
        elif state.status(now) == "unfinished":
            lines.append(
                f"note:  {state.window} is being run, or its process died; 'fedhist campaign run {name}' finds out"
            )
    waiting = [state for state in states if state.status(now) in ("due", "waiting")]
    room = room_left(definition, states, budget)
    if len(waiting) > room:
        lines.append(
            f"note:  only {room:,} of the {len(waiting):,} windows to come fit into the total and the ledger's limit: "
            "other runs, or windows that broke off, took the rest"
        )
    if waiting:
        first = waiting[0]
        when = "is due" if first.status(now) == "due" else f"is due from {first.due_from:%Y-%m-%d}, 0:00 UTC"
        lines.append(f"next:  {first.window} {when}")
    else:
        lines.append("next:  none, the calendar is at its end")
    return lines


def _document(
    definition: Definition, states: Sequence[WindowState], budget: BudgetFile, now: datetime
) -> dict[str, Any]:
    total, limit, left = definition.total, budget.limit, budget.left()
    return {
        "folder": str(definition.place),
        "ledger": str(definition.ledger),
        "total": {"epsilon": total.epsilon, "delta": total.delta},
        "spent": {"epsilon": total.claimed(spent_on(states)), "delta": total.delta},
        "limit": None if limit is None else {"epsilon": limit.epsilon, "delta": limit.delta},
        "left": None if left is None else left.to_json(),
        "windows_left": room_left(definition, states, budget),
        "windows": [
            {
                "window": state.window.text,
                "status": state.status(now),
                "due_from": state.due_from.isoformat(),
                "cost": state.counted.cost.to_json(),
                "folder": None if state.document is None else str(state.folder),
            }
            for state in states
        ],
    }
