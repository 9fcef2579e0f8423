"""Populations from published files: one module for each format, and the registry."""

FORMAT_NAMES = ("sentiment140", "snap", "movielens", "records")
"""In the order in which they are tried on a file."""
MAX_MALFORMED = 0.001
"""The largest share of malformed lines with which a file is imported."""
