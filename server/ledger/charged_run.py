"""One run in a persistent ledger: reserved at the start, released once its result is on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fedhist.display.visible_text import LONGEST_LINE, visible
from fedhist.protocol.errors import BudgetExceeded, FedhistError, InvalidInput
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.concentrated import Spending
from fedhist.protocol.privacy.ledger import Charge, check_same_neighbours
from fedhist.server.disk import held_off
from fedhist.server.ledger.budget_file import BudgetFile, OpenRun
from fedhist.server.ledger.what_fits import what_fits
from fedhist.server.steps import method_of, planned_charges, private_instead


@contextmanager
def charged(ledger: Path | None, plan: Plan, *, label: str) -> Iterator[Callable[[Charge], None] | None]:
    """The journal of a run in this ledger, or None without a ledger.

    Args:
        ledger: the file, made if missing.
        plan: what will be run.
        label: what the user calls the data.
    """
    if ledger is None:
        yield None
        return
    charges = planned_charges(plan)
    budget = _checked(ledger, charges)
    cost = Spending.of(charges)
    try:
        entry = budget.begin(plan.digest.hex(), plan.to_json(), cost, label=label, now=datetime.now(UTC))
    except BudgetExceeded as refusal:
        raise BudgetExceeded(f"{refusal} {what_fits(plan, budget)}") from None
    with ending(entry):
        yield entry.record


def _checked(ledger: Path, charges: Sequence[Charge]) -> BudgetFile:
    """The ledger, which has to be able to take these charges, but for its limit."""
    for charge in charges:
        if not charge.private:
            raise InvalidInput(
                f"the {method_of(charge)} is not private and can't be charged",
                allowed="private methods with --ledger",
                advice=f"{private_instead(charge)}, or leave --ledger out",
                code="not-private",
            )
    budget = BudgetFile.open(ledger, create=True)
    # Checked now, not at the first charge.
    check_same_neighbours(charges[0], [charge for run in budget.runs() for charge in run.charges[:1]][:1])
    return budget


@contextmanager
def ending(entry: OpenRun) -> Iterator[None]:
    """End the run as its body ends: released, or failed with the kind of its error."""
    try:
        yield
    except BaseException as error:
        with held_off():
            try:
                entry.failed(type(error).__name__)
            except FedhistError:
                # The error is still the run's own.
                error.add_note(f"The ledger could not note the failure. {_still_open(entry)}")
        raise
    with held_off():
        try:
            entry.released()
        except FedhistError as problem:
            problem.add_note(f"The run itself went well, and a result folder is whole. {_still_open(entry)}")
            raise


def _still_open(entry: OpenRun) -> str:
    return (
        f"Run {entry.id} stays open in {visible(entry.path, LONGEST_LINE)}: its whole reservation counts until "
        f"'fedhist ledger close' closes it."
    )
