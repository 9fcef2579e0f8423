"""Expected errors and thresholds of runs, computed from public data."""
