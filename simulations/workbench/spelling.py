"""Sentences that name options of the command, in the words of Python: --max-threshold is max_threshold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fedhist.protocol.errors import FedhistError, InvalidInput
from fedhist.protocol.plan.fields import FIELDS
from fedhist.simulations.engines.contract import ENGINES

_VALUES = {"fixed", *ENGINES, *(choice for one in FIELDS.values() for choice in one.choices)}
_OPTION = re.compile(r"--([a-z][a-z-]*[a-z])(?: ([a-z][a-z-]*[a-z])\b)?")
_PHRASES = {
    "leave --no-truth out": "pass truth=True",
    "--no-truth": "truth=False",
    "the --items-file": "items",
    "--items-file FILE": "items=[...]",
    "--items-file": "items=[...]",
    "--user-column": "user",
    "--item-column": "item",
    "--count-column": "count",
    "--ledger FILE": "ledger",
}
"""What is called otherwise in Python; longer phrases first."""


def in_python(text: str) -> str:
    """The sentence with arguments of functions in the place of options."""
    for phrase, words in _PHRASES.items():
        text = text.replace(phrase, words)
    return _OPTION.sub(_argument, text)


def _argument(option: re.Match[str]) -> str:
    name, value = option[1].replace("-", "_"), option[2]
    if value is None:
        return name
    return f'{name}="{value}"' if value in _VALUES else f"{name} {value}"


@contextmanager
def python_words() -> Iterator[None]:
    """Errors that are raised in here name arguments."""
    try:
        yield
    except FedhistError as error:
        error.args = tuple(in_python(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, InvalidInput):
            error.problem, error.allowed = in_python(error.problem), in_python(error.allowed)
            error.advice = in_python(error.advice)
        raise
