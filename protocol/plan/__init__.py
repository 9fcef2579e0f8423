"""What a run is: its fields, their checks, and what they mean for masks and tables."""

from fedhist.protocol.plan.plan import DEFAULT_MECHANISM, STATISTICS, Plan

__all__ = ["DEFAULT_MECHANISM", "STATISTICS", "Plan"]
