"""What people call from Python; the commands are thin over it."""
