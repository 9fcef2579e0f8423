"""How a user's histogram is cut to a bound, and what that does to sums."""
