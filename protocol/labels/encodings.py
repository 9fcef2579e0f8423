"""Words for text that is not in UTF-8: where the first wrong byte stands, and what the text may be instead."""

from __future__ import annotations

from fedhist.protocol.errors import InvalidFile

_FIRST_LATIN_LETTER = 0xA0
UTF_16_MARKS = b"\xff\xfe"


def not_utf8(name: str, *, line: int, position: int, byte: int) -> InvalidFile:
    """The error for a file that is not in UTF-8.

    Args:
        name: the file.
        line: the line with the first wrong byte, from 1.
        position: of that byte in the file, from 0.
        byte: its value.
    """
    # UTF-16 begins with a mark; letters with accents are one byte from A0 on in Latin-1; Windows has quotes and dashes
    # from 80 on.
    if position == 0 and byte in UTF_16_MARKS:
        looks, code = "UTF-16", "UTF-16"
    else:
        looks, code = ("Latin-1", "LATIN1") if byte >= _FIRST_LATIN_LETTER else ("Windows-1252", "CP1252")
    return InvalidFile(
        f"line {line:,} of {name} is not in UTF-8: byte 0x{byte:02X} at position {position:,} of the file",
        allowed="text in UTF-8",
        advice=f"it looks like {looks}; convert it with iconv -f {code} -t UTF-8 OLD > NEW",
        code="not-utf8",
    )


def first_not_utf8(data: bytes, name: str) -> InvalidFile | None:
    """The error for the first byte of a whole file that is not UTF-8; None if there is none."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return not_utf8(name, line=line, position=error.start, byte=data[error.start])
    return None
