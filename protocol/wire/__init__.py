"""Messages as bytes and as fields."""
