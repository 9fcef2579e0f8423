"""The journal of an experiment: every finished trial a line, so that a killed run goes on where it was.

The first line is a fingerprint of all that the results depend on. A folder of another experiment is refused; a last
line that was cut off by a kill is dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedhist.protocol.errors import InvalidFile
from fedhist.simulations.experiments.trials import Measured

JOURNAL = "journal.jsonl"


def fingerprint(description: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a description."""
    canonical = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(b"fedhist/1/experiment\x00" + canonical.encode()).hexdigest()


@dataclass
class Journal:
    """Finished trials: those of earlier runs, and those that are added."""

    done: dict[tuple[str, int], dict[str, float]]
    _file: IO[bytes]

    def add(self, measured: Measured) -> None:
        """Write a finished trial; it is on disk when this returns."""
        line = {"cell": measured.cell, "trial": measured.trial, "values": measured.values}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done[measured.cell, measured.trial] = measured.values


@contextmanager
def open_journal(folder: Path, description: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal in this folder: a new one, or the one of this very experiment."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / JOURNAL).open("a+b")
    except OSError as error:
        raise InvalidFile(
            f"can't write into {folder} ({error.strerror})",
            allowed="a writable folder",
            advice="name another one with --out",
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidFile(
                f"another fedhist is at work in {folder}",
                allowed="one run in a folder at a time",
                advice="wait for it, or name another one with --out",
            ) from None
        yield Journal(_read(file, folder, fingerprint(description), description), file)


def _read(
    file: IO[bytes], folder: Path, wanted: str, description: Mapping[str, Any]
) -> dict[tuple[str, int], dict[str, float]]:
    file.seek(0)
    text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        file.truncate(len(whole))
    lines = whole.splitlines()
    if not lines:
        if any(path.name != JOURNAL for path in folder.iterdir()):
            (folder / JOURNAL).unlink()
            raise InvalidFile(
                f"{folder} holds something else than an experiment",
                allowed="a new folder, or that of the same experiment",
                advice="name another one with --out",
            )
        header = {"fingerprint": wanted, "description": description}
        file.write(json.dumps(header).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
        return {}
    try:
        found = json.loads(lines[0])["fingerprint"]
        done = {
            (line["cell"], int(line["trial"])): dict(line["values"]) for line in map(json.loads, lines[1:])
        }
    except (ValueError, KeyError, TypeError):
        raise InvalidFile(
            f"the journal in {folder} is damaged", allowed="a journal of fedhist", advice="use a new --out"
        ) from None
    if found != wanted:
        raise InvalidFile(
            f"{folder} holds another experiment: its data, settings, seed or version differ",
            allowed="a new folder, or the command with which this one was made",
            advice="name another one with --out",
        )
    return done
