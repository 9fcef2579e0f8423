"""`python -m fedhist` is the command `fedhist`."""

from fedhist.commands.cli import main

main()
