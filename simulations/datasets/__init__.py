"""Populations: read from files or made from a seed, always shard by shard."""

DEFAULT_USERS = 50_000
DEFAULT_ITEMS = 1_000
"""The size of a synthetic population where nothing else is asked for."""
