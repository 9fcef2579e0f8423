"""The mistakes that people meet most, each with the whole sentence that answers it: tests/vectors/sentences.txt."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.builders import ROOT, Fedhist, files_in, write_records

GOLDEN = [
    block.strip().split("\n", 1)
    for block in (ROOT / "tests/vectors/sentences.txt").read_text(encoding="utf-8").split("\n\n")
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small table, a list of items, and what is no trace."""
    write_records(tmp_path / "visits.csv", [("ann", "tea", 1), ("bob", "milk", 2)])
    (tmp_path / "ages.csv").write_text("uid;age\n1;34\n2;51\n")
    (tmp_path / "negative.csv").write_text("user,item,count\nann,tea,1\nbob,tea,-918273\n")
    (tmp_path / "items.txt").write_text("tea\nmilk\n")
    (tmp_path / "bad.jsonl").write_text('{"trace": 3}\n')
    (tmp_path / "taken").mkdir()
    return tmp_path


@pytest.mark.parametrize(("command", "sentence"), GOLDEN, ids=[command for command, _ in GOLDEN])
def test_a_mistake_is_answered_with_one_sentence(
    fedhist: Fedhist, folder: Path, command: str, sentence: str
) -> None:
    """Exit code 2, nothing printed, nothing written, and nothing of what a user has."""
    before = files_in(folder)
    outcome = fedhist(*shlex.split(command.removeprefix("$ fedhist ")))
    assert outcome.err.replace(f"{folder}/", "").strip() == sentence
    assert (outcome.code, outcome.out) == (2, "")
    assert files_in(folder) == before
