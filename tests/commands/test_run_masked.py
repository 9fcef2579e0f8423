"""`fedhist run --masking`: what it prints of the masks, and of participants that drop out."""

from __future__ import annotations

from tests.builders import Fedhist, page_in

MASKED = ("run", "--users", 500, "--items", 5, "--seed", 1, "--masking", "secagg")


def test_it_prints_what_masking_takes(fedhist: Fedhist) -> None:
    done = fedhist(*MASKED)
    assert done.code == 0, done.err
    assert "100 participants, each linked to 16, 6 shares open a secret, at least 90 must stay" in done.out
    assert fedhist(*MASKED, "--nodes", 10, "--json").document()["masking"] == {
        "participants": 10,
        "neighbours": 9,
        "share_threshold": 5,
        "minimum_survivors": 9,
        "noise_shares": 0,
    }


def test_the_summary_says_how_many_users_are_left(fedhist: Fedhist) -> None:
    done = fedhist(*MASKED, "--nodes", 20, "--dropout", 0.1, "--out", "r")
    assert done.code == 0
    assert "select 450 · release 450 of 500 users" in done.out
    assert "round release: 450 of the plan's 500 users answered; the histogram is of those" in done.out
    assert "counted over 450 of 500 users" in page_in("r").text
