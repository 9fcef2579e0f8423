"""What the options of a comparison offer. Nothing heavy is imported here, so that help answers at once."""

from __future__ import annotations

PAPER_DELTA, ALL_DELTA = "1/2n", "1/n"
"""The paper's delta for each round, 1/(2n) for n users; and the sum of both rounds."""

DEFAULT_PARTICIPANTS = 100
"""The participants of masked rounds, or all users if they are fewer."""

NONE = "none"
"""The word in a list for the absence of an optional setting."""

OPTIONAL = ("debias",)
"""The settings that a list may leave out with the word NONE."""

SEVERAL = (
    "mechanism", "release", "debias", "masking", "noise_from", "epsilon", "delta",
    "epsilon_select", "delta_select", "max_threshold", "threshold", "total_epsilon", "total_delta",
)  # fmt: skip
"""The settings that may have several values."""

SINGLE = (
    "domain", "min_threshold", "candidates", "sparsity", "neighbours", "known_items",
    "corrupt_share", "dropout_share",
    "max_items", "max_item_bytes",
)  # fmt: skip
"""The settings that all combinations share."""

RANKINGS = {"loss": "loss", "estimate-loss": "estimate"}
"""What methods can be ranked by, and what a trial calls it."""


class Counting:
    """Follows the progress of an experiment and shows nothing, as for pipes and files."""

    def begin(self, total: int, left: int) -> None:
        """Start with this number of trials in total, and this number left to do."""

    def advance(self) -> None:
        """One more trial is done."""
