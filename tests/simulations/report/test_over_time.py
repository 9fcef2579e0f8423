"""The page of a campaign: every release, what is spent, and what is next, without a network."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedhist import BudgetFile, Limit
from tests.campaigns import campaign_in, runner_of
from tests.support.api import (
    Box,
    Dot,
    Stroke,
    Window,
    campaign_page,
    over_windows,
    released_rows,
    run_due,
    short_names,
    states_of,
    windows_in,
)


def page_of(folder: Path, *, until: datetime | None) -> str:
    made = campaign_in(folder, total=Limit(40, 1e-3))
    if until is not None:
        run_due(made.place, runner_of(made), until=until)
    budget = BudgetFile.open(made.ledger, create=False)
    states = states_of(made, budget.runs())
    rows = released_rows(states)
    assert len(rows["item"]) == 3 * sum(state.document is not None for state in states)
    return campaign_page(made, states, budget, datetime.now(UTC))


def test_a_page_shows_what_is_released_spent_and_next(tmp_path: Path) -> None:
    page = page_of(tmp_path, until=datetime(2020, 10, 12, tzinfo=UTC))
    assert page.count('class="chart"') == 3 + 2  # items, budget, thresholds
    assert "2 of 4" in page and "due now" in page
    assert 'href="2020-W40/histogram.csv"' in page
    assert not re.search(r"""(?:src|href)=["']?https?:""", page)


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    page = page_of(tmp_path, until=None)
    assert "Nothing is released yet" in page and "0 of 4" in page


def test_lines_join_windows_that_follow_each_other() -> None:
    windows = windows_in("2020-W40x4")
    drawn = over_windows(windows, {0: (5, 4), 1: (6, 5), 3: (2, 2)}, what="estimate")
    (line,) = [mark for mark in drawn.marks if isinstance(mark, Stroke) and mark.look == "line s0"]
    assert len(line.lines) == 1
    assert sum(isinstance(mark, Dot) for mark in drawn.marks) == 3
    limits = [mark for mark in drawn.marks if isinstance(mark, Stroke) and mark.look == "interval s0"]
    assert len(limits) == 2 and all(a[1] == b[1] for mark in limits for a, b in mark.lines)
    tips = [mark.tip for mark in drawn.marks if isinstance(mark, Box) and mark.tip]
    assert [tip[1] for tip in tips] == ["estimate 5, at least 4", "estimate 6, at least 5", "estimate 2"]


def test_values_below_zero_and_limits_stay_on_the_sheet() -> None:
    points = {0: (-3.0, -3.0), 1: (2.0, 0.0)}
    drawn = over_windows(windows_in("2020-W40x2"), points, what="estimate")
    for mark in drawn.marks:
        if isinstance(mark, Stroke):
            assert all(0 <= y <= drawn.height for line in mark.lines for _, y in line)


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (("2020-W40", "2020-W41"), ["W40", "W41"]),
        (("2020-12", "2021-01"), ["2020-12", "2021-01"]),
        (("2020", "2021"), ["2020", "2021"]),
        (("2020-10-01/2020-10-05",), ["10-01"]),
    ],
)
def test_names_on_an_axis_leave_out_a_year_that_all_share(texts: tuple[str, ...], names: list[str]) -> None:
    assert short_names([Window.parse(text) for text in texts]) == names
