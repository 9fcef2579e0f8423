"""What one participant answers, what it refuses, and where its data comes from."""
