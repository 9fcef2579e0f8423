"""A subject that is wrong in one way must fail the one check that is about it, and no earlier one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def caught_by() -> Callable[..., None]:
    def caught_by(name: str, check: Callable[..., None], subject: Any, **settings: Any) -> None:
        with pytest.raises(AssertionError, match=rf"^[a-z ]+: {name}: \S"):
            check(subject, **settings)

    return caught_by
