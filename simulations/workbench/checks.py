"""Checks of options that several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from fedhist.simulations.datasets.loading import Wanted

MAX_TRIALS = 100_000


def check_population(wanted: Wanted) -> None:
    """Refuse options that ask for two populations at once, or for none."""
    if wanted.synthetic is None and (wanted.users is not None or wanted.items is not None):
        raise shaped_file()
    if wanted.normalise is not None and wanted.synthetic is not None:
        raise InvalidInput(
            "--normalise needs a data file", allowed="--normalise with --data, for a file that has names"
        )
    if wanted.items_file is not None and (wanted.synthetic is not None or wanted.top_items is not None):
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
    """Refuse a number of things below one."""
    if value is not None and value < 1:
        raise InvalidInput(f"{flag} is {value}", allowed="a whole number of at least 1")


def check_trials(trials: int | None) -> None:
    """Refuse no trials, and too many."""
    if trials is not None and not 1 <= trials <= MAX_TRIALS:
        raise InvalidInput(f"--trials is {trials}", allowed=f"a whole number from 1 to {MAX_TRIALS}")
