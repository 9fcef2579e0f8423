"""Text that somebody else wrote, fit to be shown: nothing invisible in it, and not too long."""

from __future__ import annotations

import unicodedata

LONGEST_LABEL = 200
# Joiners that emoji and several scripts need; every other invisible character is written out.
_HARMLESS = frozenset("\u200c\u200d")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: object, most: int = LONGEST_LABEL) -> str:
    """The text with control, direction and other invisible characters written out, cut to a length.

    A right-to-left override would turn the rest of a line round, and half of a surrogate pair is not even text.
    """
    shown = "".join(_shown(character) for character in str(text)[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _shown(character: str) -> str:
    if character in _HARMLESS or unicodedata.category(character) not in _INVISIBLE:
        return character
    return f"⟨U+{ord(character):04X}⟩"
