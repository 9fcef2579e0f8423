"""Expected errors and thresholds of runs, computed from public data."""

DEFAULT_POINTS = 20
"""Of a range of epsilon."""
