"""What is refused, told apart by its class and code; the sentences themselves are in tests/vectors/sentences.txt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from fedhist import FedhistError

Refusal = TypeVar("Refusal", bound=FedhistError)


@contextmanager
def refused(kind: type[Refusal], code: str, *named: object) -> Iterator[pytest.ExceptionInfo[Refusal]]:
    """The block raises an error of this kind with this code, whose sentence names these values and places."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code}, not {code}: {caught.value}"
    for value in named:
        assert str(value) in str(caught.value)
