from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedhist import Columns, InvalidInput, SparsePopulation, read_population
from tests.support.api import MAX_USER_TOTAL, InvalidFile, InvalidPopulation
from tests.support.populations import AnyOrder
from tests.support.refusals import refused

Write = Callable[..., Path]
STRICT = Columns(strict=True)
# A null character is what tells a binary file from text.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
LABELS = [
    "007", "7", "07", "é", "e\u0301", "", " ", "x" * 5_000, "😀👍🏽", "a,b", 'say "hi"', "two\nlines", "NaN", "null",
    "1.0", "true", "#1",
]  # fmt: skip


def dense(population: SparsePopulation) -> list[list[int]]:
    rows = population.histograms
    matrix = scipy.sparse.csr_array(
        (rows.counts, rows.items, rows.offsets), shape=(rows.users, rows.domain_size)
    )
    return AnyOrder([int(count) for count in row] for row in matrix.toarray())


@pytest.fixture
def text(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "rows.csv") -> Path:
        path = tmp_path / name
        raw = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") and isinstance(content, str) else raw)
        return path

    return write


@pytest.fixture
def parquet(tmp_path: Path) -> Write:
    def write(**columns: Any) -> Path:
        path = tmp_path / "rows.parquet"
        pl.DataFrame(columns).write_parquet(path)
        return path

    return write


@pytest.fixture
def matrix(tmp_path: Path) -> Write:
    def write(table: Any, **options: Any) -> Path:
        scipy.sparse.save_npz(tmp_path / "matrix.npz", table, **options)
        return tmp_path / "matrix.npz"

    return write


@pytest.fixture
def arrays(tmp_path: Path) -> Write:
    def write(**parts: Any) -> Path:
        np.savez(tmp_path / "matrix.npz", **parts)
        return tmp_path / "matrix.npz"

    return write


class TestMatrices:
    def test_top_items_and_lists_of_column_numbers(self, matrix: Write) -> None:
        path = matrix(scipy.sparse.csr_array([[1, 5, 0], [0, 1, 3]]))
        assert dense(read_population(path, top_items=2)) == [[5, 0], [1, 3]]
        listed = read_population(path, items=["2", "9", "0"])
        assert dense(listed) == [[0, 0, 1], [3, 0, 0]]
        assert (listed.labels, listed.dropped_items, listed.dropped_count) == (("2", "9", "0"), 1, 6)

    def test_names_for_numbered_columns_are_refused(self, matrix: Write) -> None:
        with refused(InvalidInput, "numbered-items"):
            read_population(matrix(scipy.sparse.csr_array([[1, 5]])), items=["apple", "pear"])

    def test_dense_arrays_are_refused(self, arrays: Write) -> None:
        with refused(InvalidFile, "not-a-matrix"):
            read_population(arrays(table=np.ones((2, 2))))

    @pytest.mark.parametrize("key", ["data", "format"])
    def test_pickled_objects_are_never_loaded(self, tmp_path: Path, arrays: Write, key: str) -> None:
        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return (tmp_path.joinpath("sprung").touch, ())

        parts = {"data": np.ones(1), "indices": np.zeros(1, int), "indptr": np.array([0, 1])}
        parts |= {"shape": np.array([1, 1]), "format": np.array("csr")}
        path = arrays(**(parts | {key: np.array([Trap()], dtype=object)}))
        with pytest.raises(InvalidFile):
            read_population(path)
        assert not (tmp_path / "sprung").exists()

    @pytest.mark.parametrize(
        "part",
        [
            {"indices": np.array([0, 7])},
            {"indptr": np.array([0, 2, 1])},
            {"indptr": np.array([0, 9, 2])},
            {"indptr": np.array([0, 2])},
            {"indices": np.array([0.0 + 1j, 1])},
            {"shape": np.array([2**62, 2**62])},
            {"format": np.array("xyz")},
        ],
    )
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("kind", ["csr", "csc"])
    def test_parts_that_contradict_each_other_are_refused(self, arrays: Write, kind: str, part: Any) -> None:
        parts = {"data": np.array([1, 1]), "indices": np.array([0, 1]), "indptr": np.array([0, 1, 2])}
        parts |= {"shape": np.array([2, 2]), "format": np.array(kind)}
        with pytest.raises((InvalidFile, InvalidPopulation)):
            read_population(arrays(**(parts | part)))


