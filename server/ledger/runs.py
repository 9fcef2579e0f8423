"""One run in a persistent ledger: reserved at the start, released once its result is on disk; or what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Context
from pathlib import Path

from fedhist.display.text import LONGEST_LINE, visible
from fedhist.protocol.errors import BudgetExceeded, FedhistError, InvalidInput, InvalidPlan
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Charge, Limit, Spending, check_same_neighbours
from fedhist.server.disk import held_off
from fedhist.server.ledger.file import BudgetFile, OpenRun
from fedhist.server.steps import method_of, planned_charges, private_instead

_SHORT = Context(prec=2, rounding=ROUND_DOWN)
_LEAST = 1e-3
_SEARCH_STEPS = 24


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
    """The ledger, which has to be able to take these charges, except for its limit."""
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


def what_fits(plan: Plan, budget: BudgetFile) -> str:
    """What is left of the limit, and with which epsilon of its histogram this plan would fit, as a sentence.

    Both are public: they depend on plans and charges alone.
    """
    limit, left = budget.limit, budget.left()
    if limit is None or left is None:
        return "There is no limit."
    words = f"Left: epsilon {left.epsilon:.4g} at delta {left.delta:.3g}. "
    epsilon = _largest(plan, limit, budget.counted())
    if epsilon is None:
        return f"{words}Nothing of this kind fits."
    return f"{words}It would fit with epsilon {epsilon:g}."


def _largest(plan: Plan, limit: Limit, spent: Spending) -> float | None:
    """The largest epsilon of two digits with which the plan fits; None if not even a thousandth of it does."""
    if not _fits(plan, _LEAST * plan.epsilon, limit, spent):
        return None
    low, high = _LEAST * plan.epsilon, plan.epsilon
    for _ in range(_SEARCH_STEPS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _fits(plan, middle, limit, spent) else (low, middle)
    short = float(_SHORT.create_decimal(f"{low * (1 + 1e-6):.10g}"))
    return short if _fits(plan, short, limit, spent) else low


def _fits(plan: Plan, epsilon: float, limit: Limit, spent: Spending) -> bool:
    try:
        charges = planned_charges(replace(plan, epsilon=epsilon))
    except InvalidPlan:
        return False
    return limit.admits(spent, Spending.of(charges))
