"""Experiments over many populations, settings and trials: in parallel, resumable, and never private."""
