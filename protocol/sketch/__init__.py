"""Fixed-length summaries of an open domain."""
