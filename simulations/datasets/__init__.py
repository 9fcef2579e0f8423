"""Populations: read from files or made from a seed, always shard by shard."""

DEFAULT_USERS = 50_000
DEFAULT_ITEMS = 1_000
"""The size of a synthetic population where nothing else is asked for."""

SIZED = (
    "heavy-tailed", "zipf", "poisson", "paper-iid", "paper-non-iid", "paper-iid-text", "paper-non-iid-text",
)  # fmt: skip
"""The project's own synthetic populations whose users and items can be set."""

DEFAULT_TAIL_INDEX = 1.5
DEFAULT_MEAN_TOTAL = 60.0
"""Of a population that is guessed."""

DEFAULT_POINTS = 10
"""Budgets that a prediction is made for, from a range."""
