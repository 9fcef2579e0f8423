"""A result as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from fedhist.commands.terminal import line
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.terms import masking_graph
from fedhist.protocol.privacy.ledger import Charge, Cost
from fedhist.server.releases.contract import Release
from fedhist.server.report import which_to_use
from fedhist.server.words import lost_words, method, sender, significant, users_words
from fedhist.simulations.simulation import Result, largest_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


# A pipe has no width of its own; rich would take 80, too narrow for the tables.
_PIPE_WIDTH = 120


def stdout_console() -> Console:
    """A console on standard output, as wide as the terminal; in a pipe, wide enough for every table."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def print_result(console: Console, result: Result, *, source_name: str) -> None:
    """Threshold, quality, cost, bytes and seconds of one run."""
    from rich.markup import escape
    from rich.table import Table

    release, plan = result.release, result.release.plan
    print_notes(console, result.first_lines)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    items = "an open domain" if plan.items is None else f"{plan.items:,} items"
    table.add_row("population", f"{users_words(plan)} x {items} ({escape(line(source_name))})")
    for name, words in _cohort_rows(result):
        table.add_row(name, words)
    table.add_row("mechanism", f"{method(plan, release.mechanism)}, neighbours {plan.neighbours.value}")
    if plan.is_masked:
        table.add_row("masking", masking_text(plan))
    if plan.discovers:
        table.add_row("found", f"{_found_text(release)}{_recall_text(result)}")
    if not release.found_nothing:
        table.add_row("threshold", f"{_threshold_text(release)} {_choice_text(result)}")
    if release.bar is not None:
        table.add_row(
            "released", f"{len(release.histogram):,} keys above {release.bar:,}{_recall_text(result)}"
        )
    if result.diagnostics is not None:
        known = result.diagnostics
        table.add_row(
            "clipped",
            f"{known.clipped_users:.2%} of users, {known.clipped_mass:.2%} of all counts"
            f"{' or not found' if plan.discovers else ''}  (*)",
        )
        noise = "noise alone" if release.bar is None else "noise and withheld keys"
        parts = f"{lost_words(plan)} {known.clipping_error:.4f}, {noise} {known.noise_error:.4f}"
        if known.relative_loss_clipped is None:
            table.add_row("relative loss", f"{known.relative_loss:.4f} ({parts})  (*)")
        else:
            table.add_row("loss, clipped", f"{known.relative_loss_clipped:.4f} ({parts})  (*)")
            table.add_row("loss, debiased", f"{known.relative_loss:.4f}  (*)")
        if known.estimate_loss != known.relative_loss:
            table.add_row("of estimates", f"{known.estimate_loss:.4f}  (*)")
    if not release.found_nothing:
        table.add_row("noise", f"standard error {release.standard_error:,.4g} counts per item")
        table.add_row("significant", significant(release.at_least))
        table.add_row("numbers", which_to_use(release))
    table.add_row("sent", f"by {sender(plan)}: {_sent_text(result)}")
    table.add_row("seconds", _seconds_text(result))
    console.print(table)
    console.print("\n".join(largest_lines(release)), markup=False, soft_wrap=True)
    console.print(charge_table(release.charges, result.total, result.tight))
    if result.diagnostics is not None:
        console.print("(*) depends on the exact data, which only a simulation knows: not private")
    print_notes(console, (note for note in result.notes if note not in result.first_lines))


