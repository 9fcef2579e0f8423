"""Secret sharing over 2^256 + 297, alone and against the package `shamirs`."""

from __future__ import annotations

from itertools import combinations

import pytest
import shamirs
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import InvalidInput, SeededSource
from tests.support.api import (
    PRIME,
    SHARE_BYTES,
    DecodeError,
    check_share,
    correct,
    decoded,
    lagrange_at_zero,
    reconstruct,
    searched,
)
from tests.support.api import split_secret as split

SECRETS = st.binary(min_size=32, max_size=32)


def test_the_modulus_is_the_first_prime_above_the_secrets() -> None:
    def probably_prime(number: int) -> bool:
        return all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7, 11, 13))

    assert [offset for offset in range(1, 298) if probably_prime((1 << 256) + offset)] == [297]
    assert PRIME - (1 << 256) == 297


@given(SECRETS, st.data())
@settings(max_examples=30)
def test_any_threshold_shares_give_the_secret(secret: bytes, data: st.DataObject) -> None:
    holders = data.draw(st.integers(1, 40))
    threshold = data.draw(st.integers(1, holders))
    shares = split(secret, threshold, holders, source=SeededSource(1))
    points = data.draw(st.permutations(range(1, holders + 1)))[:threshold]
    assert reconstruct(points, [shares[point - 1] for point in points]) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32], ids=["zero", "largest"])
def test_extreme_secrets(secret: bytes) -> None:
    shares = split(secret, 3, 5, source=SeededSource(2))
    for points in combinations(range(1, 6), 3):
        assert reconstruct(points, [shares[point - 1] for point in points]) == secret


def test_one_share_less_fits_every_secret() -> None:
    """With t - 1 shares fixed, each secret belongs to exactly one value of another share: nothing is known."""
    shares = split(b"s" * 32, 3, 5, source=SeededSource(3))
    weights = lagrange_at_zero((1, 2, 3))
    known = sum(
        weight * int.from_bytes(share, "little") for weight, share in zip(weights, shares[:2], strict=False)
    )
    for guess in (bytes(32), b"\xff" * 32, b"t" * 32):
        third = (int.from_bytes(guess, "little") - known) * pow(weights[2], -1, PRIME) % PRIME
        assert reconstruct([1, 2, 3], [*shares[:2], third.to_bytes(SHARE_BYTES, "little")]) == guess


@given(SECRETS)
@settings(max_examples=20)
def test_shamirs_rebuilds_our_shares(secret: bytes) -> None:
    shares = split(secret, 4, 9, source=SeededSource(5))
    theirs = [
        shamirs.share(point, int.from_bytes(shares[point - 1], "little"), PRIME) for point in (2, 9, 4, 7)
    ]
    assert shamirs.interpolate(theirs) == int.from_bytes(secret, "little")


@given(SECRETS)
@settings(max_examples=20)
def test_we_rebuild_the_shares_of_shamirs(secret: bytes) -> None:
    theirs = shamirs.shares(int.from_bytes(secret, "little"), quantity=9, modulus=PRIME, threshold=4)
    chosen = theirs[2:6]
    points = [share.index for share in chosen]
    assert reconstruct(points, [int(share).to_bytes(SHARE_BYTES, "little") for share in chosen]) == secret


@pytest.mark.parametrize("points", [(0, 1), (1, 1), (1, PRIME), (1, PRIME + 1), (-1, 2)])
def test_points_are_distinct_and_never_zero(points: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput):
        lagrange_at_zero(points)


@pytest.mark.parametrize(
    ("length", "threshold", "holders"),
    [(32, 0, 3), (32, 4, 3), (32, -1, 3), (0, 1, 1), (31, 1, 1), (33, 1, 1)],
)
def test_impossible_thresholds_and_secrets_without_32_bytes(
    length: int, threshold: int, holders: int
) -> None:
    with pytest.raises(InvalidInput):
        split(bytes(length), threshold, holders, source=SeededSource(1))


@pytest.mark.parametrize(
    "share", [b"", bytes(32), bytes(34), PRIME.to_bytes(33, "little"), b"\xff" * 33], ids=len
)
def test_what_is_no_share(share: bytes) -> None:
    with pytest.raises(DecodeError):
        check_share(share)
    check_share((PRIME - 1).to_bytes(33, "little"))


class TestRebuilding:
    """Of ten shares six are needed."""

    SECRET = b"r" * 32
    RIGHT = SECRET.__eq__
    SHARES = tuple(enumerate(split(SECRET, 6, 10, source=SeededSource(6)), start=1))

    def with_lies(self, liars: tuple[int, ...]) -> list[tuple[int, bytes]]:
        return [(point, bytes(33) if point in liars else share) for point, share in self.SHARES]

    @pytest.mark.parametrize("count", [0, 1, 2, 4])
    def test_as_long_as_enough_are_honest(self, count: int) -> None:
        for liars in list(combinations(range(1, 11), count))[::7]:
            assert searched(self.with_lies(liars), 6, self.RIGHT) == self.SECRET

    def test_not_with_one_honest_share_too_few(self) -> None:
        assert searched(self.with_lies((1, 2, 3, 4, 5)), 6, self.RIGHT) is None
        assert searched(self.with_lies(())[:5], 6, self.RIGHT) is None
        assert decoded(self.with_lies((1, 2, 3, 4, 5)), 6, self.RIGHT) is None

    def test_decoding_finds_two_liars_of_ten_and_more_if_they_are_doubted(self) -> None:
        for liars in combinations(range(1, 11), 2):
            found = decoded(self.with_lies(liars), 6, self.RIGHT)
            # When the first six are right, nobody looks at the others.
            assert found in ((self.SECRET, frozenset(liars)), (self.SECRET, frozenset()))
        lies = self.with_lies((1, 9, 10))
        assert decoded(lies, 6, self.RIGHT) is None
        assert decoded(lies, 6, self.RIGHT, doubted=2) == (self.SECRET, frozenset({1}))


@settings(max_examples=60, deadline=None)
@given(st.data(), SECRETS | st.just(bytes(32)), st.integers(1, 12), st.integers(0, 14))
def test_wrong_shares_up_to_half_of_the_spare_ones_are_corrected(
    data: st.DataObject, secret: bytes, threshold: int, spare: int
) -> None:
    holders = threshold + spare
    shares = split(secret, threshold, holders, source=SeededSource(holders))
    wrong = data.draw(st.sets(st.integers(1, holders), max_size=spare // 2))
    values = st.integers(0, PRIME - 1)
    received = [
        data.draw(values.filter(lambda value, right=right: value != int.from_bytes(right, "little")))
        if point in wrong
        else int.from_bytes(right, "little")
        for point, right in enumerate(shares, start=1)
    ]
    order = data.draw(st.permutations(range(holders)))
    found = correct(
        [place + 1 for place in order],
        [received[place].to_bytes(SHARE_BYTES, "little") for place in order],
        threshold,
    )
    assert found == (secret, wrong)
