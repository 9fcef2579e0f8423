"""Progress of an experiment, as the one who shows it hears of it."""

from __future__ import annotations


class Counting:
    """Counts finished pieces and says nothing. The form for pipes and files."""

    def begin(self, total: int, left: int) -> None:
        """So many pieces in all, so many of them still to do."""

    def advance(self) -> None:
        """One more is done."""
