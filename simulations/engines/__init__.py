"""Transports that run the whole cohort on one machine."""
