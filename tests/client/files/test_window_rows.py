"""Rows of a window of time: which ones are counted, whoever holds them, and what is said of times that are none."""

from __future__ import annotations

import datetime as dt
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhist import Columns, InvalidInput, histogram, read_frame, read_population
from tests.builders import rows_in_any_order
from tests.support.api import Database, InvalidPopulation, Window, read_node_data
from tests.support.refusals import refused

WEEK = Window.parse("2026-W47")
START, END = (dt.datetime.fromtimestamp(second, dt.UTC) for second in (WEEK.start, WEEK.end))
WINDOWED = Columns(time="when", window=WEEK)
INSIDE = (
    "2026-11-16", "2026-11-22", "2026-11-16T00:00", "2026-11-22 23:59:59.999999999", "2026-11-22T23:59:59Z",
    "2026-11-23T00:59:59+01:00", "2026-11-15T20:00:00-04:00", "2026-11-15T20:00-0400", "2026-11-18t09:30:00 +01",
)  # fmt: skip
OUTSIDE = (
    "2026-11-15", "2026-11-23", "2026-11-15T23:59:59.9", "2026-11-23T00:00:00Z", "2026-11-16T00:59+01:00", "1815-06-18",
)  # fmt: skip
NO_TIMES = (
    "", "yesterday", "2026", "2026-11", "2026-W47", "18.11.2026", "2026-11-31", "2026-11-18T25:00", "20261118",
    "1763424000", "2026-11-18T10", "2026-11-18T10:00+25:00", "２０２６-11-18", "2026-11-18T10:61",
)  # fmt: skip


def frame(times: Any, **columns: Any) -> pl.DataFrame:
    number = len(times)
    users = [f"u{row}" for row in range(number)]
    return pl.DataFrame({"user": users, "item": ["tea"] * number, "when": times, **columns})


def counted(data: Any, columns: Columns = WINDOWED) -> list[bool]:
    """Whether each row, which is a user of its own, was counted."""
    rows = [str(row) for row in range(len(data))]
    population = read_frame(data.with_columns(item=pl.Series(rows)), columns=columns, items=rows)
    return (population.totals() > 0).tolist()


@pytest.mark.parametrize("text", INSIDE)
def test_a_time_in_the_window_counts(text: str) -> None:
    assert counted(frame([text])) == [True]


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_time_outside_does_not_and_its_user_stays(text: str) -> None:
    population = read_frame(frame([text]), columns=WINDOWED)
    assert (population.users, population.nonzeros, population.domain_size) == (1, 0, 0)


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_time_that_is_none_is_an_error_that_names_its_row(text: str) -> None:
    with refused(InvalidPopulation, "bad-time", "row 1", "when"):
        read_frame(frame(["2026-11-16", text]), columns=WINDOWED)


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_node_leaves_such_a_row_out_counts_it_and_keeps_its_user(text: str) -> None:
    population, left_out = read_node_data(
        frame(["2026-11-16", text, "2026-11-30"]), columns=WINDOWED, items=["tea"]
    )
    assert (population.users, left_out) == (3, 1)
    assert sum(int(shard.counts.sum()) for shard in population.shards()) == 1


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_columns_of_times_are_read_to_the_moment(unit: Any, zone: str | None) -> None:
    moments = [
        START,
        START - dt.timedelta(milliseconds=1),
        END,
        END - dt.timedelta(milliseconds=1),
    ]
    times = pl.Series(moments, dtype=pl.Datetime(unit, "UTC"))
    times = times.dt.replace_time_zone(None) if zone is None else times.dt.convert_time_zone(zone)
    assert counted(frame(times)) == [True, False, False, True]


def test_columns_of_dates_before_1970_are_read_as_they_are() -> None:
    times = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(1969, 12, 30)]
    day = Columns(time="when", window="1969-12-31")
    assert (
        counted(frame(times), day) == counted(frame([str(one) for one in times]), day) == [True, False, False]
    )
    moments = pl.Series([dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(1970, 1, 1)])
    assert counted(frame(moments), day) == [True, False]


def test_whole_numbers_are_not_guessed_at() -> None:
    with refused(InvalidPopulation, "times-of-wrong-type"):
        read_frame(frame([1763424000]), columns=WINDOWED)


@given(st.datetimes(dt.datetime(2026, 11, 14), dt.datetime(2026, 11, 25)), st.integers(-14 * 60, 14 * 60))
def test_text_and_python_agree_about_what_is_inside(moment: dt.datetime, minutes: int) -> None:
    zoned = moment.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
    assert counted(frame([zoned.isoformat(), f"{moment}"])) == [
        START <= zoned < END,
        START <= moment.replace(tzinfo=dt.UTC) < END,
    ]


