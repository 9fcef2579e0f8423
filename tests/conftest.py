"""Shared builders: small populations written as plain lists, and the command, called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings

from fedhist.commands import cli
from fedhist.protocol.clips.clipping import entry_counts, entry_items
from fedhist.protocol.histograms import Histograms, Integers

# A busy machine is no failure: no test has a limit of milliseconds.
settings.register_profile("fedhist", deadline=None)
settings.load_profile("fedhist")


def histograms_of(rows: Sequence[Sequence[int]], *, first_user: int = 0) -> Histograms:
    """Dense rows as Histograms, explicit zeros left out."""
    dense = np.asarray(rows, dtype=np.int64).reshape(len(rows), -1)
    kept = dense > 0
    return Histograms(
        offsets=np.concatenate([[0], np.cumsum(kept.sum(axis=1))]),
        items=np.nonzero(kept)[1],
        counts=dense[kept],
        domain_size=dense.shape[1],
        first_user=first_user,
    )


@pytest.fixture(scope="session")
def make_histograms() -> Callable[..., Histograms]:
    return histograms_of


def parts_of_a_sum(
    sum_of: Callable[..., Integers], histograms: Histograms, *arguments: object, **settings: object
) -> Integers:
    """What each user adds to a sum, as rows: users get items of their own, and no draw depends on items."""
    users, items = histograms.users, histograms.domain_size
    owners = np.repeat(np.arange(users), np.diff(histograms.offsets))
    apart = Histograms(
        offsets=histograms.offsets - histograms.offsets[0],
        items=entry_items(histograms) + items * owners,
        counts=entry_counts(histograms),
        domain_size=users * items,
        first_user=histograms.first_user,
    )
    return sum_of(apart, *arguments, **settings).reshape(users, items)


@pytest.fixture(scope="session")
def by_user() -> Callable[..., Integers]:
    return parts_of_a_sum


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
