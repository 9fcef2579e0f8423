"""What a reader prints when it gives up is not seen, and the stream is there again afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedhist import read_population
from tests.support.api import InvalidFile, aloud_again, silent_native_errors


def test_the_error_stream_is_silent_inside_and_back_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), silent_native_errors(), silent_native_errors():
        os.write(2, b"thread panicked at a user's row")
        _ = 1 / 0
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


def test_a_process_without_an_error_stream_reads_all_the_same() -> None:
    code = (
        "import os; os.close(2); from fedhist.client.files.native_errors import silent_native_errors\n"
        "with silent_native_errors(): print('read')"
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


def test_a_block_that_never_ended_is_ended_by_who_waited_for_it() -> None:
    """Ctrl-C that is raised as the block is left, before its end has run."""
    real = os.fstat(2)
    block = silent_native_errors()
    block.__enter__()
    assert not os.path.samestat(real, os.fstat(2))
    aloud_again()
    assert os.path.samestat(real, os.fstat(2))
    block.__exit__(None, None, None)
    assert os.path.samestat(real, os.fstat(2))
    with silent_native_errors():
        assert not os.path.samestat(real, os.fstat(2))
    assert os.path.samestat(real, os.fstat(2))
