"""`python -m fedhist` is the command `fedhist`."""

from fedhist.simulations.cli import main

main()
