"""Summed tables of items: all items with their totals come back exactly, or nothing does."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import InvalidInput, RoundFailed
from tests.support.api import (
    HASHES,
    MAX_COUNT,
    MAX_INSERTIONS,
    MAX_LABEL_BYTES,
    MAX_TABLE_LENGTH,
    InvalidPlan,
    InvalidPopulation,
    TableNotDecoded,
    TableShape,
    decode_table,
    encode_table,
)
from tests.support.refusals import refused

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "iblt.json").read_text(encoding="utf-8"))
SALT = bytes(range(32))
STRANGE = [
    "", " ", "\0", "\0\0", "a", "a\0", "a\0b", "naïve", "nai\u0308ve", "語", "👩‍👩‍👧", "\ud800",
    "\udfff\ud800", "\U0010ffff", "7", "07", "-0", "-7", 7, -7, 0, 2**31, 2**32, 2**64 - 1, 2**70, -(10**60),
    "a,b\r\n\"c\"", "x" * 64, "é" * 32, "🙂" * 16,
]  # fmt: skip
LABELS = st.one_of(
    st.text(max_size=10),
    st.integers(),
    st.sampled_from(STRANGE),
    st.text(alphabet="ab\0", max_size=3),
).filter(lambda label: len(str(label).encode("utf-8", "surrogatepass")) <= 64)
DEVICES = st.lists(st.dictionaries(LABELS, st.integers(1, MAX_COUNT), max_size=8), max_size=6)


def table_of(held, shape, salt=SALT):
    """The table of one device, given what it holds."""
    return encode_table(list(held), np.array(list(held.values()), dtype=np.int64), shape, salt=salt)


def summed(devices, shape, salt=SALT):
    return sum((table_of(held, shape, salt) for held in devices), np.zeros(shape.length, dtype=np.int64))


def read(values, shape, salt=SALT):
    """What the table says, as {text: count}."""
    decoded = decode_table(values, shape, salt=salt)
    assert len(decoded.labels) == len(decoded.counts)
    assert decoded.counts.dtype == np.int64
    assert all(type(label) is str for label in decoded.labels)
    return dict(zip(decoded.labels, decoded.counts.tolist(), strict=True))


def merged(devices):
    total = Counter()
    for held in devices:
        for label, count in held.items():
            total[str(label)] += count
    return dict(total)


def cells(values, shape):
    """A view of a flat table by sub-table, cell and column."""
    return values.reshape(HASHES, -1, shape.columns)


def assert_refused(values, shape, salt=SALT):
    with pytest.raises(TableNotDecoded):
        decode_table(values, shape, salt=salt)


class TestRoundTrip:
    @given(devices=DEVICES)
    @settings(max_examples=80, deadline=None)
    def test_a_sum_of_tables_is_the_table_of_the_sums(self, devices):
        shape = TableShape(capacity=60, label_bytes=64)
        assert read(summed(devices, shape), shape) == merged(devices)

    @given(devices=DEVICES, seed=st.integers(0, 2**32))
    @settings(max_examples=50, deadline=None)
    def test_masks_that_cancel_leave_no_trace(self, devices, seed):
        """Masked tables wrap around modulo 2^64 again and again; their sum does not notice."""
        shape = TableShape(capacity=60, label_bytes=64)
        tables = [table_of(held, shape) for held in [*devices, {}]]
        drawn = np.random.default_rng(seed).integers(
            0, 2**64, size=(len(tables), shape.length), dtype=np.uint64
        )
        masks = drawn - np.roll(drawn, 1, axis=0)
        masked = np.stack(tables).view(np.uint64) + masks
        total = masked.sum(axis=0, dtype=np.uint64)
        assert read(total, shape) == merged(devices)
        assert read(total.view(np.int64), shape) == merged(devices)

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 31, 32, 33, MAX_LABEL_BYTES])
    def test_labels_of_all_lengths_up_to_the_limit(self, limit):
        shape = TableShape(capacity=12, label_bytes=limit)
        lengths = {0, 1, limit // 2, limit - 1, limit}
        held = {"z" * length: length + 1 for length in lengths} | {"\0" * limit: 5, 10 ** (limit - 1): 9}
        assert read(table_of(held, shape) * 3, shape) == {str(n): 3 * count for n, count in held.items()}

    def test_the_order_is_that_of_the_bytes(self):
        shape = TableShape(capacity=len(STRANGE), label_bytes=64)

        ordered = sorted(set(map(str, STRANGE)), key=lambda text: text.encode("utf-8", "surrogatepass"))
        for labels in (STRANGE, STRANGE[::-1]):
            decoded = decode_table(table_of(dict.fromkeys(labels, 1), shape), shape, salt=SALT)
            assert decoded.labels == ordered


class TestExactness:
    """Up to 2^31 insertions of the largest words into one cell, and what happens beyond."""

    LARGEST = "abc\U0010ffffd"  # its first word is 0xf4636261: 2^31 of them are above 2^62

    def test_as_many_insertions_as_the_limit_allows_and_one_more_is_refused(self):
        shape = TableShape(capacity=3, label_bytes=8)
        table = table_of({self.LARGEST: 1, 3: 2}, shape).view(np.uint64)
        most = {self.LARGEST: MAX_INSERTIONS, "3": 2 * MAX_INSERTIONS}
        assert read(table * np.uint64(MAX_INSERTIONS), shape) == most
        assert_refused(table * np.uint64(MAX_INSERTIONS + 1), shape)

    def test_a_value_is_a_residue_and_may_be_anything(self):
        """A device that lies about a count changes that count modulo 2^64, and nothing else."""
        shape = TableShape(capacity=3, label_bytes=8)
        table = table_of({"a": 1, "b": 2}, shape)
        for claimed in (-5, 2**62, -(2**63)):
            lie = table_of({"a": 1}, shape)
            rows = cells(lie, shape)
            rows[rows[..., 0] == 1, 1] = claimed
            with np.errstate(over="ignore"):
                assert read(table + lie, shape) == {"a": claimed + 1, "b": 2}


class TestShape:
    @given(capacity=st.integers(1, 200_000), longest=st.integers(1, 64))
    @settings(max_examples=200, deadline=None)
    def test_it_keeps_its_promises(self, capacity, longest):
        shape = TableShape(capacity, longest)
        part = shape.cells // HASHES
        assert shape.cells == HASHES * part
        assert capacity <= 0.56 * shape.cells + 1e-9
        assert math.comb(capacity, 2) <= 5e-10 * part**HASHES * (1 + 1e-12)
        assert 4 * (shape.columns - 5) - longest in range(4)
        assert shape.failure_bound <= 6e-10
        assert shape.length == shape.cells * shape.columns

    @pytest.mark.parametrize("wrong", [0, -1, 2**26 + 1, 2.0, "9", None, True])
    @pytest.mark.parametrize("name", ["capacity", "label_bytes"])
    def test_a_size_that_is_none(self, name, wrong):
        with refused(InvalidPlan, "out-of-range", name):
            TableShape(**({"capacity": 10, "label_bytes": 8} | {name: wrong}))

    def test_a_table_that_nobody_could_send(self):
        with refused(InvalidPlan, "table-too-large"):
            TableShape(1_000_000, MAX_LABEL_BYTES)
        with refused(InvalidPlan, "out-of-range"):
            TableShape(1, MAX_LABEL_BYTES + 1)
        assert TableShape(1_000_000, 64).length <= MAX_TABLE_LENGTH


class TestRefusedItems:
    SHAPE = TableShape(capacity=10, label_bytes=8)

    @pytest.mark.parametrize("label", ["secret-ab", "secré-ab", 123456789, -12345678, "secret-" * 500])
    def test_a_long_label_is_refused_without_showing_it(self, label):
        refusal = ("name-too-long",) if len(str(label)) < 1000 else ("name-too-long", "1024")
        with refused(InvalidPopulation, *refusal) as caught:
            table_of({"fine": 1, label: 1}, self.SHAPE)
        assert str(label) not in str(caught.value)
        assert "secr" not in str(caught.value)

    @pytest.mark.parametrize("labels", [["a", "b", "a"], [7, 7], [7, np.int64(7)], ["7", 7]])
    def test_counts_of_an_item_that_stands_twice_are_added_up(self, labels):
        values = encode_table(labels, [1] * len(labels), self.SHAPE, salt=SALT)
        assert read(values, self.SHAPE) == dict(Counter(map(str, labels)))
        assert values.max() < 2**32

    @pytest.mark.parametrize(
        ("second", "counts", "code"),
        [
            *((label, [1, 1], "not-an-item") for label in (True, None, 1.0, b"a", ("a",))),
            *(("b", [1, count], "count-out-of-range") for count in (0, -1, MAX_COUNT + 1, 2**63 - 1)),
            *(
                ("b", counts, "wrong-counts")
                for counts in ([1], [1, 2, 3], [1.0, 2.0], [[1, 2]], ["1", "2"], [True, True])
            ),
        ],
    )
    def test_what_is_no_item_or_no_count(self, second, counts, code):
        with refused(InvalidPopulation, code):
            encode_table(["a", second], counts, self.SHAPE, salt=SALT)


class TestOverload:
    @pytest.mark.parametrize("capacity", [1, 2, 5, 40])
    def test_too_many_items_never_give_a_wrong_count(self, capacity):
        """Hundreds of tables around what decodes and far beyond: right counts or the error, far beyond the error."""
        shape = TableShape(capacity, label_bytes=8)
        rng = np.random.default_rng(capacity)
        failures = 0
        for seed in range(60):
            salt = struct.pack("<q", seed)
            load = rng.choice([0.6, 0.77, 0.9, 1.2, 2.0])
            items = max(math.ceil(load * shape.cells), 5)
            devices = [
                {f"k{n}": int(rng.integers(1, 100)) for n in rng.permutation(items)[: items // 2]}
                for _ in range(3)
            ]
            devices.append({f"k{n}": 1 for n in range(items)})
            values = summed(devices, shape, salt)
            try:
                assert read(values, shape, salt) == merged(devices)
                assert load < 0.9
            except TableNotDecoded:
                failures += 1
        assert failures > 24

    def test_keys_that_average_to_a_key(self):
        """Neighbouring numbers: each cell of two or three holds what looks like the one between them."""
        shape = TableShape(capacity=2, label_bytes=8)
        labels = [f"key {n:03}" for n in range(0, 998, 2)]
        for seed in range(100):
            salt = struct.pack("<q", seed)
            assert_refused(table_of(dict.fromkeys(labels, 1), shape, salt), shape, salt)

    def test_the_error_says_nothing_of_how_full_the_table_is_or_what_is_wrong(self):
        shape = TableShape(capacity=20, label_bytes=8)
        texts = set()
        for values in (
            table_of(dict.fromkeys(range(2_000), 1), shape),
            table_of(dict.fromkeys(range(9_000), 1), shape),
            table_of({"a": 1}, shape) - 2 * table_of({"b": 1}, shape),
            table_of({"a": 1}, shape, b"another"),
        ):
            with pytest.raises(TableNotDecoded) as caught:
                read(values, shape)
            assert isinstance(caught.value, RoundFailed)
            texts.add(str(caught.value))
        assert len(texts) == 1 and not any(letter.isdigit() for letter in texts.pop())


class TestFullTables:
    @pytest.mark.parametrize(("capacity", "seeds"), [(2, 100), (30, 200), (700, 60), (6_000, 60)])
    def test_a_table_filled_to_its_capacity_decodes_under_any_salt(self, capacity, seeds):
        """At one in a billion a single failure in these would be a sign of something else."""
        shape = TableShape(capacity, label_bytes=4)
        labels, counts = list(range(capacity)), np.arange(1, capacity + 1)
        for seed in range(seeds):
            salt = struct.pack("<q", seed)
            decoded = decode_table(encode_table(labels, counts, shape, salt=salt), shape, salt=salt)
            assert sorted(map(int, decoded.labels)) == labels
            assert (decoded.counts == np.array(decoded.labels, dtype=np.int64) + 1).all()


class TestCorruption:
    SHAPE = TableShape(capacity=50, label_bytes=12)

    @pytest.fixture
    def values(self):
        return summed(
            [{f"word {n}": n + d + 1 for n in range(20 * d, 20 * d + 30)} for d in range(2)], self.SHAPE
        )

    @given(place=st.integers(0, SHAPE.length - 1), change=st.integers(1, 2**64 - 1))
    @settings(max_examples=150, deadline=None)
    def test_any_single_changed_number_is_refused(self, place, change):
        values = table_of({f"word {n}": n + 1 for n in range(30)}, self.SHAPE).view(np.uint64)
        values[place : place + 1] += np.uint64(change)
        assert_refused(values, self.SHAPE)

    @given(
        column=st.integers(0, SHAPE.columns - 1),
        places=st.tuples(*[st.integers(0, SHAPE.cells // HASHES - 1)] * HASHES),
        change=st.integers(1, 2**40),
    )
    @settings(max_examples=150, deadline=None)
    def test_changes_that_keep_all_sums_equal_are_refused(self, column, places, change):
        """Unless they hit the value in the very cells of one item: that is another table."""
        values = table_of({f"word {n}": n + 1 for n in range(30)}, self.SHAPE)
        for part, place in zip(cells(values, self.SHAPE), places, strict=True):
            part[place, column] += change
        assert_refused(values, self.SHAPE)

    def test_an_item_that_lies_in_a_wrong_cell(self, values):
        part = cells(values, self.SHAPE)[0]
        alone = np.flatnonzero(part[:, 0] == 1)[0]
        empty = np.flatnonzero(part[:, 0] == 0)[0]
        part[[alone, empty]] = part[[empty, alone]]
        assert_refused(values, self.SHAPE)

    @pytest.mark.parametrize(
        "wrong",
        [
            np.zeros(SHAPE.length - 1, dtype=np.int64),
            np.zeros(SHAPE.length + 1, dtype=np.int64),
            np.zeros((SHAPE.length, 1), dtype=np.int64),
            np.zeros(SHAPE.length),
            np.zeros(SHAPE.length, dtype=np.int32),
        ],
        ids=["short", "long", "two dimensions", "floats", "32 bits"],
    )
    def test_what_is_no_table_of_this_shape(self, wrong):
        with refused(InvalidInput, "other-shape"):
            decode_table(wrong, self.SHAPE, salt=SALT)


class TestKnownAnswers:
    """Pinned: devices of different versions must agree."""

    @pytest.mark.parametrize("vector", VECTORS["good"], ids=lambda vector: vector["name"])
    def test_good_ones(self, vector):
        shape, salt = TableShape(**vector["shape"]), bytes.fromhex(vector["salt"])
        devices = [dict(map(tuple, held)) for held in vector["devices"]]
        values = summed(devices, shape, salt)
        assert shape.cells == vector["cells"]
        assert {str(i): int(v) for i, v in enumerate(values) if v} == vector["nonzero"]
        decoded = decode_table(values, shape, salt=salt)
        assert [[label, int(n)] for label, n in zip(decoded.labels, decoded.counts, strict=True)] == vector[
            "totals"
        ]

    @pytest.mark.parametrize("vector", VECTORS["bad"], ids=lambda vector: vector["name"])
    def test_bad_ones(self, vector):
        """Right checks and places throughout, so that nothing but the fault in its name is wrong."""
        shape, salt = TableShape(**vector["shape"]), bytes.fromhex(vector["salt"])
        values = np.zeros(shape.length, dtype=np.int64)
        for place, value in vector["nonzero"].items():
            values[int(place)] = value
        assert_refused(values, shape, salt)
