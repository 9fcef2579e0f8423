"""The command, called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedhist.simulations import cli


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    def document(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        document: dict[str, Any] = json.loads(self.out)
        return document


Fedhist = Callable[..., Outcome]


@pytest.fixture
def fedhist(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fedhist:
    """The command, run in this process and in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = cli._run([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call
