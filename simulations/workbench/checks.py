"""Checks of what is asked for, before any data is read. Sentences name the options of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.masking_terms import MAX_SHARE
from fedhist.protocol.privacy.calibration import is_number
from fedhist.simulations.engines.contract import IN_PROCESS, ON_NODES, ON_RAY, WITHOUT_MASKS, without_masks
from fedhist.simulations.engines.cores import check_workers
from fedhist.simulations.engines.ray_runtime import check_address

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan
    from fedhist.simulations.datasets.loading import Wanted
    from fedhist.simulations.workbench.carrying_out import Asked

MAX_TRIALS = 100_000


def check_population(wanted: Wanted) -> None:
    """Refuse options that ask for two populations at once, or for none."""
    if wanted.synthetic is None and (wanted.users is not None or wanted.items is not None):
        raise shaped_file()
    if wanted.normalise is not None and wanted.synthetic is not None:
        raise InvalidInput(
            "--normalise needs a data file", allowed="--normalise with --data, for a file that has names"
        )
    from fedhist.client.files.item_choice import NORMALISATIONS  # it loads numpy

    if wanted.normalise not in (None, *NORMALISATIONS):
        raise InvalidInput(f"--normalise is {wanted.normalise!r}", allowed=", ".join(NORMALISATIONS))
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
        advice="keep part of a file's items with --top-items",
    )


def check_count(flag: str, value: int | None) -> None:
    """Refuse a number of things that is no whole number, or below one."""
    if value is not None and not (_is_whole(value) and value >= 1):
        raise InvalidInput(f"{flag} is {value}", allowed="a whole number of at least 1")


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def check_trials(trials: int | None) -> None:
    """Refuse no trials, and too many."""
    if trials is not None and not 1 <= trials <= MAX_TRIALS:
        raise InvalidInput(f"--trials is {trials}", allowed=f"a whole number from 1 to {MAX_TRIALS}")


def check_asked(asked: Asked, *, masked: bool) -> None:
    """Refuse a run whose settings contradict each other."""
    check_population(asked)
    check_count("--nodes", asked.nodes)
    check_trials(asked.trials)
    for flag, value in (("--truth", asked.truth), ("--trace", asked.trace)):
        # A text such as "no" would count as True, and the truth is not private.
        if not isinstance(value, bool):
            raise InvalidInput(f"{flag} is {value!r}", allowed="True or False")
    if asked.seed is not None and not _is_whole(asked.seed):
        raise InvalidInput(f"--seed is {asked.seed!r}", allowed="a whole number")
    if asked.nodes is not None and asked.engine not in ON_NODES and not masked:
        raise InvalidInput(
            f"the engine {asked.engine} has no nodes",
            allowed=f"--nodes with --engine {', '.join(ON_NODES)}, or with --masking",
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
        )
    check_workers(asked.workers)
    if not (is_number(asked.dropout) and 0 <= asked.dropout < 1):
        raise InvalidInput(f"--dropout is {asked.dropout}", allowed="a number from 0 to below 1")
    if asked.dropout and not masked:
        raise InvalidInput(
            "--dropout without masking", allowed="--dropout with --masking secagg or secagg-signed"
        )


def dropout_notes(dropout: float, plan: Plan) -> list[str]:
    """What to know before a round from which more participants vanish than the plan allows for.

    It is no mistake: a person may want to see how such a round ends. Some of those who vanish have sent their part
    already, so that a little more than the plan's share may go well.
    """
    if dropout <= plan.dropout_share:
        return []
    return [
        f"--dropout {dropout:g} lets more participants vanish than --dropout-share {plan.dropout_share:g} allows for, "
        f"and the round will probably fail; raise --dropout-share, which may be up to {MAX_SHARE:g}, or lower --dropout"
    ]
