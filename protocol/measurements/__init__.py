"""What devices are asked for, one file each."""
