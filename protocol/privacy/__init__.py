"""Neighbours, calibration, noise and the ledger."""
