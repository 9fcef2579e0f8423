"""Experiments over many populations, settings and trials: in parallel, resumable, and never private."""


class Counting:
    """Follows the progress of an experiment and shows nothing, as for pipes and files."""

    def begin(self, total: int, left: int) -> None:
        """Start with this number of trials in total, and this number left to do."""

    def advance(self) -> None:
        """One more trial is done."""
