"""One is singular, and every other number plural."""

from __future__ import annotations

import pytest

from tests.support.api import counted


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 items"), (1, "1 item"), (1.0, "1 item"), (2, "2 items"), (1500, "1,500 items")],
)
def test_a_number_with_its_noun(count: float, words: str) -> None:
    assert counted(count, "item") == words
    assert counted(count, "child", "children").endswith(" child" if count == 1 else " children")