def visits() -> pl.DataFrame:
    """Every user has a row in the week, so that a filtered file has the same users in the same order."""
    random = np.random.default_rng(5)
    users = np.concatenate([np.arange(80), random.integers(0, 80, 900)])
    items = np.concatenate([np.zeros(80, int), random.integers(0, 6, 900)])
    first = dt.datetime(2026, 11, 16)
    minutes = np.concatenate([np.zeros(80, int), random.integers(-20_000, 30_000, 900)]).tolist()
    return pl.DataFrame(
        {
            "user": [f"u{user}" for user in users],
            "item": [f"i{item}" for item in items],
            "when": [first + dt.timedelta(minutes=minute) for minute in minutes],
            "count": random.integers(1, 5, 980),
        }
    )


def written(table: pl.DataFrame, kind: str, folder: Path) -> Any:
    path = folder / f"visits.{kind}"
    folder.mkdir()
    text = table.with_columns(pl.col("when").dt.strftime("%Y-%m-%dT%H:%M:%S"))
    match kind:
        case "csv":
            text.write_csv(path)
        case "jsonl":
            text.write_ndjson(path)
        case "parquet":
            table.write_parquet(path)
        case "polars":
            return table
        case "pandas":
            return table.to_pandas()
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "polars", "pandas"])
@pytest.mark.parametrize("domain", ["closed", "open"])
def test_a_windowed_run_releases_what_one_over_the_filtered_data_does(
    kind: str, domain: str, tmp_path: Path
) -> None:
    table = visits()
    cut = table.filter(
        pl.col("when").is_between(START.replace(tzinfo=None), END.replace(tzinfo=None), "left")
    )
    assert 80 < cut.height < table.height
    listed: dict[str, Any] = (
        {"items": [f"i{item}" for item in range(7)]} if domain == "closed" else {"domain": "open"}
    )
    windowed = histogram(
        written(table, kind, tmp_path / "all"), time="when", window="2026-W47", seed=3, epsilon=2.0, **listed
    )
    filtered = histogram(written(cut, kind, tmp_path / "cut"), seed=3, epsilon=2.0, **listed)
    assert windowed.release.histogram.tolist() == filtered.release.histogram.tolist()
    assert windowed.release.threshold == filtered.release.threshold
    assert windowed.to_json()["plan"]["window"] == "2026-W47"


def test_a_database_and_files_of_any_size_give_the_same_rows(tmp_path: Path) -> None:
    table = visits()
    columns = Columns(time="when", window="2026-11-17/2026-11-18")
    path = written(table, "csv", tmp_path / "all")
    with sqlite3.connect(tmp_path / "visits.db") as database:
        database.execute("CREATE TABLE visits (user TEXT, item TEXT, moment TEXT, count INT)")
        database.executemany(
            "INSERT INTO visits VALUES (?, ?, ?, ?)",
            table.with_columns(pl.col("when").cast(pl.String)).rows(),
        )
    base = Database(
        f"sqlite:///{tmp_path / 'visits.db'}", 'SELECT user, item, moment AS "when", count FROM visits'
    )
    items = [f"i{item}" for item in range(6)]
    expected = read_population(path, columns=columns, items=items)
    from_base, left_out = read_node_data(base, columns=columns, items=items)
    out_of_core = read_population(path, columns=columns, items=items, memory="256MiB")
    assert expected.users == 80 and left_out == 0
    for other in (from_base, out_of_core):
        assert rows_in_any_order(other) == rows_in_any_order(expected)


def test_the_line_of_a_bad_value_is_named_in_any_batch(tmp_path: Path) -> None:
    rows = 400_000
    table = frame(pl.Series(["2026-11-16"] * (rows - 1) + ["never"]), number=["7"] * (rows - 1) + ["many"])
    table.write_csv(tmp_path / "visits.csv")
    with refused(InvalidPopulation, "bad-time", f"{rows + 1:,}", "when"):
        read_population(tmp_path / "visits.csv", columns=WINDOWED, memory="256MiB")
    with refused(InvalidPopulation, "item-not-a-number", f"{rows + 1:,}", "number"):
        read_population(
            tmp_path / "visits.csv", columns=Columns(item="number", bins=(0, 10)), memory="256MiB"
        )


def test_rows_outside_do_not_count_in_a_users_total() -> None:
    heavy = pl.DataFrame(
        {
            "user": ["a", "a"],
            "item": ["tea", "tea"],
            "count": [2**31 - 1, 2],
            "when": ["2026-11-01", "2026-11-16"],
        }
    )
    assert read_frame(heavy, columns=WINDOWED).totals().tolist() == [2]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"window": "2026-W47"}, "window-without-times"),
        ({"time": "when"}, "times-without-window"),
        ({"time": "item", "window": "2026-W47"}, "column-used-twice"),
        ({"time": "then", "window": "2026-W47"}, "missing-column"),
    ],
)
def test_what_does_not_go_together_is_refused(asked: dict[str, str], code: str) -> None:
    with refused(InvalidInput, code):
        histogram(frame(["2026-11-16"]), seed=1, **asked)  # type: ignore[arg-type]  # texts by name


def test_data_without_times_is_refused() -> None:
    from scipy.sparse import csr_array

    for data in ("synthetic:heavy-tailed", csr_array(np.eye(3, dtype=int))):
        with refused(InvalidInput, "columns-without-table"):
            histogram(data, time="when", window="2026-W47", seed=1)
