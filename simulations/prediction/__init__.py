"""What a run will be like, from public data."""
