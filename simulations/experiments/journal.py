"""The journal of an experiment: one line per finished trial, so that a killed run resumes where it stopped.

The first line is a fingerprint of everything that the results depend on. A folder with another experiment, or with
anything else, is refused and left unchanged; a last line that was cut off by a kill is dropped.
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
    """The finished trials: those of earlier runs, and those added since."""

    done: dict[tuple[str, int], dict[str, float]]
    _file: IO[bytes]

    def add(self, measured: Measured) -> None:
        """Add a finished trial; it is on disk when this returns."""
        line = {"cell": measured.cell, "trial": measured.trial, "values": measured.values}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done[measured.cell, measured.trial] = measured.values


def make_folder(folder: Path) -> None:
    """Make the folder unless it exists; a place where it can't be made is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from None


@contextmanager
def open_journal(folder: Path, description: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal in this folder: a new one, or that of the same experiment.

    A folder that holds anything else is left unchanged, whatever the names of its files.
    """
    make_folder(folder)
    try:
        names = {path.name for path in folder.iterdir()}
        if names and JOURNAL not in names:
            raise _something_else(folder)
        file = (folder / JOURNAL).open("a+b")
    except OSError as error:
        raise _not_writable(folder, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidFile(
                f"another fedhist is at work in {folder}",
                allowed="one run in a folder at a time",
                advice="wait for it to end, or name another folder with --out",
                code="at-work",
            ) from None
        yield Journal(_read(file, folder, description), file)


def _read(
    file: IO[bytes], folder: Path, description: Mapping[str, Any]
) -> dict[tuple[str, int], dict[str, float]]:
    """The finished trials. The file is changed only if it is certain to be the journal of this experiment.

    That is so if its first line says so. It is also so if the file is alone in its folder and holds at most the
    beginning of the line that we would write: then a run was killed in its first write, which precedes all other files.
    """
    wanted = fingerprint(description)
    header = json.dumps({"fingerprint": wanted, "description": description}).encode() + b"\n"
    file.seek(0)
    text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    if not whole:
        if not header.startswith(text) or any(path.name != JOURNAL for path in folder.iterdir()):
            raise _something_else(folder)
        file.truncate(0)
        file.write(header)
        file.flush()
        os.fsync(file.fileno())
        return {}
    first, *lines = whole.split(b"\n")[:-1]
    try:
        described = json.loads(first)
    except (ValueError, RecursionError):
        raise _something_else(folder) from None
    match described:
        case {"fingerprint": str(found), "description": dict()}:
            pass
        case _:
            raise _something_else(folder)
    if found != wanted:
        raise _another(folder, described["description"], description)
    try:
        done = {(line["cell"], int(line["trial"])): dict(line["values"]) for line in map(json.loads, lines)}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise _refused(
            f"the journal in {folder} is damaged", "a journal of fedhist", "damaged-journal"
        ) from None
    if whole != text:
        file.truncate(len(whole))
    return done


def _another(folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> InvalidFile:
    """Another experiment; or the same one, measured with other versions of its plugins."""
    if {**found, "plugins": None} != {**wanted, "plugins": None}:
        problem = f"{folder} holds another experiment: its data, settings, seed or version differ"
        return _refused(
            problem, "a new folder, or the command with which this one was made", "another-experiment"
        )
    return _refused(
        f"{folder} was measured with other plugins than {', '.join(wanted['plugins'])}",
        "a new folder, or the versions with which this one was made",
        "other-plugins",
    )


def _something_else(folder: Path) -> InvalidFile:
    problem = f"{folder} holds something other than an experiment"
    return _refused(problem, "a new folder, or that of the same experiment", "not-an-experiment")


def _not_writable(folder: Path, error: OSError) -> InvalidFile:
    return _refused(
        f"can't write into {folder} ({error.strerror or error})", "a writable folder", "not-writable"
    )


def _refused(problem: str, allowed: str, code: str) -> InvalidFile:
    return InvalidFile(problem, allowed=allowed, advice="name another folder with --out", code=code)
