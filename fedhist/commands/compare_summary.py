"""A comparison as a person reads it: the table that matters, the best method, and what to run next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedhist.commands.summary import stdout_console
from fedhist.commands.terminal import echo
from fedhist.display.tables import interval_text, print_rows
from fedhist.protocol.item_lists import origin_of
from fedhist.protocol.plan.fields import FIELDS
from fedhist.protocol.plugins import used_by
from fedhist.simulations.datasets.loading import Wanted
from fedhist.simulations.experiments.running import NOT_PRIVATE, TRIALS
from fedhist.simulations.report.comparison import Answer, cost_words, varied_numbers
from fedhist.simulations.workbench.compare import Comparison

SHOWN = {
    "data": "data", "items": "items", "total_epsilon": "total", "total_delta": "total delta", "epsilon": "epsilon",
    "delta": "delta", "epsilon_select": "eps'", "delta_select": "delta'", "method": "method", "loss_mean": "loss",
    "interval": "95 % interval", "estimate_loss_mean": "estimate loss", "threshold_mean": "C",
    "released_mean": "released", "epsilon_total": "total eps", "epsilon_tight": "tight eps", "result": "result",
}  # fmt: skip
"""Headings of the printed table. Columns that say nothing new are left out: see `print_comparison`."""

_SETTINGS = ("total_epsilon", "total_delta", "epsilon", "delta", "epsilon_select", "delta_select")
_ANSWERS_SHOWN, _COMMANDS_SHOWN = 12, 3
# A narrower terminal gets fewer columns.
_WIDE = 112


def print_comparison(found: Comparison, out: Path | None) -> None:
    """Print the table, sorted by loss for each set and budget, then the best methods, then how to run one."""
    rows = found.rows
    numbers = varied_numbers(rows)
    several = len({(row["data"], row["items"]) for row in rows}) > 1
    left_out = {name for name in _SETTINGS if name not in numbers}
    left_out |= set() if several else {"data", "items"}
    if all(row["total_epsilon"] is None for row in rows):
        left_out.add("epsilon_tight")
    if all(row["released_mean"] == row["items"] for row in rows):
        left_out.add("released_mean")
    console = stdout_console()
    if console.is_terminal and console.width < _WIDE:
        left_out |= {"items"} - set(numbers)
        if len({row["epsilon_total"] for row in rows} - {None}) == 1:
            left_out.add("epsilon_total")
    shown = {name: heading for name, heading in SHOWN.items() if name not in left_out}
    first = rows[0]
    where = "" if several else f"{first['data']}, {first['users']:,} users, {first['items']:,} items: "
    trials = first["trials"]
    by = first["ranked_by"].replace("-", "_")
    ordered = sorted(rows, key=lambda row: (row["group"], _rank(row[f"{by}_mean"])))
    printed = [row | {"interval": interval_text(row["loss_low"], row["loss_high"])} for row in ordered]
    title = f"{where}mean relative loss over {trials} trials with its 95 % interval"
    print_rows(title, printed, shown, text=("data", "method", "result"))
    click.echo(
        "loss is of the released values, estimate loss of the estimates; a row without total eps reads the exact data"
    )
    answers = found.answers
    for answer in answers[:_ANSWERS_SHOWN]:
        echo(answer.words)
    if len(answers) > _ANSWERS_SHOWN:
        echo(f"and {len(answers) - _ANSWERS_SHOWN:,} more: see the column result")
    if uneven := cost_words(answers):
        echo(uneven)
    for text in _next_steps(found, answers):
        echo(text)
    click.echo(NOT_PRIVATE)
    if out is not None:
        echo(f"written: {out}/table.csv, table.parquet, figure.svg, figure.png, {TRIALS}")
        echo(f"a page with charts: fedhist report {shlex.quote(str(out))}")


def _rank(loss: float | None) -> float:
    return float("inf") if loss is None else loss


def _next_steps(found: Comparison, answers: list[Answer]) -> list[str]:
    """How to run the best methods, if they are few; else the first."""
    shown = answers if len(answers) <= _COMMANDS_SHOWN else answers[:1]
    steps, read_off = [], False
    for answer in shown:
        cell = found.cell_of(answer.best)
        command = run_command(found.loaded.wanted[cell.users.key], cell.settings_for(answer.best["users"]))
        where = f" on {answer.where}" if len(answers) > 1 else ""
        steps.append(f"to run it{where}: {shlex.join(command)}")
        population = found.loaded.populations.get(cell.users)
        read_off |= population is not None and origin_of(population).tells(str(answer.best["domain"]))
    if read_off:
        steps.append(
            "the items are inferred from the data, which is not private: give a public list with --items-file, or "
            "compare with --domain open"
        )
    kinds = {(row["domain"], row["mechanism"]) for row in found.rows}
    if answers and kinds == {("closed", "gaussian")} and "mechanism" not in found.cells[0].settings:
        steps.append("another mechanism may be better: compare them with --mechanism gaussian,laplace,auto")
    return steps


def run_command(wanted: Wanted, settings: Mapping[str, Any]) -> list[str]:
    """The command that runs a plan with these settings over this data."""
    words = ["fedhist", "run"]
    used = used_by(settings.get("selector"), settings.get("release"))
    for path in dict.fromkeys(plugin.source.file for plugin in used if plugin.source.file):
        words += _flag("plugin", path)
    if wanted.data is not None:
        words += ["--data", str(wanted.data)]
    for name in ("items_file", "users", "items", "top_items", "normalise"):
        if getattr(wanted, name) is not None:
            words += _flag(name, getattr(wanted, name))
    switches = {"--no-header": wanted.columns.numbered, "--strict": wanted.columns.strict}
    words += [flag for flag, given in switches.items() if given]
    for name in wanted.columns.given:
        value = getattr(wanted.columns, name)
        if name == "bins":
            words += _flag(name, ",".join(f"{edge:.17g}" for edge in value))
        elif name != "strict":
            words += _flag(name if name == "separator" else f"{name}_column", value)
    if wanted.item_origin.tells(str(settings.get("domain", "closed"))):
        words += ["--domain", "closed", "--evaluate"]
    for name, value in settings.items():
        if name == "participants":
            words += _flag("nodes", value)
        elif name == "known_items":
            words += _flag(name, "FILE")
        elif name not in FIELDS or value != FIELDS[name].default:
            words += _flag(name, value)
    return words


def _flag(name: str, value: object) -> list[str]:
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    return [f"--{name.replace('_', '-')}", text]
