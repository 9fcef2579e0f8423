"""`fedhist.Campaign`: the same campaigns from Python."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import fedhist
from fedhist import InvalidInput
from tests.campaigns import SHOPS, WEEKS, visits
from tests.support.refusals import refused


def made_in(folder: Path, **changes: Any) -> fedhist.Campaign:
    usual: dict[str, Any] = {
        "windows": ["2020-W40", "2020-W41", "2999-W01"],
        "ledger": folder / "people.ledger",
        "total_epsilon": 4,
        "total_delta": 1e-6,
        "items": SHOPS,
        "time": "when",
    }
    return fedhist.Campaign.new(folder / "campaign", **usual | changes)


def test_a_campaign_says_what_is_due_spent_left_and_released(tmp_path: Path) -> None:
    campaign = made_in(tmp_path)
    assert campaign.windows == (*WEEKS[:2], "2999-W01")
    assert campaign.due == WEEKS[:2]
    results = campaign.run(visits(), until=date(2020, 10, 5))
    assert list(results) == ["2020-W40"]
    assert list(fedhist.Campaign(tmp_path / "campaign").run(visits())) == ["2020-W41"]
    assert campaign.due == ()
    assert list(campaign.releases) == list(WEEKS[:2])
    frame = campaign.to_frame()
    assert frame["window"].to_list() == ["2020-W40"] * 3 + ["2020-W41"] * 3
    assert frame["value"].to_list()[:3] == pytest.approx(results["2020-W40"].release.histogram.tolist())
    assert 0 < campaign.spent.epsilon < campaign.total.epsilon == 4
    assert campaign.left.epsilon == pytest.approx(4 - campaign.spent.epsilon)
    assert campaign.page.exists()
    assert "2 of 3 windows" in repr(campaign)
    assert "2999-W01" in campaign._repr_html_()
    (tmp_path / "people.ledger").unlink()
    assert "can't be read" in repr(campaign)


def test_a_mistake_is_said_in_the_words_of_python_and_leaves_nothing(tmp_path: Path) -> None:
    with refused(InvalidInput, "total-delta-alone", "total_delta", "total_epsilon"):
        made_in(tmp_path, total_epsilon=None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilom'"):
        made_in(tmp_path, epsilom=1)
    with refused(InvalidInput, "fields-of-the-campaign"):
        made_in(tmp_path, delta=1e-6)
    assert list(tmp_path.iterdir()) == []
    campaign = made_in(tmp_path)
    for data in (None, "synthetic:poisson"):
        with refused(InvalidInput, "no-times"):
            campaign.run(data)


def test_bins_are_a_closed_domain(tmp_path: Path) -> None:
    table = visits().with_columns(hour=visits()["user"].str.len_chars())
    campaign = made_in(tmp_path, items=None, bins=[0, 3, 12], item="hour", windows="2020-W40")
    (result,) = campaign.run(table).values()
    assert len(result.release.histogram) == 2


def test_items_may_be_whole_numbers(tmp_path: Path) -> None:
    table = visits().with_columns(item=visits()["item"].str.len_chars().cast(int))
    campaign = made_in(tmp_path, items=None, total_epsilon=60, total_delta=1e-3, windows="2020-W40x2")
    campaign.run(table)
    frame = campaign.to_frame()
    assert set(frame["item"].to_list()) == {"6", "7"}
    known = (tmp_path / "campaign" / "2020-W41" / "plan.json").read_text()
    assert '"known_items": "6"' in known


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"items": ["a", "a"]}, ("repeated-item",)),
        ({"items": ["a", ""]}, ("bad-item",)),
        ({"items": ["a\nb"]}, ("bad-item",)),
        ({"items": ["\ud800"]}, ("bad-item",)),
        ({"items": ["a"], "bins": [1, 2]}, ("bins-with-other-items",)),
        ({"items": None, "bins": ["one", "two"]}, ("edge-not-a-number",)),
        ({"spare": 1.5}, ("bad-value", "1.5", "spare")),
        ({"delay": "3"}, ("bad-value", "3", "delay")),
        ({"total_epsilon": "3"}, ("bad-value", "total_epsilon", "3")),
        ({"windows": 2020}, ("not-a-calendar", "2020")),
        ({"normalise": "upper"}, ("bad-value", "normalise")),
    ],
)
def test_what_is_no_campaign_is_refused_and_leaves_nothing(
    tmp_path: Path, wrong: dict[str, Any], told: tuple[str, ...]
) -> None:
    with refused(InvalidInput, *told):
        made_in(tmp_path, **wrong)
    assert list(tmp_path.iterdir()) == []