class TestText:
    @pytest.mark.parametrize(
        ("rows", "labels", "counts"),
        [
            ("count ann,tea,2 bob,milk,4 ann,milk,1", ("milk", "tea"), [[1, 2], [4, 0]]),
            ("a,x b,x a,x a,y", ("x", "y"), [[2, 1], [1, 0]]),
            ("count a,x,2 a,y,1 a,x,3", ("x", "y"), [[5, 1]]),
            ("b,x " * 5 + "a,x " * 4 + "b,x " * 3 + "c,x " * 2, ("x",), [[8], [4], [2]]),
            ("count z,x,1 b,x,2 a,x,3 b,x,4", ("x",), [[1], [6], [3]]),
            ("count a,x,0 b,y,1", ("y", "x"), [[0, 0], [1, 0]]),
            ("a,10 a,9 a,b a,a a,top b,top", ("top", "9", "a", "b", "10"), [[1] * 5, [1, 0, 0, 0, 0]]),
        ],
        ids=[
            "counts",
            "a row is one",
            "repeats add up",
            "users in runs",
            "users as they appear",
            "zero",
            "order",
        ],
    )
    def test_rows_become_a_population(
        self, text: Write, rows: str, labels: tuple[str, ...], counts: list[list[int]]
    ) -> None:
        header, lines = "user,item", rows.split()
        if lines[0] == "count":
            header, lines = "user,item,count", lines[1:]
        population = read_population(text("\n".join([header, *lines])))
        assert population.labels == labels
        assert dense(population) == counts
        assert population.nonzeros == len({tuple(line.split(",")[:2]) for line in lines})

    @pytest.mark.parametrize(
        "name", ["rows.csv", "rows.tsv", "rows.csv.gz", "rows.tsv.gz", "ROWS.CSV", "a[1]*?.csv"]
    )
    def test_separators_compression_and_odd_names(self, text: Write, name: str) -> None:
        content = "user,item,count\nann,tea,2\n"
        path = text(content.replace(",", "\t") if ".tsv" in name else content, name)
        assert read_population(path).labels == ("tea",)

    @pytest.mark.parametrize("header", ["USER,Item,cOUNT", "x,count,item,user,y"])
    def test_columns_are_found_by_name_in_any_case_and_order(self, text: Write, header: str) -> None:
        values = {"user": "ann", "item": "tea", "count": "3", "x": "9", "y": "-1.5"}
        row = ",".join(values[name.lower()] for name in header.split(","))
        assert dense(read_population(text(f"{header}\n{row}\n"))) == [[3]]

    def test_labels_come_back_as_written(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        pl.DataFrame({"user": ["u"] * len(LABELS), "item": LABELS}).write_csv(path)
        population = read_population(path)
        assert set(population.labels or []) == set(LABELS)
        assert population.totals().tolist() == [1] * len(LABELS)

    @pytest.mark.parametrize(
        "content",
        ["\ufeffuser,item\na,x\n", "user,item\r\na,x\r\n", "user,item\na,x", '"user","item"\n"a","x"'],
    )
    def test_byte_order_mark_line_ends_and_quotes(self, text: Write, content: str) -> None:
        assert read_population(text(content)).labels == ("x",)

    @pytest.mark.parametrize("count", ["2.0", " 2", "2e0", "+2", '"2"'])
    def test_whole_counts_in_other_spellings(self, text: Write, count: str) -> None:
        assert dense(read_population(text(f"user,item,count\na,x,{count}\n"))) == [[2]]

    @pytest.mark.parametrize(
        ("wrong", "code"),
        [
            ("-1", "bad-count"),
            ("1.5", "bad-count"),
            ("nan", "bad-count"),
            ("inf", "bad-count"),
            ("", "missing-value"),
            ("many", "count-not-a-number"),
            ("99999999999999999999", "bad-count"),
            (str(MAX_USER_TOTAL + 1), "bad-count"),
        ],
    )
    def test_a_wrong_count_is_named_by_its_line_and_column(self, text: Write, wrong: str, code: str) -> None:
        path = text(f"user,item,count\nann,tea,1\nbob,tea,{wrong}\ncid,tea,{wrong}\n")
        with refused(InvalidPopulation, code, "line 3, column 'count'") as caught:
            read_population(path, columns=STRICT)
        assert "bob" not in str(caught.value)

    @pytest.mark.parametrize(
        ("row", "column"), [(",x,1", "user"), ("a,,1", "item"), ("", "user"), ("a", "item")]
    )
    def test_a_missing_user_or_item_is_named_by_its_line(self, text: Write, row: str, column: str) -> None:
        with refused(InvalidPopulation, "missing-value", column, "line 4"):
            read_population(text(f"user,item,count\na,x,1\nb,x,1\n{row}\nc,x,1\n"), columns=STRICT)

    @pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
    def test_rows_without_a_value_are_left_out_and_their_number_is_told(
        self, text: Write, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = text("user,item,count\na,x,1\n,x,5\nb,,2\n\nc,y,\na,y,2\n", name)
        found = read_population(path)
        # b and c stay: how many users there are does not depend on what else they have.
        assert (found.labels, dense(found)) == (("y", "x"), [[2, 1], [0, 0], [0, 0]])
        assert [record.args for record in caplog.records] == [(4,)]
        with refused(InvalidPopulation, "count-not-a-number", "line 5"):
            read_population(text("user,item,count\n,x,1\nb,,1\n\nc,x,many\n", name))

    def test_a_users_total_is_limited_over_all_rows(self, text: Write) -> None:
        path = text(f"user,item,count\na,x,1\nb,x,{MAX_USER_TOTAL}\na,y,1\nb,y,1\n")
        with refused(InvalidPopulation, "total-too-large", "line 3"):
            read_population(path)

    @pytest.mark.parametrize(
        "header", ["user,thing", "item,count", "user;item;count", "user,item,User", "user,item,count,COUNT"]
    )
    def test_missing_or_doubled_columns_are_told(self, text: Write, header: str) -> None:
        known = [name.lower() for name in header.split(",") if name.lower() in ("user", "item", "count")]
        said = f"columns, and {', '.join(known) or 'none of user, item and count'} among their names"
        with refused(InvalidFile, "unknown-columns", said):
            read_population(text(f"{header}\n1,2,3,4\n"))

    def test_a_single_column_is_a_question_of_the_separator(self, text: Write) -> None:
        with refused(InvalidFile, "unknown-columns", "--separator"):
            read_population(text("user;item\nana;park\n"))

    @pytest.mark.parametrize(
        "content",
        [
            "user,item\na,x,extra\n",
            'user,item\na,"never closed\n',
            "user,item\na,é\n".encode("latin-1"),
            "user,item\na,x\n".encode("utf-16"),
            gzip.compress(b"user,item\na,x\n", mtime=0),
            b"PK\x03\x04 a zip",
            b"PAR1 a table PAR1",
            b"\x93NUMPY",
        ],
    )
    def test_what_is_no_table_in_utf8_is_refused(self, text: Write, content: str | bytes) -> None:
        with pytest.raises(InvalidFile):
            read_population(text(content))

    def test_a_damaged_gzip_file_is_refused(self, text: Write) -> None:
        whole = gzip.compress(b"user,item\n" + b"".join(b"%d,%d\n" % (n, n * n % 97) for n in range(5_000)))
        for damaged in (whole[: len(whole) // 2], whole[:-8], b"user,item\na,x\n"):
            with pytest.raises(InvalidFile):
                read_population(text(damaged, "rows.csv.gz"))

    def test_a_header_without_rows_has_no_users(self, text: Write) -> None:
        assert read_population(text("user,item,count\n")).users == 0

    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.tuples(st.sampled_from("abc"), TEXT, st.integers(0, 5)), min_size=1, max_size=15))
    def test_any_table_round_trips(self, tmp_path: Path, rows: list[tuple[str, str, int]]) -> None:
        frame = pl.DataFrame(
            rows, schema={"user": pl.String, "item": pl.String, "count": pl.Int64}, orient="row"
        )
        frame.write_csv(tmp_path / "any.csv")
        frame.write_parquet(tmp_path / "any.parquet")
        expected: dict[str, dict[str, int]] = {}
        for user, item, count in rows:
            counts = expected.setdefault(user, {})
            counts[item] = counts.get(item, 0) + count
        for name in ("any.csv", "any.parquet"):
            population = read_population(tmp_path / name)
            found = AnyOrder(
                dict(zip(population.labels or [], row, strict=True)) for row in dense(population)
            )
            wanted = [
                {label: user.get(str(label), 0) for label in population.labels or []}
                for user in expected.values()
            ]
            assert found == wanted
            assert set(population.labels or []) == {item for _, item, _ in rows}


class TestParquet:
    def test_integers_stay_integers_and_agree_with_text(self, parquet: Write, text: Write) -> None:
        users, items, counts = [3, 3, 1, 2], [10, 9, 10, 8], [1, 2, 1, 2]
        population = read_population(parquet(user=users, item=items, count=counts))
        assert population.labels == (8, 9, 10)
        rows = "".join(f"{u},{i},{c}\n" for u, i, c in zip(users, items, counts, strict=True))
        same = read_population(text("user,item,count\n" + rows))
        assert same.labels == ("8", "9", "10")
        assert dense(same) == dense(population) == [[0, 2, 1], [0, 0, 1], [2, 0, 0]]

    @pytest.mark.parametrize("kind", [pl.Int8, pl.UInt16, pl.Int32, pl.Int64, pl.UInt64, pl.Int128])
    @pytest.mark.parametrize("base", [0, 40])
    def test_integers_of_any_width_near_or_far_apart(self, parquet: Write, kind: Any, base: int) -> None:
        users = pl.Series([base + 9, base + 2, base + 9, base + 80], dtype=kind)
        items = pl.Series([base, base, base, base + 1], dtype=kind)
        population = read_population(parquet(user=users, item=items))
        assert population.labels == (base, base + 1)
        assert dense(population) == [[2, 0], [1, 0], [0, 1]]

    @pytest.mark.parametrize(
        "users", [[-(2**63), 2**63 - 1, -(2**63)], [-3, -2, -3], [2**31 - 1, -(2**31), 2**31 - 1]]
    )
    def test_integers_at_the_ends_of_their_range(self, parquet: Write, users: list[int]) -> None:
        assert dense(read_population(parquet(user=users, item=["x"] * 3))) == [[2], [1]]

    @pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["x", "y"])])
    def test_categories_are_text(self, parquet: Write, kind: Any) -> None:
        population = read_population(
            parquet(User=pl.Series(["a", "b"]), ITEM=pl.Series(["y", "x"], dtype=kind))
        )
        assert population.labels == ("x", "y")

    @pytest.mark.parametrize(
        "kind",
        [pl.Int8, pl.UInt64, pl.Float32, pl.Float64, pl.Decimal(10, 2), pl.Int128, pl.String, pl.Boolean],
    )
    def test_counts_of_any_numeric_type(self, parquet: Write, kind: Any) -> None:
        one = 1 if kind == pl.Boolean else 2
        counts = pl.Series([one, 0]).cast(kind)
        assert dense(read_population(parquet(user=["a", "b"], item=["x", "x"], count=counts))) == [[one], [0]]

    def test_a_column_of_nothing_but_nulls(self, parquet: Write) -> None:
        with refused(InvalidPopulation, "missing-value", "row 1"):
            read_population(parquet(user=[None, None], item=["a", "b"]), columns=STRICT)

    def test_other_types_are_refused(self, parquet: Write) -> None:
        with refused(InvalidFile, "column-type"):
            read_population(parquet(user=[1.0], item=["x"]))
        with refused(InvalidPopulation, "column-type"):
            read_population(parquet(user=["a"], item=["x"], count=[[1]]))


