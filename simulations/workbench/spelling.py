"""Sentences that name options of the command, in the words of Python: --max-threshold is max_threshold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fedhist.protocol.errors import FedhistError, InvalidInput
from fedhist.protocol.plan.fields import FIELDS
from fedhist.server.selection import SELECTORS
from fedhist.simulations.engines.contract import ENGINES

_VALUES = {
    *ENGINES,
    *SELECTORS,
    *("discover", "truncated-laplace"),
    *(choice for one in FIELDS.values() for choice in one.choices),
}
_PHRASES = {
    "add --evaluate": "pass evaluate=True",
    "--no-evaluate": "evaluate=False",
    "--evaluate": "evaluate=True",
    "the --items-file": "the list of items",
    "--items-file FILE": "items=[...]",
    "--items-file": "items=[...]",
    "--force": "force=True",
    "--user-column": "user",
    "--item-column": "item",
    "--count-column": "count",
    "--time-column": "time",
    "--ledger": "ledger=...",
}
"""What is called otherwise in Python; longer phrases first."""

_OPTION = re.compile(
    rf"'fedhist [^']*'|{'|'.join(_PHRASES)}|--([a-z][a-z-]*[a-z])(?: ([a-z][a-z-]*[a-z])\b)?"
)


def in_python(text: str) -> str:
    """The sentence with arguments of functions in the place of options; whole commands stay as they are."""
    return _OPTION.sub(_argument, text)


def _argument(option: re.Match[str]) -> str:
    if option[1] is None:
        return _PHRASES.get(option[0], option[0])
    name, value = option[1].replace("-", "_"), option[2]
    if value is None:
        return name
    return f'{name}="{value}"' if value in _VALUES else f"{name} {value}"


_TYPED = ContextVar("_TYPED", default=False)


@contextmanager
def command_words() -> Iterator[None]:
    """Errors that are raised in here name options, although the command calls what Python offers."""
    before = _TYPED.set(True)
    try:
        yield
    finally:
        _TYPED.reset(before)


@contextmanager
def python_words() -> Iterator[None]:
    """Errors that are raised in here name arguments."""
    try:
        yield
    except FedhistError as error:
        if _TYPED.get():
            raise
        error.args = tuple(in_python(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, InvalidInput):
            error.problem, error.allowed = in_python(error.problem), in_python(error.allowed)
            error.advice = in_python(error.advice)
        raise
