"""How much memory, and how many cores, reading may use, and what a packed file may unpack to."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedhist.protocol.errors import InvalidFile, InvalidInput

SMALLEST = 1 << 28

MAX_UNPACKED_BYTES = 1 << 32
"""The default limit on what a packed data file may unpack to."""

LIMIT_VARIABLE = "FEDHIST_MAX_UNPACKED_BYTES"

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)

# What Python, its libraries and the rows that are being read take, whatever is put aside.
_WORKING = 700 * 10**6
_LONGEST_RECORD = 1 << 26
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Memory:
    """A limit.

    Args:
        limit: the bytes that the process may use while it reads. Python, polars and the rows that are being read take
            some 200 megabytes, and each different item its name; everything else goes to a file if need be.
        workers: the number of threads.
    """

    limit: int
    workers: int

    @property
    def room(self) -> int:
        """The bytes of rows that may be put aside in memory: between two passes there are those of both."""
        return max(self.limit - _WORKING, 0) // 2

    @property
    def batch_rows(self) -> int:
        """The number of rows that are read at a time."""
        return 1 << (20 if self.limit >= _WORKING else 18)

    @property
    def longest_record(self) -> int:
        """The bytes that a line, or a record with line ends in quotes, may have. Readers take several times as much."""
        return min(self.limit // 64, _LONGEST_RECORD)


def memory_limit(text: str | int | None = None) -> Memory:
    """The limit in a text such as 1GB or 512MiB; without one, half of what is available."""
    if text is None:
        return Memory(max(_available() // 2, SMALLEST), cores())
    found = _SIZE.fullmatch(str(text))
    limit = float(found[1]) * _UNITS[(found[2] or "").lower()] if found else 0
    if not SMALLEST <= limit < math.inf:
        raise InvalidInput(
            f"--memory is {text}",
            allowed=f"a number of bytes from {SMALLEST >> 20}MiB on, for example 1GB or 512MiB",
            advice="leave it out to use half of the memory that is available",
            code="bad-memory-limit",
        )
    return Memory(int(limit), cores())


def cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _available() -> int:
    """The memory that is free for this process, as the system and its control group say."""
    try:
        found = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")][:1]
    except (OSError, ValueError, AttributeError):
        found = [SMALLEST << 4]
    most = max(found)
    for name in _CGROUP_LIMITS:
        try:
            most = min(most, int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return most


def unpacked_limit() -> int:
    """The limit in bytes: from the environment, else the default."""
    text = os.environ.get(LIMIT_VARIABLE, str(MAX_UNPACKED_BYTES))
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
        raise InvalidInput(
            f"{LIMIT_VARIABLE} is no number of bytes",
            allowed="a whole number, 1 or more",
            code="bad-unpacked-limit",
        )
    return int(text)


def too_large(path: Path, limit: int) -> InvalidFile:
    """The error for a file that unpacks to more than a limit."""
    return InvalidFile(
        f"{path} is too large once it is unpacked",
        allowed=f"up to {limit:,} bytes",
        advice=f"if the file is meant to be that large, set the environment variable {LIMIT_VARIABLE}",
        code="too-large-unpacked",
    )
