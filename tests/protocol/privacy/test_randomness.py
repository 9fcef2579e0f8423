from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhist import SeededSource, SystemSource
from tests.support.api import SECRET_BYTES, KeyedSource, Source, new_secret


def test_the_words_of_a_seed_never_change() -> None:
    # Simulations are cited by their seed: another version must give the same words.
    assert [hex(word) for word in SeededSource(1).words(4)] == [
        "0xe559b198c8d86f27",
        "0x24e125283714e3c",
        "0xac627724ccd0a707",
        "0xe6c231e344c9ed12",
    ]
    assert [hex(word) for word in SeededSource(1).fork("noise", 2).words(2)] == [
        "0x178fa78603484160",
        "0x93e412fc9dee0505",
    ]
    assert [hex(word) for word in SeededSource(1).user_words(np.array([0, 1, 10**6]))] == [
        "0x9bac60420df83174",
        "0xbf0f1d09b156a575",
        "0xeefb7b1d55ae11de",
    ]


@given(st.lists(st.integers(0, 9000), max_size=6))
def test_asking_in_pieces_gives_the_words_of_asking_at_once(pieces: list[int]) -> None:
    source = SeededSource(5)
    taken = [source.words(count) for count in pieces]
    assert [len(words) for words in taken] == pieces
    np.testing.assert_array_equal(
        np.concatenate([np.empty(0, dtype=np.uint64), *taken]), SeededSource(5).words(sum(pieces))
    )


@pytest.mark.parametrize("source", [SeededSource(3), SystemSource()])
def test_words_are_uniform_and_do_not_repeat(source: Source) -> None:
    words = source.words(40_000)
    assert words.dtype == np.uint64
    assert len(np.unique(words)) == len(words)
    ones = np.unpackbits(words.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    # 64 shares of 40,000 fair bits: 7 standard deviations are beyond one run in 10^9.
    assert np.abs(ones - 0.5).max() < 7 * 0.5 / np.sqrt(40_000)
    assert source.words(0).shape == (0,)


def test_only_a_seeded_source_says_so() -> None:
    keyed = KeyedSource(bytes(32), purpose="a request")
    for source, seeded in ((SeededSource(1), True), (SystemSource(), False), (keyed, False)):
        assert source.seeded == source.fork("noise").seeded == seeded


def test_a_fork_depends_on_seed_and_purpose_alone_and_does_not_advance_the_stream() -> None:
    source = SeededSource(1)
    before = source.fork("noise", 2).words(100)
    source.user_words(np.arange(100))
    np.testing.assert_array_equal(source.words(1000), SeededSource(1).words(1000))
    source.fork("rounding").words(10)
    np.testing.assert_array_equal(source.fork("noise", 2).words(100), before)
    np.testing.assert_array_equal(source.fork("noise").fork(np.int64(2)).words(100), before)
    np.testing.assert_array_equal(SeededSource(np.int64(1)).words(9), SeededSource(1).words(9))


def test_streams_of_different_purposes_and_seeds_are_unrelated() -> None:
    root = SeededSource(1)
    streams = [
        root,
        SeededSource(2),
        SeededSource(-1),
        root.fork("noise"),
        root.fork("noise", 1),
        root.fork("noise", "1"),
        root.fork("noise1"),
        root.fork("noise", 1, 1),
        root.fork("noise", 11),
        SeededSource(2).fork("noise"),
    ]
    words = [stream.words(2000) for stream in streams]
    for i, one in enumerate(words):
        for other in words[:i]:
            # 128,000 bits of independent streams agree in half of their places, within 6 standard deviations.
            differing = int(np.unpackbits((one ^ other).view(np.uint8)).sum())
            assert abs(differing - 64_000) < 6 * np.sqrt(128_000) / 2


def test_a_users_word_does_not_depend_on_the_shards() -> None:
    users = np.arange(1000)
    whole = SeededSource(9).user_words(users)
    source = SeededSource(9)
    source.words(17)
    shards = [source.user_words(shard) for shard in np.array_split(users, [1, 100, 101, 640])]
    np.testing.assert_array_equal(np.concatenate(shards), whole)
    np.testing.assert_array_equal(source.user_words(users[::-1]), whole[::-1])
    assert len(np.unique(whole)) == len(users)


def test_users_words_change_with_the_purpose_and_differ_from_the_stream() -> None:
    source = SeededSource(9)
    users = np.arange(1000)
    first, second = (source.fork("rounding", turn).user_words(users) for turn in (1, 2))
    own_name = source.fork("rounding", 1).fork("by-user")
    assert not np.isin(first, second).any()
    for stream in (source.fork("rounding", 1), own_name):
        assert not np.isin(first, stream.words(2000)).any()


def test_the_systems_words_for_users_are_fresh() -> None:
    users = np.arange(100)
    assert not np.isin(SystemSource().user_words(users), SystemSource().user_words(users)).any()


def test_no_seed_key_or_secret_is_printed() -> None:
    seed = 8_675_309_424_242
    source = SeededSource(seed).fork("noise", 3)
    for secret in (str(seed), hex(seed)[2:], source._key.hex(), repr(source._key)):
        assert secret not in repr(source)
    assert repr(KeyedSource(bytes(range(32)), purpose="a request").fork("x")) == "KeyedSource()"


def test_each_draw_of_a_user_is_another_word_and_draw_zero_is_the_default() -> None:
    source = SeededSource(1)
    users = np.array([5, 5, 5, 6])
    words = source.user_words(users, np.array([0, 1, 2, 1]))
    assert len(set(words.tolist())) == 4
    assert words[0] == source.user_words(np.array([5]))[0]


class TestKeyed:
    SECRET = bytes(range(32))

    def keyed(self, purpose: str = "a request", secret: bytes = SECRET) -> KeyedSource:
        return KeyedSource(secret, purpose=purpose)

    def test_the_same_secret_and_purpose_draw_the_same(self) -> None:
        users = np.arange(50)
        for fork in ((), ("device", "release")):
            one, other = self.keyed().fork(*fork), self.keyed().fork(*fork)
            assert one.words(9).tolist() == other.words(9).tolist()
            assert one.user_words(users, 3).tolist() == other.user_words(users, 3).tolist()

    def test_any_other_draws_something_else(self) -> None:
        sources = [self.keyed(), self.keyed("another"), self.keyed(secret=bytes(32)), self.keyed().fork("x")]
        assert len({source.words(2).tobytes() for source in sources}) == 4
        assert len({source.user_words(np.arange(2)).tobytes() for source in sources}) == 4

    def test_a_new_secret_is_new(self) -> None:
        secrets = {new_secret() for _ in range(20)}
        assert len(secrets) == 20 and {len(secret) for secret in secrets} == {SECRET_BYTES}
