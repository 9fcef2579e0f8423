"""Text fit to be shown: nothing invisible in it, not too long, and lines of the log."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

from fedhist.protocol.errors import FedhistError, UnexpectedMessage

LONGEST_LABEL = 200
LONGEST_LINE = 4096
# Joiners that emoji and several scripts need; every other invisible character is written out.
_HARMLESS = frozenset("\u200c\u200d")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Beginnings that a spreadsheet reads as a formula; the last four are wide forms of the first.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")


def visible(text: object, most: int = LONGEST_LABEL) -> str:
    """The text with control, direction and other invisible characters written out, cut to a length.

    A right-to-left override would turn the rest of a line round, and half of a surrogate pair is not even text.
    """
    shown = "".join(_shown(character) for character in str(text)[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def is_hidden(label: object) -> bool:
    """Whether a text has something invisible in it, which `visible` would write out."""
    text = str(label)
    # isprintable is fast, and true of nearly every name.
    return not text.isprintable() and visible(text, len(text)) != text


def is_formula(label: object) -> bool:
    """Whether a spreadsheet would take a cell with this text for a formula; a number is none."""
    text = str(label)
    return text.startswith(_FORMULA) and not _NUMBER.fullmatch(text)


def _shown(character: str) -> str:
    if character in _HARMLESS or unicodedata.category(character) not in _INVISIBLE:
        return character
    return f"⟨U+{ord(character):04X}⟩"


def line(text: object) -> str:
    """One line with nothing invisible in it."""
    return visible(text, LONGEST_LINE)


def block(text: str) -> str:
    """Several lines, such as the end of a log, each of them with nothing invisible in it."""
    return "\n".join(line(one.expandtabs()) for one in text.splitlines())


# Our log on stderr, in a process that has not set up logging for it, and our errors in Flower's log.

log = logging.getLogger("fedhist")

PLAIN = "fedhist: %(message)s"
TIMED = "%(asctime)s fedhist: %(message)s"


def errors_as_sentences() -> None:
    """Let Flower's log show an expected error of ours as its sentence, in place of thirty lines of traceback.

    The run fails as with any other error.
    """
    logging.getLogger("flwr").addFilter(_as_sentence)


def _as_sentence(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, FedhistError) and not isinstance(error, UnexpectedMessage):
        record.msg, record.args = "%s: %s", (record.getMessage(), line(error))
        record.exc_info = None
    return True


@contextmanager
def log_shown(form: str = PLAIN) -> Iterator[None]:
    """Show our lines as long as the block runs, where Flower looks for an app's output.

    A process that has given our logger a level or a handler of its own, or whose handlers show information, is left
    alone. Where it has handlers for everything, which would show warnings only, these show our lines as well.
    """
    if log.level != logging.NOTSET or log.handlers or (log.hasHandlers() and log.isEnabledFor(logging.INFO)):
        yield
        return
    handler = None
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(form))
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(logging.NOTSET)
        if handler is not None:
            log.removeHandler(handler)


# Numbers of things in words: 1 item, 2,000 items.


def counted(count: float, noun: str, plural: str = "") -> str:
    """The number with its noun, in the plural except for exactly one.

    Args:
        count: how many.
        noun: of one.
        plural: of any other number; with an s at the end if it is left out.
    """
    return f"{count:,.0f} {noun if count == 1 else plural or f'{noun}s'}"
