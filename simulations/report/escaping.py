"""Escapes text that users wrote: in HTML, in attributes, and in JSON inside a script element."""

from __future__ import annotations

import html
import json
from typing import Any

from fedhist.display.visible_text import LONGEST_LABEL, visible


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
