"""`python -m fedhist` and the command `fedhist`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command. Until it can answer Ctrl-C itself, Ctrl-C ends the process without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fedhist.commands.cli import main as run

    run()


if __name__ == "__main__":
    main()
