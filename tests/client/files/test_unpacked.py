"""Small files that claim or hold far more than they should: refused by size, before memory is given out."""

from __future__ import annotations

import gzip
import io
import os
import resource
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist import InvalidInput, read_population
from tests.support.api import LIMIT_VARIABLE, InvalidFile, read_items, unpacked_limit
from tests.support.refusals import refused

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 1 << 24


@pytest.fixture
def _low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, str(LIMIT))


def zeros_archive(path: Path, size: int) -> None:
    """A matrix whose counts are zeros, packed to a thousandth."""
    from scipy.sparse import csr_array, save_npz

    entries = size // 4
    matrix = csr_array(
        (
            np.zeros(entries, dtype=np.int32),
            np.zeros(entries, dtype=np.int32),
            np.array([0, entries], dtype=np.int32),
        ),
        shape=(1, 1),
    )
    save_npz(path, matrix)


def claiming_archive(path: Path, claimed: int) -> None:
    """A matrix of one entry whose header says that there are far more."""
    from scipy.sparse import csr_array, save_npz

    file = io.BytesIO()
    save_npz(file, csr_array(np.array([[1]])))
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "data.npy":
                header = data[:128].replace(b"(1,)", b"(%d,)" % claimed)
                data = header[:127].ljust(127)[:127] + b"\n" + data[128:] if len(header) != 128 else header
            new.writestr(name, data)


def claiming_rows(path: Path, rows: int) -> None:
    from scipy.sparse import coo_array, save_npz

    save_npz(path, coo_array((np.array([1]), (np.array([0]), np.array([0]))), shape=(rows, 1)))


def equal_rows(path: Path, rows: int) -> None:
    """Equal values one after the other are packed to a few bytes."""
    import polars as pl

    table = pl.select(user=pl.repeat(1, rows), item=pl.repeat("a", rows))
    table.write_parquet(path, compression="zstd", row_group_size=rows)


def varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def structure(fields: dict[int, int | bytes]) -> bytes:
    """Thrift's compact form: whole numbers, and encoded fields that begin with their kind."""
    data, last = b"", 0
    for number, value in fields.items():
        kind, body = (6, varint(2 * value)) if isinstance(value, int) else (value[0], value[1:])
        data, last = data + bytes([(number - last) << 4 | kind]) + body, number
    return data + b"\0"


def listed(kind: int, entries: list[bytes]) -> bytes:
    return bytes([9, len(entries) << 4 | kind]) + b"".join(entries)


def claiming_page(path: Path, claimed: int, values: int = 1) -> None:
    """A Parquet file of one column whose page says that it is so large when unpacked."""
    counted = b"\x0c" + structure({1: values})
    page = structure({1: 0, 2: claimed, 3: 4, 5: counted}) + bytes(4)
    names = listed(8, [varint(4) + b"user"])
    metadata = b"\x0c" + structure({1: 1, 3: names, 5: 1, 6: len(page), 7: len(page), 9: 4})
    group = structure({1: listed(12, [structure({2: 4, 3: metadata})]), 2: 1, 3: 1})
    footer = structure({1: 1, 3: 1, 4: listed(12, [group])})
    path.write_bytes(b"PAR1" + page + footer + len(footer).to_bytes(4, "little") + b"PAR1")


