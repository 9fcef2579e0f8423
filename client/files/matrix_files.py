"""Populations as matrices on disk: what `scipy.sparse.save_npz` writes, with the items' names beside it.

A file of ours holds the arrays of scipy's format, so scipy reads it as well, and the labels in up to two more:
`label_text` (UTF-8 bytes of all labels, one after the other) and `label_ends` (where each ends), or `label_numbers`
when the labels are integers. Plain arrays: nothing in such a file is ever unpickled. Users have no names in it.
"""

from __future__ import annotations

import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from fedhist.client.files.memory import too_large, unpacked_limit
from fedhist.client.populations import Label, SparsePopulation
from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.protocol.item_lists import ItemOrigin

MATRIX_SUFFIXES = (".npz",)

_LABEL_ARRAYS = ("label_numbers", "label_text", "label_ends")
_MAX_LABEL_NUMBER = 2**63
_FREE_ROWS = 1 << 20
_ROWS_AN_ENTRY = 64
_DAMAGE = (
    OSError, EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError,
    MemoryError, SyntaxError, RuntimeError, RuntimeWarning, tokenize.TokenError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


def read_matrix(path: Path, *, memory: int | None = None) -> SparsePopulation:
    """The population in a .npz file, with its labels if it has some; of a limit on memory half may be its arrays."""
    from scipy.sparse import load_npz

    try:
        _check_archive(path, memory)
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        with warnings.catch_warnings():
            # scipy only warns when indices are no integers and it cuts them to fit.
            warnings.simplefilter("error", RuntimeWarning)
            # load_npz never unpickles: an archive with Python objects is refused.
            matrix: Any = load_npz(path) if "format.npy" in names else None
        labels = None if matrix is None else _read_labels(path, names)
    except InvalidInput:
        raise
    except _DAMAGE:
        raise InvalidFile(
            f"{path} is damaged, does not fit in memory or is no sparse matrix",
            allowed="a file written by scipy.sparse.save_npz",
            advice="write it again",
            code="damaged-file",
        ) from None
    if matrix is None:
        raise InvalidFile(
            f"{path} holds no sparse matrix",
            allowed="a file written by scipy.sparse.save_npz",
            advice="save scipy.sparse.csr_array(your_array) with save_npz",
            code="not-a-matrix",
        )
    _check_shape(path, matrix.shape, entries=None if matrix.format == "csr" else matrix.data.size)
    population = SparsePopulation.from_scipy(matrix, labels=labels)
    # Columns have public numbers; names were taken from the data that was imported.
    return population if labels is None else replace(population, item_origin=ItemOrigin.DATA)


def has_labels(path: Path) -> bool:
    """Whether a .npz file has labels, by its list of contents alone; False for one that can't be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except _DAMAGE:
        return False
    return any(f"{name}.npy" in names for name in _LABEL_ARRAYS)


def matrix_arrays(population: SparsePopulation) -> dict[str, npt.NDArray[Any]]:
    """What a matrix file of these users by items holds; users' numbers are their rows."""
    rows = population.histograms
    arrays: dict[str, npt.NDArray[Any]] = {
        "indices": rows.items,
        "indptr": rows.offsets,
        "format": np.array(b"csr"),
        "shape": np.array([rows.users, rows.domain_size], dtype=np.int64),
        "data": rows.counts,
    }
    labels = population.labels
    if labels is None:
        return arrays
    if all(isinstance(label, int) and -_MAX_LABEL_NUMBER <= label < _MAX_LABEL_NUMBER for label in labels):
        return arrays | {"label_numbers": np.array(labels, dtype=np.int64)}
    encoded = [str(label).encode("utf-8", "surrogatepass") for label in labels]
    return arrays | {
        "label_text": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        "label_ends": np.cumsum([len(label) for label in encoded], dtype=np.int64),
    }


def _read_labels(path: Path, names: list[str]) -> list[Label] | None:
    """The labels of a file of ours; None for one without."""
    wanted = [name for name in _LABEL_ARRAYS if f"{name}.npy" in names]
    if not wanted:
        return None
    with np.load(path, allow_pickle=False) as archive:
        arrays: Mapping[str, npt.NDArray[Any]] = {name: archive[name] for name in wanted}
    if "label_numbers" in arrays:
        return [int(number) for number in arrays["label_numbers"]]
    text, ends = arrays["label_text"].astype(np.uint8, casting="safe").tobytes(), arrays["label_ends"]
    starts = np.concatenate([[0], ends[:-1]])
    if (ends < starts).any() or (len(ends) and ends[-1] != len(text)):
        raise ValueError("the ends of the labels contradict their text")
    return [
        text[start:end].decode("utf-8", "surrogatepass")
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _check_archive(path: Path, memory: int | None) -> None:
    """Refuse a .npz whose arrays are larger than the limits, or than the archive has room for.

    Raises what `zipfile` and numpy raise when the archive is damaged.
    """
    limit = unpacked_limit()
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > limit:
            raise too_large(path, limit)
        if memory is not None and size > memory // 2:
            raise InvalidFile(
                f"{path} takes {size:,} bytes of memory",
                allowed=f"up to {memory // 2:,} bytes, half of the limit on memory",
                advice="give more --memory, or write the users and items as a table",
                code="too-large-unpacked",
            )
        for member in members:
            with archive.open(member) as file:
                version = npy.read_magic(file)
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, kind = read(file)
                # numpy gives out memory for the shape before it reads the first value.
                if math.prod(shape) * kind.itemsize > member.file_size:
                    raise ValueError("an array that claims more values than it has")


def _check_shape(path: Path, shape: tuple[int, ...], *, entries: int | None) -> None:
    """Refuse a matrix whose shape claims more than the file holds: sums take memory for the whole shape.

    Args:
        path: the file, for the error.
        shape: what it claims.
        entries: the number of its entries; None when every row has its place in the file.
    """
    limit, rows = unpacked_limit(), shape[0]
    if 8 * max(shape) > limit or (entries is not None and rows > _FREE_ROWS + _ROWS_AN_ENTRY * entries):
        raise InvalidFile(
            f"{path} claims a matrix of {' by '.join(f'{side:,}' for side in shape)} that is not in it",
            allowed=f"sides of up to {limit // 8:,}, and no more than {_ROWS_AN_ENTRY} rows for each entry",
            advice="save it as a csr_array",
            code="false-shape",
        )
