"""The progress of an experiment, for displays to follow."""

from __future__ import annotations


class Counting:
    """Follows the progress of an experiment and shows nothing, as for pipes and files."""

    def begin(self, total: int, left: int) -> None:
        """Start with this number of trials in total, and this number left to do."""

    def advance(self) -> None:
        """One more trial is done."""
