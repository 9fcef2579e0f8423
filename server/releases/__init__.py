"""What leaves the server."""
