"""Text that users wrote, made harmless: in HTML, in attributes, and in JSON inside a script element."""

from __future__ import annotations

import html
import json
import unicodedata
from typing import Any

# Joiners that emoji and several scripts need; every other invisible character is written out.
_HARMLESS = frozenset("\u200c\u200d")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
LONGEST_LABEL = 200


def visible(text: object, most: int = LONGEST_LABEL) -> str:
    """The text with control, direction and other invisible characters written out, cut to a length.

    A right-to-left override would turn the rest of a line round, and half of a surrogate pair is not even text.
    """
    shown = "".join(_shown(character) for character in str(text)[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def text(value: object, most: int = LONGEST_LABEL) -> str:
    """For the content of an element, or between the quotes of an attribute."""
    return html.escape(visible(value, most), quote=True)


def lines(*values: object) -> str:
    """Several lines for an attribute."""
    return "&#10;".join(text(value) for value in values)


def script_json(value: Any) -> str:
    """JSON for inside of a script element: nothing in it can end the element or begin a comment."""
    encoded = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return encoded.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _shown(character: str) -> str:
    if character in _HARMLESS or unicodedata.category(character) not in _INVISIBLE:
        return character
    return f"⟨U+{ord(character):04X}⟩"
