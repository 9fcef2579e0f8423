"""Users' text made fit to be shown: nothing invisible in it, and not too long."""

from __future__ import annotations

import re
import unicodedata

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
