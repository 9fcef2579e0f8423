"""Terminals that lack characters, outputs that fail, folders that are gone, and Ctrl-C before the command begins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import ROOT, Fedhist
from tests.support.api import prepare_streams

TABLE = "user,item\n1,caf\u00e9\n2,\u732b\n3,caf\u00e9\n"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "fedhist", *words]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a … b · c", "a ... b - c"), ("⟨U+202E⟩", "<U+202E>"), ("café", "caf<U+00E9>"), ("█▌▏", "##")],
)
def test_characters_that_an_encoding_lacks_are_written_in_ascii(text: str, shown: str) -> None:
    prepare_streams()
    assert text.encode("ascii", "fedhist-plain") == shown.encode()


def test_a_run_on_a_terminal_with_ascii_alone_ends_well(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE, encoding="utf-8")
    done = subprocess.run(
        command("run", "--data", "t.csv", "--domain", "open", "--out", "\u732b", "--trace", "--verbose"),
        cwd=tmp_path,
        env=environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and b"written: <U+732B>/" in done.stdout
    assert done.stderr.isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_output_that_fails_is_an_error_where_it_is_the_only_copy(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("run", "--users", "200", "--items", "5", "--json"),
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device: standard output\n"


def test_streams_that_are_closed_take_nothing_that_is_written(tmp_path: Path) -> None:
    """A ledger that is opened as file number 1 must not get the summary."""
    words = ["run", "--users", "200", "--items", "5", "--ledger", "l", "--out", "r"]
    code = f"import os; os.close(1); os.close(2); os.execv({sys.executable!r}, {command(*words)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=False)
    assert done.returncode == 0
    assert (tmp_path / "l").read_bytes().startswith(b"SQLite format 3")
    assert (tmp_path / "r/result.json").exists()


def test_ctrl_c_while_modules_are_imported_shows_no_traceback(tmp_path: Path) -> None:
    """The first thing that the command imports is click; here it brings the interrupt with it."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        command("--version"),
        cwd=tmp_path,
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["compare", "--users", "9"],
        ["ledger", "show", "l"],
        ["figure", "r", "curve", "--out", "c.svg"],
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_is_gone_is_named_as_the_reason(
    fedhist: Fedhist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    outcome = fedhist(*words)
    assert outcome.code in {1, 2}
    assert "The folder that you are in does not exist any more" in outcome.err
    assert "standard output" not in outcome.err
