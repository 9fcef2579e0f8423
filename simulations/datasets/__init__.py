"""Populations: read from files or made from a seed, always shard by shard."""
