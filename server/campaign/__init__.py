"""Releases by a calendar: one plan, many windows, one ledger. Where the rounds run is the caller's choice."""
