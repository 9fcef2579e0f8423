"""Populations from files as others publish them: one file a format, and the registry."""
