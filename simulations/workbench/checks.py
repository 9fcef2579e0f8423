"""Checks of what is asked for, before any data is read. Sentences name the options of the command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.masking.graph import share_of
from fedhist.protocol.plan.terms import MAX_SHARE
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.simulations.engines.contract import (
    DEFAULT_NODES,
    IN_PROCESS,
    ON_NODES,
    ON_RAY,
    WITHOUT_MASKS,
    check_workers,
    without_masks,
)
from fedhist.simulations.engines.ray import check_address
from fedhist.simulations.faults import FaultKind, faults_of

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan
    from fedhist.simulations.datasets.loading import Wanted
    from fedhist.simulations.workbench.carrying_out import Asked

MAX_TRIALS = 100_000


def check_population(wanted: Wanted, *, hidden: bool = False) -> None:
    """Refuse options that ask for two populations at once, or for none.

    Args:
        wanted: what is asked for.
        hidden: whether the number of users is hidden, so that it has to be given.
    """
    if wanted.synthetic is None and ((wanted.users is not None and not hidden) or wanted.items is not None):
        raise shaped_file()
    if hidden and wanted.users is None:
        raise InvalidInput(
            "the relation add-or-remove-one without a number of users",
            allowed="--neighbours add-or-remove-one with --users N, a number that does not come from the data",
            advice="give about how many there are, or use --neighbours zero-out, under which their number is public",
        )
    if wanted.normalise is not None and wanted.synthetic is not None:
        raise InvalidInput(
            "--normalise needs a data file", allowed="--normalise with --data, for a file that has names"
        )
    from fedhist.client.files.items import NORMALISATIONS  # it loads numpy

    if wanted.normalise not in (None, *NORMALISATIONS):
        raise InvalidInput(
            f"--normalise is {wanted.normalise!r}", allowed=", ".join(NORMALISATIONS), code="bad-value"
        )
    listed = wanted.items_file is not None or wanted.item_names is not None
    if listed and (wanted.synthetic is not None or wanted.top_items is not None):
        raise InvalidInput(
            "--items-file names the domain of a data file",
            allowed="--items-file with --data, without --top-items",
        )
    for flag, size in (("users", wanted.users), ("items", wanted.items), ("top-items", wanted.top_items)):
        check_count(f"--{flag}", size)


def shaped_file() -> InvalidInput:
    """For sizes of a synthetic population with data from a file."""
    return InvalidInput(
        "--users and --items shape the synthetic population, but --data names a file",
        allowed="one or the other",
        advice="keep part of a file's items with --top-items; runs with --neighbours add-or-remove-one take --users "
        "with --data",
        code="sizes-with-a-file",
    )


def check_count(flag: str, value: int | None) -> None:
    """Refuse a number of things that is no whole number, or below one."""
    if value is not None and not (_is_whole(value) and value >= 1):
        raise InvalidInput(f"{flag} is {value}", allowed="a whole number of at least 1", code="bad-value")


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def check_trials(trials: int | None) -> None:
    """Refuse no trials, and too many."""
    if trials is not None and not 1 <= trials <= MAX_TRIALS:
        raise InvalidInput(f"--trials is {trials}", allowed=f"a whole number from 1 to {MAX_TRIALS}")


def check_asked(asked: Asked, settings: Mapping[str, Any]) -> None:
    """Refuse a run whose settings contradict each other; those of its plan are by name."""
    masked = settings.get("masking", "none") != "none"
    check_population(asked, hidden=settings.get("neighbours") == Neighbours.ADD_OR_REMOVE_ONE)
    check_count("--nodes", asked.nodes)
    for flag, value in (("evaluate", asked.evaluate), ("trace", asked.trace)):
        # A text such as "no" would count as True, and an evaluation is not private.
        if not isinstance(value, bool | None):
            raise InvalidInput(f"{flag} is {value!r}", allowed="True or False", code="bad-value")
    if asked.seed is not None and not _is_whole(asked.seed):
        raise InvalidInput(f"--seed is {asked.seed!r}", allowed="a whole number", code="bad-value")
    faults = faults_of(asked.dropout, asked.faulty)
    if asked.nodes is not None and asked.engine not in ON_NODES and not (masked or faults):
        raise InvalidInput(
            f"the engine {asked.engine} has no nodes",
            allowed=f"--nodes with --engine {', '.join(ON_NODES)}, or with --masking, --dropout or --faulty",
            code="engine-without-nodes",
        )
    if asked.ray_address is not None and asked.engine not in ON_RAY:
        raise InvalidInput(
            f"the engine {asked.engine} does not use Ray",
            allowed=f"--ray-address with --engine {', '.join(ON_RAY)}",
        )
    if masked and asked.engine in WITHOUT_MASKS:
        raise without_masks(asked.engine)
    check_address(asked.ray_address)
    if asked.workers is not None and asked.engine != IN_PROCESS:
        raise InvalidInput(
            f"--workers does not apply to the engine {asked.engine}",
            allowed=f"--workers with --engine {IN_PROCESS}",
            advice="Ray uses all cores of its machines" if asked.engine in ON_RAY else "leave --workers out",
            code="engine-without-workers",
        )
    check_workers(asked.workers)
    if asked.ledger is not None and any(faults.faulty.values()):
        raise InvalidInput(
            "--faulty with --ledger",
            allowed="--faulty without --ledger",
            advice="what is charged to people should be a release, and not one with made-up nodes in it",
        )


def fault_notes(asked: Asked, plan: Plan) -> list[str]:
    """What to know before a run whose faults leave too few, or strike nobody.

    It is no mistake: a person may want to see how such a round ends.
    """
    faults = faults_of(asked.dropout, asked.faulty)
    nodes = plan.participants or asked.nodes or min(DEFAULT_NODES, plan.users)
    notes = [
        f"{_flag(kind, share)} of {nodes:,} nodes is none; raise it, or raise --nodes"
        for kind, share in faults.shares.items()
        if share_of(nodes, share) == 0
    ]
    if plan.is_masked:
        if faults.dropout > plan.dropout_share:
            # Some of those who vanish have sent their part already, so that a little more may go well.
            notes.append(
                f"--dropout {faults.dropout:g} lets more participants vanish than --dropout-share "
                f"{plan.dropout_share:g} allows for, and the round will probably fail; raise --dropout-share, which "
                f"may be up to {MAX_SHARE:g}, or lower --dropout"
            )
        return notes
    gone = sum(share_of(nodes, share) for kind, share in faults.shares.items() if kind != FaultKind.INFLATE)
    # The largest nodes have one user more than the smallest.
    left = min(plan.users, (nodes - gone) * -(-plan.users // nodes))
    if left < plan.minimum_cohort:
        notes.append(
            f"at most {left:,} of {plan.users:,} users can be in a sum and --minimum-cohort asks for "
            f"{plan.minimum_cohort:,}: every round will fail; lower it, or --dropout and --faulty"
        )
    return notes


def _flag(kind: FaultKind, share: float) -> str:
    return f"--dropout {share:g}" if kind is FaultKind.DROPOUT else f"--faulty {kind.value}={share:g}"
