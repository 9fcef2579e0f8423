"""What the commands do, as functions: a histogram, a report, a figure, and a session under one budget."""
