"""Files that others wrote: tables, matrices, lists, keys and databases, as valid bytes to start from."""

from __future__ import annotations

import gzip
import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fuzz_mutations import mutated

from fedhist import (
    BudgetExceeded,
    BudgetFile,
    Cost,
    FedhistError,
    InvalidInput,
    Limit,
    Plan,
    Spending,
    read_population,
)
from fedhist.client import Policy
from tests.asking import select_request
from tests.builders import population_of
from tests.support.api import (
    DecodeError,
    Envelope,
    InvalidFile,
    MemoryFile,
    Refused,
    parse_directory,
    parse_identity,
    planned_charges,
    read_items,
    write_matrix,
)

Parts = tuple[str, Callable[[Random], Any], Callable[[Any], object], tuple[type[FedhistError], ...]]
PLAN = Plan(users=40, items=4, candidates=8, max_threshold=60)


def file_targets(folder: Path) -> Iterator[Parts]:
    """The readers of files; each input is written to one path in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, draw in {
        ".csv": partial(mutated, _tables(",")),
        ".tsv": partial(mutated, _tables("\t")),
        ".csv.gz": partial(_gzipped, _tables(",")),
        ".jsonl": partial(mutated, _lines()),
        ".jsonl.gz": partial(_gzipped, _lines()),
        ".npz": _matrix,
        ".parquet": partial(mutated, _parquets()),
    }.items():
        read = partial(_read_population, folder / f"data{suffix}")
        yield f"population {suffix}", draw, read, (InvalidInput,)
    items = [b"a\nb\nc\n", "\ufeffé\r\nb\rc".encode(), b"one"]
    yield "item list", partial(mutated, items), partial(_read_items, folder / "items.txt"), (InvalidFile,)
    yield from _key_targets()
    memory = _memory_file(folder / "memory-seed.db")
    yield (
        "memory file",
        partial(mutated, [memory]),
        partial(_ask, folder / "memory.db"),
        (InvalidFile, DecodeError, Refused),
    )
    ledger = _ledger_file(folder / "ledger-seed.db")
    yield (
        "ledger file",
        partial(mutated, [ledger]),
        partial(_charge, folder / "ledger.db"),
        (InvalidInput, BudgetExceeded),
    )


def _tables(separator: str) -> list[bytes]:
    rows = (
        'user,item,count\nann,a,2\nann,"b ""c""",1\nbob,a,1.0\n',
        "item,user\n007,1\n7,1\n7,2\n",
        "User,ITEM,other,Count\r\nx,é,1,0\r\ny,,2,3\r\n".replace(",,", ',"",'),
    )
    return [text.replace(",", separator).encode() for text in rows]


def _lines() -> list[bytes]:
    return [
        b'{"user": "ann", "item": "a", "count": 2}\n{"item": "b", "user": 1}\n',
        '{"user": "\\ud800", "item": "\u00e9", "count": 1.0, "other": [1, {"x": null}]}'.encode(),
    ]


def _gzipped(tables: list[bytes], random: Random) -> bytes:
    """A table that was damaged before it was packed, or after."""
    if random.random() < 0.5:
        return gzip.compress(mutated(tables, random), mtime=0)
    return mutated([gzip.compress(table, mtime=0) for table in tables], random)


def _matrices() -> list[bytes]:
    from scipy.sparse import coo_array, csr_array, save_npz

    dense = np.array([[1, 0, 2], [0, 3, 0]])
    found = []
    for matrix in (csr_array(dense), coo_array(dense), csr_array(dense).tocsc(), csr_array(dense).tobsr()):
        for compressed in (False, True):
            file = io.BytesIO()
            save_npz(file, matrix, compressed=compressed)
            found.append(file.getvalue())
    with tempfile.TemporaryDirectory() as folder:
        for labels in ([7, 8, 9], ["a", "\u00e9", 3]):
            path = Path(folder) / "labelled.npz"
            write_matrix(population_of(dense, labels=labels), path, force=True)
            found.append(path.read_bytes())
    return found


_NPZ = _matrices()


def _matrix(random: Random) -> bytes:
    """An archive with a damaged array inside and right checksums, or a damaged archive."""
    if random.random() < 0.3:
        return mutated(_NPZ, random)
    with zipfile.ZipFile(io.BytesIO(random.choice(_NPZ))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(list(members))
    members[name] = mutated([members[name]], random)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return file.getvalue()


def _parquets() -> list[bytes]:
    import polars as pl

    tables = [
        pl.DataFrame({"user": [1, 1, 2], "item": ["a", "b", "a"], "count": [1, 2, 3]}),
        pl.DataFrame({"user": ["x", "y"], "item": [5, 5]}),
        pl.DataFrame({"user": [1] * 300, "item": ["a", "b", "c"] * 100}),
    ]
    found = []
    for table, compression in zip(tables, ("uncompressed", "zstd", "snappy"), strict=True):
        file = io.BytesIO()
        table.write_parquet(file, compression=compression)
        found.append(file.getvalue())
    return found


def _read_population(path: Path, data: bytes) -> object:
    path.write_bytes(data)
    return read_population(path)


def _read_items(path: Path, data: bytes) -> object:
    path.write_bytes(data)
    return read_items(path)


def _key_targets() -> Iterator[Parts]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    keys = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(1, 4)]
    lines = [key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) for key in keys]
    directory = b"# devices\n" + b" a comment\n".join(lines) + b"\n"
    private = keys[0].private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    yield (
        "directory of keys",
        partial(mutated, [directory, lines[0]]),
        partial(parse_directory, name="directory"),
        (InvalidFile,),
    )
    yield (
        "private key",
        partial(mutated, [private]),
        lambda data: parse_identity(data, directory, key_name="key", directory_name="directory"),
        (InvalidFile,),
    )


def _memory_file(path: Path) -> bytes:
    path.unlink(missing_ok=True)
    for run in ("one", "two"):
        _admit(path, run)
    return path.read_bytes()


def _admit(path: Path, run: str) -> None:
    MemoryFile(path).admit(Policy(max_epsilon=3.0), Envelope(run=run, request=select_request(PLAN)))


def _ask(path: Path, data: bytes) -> None:
    _fresh(path, data)
    _admit(path, "three")


def _ledger_file(path: Path) -> bytes:
    path.unlink(missing_ok=True)
    budget = BudgetFile.open(path, create=True)
    budget.set_limit(Limit(5.0, 1e-4))
    for _ in range(2):
        entry = _begin(budget)
        for charge in planned_charges(PLAN):
            entry.record(charge)
        entry.released()
    _begin(budget)
    return path.read_bytes()


def _begin(budget: BudgetFile) -> Any:
    return budget.begin(
        PLAN.digest.hex(),
        PLAN.to_json(),
        Spending.of_cost(Cost(1.1, 2e-6)),
        label="x",
        now=datetime(2026, 1, 2, tzinfo=UTC),
    )


def _charge(path: Path, data: bytes) -> object:
    _fresh(path, data)
    budget = BudgetFile.open(path, create=True)
    entry = _begin(budget)
    entry.record(planned_charges(PLAN)[0])
    entry.failed("RoundFailed")
    return budget.limit, budget.spent(), budget.reserved(), [run.charged for run in budget.runs()]


def _fresh(path: Path, data: bytes) -> None:
    """The file and nothing left over of an earlier input."""
    for leftover in path.parent.glob(f"{path.name}*"):
        leftover.unlink()
    path.write_bytes(data)
