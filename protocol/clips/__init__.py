"""How a user's histogram is clipped to a bound, and what that does to sums."""
