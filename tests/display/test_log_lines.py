from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedhist import RoundFailed
from tests.support.api import TIMED, errors_as_sentences, log, log_shown


@contextmanager
def no_logging(*handlers: logging.Handler) -> Iterator[None]:
    """A process that has set up these handlers and nothing else. pytest has handlers of its own while a test runs."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, list(handlers)
    try:
        yield
    finally:
        root.handlers = before
    assert log.handlers == [] and log.level == logging.NOTSET


def test_lines_are_shown_where_nobody_set_up_logging(capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging():
        log.info("before")
        with log_shown():
            log.info("round select: %d nodes", 3)
            with log_shown(TIMED):
                log.info("inside")
        log.info("after")
    assert capsys.readouterr().err == "fedhist: round select: 3 nodes\nfedhist: inside\n"


def test_with_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging(), log_shown(TIMED):
        log.error("refused")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} fedhist: refused\n", capsys.readouterr().err)


def test_flowers_own_logger_is_left_alone() -> None:
    flower = logging.getLogger("flwr")
    before = (flower.level, list(flower.handlers), flower.propagate)
    with log_shown():
        assert (flower.level, flower.handlers, flower.propagate) == before


def test_an_expected_error_is_a_sentence_in_flowers_log_and_a_bug_is_not() -> None:
    errors_as_sentences()
    shown, flower = io.StringIO(), logging.getLogger("flwr")
    handler = logging.StreamHandler(shown)
    flower.addHandler(handler)
    try:
        for error in (RoundFailed("too few\x1b users; nothing was released"), KeyError("a bug")):
            try:
                raise error
            except Exception as raised:
                flower.error("%s raised an exception", "ServerApp", exc_info=raised)
    finally:
        flower.removeHandler(handler)
    first, *others = shown.getvalue().splitlines()
    assert first == "ServerApp raised an exception: too few⟨U+001B⟩ users; nothing was released"
    assert others[0] == "ServerApp raised an exception"
    assert others[1].startswith("Traceback") and others[-1] == "KeyError: 'a bug'"