BOMBS: dict[str, Any] = {
    "zeros.npz": lambda path: zeros_archive(path, 2 * LIMIT),
    "claims.npz": lambda path: claiming_archive(path, 2**33),
    "rows.npz": lambda path: claiming_rows(path, 2**27),
    "more-rows.npz": lambda path: claiming_rows(path, 2**31 - 2),
    "zeros.csv.gz": lambda path: path.write_bytes(gzip.compress(b"user,item\n" + b"a,b\n" * (LIMIT // 2))),
    "zeros.tsv.gz": lambda path: path.write_bytes(gzip.compress(bytes(2 * LIMIT))),
    "equal.parquet": lambda path: equal_rows(path, LIMIT // 8),
    "page.parquet": lambda path: claiming_page(path, 2**31 - 1),
    "values.parquet": lambda path: claiming_page(path, 4, values=2**31 - 1),
}


@pytest.mark.usefixtures("_low")
class TestBombs:
    @pytest.mark.parametrize("name", BOMBS)
    def test_it_is_refused_before_memory_is_given_out(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        BOMBS[name](path)
        assert path.stat().st_size < LIMIT // 16
        tracemalloc.start()
        try:
            with pytest.raises(InvalidFile) as caught:
                read_population(path)
            assert caught.value.code in {"too-large-unpacked", "false-shape", "damaged-file"}
            # Rows of text are taken in until there are too many bytes of them.
            assert tracemalloc.get_traced_memory()[1] < (8 if name == "zeros.csv.gz" else 3) * LIMIT
        finally:
            tracemalloc.stop()

    def test_the_error_says_the_limit_and_how_to_raise_it(self, tmp_path: Path) -> None:
        zeros_archive(tmp_path / "z.npz", 2 * LIMIT)
        with refused(InvalidFile, "too-large-unpacked", "16,777,216", LIMIT_VARIABLE):
            read_population(tmp_path / "z.npz")

    def test_a_higher_limit_lets_it_in(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        equal_rows(tmp_path / "e.parquet", LIMIT // 8)
        monkeypatch.setenv(LIMIT_VARIABLE, str(16 * LIMIT))
        assert read_population(tmp_path / "e.parquet").users == 1

    @pytest.mark.parametrize("text", ["", "0", "-1", "4 GiB", "1e9", "9" * 30])
    def test_a_limit_that_is_no_number(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        monkeypatch.setenv(LIMIT_VARIABLE, text)
        with refused(InvalidInput, "bad-unpacked-limit"):
            unpacked_limit()


class TestPackedTwice:
    """polars unpacks whatever looks packed, and knows nothing of our limit."""

    def test_gzip_in_gzip(self, tmp_path: Path) -> None:
        path = tmp_path / "d.csv.gz"
        path.write_bytes(gzip.compress(gzip.compress(b"user,item\na,b\n")))
        with refused(InvalidFile, "packed-twice"):
            read_population(path)

    @pytest.mark.parametrize("pack", ["zlib", "zstd"])
    def test_other_packing_under_a_name_of_text(self, tmp_path: Path, pack: str) -> None:
        import zlib

        table = b"user,item\na,b\n"
        content = zlib.compress(table) if pack == "zlib" else b"\x28\xb5\x2f\xfd" + table
        (tmp_path / "d.csv").write_bytes(content)
        with refused(InvalidFile, "not-what-its-suffix-says"):
            read_population(tmp_path / "d.csv")


class TestParquetsOfOthers:
    @pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "lz4", "zstd", "brotli"])
    @pytest.mark.parametrize("pages", [None, 200])
    def test_sizes_are_found_in_what_polars_writes(
        self, tmp_path: Path, compression: Any, pages: int | None
    ) -> None:
        import polars as pl

        from tests.support.api import row_groups

        rows = 5000
        table = pl.DataFrame(
            {
                "user": np.arange(rows),
                "item": [f"item-{n % 97}" for n in range(rows)],
                "note": ["x" * 100] * rows,
            }
        )
        path = tmp_path / "d.parquet"
        table.write_parquet(path, compression=compression, row_group_size=1500, data_page_size=pages)
        with path.open("rb") as file:
            groups = list(row_groups(file, frozenset({"user", "item"})))
        assert [group.rows for group in groups] == [1500, 1500, 1500, 500]
        assert 2 * 16 * rows <= sum(group.size for group in groups) < 4 * 16 * rows
        assert read_population(path).users == rows


def test_small_inputs_that_claim_huge_sizes_need_no_memory(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a process that has little: a library that asks for what a header claims would end there."""
    for name, write in BOMBS.items():
        write(tmp_path / name)
    small = tmp_path_factory.mktemp("small") / "small.csv"
    small.write_text("user,item\na,b\n")
    code = f"""
import resource, sys
from pathlib import Path
import polars, scipy.sparse
from fedhist.client.files.read import read_population
from fedhist.protocol.errors import InvalidFile
read_population(sys.argv[2])
used = int(Path("/proc/self/statm").read_text().split()[0]) * {resource.getpagesize()}
resource.setrlimit(resource.RLIMIT_AS, (used + {16 * LIMIT}, resource.getrlimit(resource.RLIMIT_AS)[1]))
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        read_population(path)
    except InvalidFile as error:
        assert "memory" not in str(error) or "damaged" in str(error), error
        print(path.name)
"""
    finished = subprocess.run(
        [sys.executable, "-c", code, tmp_path, small],
        env=os.environ | {"PYTHONPATH": str(ROOT), LIMIT_VARIABLE: str(LIMIT), "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stdout.split() == sorted(BOMBS), finished.stderr


class TestLimitsOfMemory:
    """What one piece of a file takes is limited by --memory, not by the size of the file."""

    SMALL = "256MiB"
    LONGEST = (1 << 28) // 64

    @pytest.mark.parametrize("packed", ["", ".gz"])
    @pytest.mark.parametrize(
        ("name", "parts"),
        [
            ("line.csv", (b"user,item\na,x\nb,", b"y", b"\nc,z\n")),
            ("first.csv", (b"user,item", b"y", b"\nc,z\n")),
            ("elsewhere.csv", (b"user,item,note\na,x,", b"y", b"\nc,z,\n")),
            ("quotes.csv", (b'user,item\na,"', b"y\n", b'"\nc,z\n')),
            ("never.csv", (b'user,item\na,x\n"b', b"\n,y", b"")),
            ("line.jsonl", (b'{"user":"a","item":"', b"y", b'"}\n')),
        ],
    )
    def test_a_record_that_is_too_long_is_refused(
        self, tmp_path: Path, name: str, parts: tuple[bytes, bytes, bytes], packed: str
    ) -> None:
        start, repeated, end = parts
        content = start + repeated * (2 * self.LONGEST // len(repeated)) + end
        path = tmp_path / (name + packed)
        path.write_bytes(gzip.compress(content, 1) if packed else content)
        with refused(InvalidFile, "line-too-long"):
            read_population(path, memory=self.SMALL)

    def test_long_lines_that_fit_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_bytes(b"user,item\n" + (b'"a",' + b"y" * (self.LONGEST // 2) + b"\n") * 5)
        assert read_population(path, memory=self.SMALL).totals().tolist() == [5]

    def test_a_row_group_is_a_part_of_the_memory(self, tmp_path: Path) -> None:
        rows = (1 << 28) // (2 * 2 * 16)
        equal_rows(tmp_path / "t.parquet", rows + 1)
        with refused(InvalidFile, "row-group-too-large"):
            read_population(tmp_path / "t.parquet", memory=self.SMALL)
        equal_rows(tmp_path / "t.parquet", rows)
        assert read_population(tmp_path / "t.parquet", memory=self.SMALL).totals().tolist() == [rows]


class TestEndlessFiles:
    def test_a_list_of_items_is_read_up_to_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tests.support.api import item_list_module as item_list

        monkeypatch.setattr(item_list, "MAX_ITEMS_BYTES", 1 << 20)
        with refused(InvalidFile, "too-large"):
            read_items(Path("/dev/zero"))

    def test_so_are_keys(self) -> None:
        from flwr.app import Context, RecordDict

        from fedhist.client import node_identity

        config = {"identity-path": "/dev/zero", "directory-path": "/dev/zero"}
        with refused(InvalidFile, "too-large"):
            node_identity(Context(1, 5, config, RecordDict(), {}))
