"""Populations as .npz files with names, and files that are written whole or not at all."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedhist import Columns, InvalidInput, SparsePopulation, read_population
from tests.support.api import (
    InvalidFile,
    InvalidPopulation,
    NotWritten,
    new_file,
    read_matrix,
    read_node_data,
    write_matrix,
)
from tests.support.refusals import refused

COUNTS = scipy.sparse.csr_array(np.array([[3, 0, 1], [0, 0, 0], [0, 2, 0]]))
LABELS = st.lists(st.text(max_size=5), min_size=3, max_size=3, unique=True)

STRICT = Columns(strict=True)


def population(labels: list[str] | list[int] | None) -> SparsePopulation:
    return SparsePopulation.from_scipy(COUNTS, labels=labels)


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


class TestRoundTrip:
    @given(labels=LABELS | st.just(None) | st.just([5, -1, 2**62]))
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_counts_and_labels_come_back(self, tmp_path: Path, labels: list[str] | None) -> None:
        path = tmp_path / "p.npz"
        write_matrix(population(labels), path, force=True)
        again = read_population(path)
        assert again.labels == (None if labels is None else tuple(labels))
        assert scipy.sparse.load_npz(path).toarray().tolist() == COUNTS.toarray().tolist()
        assert again.totals().tolist() == [3, 2, 1]


class TestDamage:
    @pytest.mark.parametrize(
        "change",
        [
            {"label_ends": np.array([1, 9, 3])},
            {"label_ends": np.array([1, 2])},
            {"label_ends": np.array([1, 2, 99])},
            {"label_ends": np.array([-1, 2, 3])},
            {"label_text": np.frombuffer(b"a\xffc", dtype=np.uint8)},
            {"label_text": np.array([1.5, 2.5, 3.5])},
            {"label_text": np.array(["a", "b", "c"], dtype=object)},
            {"label_text": None},
            {"label_numbers": np.array(["x", "y", "z"])},
            {"label_numbers": np.array([1, 2])},
            {"label_numbers": np.array([7, 7, 8])},
        ],
    )
    def test_labels_that_contradict_the_matrix_are_refused(
        self, tmp_path: Path, change: dict[str, np.ndarray | None]
    ) -> None:
        path = tmp_path / "p.npz"
        write_matrix(population(["a", "b", "c"]), path)
        content = arrays(path) | change
        np.savez(path, **{name: array for name, array in content.items() if array is not None})
        with pytest.raises((InvalidFile, InvalidPopulation)):
            read_matrix(path)


class TestNewFiles:
    def test_an_existing_file_is_kept_unless_forced(self, tmp_path: Path) -> None:
        path = tmp_path / "p.npz"
        path.write_bytes(b"precious")
        with refused(InvalidFile, "exists-already", "p.npz", "--force"):
            write_matrix(population(None), path)
        assert path.read_bytes() == b"precious"
        write_matrix(population(None), path, force=True)
        assert read_population(path).users == 3

    @pytest.mark.parametrize(
        ("name", "words"),
        [("p.csv", "does not end in .npz"), ("none/p.npz", "can't write into"), ("d.npz", "is a folder")],
    )
    def test_impossible_targets_are_refused(self, tmp_path: Path, name: str, words: str) -> None:
        (tmp_path / "d.npz").mkdir()
        with pytest.raises(InvalidFile) as caught:
            write_matrix(population(None), tmp_path / name)
        assert words in str(caught.value)

    def test_what_is_no_plain_file_is_not_replaced(self, tmp_path: Path) -> None:
        pipe = tmp_path / "p.npz"
        os.mkfifo(pipe)
        with refused(InvalidFile, "not-a-plain-file"):
            write_matrix(population(None), pipe, force=True)
        assert pipe.is_fifo() and [one.name for one in tmp_path.iterdir()] == ["p.npz"]

    def test_a_block_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "p.npz"
        for error, raised, told in (
            (KeyboardInterrupt, KeyboardInterrupt, None),
            (OSError(28, "No space"), NotWritten, "No space"),
            (OSError("5 requested and 2 written"), NotWritten, "the disk refused it"),
        ):
            with pytest.raises(raised, match=told), new_file(path, suffixes=(".npz",), force=False) as file:
                file.write(b"half")
                raise error
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_appears_meanwhile_is_not_overwritten(self, tmp_path: Path) -> None:
        path = tmp_path / "p.npz"
        with (
            refused(InvalidFile, "exists-already"),
            new_file(path, suffixes=(".npz",), force=False) as file,
        ):
            file.write(b"ours")
            path.write_bytes(b"theirs")
        assert path.read_bytes() == b"theirs"
        assert [one.name for one in tmp_path.iterdir()] == ["p.npz"]

    def test_it_has_the_rights_of_any_new_file(self, tmp_path: Path) -> None:
        (tmp_path / "plain").touch()
        write_matrix(population(None), tmp_path / "p.npz")
        modes = {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
        assert len(modes) == 1


class TestJsonLines:
    LINES = (
        '{"user": "ana", "item": "park", "count": 2}\n{"user": 7, "item": "park"}\n\n'
        '{"user": "ana", "item": "007"}\n'
    )

    @pytest.mark.parametrize("name", ["v.jsonl", "v.jsonl.gz", "v[1]*.jsonl"])
    def test_a_line_is_a_row(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        raw = self.LINES.encode()
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        found = read_population(path)
        assert (found.users, found.labels) == (2, ("park", "007"))
        assert found.totals().tolist() == [3, 1]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ('{"user": "secret", "item": "a"}\nsecret\n', "line 2 of"),
            ('{"user": "secret"}\n', "the item in line 1, key 'item'"),
            ('{"who": "secret", "item": "a"}\n', "the user in line 1, key 'user'"),
            ('{"user": "secret", "item": "a", "count": -2}\n', "is negative"),
            ('{"user": "secret", "item": "a", "count": 0.5}\n', "is not a whole number"),
            ('{"user": "secret", "item": "a", "count": "two"}\n', "the count in line 1, key 'count'"),
            ("\x00\x00", "does not hold what its suffix"),
        ],
    )
    def test_mistakes_are_told_without_the_data(self, tmp_path: Path, content: str, words: str) -> None:
        path = tmp_path / "v.jsonl"
        path.write_text(content)
        with pytest.raises(InvalidInput) as caught:
            read_population(path, columns=STRICT)
        assert words in str(caught.value)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("count", ['"two"', '""', "true", "[2]", "-2", "0.5", "4000000000"])
    def test_a_node_leaves_an_odd_count_out_and_keeps_its_user(self, tmp_path: Path, count: str) -> None:
        path = tmp_path / "v.jsonl"
        path.write_text(self.LINES + f'{{"user": "eve", "item": "park", "count": {count}}}\n')
        found, left_out = read_node_data(path)
        assert (found.users, left_out) == (3, 1)
        assert sorted(np.diff(found.histograms.offsets).tolist()) == [0, 1, 2]


def test_a_matrix_keeps_the_limit_on_memory(tmp_path: Path) -> None:
    arrays = {
        "indices": np.zeros(40 << 20, np.int32),
        "indptr": np.zeros(2, np.int32),
        "data": np.ones(1, np.int32),
    }
    np.savez_compressed(tmp_path / "zeros.npz", shape=(1, 1), format=b"csr", **arrays)
    assert (tmp_path / "zeros.npz").stat().st_size < 1 << 20
    with refused(InvalidFile, "too-large-unpacked"):
        read_population(tmp_path / "zeros.npz", memory="256MiB")
