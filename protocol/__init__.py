"""What both sides share: pure functions and frozen values. No Flower, no files, no clock."""
