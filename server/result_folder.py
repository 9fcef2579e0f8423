"""A run's folder: its name, the room that it needs, and what is in it."""

from __future__ import annotations

import csv
import errno
import json
import os
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.plan import Plan
from fedhist.server.disk import first_free, flush, write_text
from fedhist.server.releases.contract import Release
from fedhist.server.report import why_not_private

NOT_PRIVATE_FILE = "NOT-PRIVATE.txt"
# For result.json and plan.json, and for the rows of an open domain, whose number nobody knows beforehand.
_ROOM_FOR_DOCUMENTS = 2**18
# Separators and numbers with all their digits, of the widest table.
_ROW_BYTES = 208
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def default_folder(now: datetime) -> Path:
    """A new name in the current folder: fedhist-run-20260131-235959, or that and a number if it is taken."""
    return first_free(lambda number: Path(f"fedhist-run-{now:%Y%m%d-%H%M%S}{number}"))


def check_room(target: Path, plan: Plan, labels: Sequence[str | int] | None) -> None:
    """Refuse a disk that has no room for the result, before anything is spent on it.

    The room is allocated in a file without a name and given back at once, so a disk that others fill in the meantime
    still fails late. Where the file system can't allocate, nothing is refused.
    """
    rows = len(labels) if labels is not None else plan.items or 0
    names = sum(len(str(label)) for label in labels or ())
    needed = _ROOM_FOR_DOCUMENTS + rows * _ROW_BYTES + names
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is None:
        return
    made = False
    try:
        with tempfile.TemporaryFile(dir=target.absolute().parent) as probe:
            made = True
            allocate(probe.fileno(), 0, needed)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise InvalidFile(
                f"there is no room for the folder {target} ({error.strerror}; it may need {needed:,} bytes)",
                allowed="a new folder on a disk with room",
                advice="nothing was spent on it; make room, or choose another folder",
                code="no-room",
            ) from None
        if not made:
            raise InvalidFile(
                f"can't write into {target.absolute().parent} ({error.strerror})",
                allowed="a new folder in an existing, writable one",
                advice="nothing was spent on it; choose another folder",
            ) from None


def write_results(
    folder: Path, document: dict[str, Any], release: Release, labels: Sequence[str | int] | None
) -> None:
    """result.json, histogram.csv (every item's value, estimate and lower limit) and plan.json.

    Floats are written so that they read back as they were. Names in histogram.csv are as their owners wrote them,
    quoted where CSV needs it and changed nowhere: programs look them up. `name_notes` says what a spreadsheet or a
    terminal would make of them. A release that is not private says
    so in a file of its own too, because histogram.csv has no place for it.
    """
    write_text(folder / "result.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
    write_text(folder / "plan.json", json.dumps(release.plan.to_json(), indent=2, allow_nan=False) + "\n")
    reasons = why_not_private(release)
    if reasons:
        text = "\n".join([*reasons, "For simulation only; do not publish."])
        write_text(folder / NOT_PRIVATE_FILE, f"{text}\n")
    columns = release.columns(labels)
    with (folder / "histogram.csv").open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        flush(file)
