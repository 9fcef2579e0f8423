"""A private histogram of what the users of all nodes do."""
