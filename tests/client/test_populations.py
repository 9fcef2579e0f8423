from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Histograms, InvalidInput, SparsePopulation
from tests.builders import population_of
from tests.support.api import MAX_USER_TOTAL, SHARD_USERS, InvalidPopulation, checked, user_blocks
from tests.support.api import populations_module as populations
from tests.support.refusals import refused

Dense = npt.NDArray[np.int64]


@st.composite
def dense_counts(draw: st.DrawFn) -> Dense:
    users, items = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    cells = draw(st.lists(st.integers(0, 4), min_size=users * items, max_size=users * items))
    return np.array(cells, dtype=np.int64).reshape(users, items)


def dense(histograms: Histograms) -> Dense:
    table = np.zeros((histograms.users, histograms.domain_size), dtype=np.int64)
    for row in range(histograms.users):
        for entry in range(histograms.offsets[row], histograms.offsets[row + 1]):
            table[row, histograms.items[entry]] += histograms.counts[entry]
    return table


class TestChecking:
    def test_rows_come_back_as_they_were(self) -> None:
        histograms = checked([0, 2, 2, 3], [0, 4, 1], [7, 0, 2], domain_size=5, first_user=10)
        assert dense(histograms).tolist() == [[7, 0, 0, 0, 0], [0] * 5, [0, 2, 0, 0, 0]]
        assert histograms.user_numbers().tolist() == [10, 11, 12]

    @pytest.mark.parametrize("kind", ["?", "i1", "u2", ">i4", "u8", "f2", "f4", "f8", "g"])
    def test_whole_counts_of_any_type_become_integers(self, kind: str) -> None:
        histograms = checked([0, 2], [0, 2], np.array([1, 0], dtype=kind), domain_size=3)
        assert histograms.counts.dtype == np.int32
        assert histograms.counts.tolist() == [1, 0]

    def test_arrays_of_the_right_types_are_not_copied_and_cannot_be_changed(self) -> None:
        offsets, items = np.array([0, 1]), np.array([0], dtype=np.int32)
        counts = np.array([3], dtype=np.int32)
        histograms = checked(offsets, items, counts, domain_size=1)
        assert np.shares_memory(histograms.counts, counts)
        assert np.shares_memory(histograms.items, items)
        with pytest.raises(ValueError, match="read-only"):
            histograms.counts[0] = 4
        counts[0] = 5  # the caller's own array stays the caller's

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (-1, "negative"),
            (2.5, "not a whole number"),
            (float("nan"), "not finite"),
            (float("inf"), "not finite"),
            (float("-inf"), "not finite"),
            (2.0**31, "above 2,147,483,647"),
            (-0.5, "negative"),
        ],
    )
    def test_a_count_that_is_no_count_is_named_by_its_place(self, wrong: float, words: str) -> None:
        with refused(InvalidPopulation, "bad-count", "row 2", "column 3", words):
            checked([0, 1, 1, 3], [0, 1, 3], [1, 1, wrong], domain_size=4)

    def test_the_first_wrong_count_is_found_far_into_the_data(self) -> None:
        counts = np.ones(300_000)
        counts[[280_000, 290_000]] = [0.5, np.nan]
        with refused(InvalidPopulation, "bad-count", "row 28000", "column 0"):
            checked(np.arange(0, 300_001, 10), np.tile(np.arange(10), 30_000), counts, domain_size=10)

    def test_errors_never_hold_a_count(self) -> None:
        with pytest.raises(InvalidPopulation) as caught:
            checked([0, 1], [0], [-987654], domain_size=1)
        assert "987654" not in str(caught.value)

    def test_a_total_at_the_limit_is_fine_and_one_above_is_refused(self) -> None:
        offsets, items = [0, 1, 3], [0, 0, 1]
        fine = checked(offsets, items, [MAX_USER_TOTAL, MAX_USER_TOTAL - 1, 1], domain_size=2)
        assert int(fine.counts.sum(dtype=np.int64)) == 2 * MAX_USER_TOTAL
        with refused(InvalidPopulation, "total-too-large", "row 1"):
            checked(offsets, items, [MAX_USER_TOTAL, MAX_USER_TOTAL, 1], domain_size=2)

    @pytest.mark.parametrize(
        ("offsets", "items", "counts", "domain_size", "told"),
        [
            ([0, 1], [0], np.array([2**31], dtype=np.float32), 1, ("bad-count",)),
            # Repeats do not smuggle a total past the limit.
            ([0, 3], [0, 0, 0], [2**30] * 3, 1, ("total-too-large",)),
            *(
                ([0, 1, 3], [0, 1, item], [1] * 3, 3, ("item-outside-domain", "entry 1 of row 1"))
                for item in (-1, 3, 2**40)
            ),
            *((wrong, [0, 1, 2], [1] * 3, 3, ("bad-offsets",)) for wrong in ([1, 3], [0, 2], [0, 4])),
            ([0, -1, 3], [0, 1, 2], [1] * 3, 3, ("falling-offsets",)),
            ([0, 2, 1, 3], [0, 1, 2], [1] * 3, 3, ("falling-offsets", "row 1")),
            ([0, 2], [0, 1], [1], 3, ("lengths-differ",)),
            *(
                ([0, 2], [0, 1], wrong, 2, ("wrong-arrays", "the counts"))
                for wrong in (["a", "b"], [1j, 2j], [[1, 2]], np.array([None, 1]))
            ),
            ([0, 1], [0.0], [1], 2, ("wrong-arrays", "item numbers")),
            ([], [], [], 3, ("no-offsets",)),
            ([0, 0], [], [], 0, ("bad-domain",)),
            ([0, 0], [], [], 2**31, ("bad-domain",)),
        ],
    )
    def test_arrays_that_are_no_population_are_refused(
        self, offsets: list[int], items: Any, counts: Any, domain_size: int, told: tuple[str, ...]
    ) -> None:
        with refused(InvalidPopulation, *told):
            checked(offsets, items, counts, domain_size=domain_size)

    @given(dense_counts(), st.randoms(use_true_random=False))
    def test_repeated_and_unsorted_items_mean_the_same_histogram(self, table: Dense, random: Any) -> None:
        offsets, items, counts = [0], [], []
        for row in table:
            entries = [(item, 1) for item, count in enumerate(row) for _ in range(count)]
            random.shuffle(entries)
            items += [item for item, _ in entries]
            counts += [count for _, count in entries]
            offsets.append(len(items))
        histograms = checked(offsets, items, counts, domain_size=table.shape[1])
        assert (dense(histograms) == table).all()
        assert histograms.nonzeros == np.count_nonzero(table)

    def test_a_repeat_is_found_across_many_pieces(self) -> None:
        # Rows fall in item number, so the quick test for rising rows settles nothing.
        items = np.tile(np.arange(9, -1, -1), 30_000)
        items[-1] = 9
        histograms = checked(np.arange(0, 300_001, 10), items, np.ones(300_000), domain_size=10)
        assert histograms.nonzeros == 299_999
        assert dense(histograms.rows(29_999, 30_000)).tolist() == [[0, 1, 1, 1, 1, 1, 1, 1, 1, 2]]
        assert dense(histograms.rows(14_000, 14_001)).tolist() == [[1] * 10]