def charge_table(charges: Iterable[Charge], total: Cost, tight: Cost) -> Table:
    """The ledger: a row for each entry, then the totals."""
    from rich.table import Table

    table = Table(title="privacy ledger", title_justify="left")
    for heading in ("round", "mechanism"):
        table.add_column(heading)
    for heading in ("sensitivity", "epsilon", "delta"):
        table.add_column(heading, justify="right")
    for charge, equal in groupby(charges):
        times = len(list(equal))
        name = charge.name if charge.private else f"{charge.name} (not private)"
        name = name if times == 1 else f"{name} x {times}"
        sensitivity = f"{charge.sensitivity:,.4g} {charge.norm}"
        table.add_row(charge.round, name, sensitivity, epsilon_text(charge.epsilon), f"{charge.delta:.3g}")
    table.add_section()
    table.add_row("total", "basic composition", "", epsilon_text(total.epsilon), f"{total.delta:.3g}")
    table.add_row("total", "tight composition", "", epsilon_text(tight.epsilon), f"{tight.delta:.3g}")
    return table


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Notes for the user, one on each line."""
    for note in notes:
        console.print(line(f"note: {note}"), style="yellow", highlight=False, markup=False)


def epsilon_text(epsilon: float) -> str:
    """An epsilon with four digits; an infinite one in words."""
    return "not private" if epsilon == float("inf") else f"{epsilon:.4g}"


def masking_text(plan: Plan) -> str:
    """The size of the masking graph, the shares that open a secret, and the least number of participants."""
    links = masking_graph(plan)
    noise = f", each adds 1/{plan.noise_shares} of the noise" if plan.noise_by_devices else ""
    return (
        f"{plan.masking}: {links.devices:,} participants, each linked to {links.neighbours}, "
        f"{links.threshold} shares open a secret, at least {plan.minimum_survivors:,} must stay{noise}"
    )


def _threshold_text(release: Release) -> str:
    if release.item_release is None or len(release.item_release.thresholds) == 1:
        return f"{release.threshold:,.4g}"
    return f"{release.item_release.thresholds.min():,.4g} to {release.threshold:,.4g}, one an item,"


def _found_text(release: Release) -> str:
    """How many items were found, and how much of the noise's precision that took."""
    plan, share = release.plan, release.discovery_share
    known = f", {len(plan.known):,} of them known before" if plan.known else ""
    took = "" if share is None else f" with {share:.0%} of the precision"
    if release.found_nothing:
        return "nothing, so that nothing was released"
    items = len(release.histogram)
    return f"{items:,} item{'' if items == 1 else 's'}{known}{took}"


def _recall_text(result: Result) -> str:
    known = result.diagnostics
    return "" if known is None or known.recall is None else f", {known.recall:.2%} of all keys  (*)"


def _cohort_rows(result: Result) -> Iterator[tuple[str, str]]:
    """Who answered, if not everybody did; whom simulated faults struck, and what they changed."""
    users, faults = result.release.plan.users, result.faults
    if any(answered < users for answered in result.users.values()):
        rounds = " · ".join(f"{name} {answered:,}" for name, answered in result.users.items())
        yield "answered", f"{rounds} of {users:,} users"
    if faults is None:
        return
    struck = []
    for name, one in faults.rounds.items():
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in one.items())
        struck.append(f"{name} {kinds or 'none'}")
    yield "faults", f"{' · '.join(struck)} of {faults.nodes:,} nodes"
    loss, threshold = faults.loss_without_faults, faults.threshold_without_faults
    if loss is not None and threshold is not None and faults.struck:
        changed = f", threshold {threshold:,.4g} (with {result.threshold:,.4g})"
        noise = "" if result.seed is not None else "; both drew noise of their own, since there is no --seed"
        words = f"relative loss {loss:,.4f} (with {result.relative_loss:,.4f})"
        yield "without faults", f"{words}{'' if threshold == result.threshold else changed}{noise}  (*)"


def _sent_text(result: Result) -> str:
    sent = " · ".join(result.sent)
    if None in result.bytes_per_user.values():
        return f"{sent} (a size that depends on the data)"
    return f"{sent}  (*)" if "bytes_per_user" in result.sizes_tell else sent


def _seconds_text(result: Result) -> str:
    if result.diagnostics is None:
        return "withheld (times depend on the data)"
    return " · ".join(f"{phase} {spent:.2f}" for phase, spent in result.seconds.items()) + "  (*)"


def _choice_text(result: Result) -> str:
    plan = result.release.plan
    if plan.selector == "fixed":
        return "fixed by the plan"
    chosen = (charge for charge in result.release.charges if charge.round == "select")
    warning = "" if all(charge.private for charge in chosen) else " (not private)"
    largest = result.release.round_plan.max_threshold
    return f"chosen by {plan.selector}{warning} from {plan.min_threshold:g} to {largest:,.5g}"
