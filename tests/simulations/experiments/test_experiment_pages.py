"""`fedhist report` on the folders of comparisons and of reruns of the paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders import Fedhist, page_in, rows_of
from tests.support.api import (
    Bar,
    BarChart,
    InvalidFile,
    Line,
    LineChart,
    Rule,
    comparison_charts,
    comparison_table,
    read_charts,
    write_charts,
    write_csv,
)
from tests.support.refusals import refused

EVIL = "<script>alert(1)</script>"


def compared(selector: str, loss: float, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "data": "heavy-tailed", "users": 1000, "items": 20, "selector": selector, "release": "", "epsilon": 1.0,
        "delta": 1e-6, "epsilon_select": 0.1, "max_threshold": 1500.0, "threshold": "", "loss_mean": loss,
        "loss_low": loss / 2, "loss_high": loss * 1.8, "epsilon_total": "" if selector == "oracle" else 1.1,
        "estimate_loss_mean": loss * 0.9, "group": 1, "result": "", "trials": 20, "gap_mean": loss, "ranked_by": "loss",
    }  # fmt: skip
    return row | changes


def folder_of(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    folder = tmp_path / "compared"
    folder.mkdir()
    (folder / "NOT-PRIVATE.txt").write_text("not private")
    (folder / "trials.jsonl").write_text("{}\n")
    write_csv(folder / "table.csv", rows)
    return folder


def page_of(fedhist: Fedhist, folder: Path) -> tuple[str, dict[str, Any]]:
    outcome = fedhist("report", folder)
    assert outcome.code == 0, outcome.err
    page = page_in(folder)
    return page.text, page.charts


def test_selectors_are_bars_with_their_intervals_the_best_first(fedhist: Fedhist, tmp_path: Path) -> None:
    rows = [
        compared("weighted-quantile", 0.4, result="not different"),
        compared("oracle", 0.2),
        compared("dpsgd", 0.3, result="best"),
    ]
    folder = folder_of(tmp_path, rows)
    page, charts = page_of(fedhist, folder)
    assert charts["loss-1"].rows == [
        ["oracle (not private)", "0.2", "0.1 to 0.36"],
        ["dpsgd", "0.3", "0.15 to 0.54"],
        ["weighted-quantile", "0.4", "0.2 to 0.72"],
    ]
    assert charts["loss-1"].heads[2] == "95 % interval of the mean"
    # The oracle reads the exact data and is no private winner.
    assert "dpsgd is the best private method on heavy-tailed, with a mean relative loss of 0.3" in page
    (chart,) = comparison_charts(comparison_table(folder))
    assert [bar.best for bar in chart.bars] == [False, True, False]
    assert page.count("not private, simulation only") >= 2


def test_what_varies_is_an_axis_and_data_sets_have_charts_of_their_own(
    fedhist: Fedhist, tmp_path: Path
) -> None:
    rows = [
        compared(selector, items / 100 + place, items=items, data=name)
        for place, selector in enumerate(("weighted-quantile", "oracle"))
        for items in (10, 100)
        for name in ("iid", EVIL)
    ]
    page, charts = page_of(fedhist, folder_of(tmp_path, rows))
    assert len(charts) == 2
    chart = charts["loss-1"]
    assert chart.heads == ["items d", "weighted-quantile", "oracle (not private)"]
    assert [[cell.split(" (")[0] for cell in row] for row in chart.rows] == [
        ["10", "0.1", "1.1"],
        ["100", "1", "2"],
    ]
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_each_data_set_has_its_own_axis_and_its_own_best_method(fedhist: Fedhist, tmp_path: Path) -> None:
    """Data sets of different sizes: the number of items is no axis, and losses of different data are not compared."""
    best = {"words": "dpsgd", EVIL: "m-quantile"}
    rows = [
        compared(
            name, loss, data=data, items=items, group=group, result="best" if name == best[data] else "worse"
        )
        for group, (data, items) in enumerate((("words", 20), (EVIL, 500)), 1)
        for name, loss in (("dpsgd", 0.01 * group), ("m-quantile", 0.3 / group))
    ]
    page, charts = page_of(fedhist, folder_of(tmp_path, rows))
    assert [[row[0] for row in chart.rows] for chart in charts.values()] == [["dpsgd", "m-quantile"]] * 2
    assert all(" to " in row[2] for chart in charts.values() for row in chart.rows)
    found = re.search(r'<section id="best">.*?</section>', page, re.DOTALL)
    assert found is not None
    cells = re.findall(r"<td[^>]*><bdi>(.*?)</bdi>", found[0])
    assert [cells[0], cells[1], cells[5], cells[6]] == [
        "words",
        "dpsgd",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "m-quantile",
    ]
    assert "All columns are in table.csv." in page


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (
            [("best", "worse")],
            "dpsgd is the best private method on heavy-tailed, with a mean relative loss of 0.3.",
        ),
        ([("best", "not different")], "of 0.3; not different from it: m-quantile."),
        (
            [("best", "worse")] * 2,
            "in 2 settings of users and budget: dpsgd is the best, or not different from it, in 2",
        ),
        (
            [("best", "not different"), ("not different", "best")],
            "2 methods compared in 2 settings of users and budget: dpsgd and m-quantile are each the best",
        ),
        ([("", "")], "2 methods compared, none of them private with a loss to rank it by."),
    ],
    ids=["clear", "alike", "always", "tied", "none"],
)
def test_the_answer_is_one_sentence(
    fedhist: Fedhist, tmp_path: Path, results: list[tuple[str, str]], said: str
) -> None:
    rows = [
        compared(method, 0.3 + place / 10, result=result, group=group, epsilon=float(group))
        for group, pair in enumerate(results, 1)
        for place, (method, result) in enumerate(zip(("dpsgd", "m-quantile"), pair, strict=True))
    ]
    page, _ = page_of(fedhist, folder_of(tmp_path, rows))
    headline = re.search(r'class="headline">([^<]*)<', page)
    assert headline and said in headline[1]


def test_one_trial_has_no_intervals_and_proves_nothing(fedhist: Fedhist, tmp_path: Path) -> None:
    single = {"loss_low": "", "loss_high": "", "trials": 1}
    rows = [compared("dpsgd", 0.3, result="best", **single), compared("m-quantile", 3.0, **single)]
    page, charts = page_of(fedhist, folder_of(tmp_path, rows))
    assert len(charts["loss-1"].heads) == 2
    assert "a single trial tells nothing apart" in page
    assert (
        "dpsgd is the best private method on heavy-tailed, with a mean relative loss of 0.3; a single trial"
        in page
    )


def test_a_row_without_a_loss_is_listed_and_not_drawn(fedhist: Fedhist, tmp_path: Path) -> None:
    gone = {"loss_mean": "", "loss_low": "", "loss_high": ""}
    rows = [compared("dpsgd", 0.3, result="best"), compared("broken", 1.0, **gone)]
    page, charts = page_of(fedhist, folder_of(tmp_path, rows))
    assert [row[0] for row in charts["loss-1"].rows] == ["dpsgd"]
    assert "broken" in page


@pytest.mark.parametrize(
    "change", [{"loss_mean": ""}, {"gap_mean": ""}, {"ranked_by": "luck"}, {"group": ""}], ids=str
)
def test_cells_that_somebody_emptied_leave_a_page(
    fedhist: Fedhist, tmp_path: Path, change: dict[str, str]
) -> None:
    rows = [
        compared("dpsgd", 0.3, result="best", **change),
        compared("m-quantile", 0.4, result="not different", **change),
    ]
    page, _ = page_of(fedhist, folder_of(tmp_path, rows))
    assert "m-quantile" in page


def test_a_rerun_of_the_paper_shows_claims_tables_and_figures(fedhist: Fedhist, tmp_path: Path) -> None:
    folder = tmp_path / "paper"
    folder.mkdir()
    (folder / "NOT-PRIVATE.txt").write_text("not private")
    row = {"data": "x", "paper": "0.43", "ours": 0.43123456, "verdict": "inside"}
    write_csv(folder / "table-open.csv", [row])
    write_csv(folder / "table-open-claims.csv", [{"claim": "it helps", "verdict": "holds"}])
    chart = BarChart(EVIL, EVIL, "loss", "set", truth=False, bars=(Bar(EVIL, 0.5, 0.4, 0.6),))
    write_charts([chart], [EVIL], folder / "figure-open.charts.json")
    page, charts = page_of(fedhist, folder)
    for words in ("it helps", "holds", "0.4312", "inside", "figure-open"):
        assert words in page
    assert (
        "Of 1 claim of the paper, 1 holds and 0 do not; of 1 printed number, 1 is inside of our intervals."
        in page
    )
    assert charts["figure-open-1"].rows == [[EVIL, "0.5", "0.4 to 0.6"]]
    assert "<script>alert" not in page


def test_charts_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "all.charts.json"
    common = {"x_label": "x", "y_label": "y", "truth": False}
    line = Line("a", "s0", [1.0, 2.0], [3.0, 4.0], [[2.0, 4.0], [3.0, 5.0]])
    charts = [
        LineChart("l", "L", lines=[line], points=[line], rules=[Rule("r", 1.5)], log_y=True, **common),
        BarChart("b", "B", bars=[Bar("one", 1.0, mark=2.0)], log_x=True, **common),
    ]
    write_charts(charts, ["above"], path)
    read, heading = read_charts(path)
    assert heading == ["above"] and list(map(type, read)) == [LineChart, BarChart]
    written = path.read_bytes()
    write_charts(read, heading, path)
    assert path.read_bytes() == written and [one.table() for one in read] == [one.table() for one in charts]
    for damage in (
        "",
        "[]",
        '{"charts": [{"slices": []}], "heading": []}',
        '{"charts": [1], "heading": []}',
    ):
        path.write_text(damage)
        with refused(InvalidFile, "damaged-result", "all.charts.json"):
            read_charts(path)


@pytest.mark.parametrize(
    "content",
    ["data,selector\nx\n", "data,selector,loss_mean\nx,oracle,much\n", "a,b\n1,2\n", '"x'],
    ids=range(4),
)
def test_a_damaged_table_is_one_sentence(fedhist: Fedhist, tmp_path: Path, content: str) -> None:
    folder = folder_of(tmp_path, [compared("oracle", 0.2)])
    (folder / "table.csv").write_text(content)
    outcome = fedhist("report", folder)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "table.csv" in outcome.err
    assert not (folder / "report.html").exists()


def test_a_real_comparison_has_a_page_with_its_own_numbers(fedhist: Fedhist) -> None:
    selectors = ("--selectors", "weighted-quantile,oracle", "--trials", 2, "--workers", 1)
    outcome = fedhist("compare", "--users", 80, "--items", "4,8", *selectors, "--out", "c")
    assert outcome.code == 0, outcome.err
    _, charts = page_of(fedhist, Path("c"))
    rows = rows_of(Path("c/table.csv"))
    (chart,) = charts.values()
    (drawn,) = comparison_charts(comparison_table(Path("c")))
    assert chart.heads == ["items d", *(line.name for line in drawn.lines)]
    for line, selector in zip(drawn.lines, ("weighted-quantile", "oracle"), strict=True):
        mine = [row for row in rows if row["selector"] == selector]
        assert line.ys == [float(row["loss_mean"]) for row in mine]
        assert line.intervals == [(float(row["loss_low"]), float(row["loss_high"])) for row in mine]
    assert [line.xs for line in drawn.lines] == [[4, 8]] * 2
    # The page does not keep the comparison from going on.
    assert fedhist("compare", "--users", 80, "--items", "4,8", *selectors, "--out", "c").code == 0
