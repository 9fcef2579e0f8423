"""Signed mode: a server that shows devices different rosters, and different lists of survivors in one session."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedhist import InvalidInput
from tests.lying_server import (
    THIRTY,
    Face,
    LyingServer,
    dealt,
    fewer_than_promised,
    more_corrupt_than_expected,
    random_lies,
    two_lists,
)
from tests.support.api import _parameters
from tests.support.api import masking_client_module as masking_client

ATTACKS = {"two-lists": two_lists, "fewer-than-promised": fewer_than_promised}


def all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """What devices were before: their keys did not depend on the roster."""
    monkeypatch.setattr(masking_client, "roster_digest", lambda bodies: bytes(32))


class TestIfKeysDidNotDependOnTheRoster:
    def test_two_lists_of_survivors_are_opened_in_one_session(self, monkeypatch: pytest.MonkeyPatch) -> None:
        all_alike(monkeypatch)
        server = two_lists()
        assert [len(signatures) for signatures in server.signed.values()] == [15, 15]
        assert len(server.opened) == 18
        # The six in both lists used masks with all others, so there is one sum, and it is over all.
        assert [len(part) for part in server.learned] == [24]

    def test_a_sum_of_fewer_honest_devices_than_the_terms_promise_is_unmasked(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        all_alike(monkeypatch)
        server = fewer_than_promised()
        assert [len(part) for part in server.learned] == [14]
        for part, values in server.learned.items():
            assert np.array_equal(values, server.total(part))


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_devices_that_were_shown_different_rosters_are_strangers(attack: Callable[[], LyingServer]) -> None:
    server = attack()
    assert server.opened == set()
    assert server.learned == {}


def test_one_roster_has_one_sum() -> None:
    """The same server where it does not lie: what it learns is the sum over the honest survivors, and no part of it."""
    honest, vanished, corrupt = dealt(21, 3, 6)
    everybody = honest | vanished | corrupt
    alive = Face(everybody, everybody, honest | corrupt)
    server = LyingServer(
        THIRTY, dict.fromkeys(honest, alive) | dict.fromkeys(vanished, Face(everybody)), corrupt
    )
    assert list(server.learned) == [honest]
    assert np.array_equal(server.learned[honest], server.total(honest))


def test_whatever_it_shows_it_learns_whole_lists_only() -> None:
    learned = 0
    for seed in range(40):
        server = random_lies(seed)
        learned += len(server.learned)
        assert server.stolen == {}
        for part, values in server.learned.items():
            assert np.array_equal(values, server.total(part))
    assert learned > 10


def test_one_corrupt_device_more_than_the_terms_allow_for_unmasks_a_device() -> None:
    """Why a device counts the corrupt ones of its whole directory: the server may ask all of them."""
    server = more_corrupt_than_expected()
    (target,) = server.stolen
    assert len(target) == 1
    assert np.array_equal(server.learned[target], server.total(target))


class TestParameters:
    """What the proof takes for granted, for all that a graph is made for."""

    def test_no_roster_comes_to_two_lists(self) -> None:
        made = 0
        for devices in range(3, 513):
            for corrupt in range(0, devices // 2 + 1, 1 + devices // 40):
                try:
                    links = _parameters(devices, corrupt, 0, True)
                except InvalidInput:
                    continue
                made += 1
                # Among the honest ones two lists would need this many, each of which signs once.
                assert corrupt < links.threshold
                assert 2 * (links.threshold - corrupt) > devices - corrupt
        assert made > 9_000

    def test_no_two_rosters_come_to_a_sum_where_the_terms_are_a_plans(self) -> None:
        made = 0
        for devices in range(3, 81):
            for corrupt in range(devices // 2):
                for silent in range(devices // 2):
                    try:
                        _parameters(devices, corrupt, silent, True)
                    except InvalidInput:
                        continue
                    made += 1
                    assert 2 * (devices - silent - corrupt) > devices - corrupt
        assert made > 10_000
