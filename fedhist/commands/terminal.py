"""Lines on a terminal, with nothing invisible in the names that users chose, whatever the terminal can show."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import click

from fedhist.display.text import block, line

__all__ = ["block", "echo", "echo_as_it_is", "line", "mute", "prepare_streams", "printing_what_is_in"]

_PLAIN = {
    "…": "...", "⟨": "<", "⟩": ">", "·": "-", "●": "o", "┊": ":", "━": "-", "╸": "-", "╺": "-",
    **dict.fromkeys("█▉▊▋▌", "#"), **dict.fromkeys("▍▎▏", ""),
}  # fmt: skip
"""What our own signs become where the terminal's encoding lacks them."""
_ERRORS = "fedhist-plain"


def _in_plain_characters(error: UnicodeError) -> tuple[str, int]:
    """What to write instead of characters that an encoding lacks; names keep their code points."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(one, f"<U+{ord(one):04X}>") for one in missing), error.end


def prepare_streams() -> None:
    """Make printing safe on any terminal: characters that its encoding lacks are written in ASCII.

    A stream that was closed before we began gets a file that refuses to be written, as the closed one would: else
    the next file that is opened would take its number, and be written in its place.
    """
    codecs.register_error(_ERRORS, _in_plain_characters)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # The lowest number that is free, which is the closed stream's.
            number = os.open(os.devnull, os.O_RDONLY)
            setattr(
                sys, name, os.fdopen(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)
            )
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_ERRORS)


def echo(text: str, *, err: bool = False) -> None:
    """Print one line: a file's or an item's name in it can't move the cursor, colour text or begin a new line."""
    echo_as_it_is(line(text), err=err)


def echo_as_it_is(text: str, *, err: bool = False) -> None:
    """Print text that is fit to be shown. What is said on standard error may get lost, but ends nothing."""
    # The stream is named, or click would write UTF-8 to a terminal that has only ASCII.
    if not err:
        click.echo(text, file=sys.stdout)
        return
    try:
        click.echo(text, file=sys.stderr)
    except OSError:
        mute(sys.stderr)


@contextmanager
def printing_what_is_in(folder: Path | None) -> Iterator[None]:
    """Print what this folder holds already: if standard output fails, that is said and the command goes on.

    Without a folder the output is the only copy, and its failure is the command's.
    """
    try:
        yield
        sys.stdout.flush()
    # At a broken pipe rich ends the program.
    except (OSError, SystemExit) as error:
        if folder is None:
            raise
        mute(sys.stdout)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            echo(
                f"note: standard output failed ({error.strerror}); the result is whole, in {folder}", err=True
            )


def mute(stream: TextIO) -> None:
    """Send what is left to be printed nowhere: at its exit the interpreter would fail to print it once more."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
