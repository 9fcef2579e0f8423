"""Our log on stderr, in a process that has not set up logging for it, and our errors in Flower's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fedhist.display.visible_text import line
from fedhist.protocol.errors import FedhistError, UnexpectedMessage

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
