"""The names of items, and where the list of them comes from."""
