"""What belongs to the paper's own experiments alone."""
