"""The order of released items is a public thing: their bytes, or what was released of them."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import fedhist
from fedhist import Result

MODES: dict[str, dict[str, Any]] = {
    "above a bar": {"domain": "open", "release": "truncated-laplace"},
    "discovered": {"domain": "open"},
    "masked": {"domain": "open", "masking": "secagg", "nodes": 10},
}


def released(more: str, **settings: Any) -> Result:
    """Of two items that 200 users have, and one user more has one of them."""
    rows = [(f"u{user:03}", item) for user in range(200) for item in ("b", "a")] + [("v", more)]
    frame = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    return fedhist.histogram(frame, seed=1, epsilon=9.0, max_threshold=8.0, **settings)


@pytest.mark.parametrize("mode", MODES)
def test_one_user_more_on_either_side_of_two_equal_items_swaps_nothing(mode: str) -> None:
    one, other = (released(item, **MODES[mode]) for item in ("a", "b"))
    assert list(one.release.names) == list(other.release.names) == ["a", "b"]
    assert one.release.keys is other.release.keys is None
    shown, told = (result.to_json() for result in (one, other))
    for noised in ("threshold", "standard_error", "notes", "significant_items", "seconds"):
        shown.pop(noised), told.pop(noised)
    assert shown == told


def test_an_evaluation_has_the_numbers_that_the_population_gave_by_exact_counts() -> None:
    one, other = (released(item, **MODES["above a bar"], evaluate=True) for item in ("a", "b"))
    assert one.release.keys is not None and other.release.keys is not None
    assert one.release.keys.tolist() != other.release.keys.tolist()
    assert not one.release.private
