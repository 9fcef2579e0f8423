"""The command `fedhist`.

Only click is loaded here; a command loads what it needs when it runs, so that --help answers at once.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from typing import Any, NoReturn

import click

from fedhist import __version__
from fedhist.commands.options import Group
from fedhist.commands.terminal import block, echo, echo_as_it_is, line, mute, prepare_streams

EXIT_AUDIT_FAILED = 5
EXIT_INTERRUPTED = 130
_CODES = {"InvalidInput": 2, "BudgetExceeded": 3, "RoundFailed": 4}
EPILOG = (
    "Exit codes: 0 done, 1 not finished because of the system (a full disk, no memory), 2 bad input, 3 refused by a "
    "budget limit, 4 a round failed, 5 an audit failed, 130 interrupted."
)

COMMANDS = {
    "run": ("run:run", "Choose a contribution bound privately and release a private histogram."),
    "plan": (
        "plan:plan",
        "Predict error and threshold of a run over a range of epsilon, before any budget is spent.",
    ),
    "campaign": ("campaign:campaign", "A release of every week, or of any windows, as one command."),
    "demo-deployment": (
        "start:demo_deployment",
        "Start a SuperLink and SuperNodes on this machine, run both rounds, print the release, stop everything.",
    ),
    "new": ("start:new", "Write a Flower app that releases a private histogram, to start from."),
    "data": ("start:data", "Synthetic populations, for experiments."),
    "compare": (
        "compare:compare",
        "Compare methods over data sets, budgets and trials, and name the best for each.",
    ),
    "paper": (
        "paper:paper",
        "Rerun the paper's tables and figures and put its numbers beside ours, with verdicts.",
    ),
    "report": ("results:report", "Write a result folder as one self-contained HTML page."),
    "figure": ("results:figure", "Draw one chart of a run as SVG or PNG, for a paper."),
    "trace": ("results:trace", "Show what happened in a run: states, messages, drop-outs, charges."),
    "audit": ("audit:audit", "Run the installed mechanisms end to end against worst-case neighbours."),
    "ledger": ("ledger:ledger", "Persistent privacy ledgers: show, limit, close."),
}
"""Each command's module and function, and the line that the list of commands shows for it."""


class LazyGroup(Group):
    """A group whose commands live in modules that are imported when they are called, not when listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of a user's first day."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        from importlib import import_module

        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(f"fedhist.commands.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"max_content_width": 120},
    examples=(
        "# a first run, over synthetic users; then its page in a browser",
        "fedhist run --users 20000 --out first",
        "fedhist report first --out first.html",
    ),
)
@click.version_option(__version__, prog_name="fedhist")
def cli() -> None:
    """User-level private histograms from data that stays on devices.

    Two rounds: the contribution bound is chosen privately, then the clipped histogram is released with noise.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit with its code; a user's mistake is one sentence, never a traceback."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        prepare_streams()
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = _run(arguments)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # What is left is the interpreter's end, which would answer Ctrl-C with a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        # The second one, while the first was being answered.
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    try:
        code = cli.main(args=arguments, prog_name="fedhist", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        code = _report(error)
        if code is None:
            raise
    return code if isinstance(code, int) else 0


def _report(error: BaseException) -> int | None:
    """Print the error as one sentence; the exit code, or None for a bug, which keeps its traceback."""
    from fedhist.protocol import errors

    match error:
        case click.ClickException():
            return _misused(error)
        case click.Abort() | KeyboardInterrupt():
            code, text = EXIT_INTERRUPTED, "interrupted; results are written whole or not at all"
        case BrokenPipeError():
            # The reader of our output has gone.
            mute(sys.stdout)
            return 1
        case errors.FedhistError():
            code = next(
                (code for kind, code in _CODES.items() if isinstance(error, getattr(errors, kind))), 1
            )
            text = f"error: {error}"
        case MemoryError() | OSError(errno=errno.ENOMEM):
            code, text = 1, "error: not enough memory for this population; use fewer users or items"
        case OSError():
            code, text = 1, f"error: {_system_words(error)}"
        case _:
            from fedhist.protocol.plugins import blamed

            if not (blame := blamed(error)):
                return None
            code, text = 1, f"error: {blame}; run it in Python to see more"
    if code in {1, 2} and not _in_a_folder():
        text = f"{text.rstrip('.')}. The folder that you are in does not exist any more; go to another one with cd."
    echo_as_it_is(" ".join([line(text), *map(block, getattr(error, "__notes__", ()))]), err=True)
    return code


def _system_words(error: OSError) -> str:
    """What the operating system refused, and of what."""
    what = error.strerror or "input/output error"
    if error.filename is not None:
        return f"{what}: {error.filename}"
    if isinstance(error, FileNotFoundError):
        # Asked for the folder that the process is in.
        return what
    # Every other file has a name.
    mute(sys.stdout)
    return f"{what}: standard output"


def _in_a_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib has the same call behind more
    except FileNotFoundError:
        return False
    return True


def _misused(error: click.ClickException) -> int:
    """One sentence, like every other mistake, without click's usage text."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        error.show()
        return error.exit_code
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = "fedhist" if context is None else context.command_path
    # Click lists choices on lines of their own.
    message = " ".join(part.strip() for part in error.format_message().split("\n\t"))
    echo(f"error: {message} See '{command} --help'.", err=True)
    return error.exit_code


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
