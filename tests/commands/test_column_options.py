"""--user-column, --item-column, --count-column, --separator and --bins as a user meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhist import InvalidInput
from tests.builders import Fedhist, files_in
from tests.support.api import edges_of
from tests.support.refusals import refused

OWN = ("--user-column", "uid", "--item-column", "age", "--count-column", "n", "--separator", ";")


@pytest.fixture
def ages(tmp_path: Path) -> Path:
    path = tmp_path / "ages.csv"
    path.write_text("uid;age;n\n" + "".join(f"{user};{20 + user % 60}.5;2\n" for user in range(200)))
    return path


def test_a_table_with_its_own_columns_is_run_planned_and_compared(
    fedhist: Fedhist, ages: Path, tmp_path: Path
) -> None:
    own = (*OWN, "--bins", "0:100:20")
    # Bins are public, so a run that is to be shared takes them.
    run = fedhist("run", "--data", ages, *own, "--no-evaluate", "--out", "result")
    assert run.code == 0, run.err
    lines = (tmp_path / "result" / "histogram.csv").read_text().splitlines()
    assert [line.rpartition('",')[0] for line in lines[1:]] == [
        '"[0, 20)', '"[20, 40)', '"[40, 60)', '"[60, 80)', '"[80, 100)',
    ]  # fmt: skip
    planned = fedhist("plan", "--data", ages, *own, "--epsilon", "1,2", "--json").document()
    assert (planned["population"]["users"], planned["population"]["items"]) == (200, 5)
    compared = fedhist(
        "compare",
        "--data",
        ages,
        *own,
        "--trials",
        1,
        "--workers",
        1,
        "--selectors",
        "weighted-quantile",
        "--json",
    )
    assert compared.code == 0, compared.err


@pytest.mark.parametrize(
    ("name", "options", "users", "items"),
    [
        ("checkins.txt", "--separator tab --no-header --user-column 1 --item-column 5", 2, 4),
        ("ratings.csv", "--user-column userId --item-column movieId", 3, 3),
        ("u.data", "--separator tab --no-header --user-column 1 --item-column 2", 3, 3),
        ("ratings.dat", "--separator : --no-header --user-column 1 --item-column 3", 3, 3),
    ],
)
def test_published_files_are_read_as_they_are(
    fedhist: Fedhist, name: str, options: str, users: int, items: int
) -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "data.md").read_text(encoding="utf-8")
    assert f"`{options}`" in page
    asked = ("run", "--data", root / "tests" / "vectors" / name, *options.split(), "--domain", "closed")
    told = fedhist(*asked, "--evaluate", "--json")
    assert told.code == 0, told.err
    assert (told.document()["plan"]["users"], told.document()["plan"]["items"]) == (users, items)


def test_a_table_without_a_line_of_names(fedhist: Fedhist, tmp_path: Path) -> None:
    ratings = Path(__file__).resolve().parents[1] / "vectors" / "u.data"
    (tmp_path / "movies.txt").write_text("31\n50\n")
    asked = ("run", "--data", ratings, "--separator", "tab", "--items-file", "movies.txt", "--json")
    told = fedhist(*asked, "--no-header", "--user-column", 1, "--item-column", 2)
    assert told.code == 0, told.err
    assert told.document()["plan"]["users"] == 3
    for wrong in (("--user-column", 1), ("--user-column", 0, "--item-column", 2)):
        told = fedhist(*asked, "--no-header", *wrong)
        assert (told.code, "the numbers of columns, from 1" in told.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("0,10,20", [0, 10, 20]),
        ("-inf, 0.5 ,inf", [-float("inf"), 0.5, float("inf")]),
        ("0:1:0.1", [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]),
        ("-1:1:1", [-1, 0, 1]),
    ],
)
def test_edges(text: str, edges: list[float]) -> None:
    assert edges_of(text) == edges


@pytest.mark.parametrize(
    "text", ["", "1,", "0:10", "0:10:3", "10:0:1", "0:10:0", "0:inf:1", "0:1:1e-9", "0,1e400", "a:b:c"]
)
def test_what_stands_for_no_edges(text: str) -> None:
    with refused(InvalidInput, "bad-bins", "--bins"):
        edges_of(text)


def test_rows_without_a_value_are_told_on_the_screen_and_nowhere_else(
    fedhist: Fedhist, tmp_path: Path
) -> None:
    rows = [f"u{n},{item},1" for n in range(40) for item in ("tea", "milk")]
    whole = "\n".join(["user,item,count", *rows]) + "\n"
    (tmp_path / "whole.csv").write_text(whole)
    (tmp_path / "holes.csv").write_text(whole + ",tea,1\n" * 5 + "u1,,1\n" + "u2,milk,\n")
    how = ("--seed", 1, "--epsilon", 5)
    for name in ("whole", "holes"):
        ran = fedhist("run", "--data", f"{name}.csv", *how, "--out", name, "--trace")
        assert ran.code == 0, ran.err
        assert ("7 rows without a user, an item or a count were left out" in ran.err) == (name == "holes")
        assert "rows without" not in ran.out
    for path in files_in(tmp_path / "holes"):
        text = (tmp_path / "holes" / path).read_bytes()
        assert b"left out;" not in text and b"7 rows" not in text
    stopped = fedhist("run", "--data", "holes.csv", *how, "--strict", "--out", "never")
    assert (stopped.code, "line 82" in stopped.err, (tmp_path / "never").exists()) == (2, True, False)
