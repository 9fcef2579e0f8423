"""The page of a campaign: every release, what is spent, and what is next, without a network."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedhist import BudgetFile, Limit
from tests.campaigns import campaign_in, runner_of
from tests.support.api import (
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


def test_values_over_windows_are_drawn_at_their_places_with_their_lower_limits() -> None:
    points = {0: (5.0, 4.0), 1: (6.0, 5.0), 3: (-2.0, -2.0)}
    chart = over_windows("c", "t", windows_in("2020-W40x4"), points, what="estimate", limit=9.0)
    assert chart.table() == (
        ["window", "estimate", "total"],
        [
            ["W40", "5 (4 to 5)", "9"],
            ["W41", "6 (5 to 6)", "9"],
            ["W42", "", "9"],
            ["W43", "-2 (-2 to -2)", "9"],
        ],
    )


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
