"""What a reader prints when it gives up is not seen, and the stream is there again afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedhist import read_population
from tests.support.api import InvalidFile, silenced


def test_the_error_stream_is_silent_inside_and_back_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    def give_up() -> None:
        os.write(2, b"thread panicked at a user's row")
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        silenced(lambda: silenced(give_up))
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


def test_a_process_without_an_error_stream_reads_all_the_same() -> None:
    code = (
        "import os; os.close(2); from fedhist.client.files.native_errors import silenced\n"
        "silenced(lambda: print('read'))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "read\n"


def test_readers_of_tables_print_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import polars as pl

    def give_up(*_: object, **__: object) -> None:
        os.write(2, b"thread panicked: row 'alice'")
        raise pl.exceptions.PanicException("row 'alice'")

    path = tmp_path / "t.parquet"
    pl.DataFrame({"user": ["alice"], "item": ["x"]}).write_parquet(path)
    monkeypatch.setattr(pl, "read_parquet", give_up)
    monkeypatch.setattr(pl, "scan_parquet", give_up)
    with pytest.raises(InvalidFile) as caught:
        read_population(path)
    assert "alice" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_ctrl_c_while_a_reader_reads_is_heard() -> None:
    """Between two batches, as inside of one, nothing is left silent: Ctrl-C may come at any statement."""
    real = os.fstat(2)
    with pytest.raises(KeyboardInterrupt):
        silenced(lambda: signal.raise_signal(signal.SIGINT))
    assert os.path.samestat(real, os.fstat(2))