class TestBlocks:
    @given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 12), st.integers(1, 7))
    def test_blocks_are_all_users_in_order_and_as_full_as_allowed(
        self, lengths: list[int], nonzeros: int, users: int
    ) -> None:
        offsets = np.concatenate(([0], np.cumsum(lengths))) + 5
        blocks = list(user_blocks(offsets, nonzeros=nonzeros, users=users))
        assert [user for start, stop in blocks for user in range(start, stop)] == list(range(len(lengths)))
        for start, stop in blocks:
            fits = offsets[stop] - offsets[start] <= nonzeros and stop - start <= users
            assert fits or stop == start + 1
            # One more user would not have fitted.
            if stop < len(lengths):
                assert offsets[stop + 1] - offsets[start] > nonzeros or stop - start == users


class TestScipy:
    @pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
    @pytest.mark.parametrize("make", [scipy.sparse.coo_array, scipy.sparse.coo_matrix])
    def test_every_format_gives_the_same_population(self, kind: str, make: Any) -> None:
        table = np.array([[0, 3, 0, 1], [0, 0, 0, 0], [5, 0, 0, 2], [0, 0, 1, 0]])
        population = SparsePopulation.from_scipy(make(table).asformat(kind))
        assert (dense(population.histograms) == table).all()
        assert population.totals().tolist() == [5, 3, 1, 3]

    def test_repeated_entries_are_summed_without_overflow(self) -> None:
        entries = np.full(3, 100, dtype=np.int8), (np.zeros(3, dtype=int), np.ones(3, dtype=int))
        population = SparsePopulation.from_scipy(scipy.sparse.coo_array(entries, shape=(2, 2)))
        assert dense(population.histograms).tolist() == [[0, 300], [0, 0]]

    def test_entries_that_only_add_up_to_a_count_are_refused(self) -> None:
        for pair in ([2, -1], [0.5, 0.5]):
            entries = np.array(pair), (np.array([1, 1]), np.array([0, 0]))
            with refused(InvalidPopulation, "bad-count", "row 1", "column 0"):
                SparsePopulation.from_scipy(scipy.sparse.coo_array(entries, shape=(2, 2)))

    @pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
    @pytest.mark.parametrize("index", [-1, 9])
    def test_an_index_out_of_range_is_refused_before_conversion(self, kind: Any, index: int) -> None:
        matrix = scipy.sparse.coo_array(np.eye(3, dtype=int)).asformat(kind)
        matrix.indices[1] = index
        with pytest.raises(InvalidPopulation):
            SparsePopulation.from_scipy(matrix)

    @pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
    def test_offsets_that_rise_and_end_at_zero_are_refused(self, kind: Any) -> None:
        # scipy's full check then looks at nothing, and its conversion writes past the end of an array.
        matrix = scipy.sparse.coo_array(np.eye(3, dtype=int)).asformat(kind)
        matrix.indptr[:] = [0, 1000, 1000, 0]
        with pytest.raises(InvalidPopulation):
            SparsePopulation.from_scipy(matrix)

    @pytest.mark.parametrize("make", [scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_array])
    def test_no_columns_are_refused_and_no_rows_are_nobody(self, make: Any) -> None:
        for users in (0, 3):
            with refused(InvalidPopulation, "bad-domain"):
                SparsePopulation.from_scipy(make((users, 0), dtype=int))
        assert SparsePopulation.from_scipy(make((0, 3), dtype=int)).users == 0

    def test_one_dimension_and_dense_arrays_are_refused(self) -> None:
        with refused(InvalidPopulation, "not-a-matrix"):
            SparsePopulation.from_scipy(scipy.sparse.coo_array(np.array([1, 2, 3])))
        with refused(InvalidPopulation, "not-a-matrix"):
            SparsePopulation.from_scipy(np.ones((2, 2)))  # type: ignore[arg-type]  # the mistake under test


