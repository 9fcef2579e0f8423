"""`fedhist ledger`: what was spent on a set of people's data, by which plans, and how much is left."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedhist.commands.options import PATH, Group, options
from fedhist.commands.terminal import echo
from fedhist.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from fedhist.protocol.privacy.ledger import Cost
    from fedhist.server.ledger.file import RunRecord

FILE = click.argument("file", type=PATH)
TEXT_COLUMNS = ("when", "plan", "data", "selector", "status")
COLUMNS = {name: name for name in ("run", *TEXT_COLUMNS, "epsilon", "delta")}


@click.group(
    cls=Group,
    examples=(
        "# customers.ledger may spend epsilon 3 in all; each run is charged to it",
        "fedhist ledger limit customers.ledger --epsilon 3 --delta 1e-5",
        "fedhist run --data visits.csv --items-file shops.txt --ledger customers.ledger",
        "fedhist ledger show customers.ledger",
    ),
)
def ledger() -> None:
    """Persistent privacy ledgers: one file for each set of people whose data is used.

    Every run with --ledger FILE is counted there. A limit, set once, refuses the run that would pass it.
    """


@ledger.command(examples=("fedhist ledger show customers.ledger",))
@FILE
@options("as_json")
def show(file: Path, as_json: bool) -> None:
    """Print what was spent, by which plan and when.

    The sum of all runs, their total by tight composition, and what the limit counts, which is between the two and also
    holds for runs that are chosen in view of earlier results.
    """
    from fedhist.commands.summary import epsilon_text, stdout_console
    from fedhist.display.tables import print_rows
    from fedhist.protocol.privacy.ledger import NO_END, Cost, Spending
    from fedhist.server.ledger.file import BudgetFile

    budget = BudgetFile.open(file, create=False)
    runs, limit = budget.runs(), budget.limit
    spent, reserved, tight = budget.spent().cost, budget.reserved().cost, budget.tight()
    total, claimed, left = budget.counted().cost, budget.claimed(), budget.left()
    last = next((run.reserved for run in reversed(runs) if run.reserved != Spending()), None)
    more = None if last is None else budget.runs_left(last)
    if as_json:
        document = {
            "limit": None if limit is None else {"epsilon": limit.epsilon, "delta": limit.delta},
            "spent": spent.to_json(),
            "reserved": reserved.to_json(),
            "total": total.to_json(),
            "tight": tight.to_json(),
            "claimed": None if claimed is None else claimed.to_json(),
            "left": None if left is None else left.to_json(),
            "runs_left": more,
            "runs": [_run_document(one) for one in runs],
        }
        click.echo(json.dumps(document, allow_nan=False))
        return
    console = stdout_console()
    print_rows(f"ledger {file.name}", [_row(one) for one in runs], COLUMNS, text=TEXT_COLUMNS)
    console.print(f"sum:   {_text(total)}")
    if reserved != Cost(0, 0):
        console.print(
            f"held:  {_text(reserved)} of it, by runs that did not end; 'fedhist ledger close FILE RUN' "
            "gives back what such a run did not charge",
            soft_wrap=True,
        )
    console.print(f"tight: {_text(tight)}, if the runs were fixed beforehand", soft_wrap=True)
    if limit is None or claimed is None or left is None:
        console.print("limit: none")
        return
    console.print(f"limit: epsilon {limit.epsilon:g}, delta {limit.delta:.3g}")
    console.print(f"spent: epsilon {epsilon_text(claimed.epsilon)} of the limit")
    again = ""
    if more is not None:
        number = "any number of runs" if more == NO_END else f"{more:,} more {'run' if more == 1 else 'runs'}"
        again = f", room for {number} like the last"
    console.print(f"left:  epsilon {epsilon_text(left.epsilon)}{again}", soft_wrap=True)


@ledger.command(
    "limit",
    examples=(
        "fedhist ledger limit customers.ledger --epsilon 3 --delta 1e-5",
        "# a higher one later",
        "fedhist ledger limit customers.ledger --epsilon 4 --delta 1e-5 --replace",
    ),
)
@FILE
@options(
    *("epsilon", "delta", "replace"),
    epsilon={"default": None, "required": True, "help": "The largest epsilon of all runs together."},
    delta={"required": True, "help": "The largest delta of all runs together."},
)
def set_limit(file: Path, epsilon: float, delta: float, replace: bool) -> None:
    """Set the limit of a ledger. A missing file is created.

    The limit is a promise about all runs together, also if later ones are chosen in view of earlier results: whatever
    is admitted is (E, D)-private. Thirty runs of epsilon 1.1 add up to 33, and fit into 6.8 at delta 1e-5.
    """
    # Before the file is made: a mistake leaves nothing behind.
    if not (math.isfinite(epsilon) and epsilon >= 0 and 0 <= delta < 1):
        raise InvalidInput(
            f"the limit would be epsilon {epsilon:g}, delta {delta:g}",
            allowed="a finite --epsilon, 0 or more, and a --delta from 0 to below 1",
        )
    from fedhist.protocol.privacy.ledger import Limit
    from fedhist.server.ledger.file import BudgetFile

    budget = BudgetFile.open(file, create=True)
    budget.set_limit(Limit(epsilon, delta), replace=replace)
    echo(f"limit of {file.name}: epsilon {epsilon:g}, delta {delta:.3g}")


@ledger.command(
    examples=(
        "# 'fedhist ledger show' has the numbers of runs; number 7 did not end",
        "fedhist ledger close customers.ledger 7",
    )
)
@FILE
@click.argument("run", type=int)
def close(file: Path, run: int) -> None:
    """End a run whose process died: it then counts with what it charged instead of what it reserved."""
    from fedhist.server.ledger.file import BudgetFile

    BudgetFile.open(file, create=False).close(run)
    echo(f"run {run} of {file.name} is closed")


def _row(run: RunRecord) -> dict[str, Any]:
    from fedhist.commands.summary import epsilon_text

    window = run.plan.get("window")
    return {
        "run": run.id,
        "when": f"{run.time:%Y-%m-%d %H:%M:%S}",
        "plan": run.plan_hash[:8],
        "data": run.label if not window or run.label.endswith(window) else f"{run.label}, {window}",
        "selector": run.plan.get("selector", run.plan.get("kind", "")),
        "status": "defined" if "kind" in run.plan else run.status,
        "epsilon": epsilon_text(run.charged.epsilon),
        "delta": f"{run.charged.delta:.3g}",
    }


def _run_document(run: RunRecord) -> dict[str, Any]:
    return {
        "run": run.id,
        "time": run.time.isoformat(),
        "plan_digest": run.plan_hash,
        "plan": dict(run.plan),
        "data": run.label,
        "status": run.status,
        "reason": run.reason,
        "charged": run.charged.cost.to_json(),
        "reserved": run.reserved.cost.to_json(),
        "rho": run.counted.rho,
        "charges": [charge.to_json() for charge in run.charges],
    }


def _text(cost: Cost) -> str:
    from fedhist.commands.summary import epsilon_text

    return f"epsilon {epsilon_text(cost.epsilon)}, delta {cost.delta:.3g}"
