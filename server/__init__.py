"""The two rounds, the private choice of the bound, and the release."""