class TestShards:
    @given(dense_counts(), st.integers(1, 20))
    def test_shards_concatenate_to_the_whole(self, table: Dense, shard_nonzeros: int) -> None:
        population = population_of(table)
        with mock.patch.object(populations, "SHARD_NONZEROS", shard_nonzeros):
            shards = list(population.shards())
        assert (np.concatenate([dense(shard) for shard in shards]) == table).all()
        numbers = np.concatenate([shard.user_numbers() for shard in shards])
        assert numbers.tolist() == list(range(len(table)))
        assert all(shard.nonzeros <= shard_nonzeros or shard.users == 1 for shard in shards)
        assert all(np.shares_memory(s.counts, population.histograms.counts) for s in shards if s.counts.size)

    def test_a_million_users_without_items_do_not_make_one_huge_shard(self) -> None:
        population = SparsePopulation.from_arrays(np.zeros(1_000_001, dtype=int), [], [], domain_size=2)
        sizes = [shard.users for shard in population.shards()]
        assert sum(sizes) == 1_000_000
        assert max(sizes) == SHARD_USERS


class TestItems:
    @given(dense_counts(), st.integers(1, 10))
    def test_top_items_match_dense_numpy(self, table: Dense, d: int) -> None:
        names = [f"item {number}" for number in range(table.shape[1])]
        top = population_of(table, labels=names).keep_top_items(d)
        totals = table.sum(axis=0)
        ranked = sorted(range(table.shape[1]), key=lambda item: (-totals[item], item))[:d]
        assert (dense(top.histograms) == table[:, ranked]).all()
        assert list(top.labels or []) == [names[item] for item in ranked]
        assert top.totals().tolist() == totals[ranked].tolist()
        assert top.dropped_items == table.shape[1] - len(ranked)
        assert top.dropped_count == totals.sum() - totals[ranked].sum()

    def test_what_two_cuts_drop_adds_up(self) -> None:
        top = population_of([[5, 4, 3, 2]]).keep_top_items(3).keep_top_items(1)
        assert (top.dropped_items, top.dropped_count) == (3, 9)

    @pytest.mark.parametrize("d", [0, -3])
    def test_fewer_than_one_item_is_refused(self, d: int) -> None:
        with refused(InvalidInput, "bad-top-items"):
            population_of([[1, 2]]).keep_top_items(d)

    @settings(max_examples=30)
    @given(dense_counts(), st.data())
    def test_a_selection_keeps_its_order_and_adds_empty_items(
        self, table: Dense, data: st.DataObject
    ) -> None:
        columns = data.draw(st.lists(st.integers(0, table.shape[1] - 1), min_size=1, unique=True))
        chosen = [-1, *columns, -1]
        selected = population_of(table).select_items(chosen)
        expected = np.pad(table[:, columns], ((0, 0), (1, 1)))
        assert (dense(selected.histograms) == expected).all()

    @pytest.mark.parametrize("chosen", [[], [0, 0], [2], [-2], [[0, 1]]])
    def test_impossible_selections_are_refused(self, chosen: Any) -> None:
        with pytest.raises(InvalidInput):
            population_of([[1, 2]]).select_items(chosen)

    def test_an_absent_item_of_a_labelled_population_needs_a_label(self) -> None:
        population = population_of([[1, 2]], labels=["a", "b"])
        with refused(InvalidInput, "item-without-label"):
            population.select_items([0, -1])
        assert population.select_items([1, -1], labels=["b", "c"]).labels == ("b", "c")

    def test_totals_are_exact_beyond_what_a_float_holds(self) -> None:
        # The total is odd and above 2^53, so no 64-bit float is equal to it.
        users = 2**22 + 3
        offsets = np.arange(users + 1)
        counts = np.full(users, MAX_USER_TOTAL, dtype=np.int32)
        population = SparsePopulation.from_arrays(offsets, np.zeros(users, np.int32), counts, domain_size=1)
        assert population.totals().tolist() == [users * MAX_USER_TOTAL]

    def test_labels_match_the_items(self) -> None:
        with refused(InvalidPopulation, "wrong-number-of-labels"):
            population_of([[1, 2]], labels=["a"])
        with refused(InvalidPopulation, "repeated-item"):
            population_of([[1, 2]], labels=["a", "a"])

    def test_a_population_does_not_print_its_users(self) -> None:
        assert repr(population_of([[123456, 0]])) == "SparsePopulation(users=1, domain_size=2, nonzeros=1)"