class TestChoiceOfItems:
    CONTENT = "user,item,count\na,x,1\na,y,5\nb,z,3\nb,y,1\nc,x,1\n"

    @pytest.mark.parametrize(
        ("choice", "labels", "counts", "dropped"),
        [
            ({"top_items": 2}, ("y", "z"), [[5, 0], [1, 3], [0, 0]], (1, 2)),
            ({"top_items": 100}, ("y", "z", "x"), [[5, 0, 1], [1, 3, 0], [0, 0, 1]], (0, 0)),
            ({"items": ["x", "new", "z"]}, ("x", "new", "z"), [[1, 0, 0], [0, 0, 3], [1, 0, 0]], (1, 6)),
            ({"items": ["q"]}, ("q",), [[0], [0], [0]], (3, 11)),
        ],
        ids=["top", "top of fewer", "a public list", "a list of other items"],
    )
    def test_the_domain_is_what_was_chosen_and_every_user_stays(
        self, text: Write, choice: dict[str, Any], labels: Any, counts: list[list[int]], dropped: Any
    ) -> None:
        population = read_population(text(self.CONTENT), **choice)
        assert population.labels == labels
        assert dense(population) == counts
        assert (population.dropped_items, population.dropped_count) == dropped

    def test_a_list_of_numbers_or_text_finds_integer_items(self, parquet: Write) -> None:
        path = parquet(user=["a", "b"], item=[5, 7])
        for items in ([7, 5], ["7", "5"]):
            population = read_population(path, items=items)
            assert dense(population) == [[0, 1], [1, 0]]
            assert list(population.labels or []) == items

    @pytest.mark.parametrize(
        "choice",
        [
            {"top_items": 0},
            {"top_items": -1},
            {"items": []},
            {"items": ["x", "x"]},
            {"items": "xy"},
            {"items": [7, "7"]},
            {"items": ["x"], "top_items": 1},
        ],
    )
    def test_impossible_choices_are_refused(self, text: Write, choice: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            read_population(text(self.CONTENT), **choice)


class TestPaths:
    @pytest.mark.parametrize("name", ["rows.npz", "rows.csv", "rows.csv.gz", "rows.tsv", "rows.parquet"])
    def test_missing_empty_and_directory(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        with refused(InvalidFile, "missing-file"):
            read_population(path)
        path.touch()
        with refused(InvalidFile, "empty-file"):
            read_population(path)
        path.unlink()
        path.mkdir()
        with refused(InvalidFile, "folder-without-tables"):
            read_population(path)

    @pytest.mark.parametrize("name", ["rows.xlsx", "rows", "rows.gz", "rows.npy", "rows.npz.gz"])
    def test_unknown_suffixes_are_refused(self, text: Write, name: str) -> None:
        with refused(InvalidFile, "unknown-suffix"):
            read_population(text("user,item\na,x\n", name))

    @pytest.mark.parametrize("suffix", [".npz", ".parquet", ".csv.gz"])
    def test_text_under_another_suffix_is_refused(self, text: Write, suffix: str) -> None:
        with refused(InvalidFile, "not-what-its-suffix-says", suffix):
            read_population(text(b"user,item\na,x\n", f"rows{suffix}"))

    def test_a_link_is_followed_and_a_broken_one_is_missing(self, text: Write, tmp_path: Path) -> None:
        link = tmp_path / "link.csv"
        link.symlink_to(text("user,item\na,x\n"))
        assert read_population(link).users == 1
        (tmp_path / "rows.csv").unlink()
        with refused(InvalidFile, "missing-file"):
            read_population(link)


def test_a_file_without_names_of_columns_is_refused_without_quoting_it(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("ann,tea,3\nbob,coffee,1\n")
    with refused(InvalidFile, "unknown-columns") as caught:
        read_population(path)
    assert not {"ann", "tea"} & set(str(caught.value).replace(",", " ").split())
