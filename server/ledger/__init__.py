"""Budgets that outlive a run."""
