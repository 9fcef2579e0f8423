"""Numbers of things in words: 1 item, 2,000 items."""

from __future__ import annotations


def counted(count: float, noun: str, plural: str = "") -> str:
    """The number with its noun, in the plural but for exactly one.

    Args:
        count: how many.
        noun: of one.
        plural: of any other number; with an s at the end if it is left out.
    """
    return f"{count:,.0f} {noun if count == 1 else plural or f'{noun}s'}"
