"""Data files, read on the device that holds them."""
