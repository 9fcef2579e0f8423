"""How many neighbours, and who: against known values, high precision, and brute force."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import mpmath
import numpy as np
import pytest

from fedhist import InvalidInput
from tests.support.api import (
    GraphParameters,
    MaskingTerms,
    Positions,
    all_neighbours,
    parameters_for,
    ring_of,
    share_of,
)
from tests.support.refusals import refused

KNOWN = {100: (16, 6), 1_000: (36, 19), 10_000: (42, 22), 100_000: (46, 23), 1_000_000: (50, 25)}


def terms(corrupt: float = 0.05, dropout: float = 0.10, *, signed: bool = False) -> MaskingTerms:
    return MaskingTerms(bytes(32), 1, 32, corrupt_share=corrupt, dropout_share=dropout, signed=signed)


def pair(devices: int, *shares: float, signed: bool = False) -> tuple[int, int]:
    found = parameters_for(devices, terms(*shares, signed=signed))
    return found.neighbours, found.threshold


def at_least(count: int, *, marked: int, others: int, drawn: int) -> mpmath.mpf:
    """P[a draw without replacement holds `count` or more marked ones]."""
    ways = mpmath.binomial(others, drawn)
    hits = range(count, min(marked, drawn) + 1)
    return mpmath.fsum(
        mpmath.binomial(marked, hit) * mpmath.binomial(others - marked, drawn - hit) / ways for hit in hits
    )


def failures(n: int, k: int, t: int, corrupt: int, silent: int) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """The probabilities of the three conditions, in the form of the docstring."""
    removed = corrupt + silent
    shares = n * at_least(t, marked=corrupt, others=n - 1, drawn=k)
    apart = mpmath.mpf(n) * (n - k + 1) / 2
    for i in range(k):
        apart *= mpmath.mpf(max(removed - i, 0)) / (n - i)
    return shares, apart, n * at_least(k - t + 1, marked=silent, others=n - 1, drawn=k)


class TestParameters:
    @pytest.mark.parametrize("shares", [(0.05, 0.10), (0.01, 0.30), (0.20, 0.05)])
    @pytest.mark.parametrize("devices", [100, 317, 1_000])
    def test_in_high_precision_they_hold_and_nothing_smaller_does(
        self, devices: int, shares: tuple[float, float]
    ) -> None:
        corrupt, silent = (share_of(devices, share) for share in shares)
        k, t = pair(devices, *shares)
        limits = (mpmath.mpf(2) ** -41, mpmath.mpf(2) ** -41, mpmath.mpf(2) ** -20)

        def holds(k: int, t: int) -> bool:
            found = failures(devices, k, t, corrupt, silent)
            return all(one < limit for one, limit in zip(found, limits, strict=True))

        with mpmath.workdps(60):
            assert holds(k, t)
            assert not any(holds(k, lower) for lower in range(-(-k // 3), t))
            # Two neighbours fewer would not do, whatever the threshold.
            assert not any(holds(k - 2, other) for other in range(-(-(k - 2) // 3), k - 1))

    @pytest.mark.parametrize(
        ("asked", "devices", "corrupt", "dropout"),
        [(1_000, 900, 0.05, 0.10), (1_000, 800, 0.1, 0.2), (1_000, 700, 0.2, 0.3), (5_000, 4_200, 0.1, 0.2)],
    )
    def test_all_corrupt_devices_may_be_among_those_who_advertise(
        self, asked: int, devices: int, corrupt: float, dropout: float
    ) -> None:
        found = parameters_for(devices, replace(terms(corrupt, dropout), participants=asked))
        bad = share_of(asked, corrupt)
        silent = share_of(asked, dropout) - (asked - devices)
        with mpmath.workdps(60):
            shares, apart, lost = failures(devices, found.neighbours, found.threshold, bad, silent)
            assert max(shares, apart) < mpmath.mpf(2) ** -41
            assert lost < mpmath.mpf(2) ** -20

    @pytest.mark.parametrize(("corrupt", "dropout"), [(0.05, 0.10), (0.2, 0.2), (0.3, 0.3)])
    @pytest.mark.parametrize("asked", [30, 60, 240, 512])
    def test_no_two_sets_of_survivors_can_be_confirmed_at_any_drop_out(
        self, asked: int, corrupt: float, dropout: float
    ) -> None:
        """t honest-or-corrupt devices confirm each of two sets: 2 (t - c) honest ones are more than there are."""
        settings = replace(terms(corrupt, dropout, signed=True), participants=asked)
        bad = share_of(asked, corrupt)
        for devices in range(asked - share_of(asked, dropout), asked + 1):
            found = parameters_for(devices, settings)
            assert found.complete
            assert 2 * (found.threshold - bad) > devices - bad
            # Those who may still stay can rebuild every secret.
            assert found.threshold <= asked - share_of(asked, dropout) - 1

    def test_nobody_who_was_not_asked_takes_part(self) -> None:
        settings = replace(terms(), participants=120)
        assert parameters_for(120, settings) == parameters_for(120, terms())
        with refused(InvalidInput, "too-many-devices", "121", "120"):
            parameters_for(121, settings)

    @pytest.mark.parametrize("devices", KNOWN)
    def test_the_known_values(self, devices: int) -> None:
        k, t = pair(devices)
        assert (k, t) == KNOWN[devices]
        corrupt, silent = share_of(devices, 0.05), share_of(devices, 0.10)
        with mpmath.workdps(60):
            shares, apart, lost = failures(devices, k, t, corrupt, silent)
            assert max(shares, apart) < mpmath.mpf(2) ** -41
            assert lost < mpmath.mpf(2) ** -20
            assert failures(devices, k, t - 1, corrupt, silent)[0] > mpmath.mpf(2) ** -41

    @pytest.mark.parametrize(("devices", "threshold"), [(3, 2), (4, 2), (10, 5), (50, 25), (99, 50)])
    def test_small_cohorts_are_complete_with_a_majority(self, devices: int, threshold: int) -> None:
        assert pair(devices) == (devices - 1, threshold)

    @pytest.mark.parametrize(
        ("devices", "shares", "signed", "refusal"),
        [
            (0, (), False, ("bad-number-of-devices",)),
            (2, (), False, ("bad-number-of-devices",)),
            (1 << 25, (), False, ("bad-number-of-devices",)),
            (513, (), True, ("bad-number-of-devices", "513", "512")),
            (10, (0.4, 0.49), True, ("too-few-shares",)),
            (5_000, (0.45, 0.45), False, ("no-safe-graph",)),
        ],
    )
    def test_what_has_no_graph(
        self, devices: int, shares: tuple[float, ...], signed: bool, refusal: tuple[str, ...]
    ) -> None:
        with refused(InvalidInput, *refusal):
            pair(devices, *shares, signed=signed)

    def test_no_share_is_a_whole_secret_even_when_nobody_is_corrupt(self) -> None:
        k, t = pair(1_000, 0.0, 0.10)
        assert t >= k / 3 > 1

    def test_shares_of_devices_are_read_as_decimals(self) -> None:
        """0.07 * 100 is 7.000000000000001 in floating point and 0.29 * 100 is 28.999999999999996."""
        assert [share_of(100, share) for share in (0.07, 0.29, 0.05, 0.0)] == [7, 29, 5, 0]


def test_the_table_in_the_documentation_is_this_one() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "masking-parameters.md").read_text(
        encoding="utf-8"
    )
    heading = re.search(r"^\| n \| (.*) \|$", page, re.MULTILINE)
    assert heading
    columns = [tuple(map(float, re.findall(r"0\.\d+", cell))) for cell in heading[1].split("|")]
    rows = re.findall(r"^\| ([\d,]+) \| (\d+/\d+.*) \|$", page, re.MULTILINE)
    assert len(rows) == 7
    for devices, cells in rows:
        shown = [tuple(map(int, cell.split("/"))) for cell in cells.split("|")]
        assert shown == [pair(int(devices.replace(",", "")), *shares) for shares in columns]


class TestGraph:
    def graph(self, devices: int, neighbours: int, salt: bytes = b"s" * 32) -> Positions:
        return all_neighbours(GraphParameters(devices, neighbours, 1), ring_of(devices, salt))

    @pytest.mark.parametrize(
        ("devices", "neighbours"), [(100, 16), (101, 16), (7, 2), (9, 8), (8, 7), (1000, 36)]
    )
    def test_it_is_regular_symmetric_and_without_loops(self, devices: int, neighbours: int) -> None:
        rows = self.graph(devices, neighbours)
        assert rows.shape == (devices, neighbours)
        linked = np.zeros((devices, devices), dtype=bool)
        linked[np.arange(devices)[:, None], rows] = True
        assert (linked.sum(axis=1) == neighbours).all()
        assert (linked == linked.T).all()
        assert not linked.diagonal().any()
        assert (np.diff(rows, axis=1) > 0).all()

    def test_the_salt_decides(self) -> None:
        one, two = (self.graph(100, 16, salt) for salt in (b"a" * 32, b"b" * 32))
        assert np.array_equal(one, self.graph(100, 16, b"a" * 32))
        assert not np.array_equal(one, two)

    def test_every_pair_is_linked_equally_often(self) -> None:
        """Over 2,000 salts each of the 10 pairs of 5 devices in a ring is an edge half of the time."""
        counts = np.zeros((5, 5))
        for salt in range(2_000):
            rows = self.graph(5, 2, salt.to_bytes(32, "little"))
            counts[np.arange(5)[:, None], rows] += 1
        pairs = counts[np.triu_indices(5, 1)]
        assert abs(pairs - 1_000).max() < 5 * np.sqrt(500)

    def test_it_falls_apart_only_where_two_runs_are_removed(self) -> None:
        """The lemma behind the second condition, for every set of removed devices of a small ring."""
        devices, neighbours = 10, 4
        rows, ring = self.graph(devices, neighbours), ring_of(devices, b"s" * 32).tolist()
        apart = 0
        for removed in all_subsets(devices, at_most=6):
            gone = [place in removed for place in range(devices)]
            runs = sum(
                all(gone[(place + i) % devices] for i in range(2)) and not gone[place - 1]
                for place in range(devices)
            )
            alive = {ring[place] for place in range(devices)} - {ring[place] for place in removed}
            if not connected(alive, rows):
                apart += 1
                assert runs >= 2
        assert apart > 0


def all_subsets(devices: int, *, at_most: int) -> Iterator[tuple[int, ...]]:
    for count in range(at_most + 1):
        yield from combinations(range(devices), count)


def connected(alive: set[int], rows: np.ndarray) -> bool:
    reached, edge = set(), [min(alive)]
    while edge:
        device = edge.pop()
        if device not in reached:
            reached.add(device)
            edge += [peer for peer in rows[device].tolist() if peer in alive]
    return reached == alive
