"""Populations from published files: one module for each format, and the registry."""
