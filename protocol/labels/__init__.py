"""What items are called, and where their list came from."""
