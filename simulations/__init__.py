"""Engines, data sets and the command line."""
