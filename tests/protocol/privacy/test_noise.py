from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedhist import InvalidInput, SeededSource, SystemSource
from tests.support.api import (
    LARGEST_GAUSSIAN_VARIANCE,
    LARGEST_LAPLACE_SCALE,
    Words,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    gaussian_variance,
    laplace_scale,
    uniform_below,
)
from tests.support.api import noise_module as noise
from tests.support.refusals import refused

SAMPLERS = {
    "laplace": (discrete_laplace, laplace_scale, LARGEST_LAPLACE_SCALE),
    "gaussian": (discrete_gaussian, gaussian_variance, LARGEST_GAUSSIAN_VARIANCE),
}
positive = st.fractions(min_value=Fraction(1, 10**9), max_value=10**15)
NO_WIDTHS = [Fraction(0), Fraction(-3), Fraction(-(10**400))]
each_sampler = pytest.mark.parametrize("kind", SAMPLERS)


class Script(SeededSource):
    """Gives the words of a list, one after the other, and no more."""

    def __init__(self, *words: int) -> None:
        super().__init__(0)
        self._left = list(words)

    def words(self, count: int) -> Words:
        assert count <= len(self._left), "more words than expected"
        taken, self._left = self._left[:count], self._left[count:]
        return np.array(taken, dtype=np.uint64)

    def used_up(self) -> bool:
        return not self._left


class OneByOne(SeededSource):
    """A seeded source that fetches each word on its own."""

    def words(self, count: int) -> Words:
        return np.concatenate(
            [np.empty(0, dtype=np.uint64), *(super(OneByOne, self).words(1) for _ in range(count))]
        )


@each_sampler
@given(wanted=positive, other=positive)
def test_a_width_is_rounded_up_by_almost_nothing_and_keeps_its_order(
    kind: str, wanted: Fraction, other: Fraction
) -> None:
    _, rounding, _ = SAMPLERS[kind]
    relative, least = (40, 62) if kind == "laplace" else (26, 27)
    width = rounding(wanted)
    assert wanted <= width <= wanted + max(wanted / 2**relative, Fraction(1, 2**least))
    assert rounding(width) == Fraction(float(width)) == width
    assert width <= rounding(other) or wanted > other


@each_sampler
@pytest.mark.parametrize("value", [Fraction(1), Fraction(2), Fraction(3, 2), Fraction(8), Fraction(2**30)])
def test_short_dyadic_values_are_kept_as_they_are(kind: str, value: Fraction) -> None:
    _, rounding, largest = SAMPLERS[kind]
    assert rounding(value) == value
    assert rounding(largest) == largest


@each_sampler
def test_noise_too_wide_or_of_no_width_and_fewer_draws_than_none_are_refused(kind: str) -> None:
    sampler, rounding, largest = SAMPLERS[kind]
    source, too_wide = SeededSource(1), ("noise-too-wide", str(int(largest)))
    for attempt, refusal in (
        (lambda: rounding(largest + Fraction(1, 3)), too_wide),
        (lambda: rounding(Fraction(10**400)), too_wide),
        (lambda: sampler(1, 2 * largest, source=source), too_wide),
        *((partial(rounding, value), ("no-noise",)) for value in NO_WIDTHS),
        *((partial(sampler, 1, value, source=source), ("no-noise",)) for value in NO_WIDTHS),
        (lambda: sampler(-1, Fraction(1), source=source), ("bad-number-of-draws",)),
    ):
        with refused(InvalidInput, *refusal):
            attempt()


@each_sampler
@given(wanted=positive)
def test_nobody_silently_gets_another_width(kind: str, wanted: Fraction) -> None:
    sampler, rounding, _ = SAMPLERS[kind]
    assume(rounding(wanted) != wanted)
    with refused(InvalidInput, "not-representable", rounding.__name__):
        sampler(1, wanted, source=SeededSource(1))
    assert len(sampler(1, rounding(wanted), source=SeededSource(1))) == 1


@each_sampler
@pytest.mark.parametrize("size", [0, 1, 2, 63, 64, 65, 40_000])
@pytest.mark.parametrize("source", [SeededSource(1), SystemSource()])
def test_draws_are_as_many_integers_as_asked(
    kind: str, size: int, source: SeededSource | SystemSource
) -> None:
    sampler, _, _ = SAMPLERS[kind]
    draws = sampler(size, Fraction(4), source=source)
    assert draws.shape == (size,)
    assert draws.dtype == np.int64
    draws += 1  # the caller owns them


@each_sampler
def test_a_tiny_width_draws_zeros(kind: str) -> None:
    sampler, rounding, _ = SAMPLERS[kind]
    for tiny in (Fraction(1, 10**400), Fraction(1, 2**20)):
        assert not sampler(1000, rounding(tiny), source=SeededSource(1)).any()


def test_the_draws_of_a_seed_never_change() -> None:
    # Simulations are cited by their seed: another version must give the same noise.
    assert discrete_laplace(12, Fraction(5), source=SeededSource(1)).tolist() == [
        -3, 9, -14, 10, -7, -1, -3, -1, 2, -7, 9, -1,
    ]  # fmt: skip
    assert discrete_gaussian(12, Fraction(25), source=SeededSource(1)).tolist() == [
        3, 5, -5, 7, -7, 9, 0, -5, 3, -1, 0, 2,
    ]  # fmt: skip
    wide = discrete_laplace(12, laplace_scale(Fraction(1_000_003, 7)), source=SeededSource(1))
    assert wide[:4].tolist() == [-1286, -96199, 271632, -411599]


@each_sampler
@pytest.mark.parametrize("value", [Fraction(1, 2), Fraction(3), Fraction(10**6)])
def test_draws_do_not_depend_on_how_the_source_fetches_its_words(kind: str, value: Fraction) -> None:
    sampler, rounding, _ = SAMPLERS[kind]
    width = rounding(value)
    at_once = sampler(500, width, source=SeededSource(4))
    np.testing.assert_array_equal(sampler(500, width, source=SeededSource(4)), at_once)
    np.testing.assert_array_equal(sampler(500, width, source=OneByOne(4)), at_once)
    assert not np.array_equal(sampler(500, width, source=SeededSource(5)), at_once)


@given(
    denominator=st.integers(2, 2**59),
    share=st.fractions(0, Fraction(2**60 - 1, 2**60)),
    word=st.integers(0, 2**64 - 1),
    offset=st.integers(-2, 2) | st.none(),
)
def test_a_toss_by_halves_is_the_toss_by_the_whole_word(
    denominator: int, share: Fraction, word: int, offset: int | None
) -> None:
    numerator = int(share * denominator)
    step = 2**64 // denominator
    if offset is not None:  # at the threshold itself, where the upper half does not decide
        word = min(max(numerator * step + offset, 0), 2**64 - 1)
    assume(word < denominator * step)
    # The upper half is asked for first; a half is the lower one of its word.
    tossed = noise._tosses(
        np.array([numerator], dtype=np.uint64), denominator, Script(word >> 32, word & 0xFFFFFFFF)
    )
    assert tossed.tolist() == [word < numerator * step]


def test_a_word_beyond_the_last_full_step_is_drawn_again() -> None:
    # 2^64 is 3 * 0x5555555555555555 + 1, so the last word belongs to none of the three cases.
    half = 0xFFFFFFFF
    for again, expected in ((0, True), (2**63, False)):
        source = Script(half, half, 2**64 - 1, again)
        assert noise._tosses(np.array([1], dtype=np.uint64), 3, source).tolist() == [expected]
        assert source.used_up()
    source = Script(2**64 - 1, 2**64 - 2)
    assert uniform_below(3, source=source) == 2
    assert source.used_up()


def test_the_toss_of_one_over_e_is_exact_in_its_undecided_case() -> None:
    # D_15 of 15! cases are true, the next one is decided by the rest of the series: no sample would show it.
    step = 2**64 // 1_307_674_368_000
    start = step * 481_066_515_734
    heads, tails = 0, 2**64 - 1
    for word, further, expected in [
        (start - 1, [], True),
        (start + step, [], False),
        (start, [tails], False),  # K = 16
        (start, [heads, tails], True),  # K = 17
        (start + step - 1, [heads, heads, tails], False),  # K = 18
    ]:
        source = Script(word >> 32, word & 0xFFFFFFFF, *further)
        assert noise._tosses_inverse_e(1, source).tolist() == [expected]
        assert source.used_up()


@pytest.mark.parametrize("successes", range(13))
def test_a_run_of_any_length_is_true_when_it_ends_at_an_odd_toss(successes: int) -> None:
    # Arrays toss with halves up to K = 8 and leave the rest to whole words; both must count alike.
    tosses = [(0, 0)] * successes + [(0xC0000000, 2**64 - 1)]
    source = Script(*(half if k <= 8 else word for k, (half, word) in enumerate(tosses, start=1)))
    assert noise._tosses_exp(np.array([2**19], dtype=np.uint64), 2**20, source).tolist() == [
        successes % 2 == 0
    ]
    assert source.used_up()


def test_certain_and_hopeless_tosses_take_no_time() -> None:
    source = SeededSource(1)
    assert all(bernoulli_exp(Fraction(0), source=Script()) for _ in range(3))
    for gamma in (Fraction(10**300), Fraction(10**400, 3), Fraction(1e300)):
        assert not any(bernoulli_exp(gamma, source=source) for _ in range(200))


def test_a_rational_of_many_digits_is_compared_digit_by_digit() -> None:
    # 1/3 is 0x5555... in every word: equal words leave it open, the first other word decides.
    third = 0x5555555555555555
    assert not bernoulli_exp(Fraction(1, 3), source=Script(third, third, third - 1, 2**64 - 1))
    assert bernoulli_exp(Fraction(1, 3), source=Script(third, third, third + 1))


@pytest.mark.parametrize(
    ("attempt", "code"),
    [
        (lambda source: bernoulli_exp(Fraction(-1, 7), source=source), "bad-gamma"),
        (lambda source: uniform_below(0, source=source), "bad-bound"),
        (lambda source: uniform_below(-1, source=source), "bad-bound"),
        (lambda source: uniform_below(2**64 + 1, source=source), "bad-bound"),
    ],
)
def test_a_negative_exponent_and_an_impossible_bound_are_refused(
    attempt: Callable[[SeededSource], object], code: str
) -> None:
    with refused(InvalidInput, code):
        attempt(SeededSource(1))


def test_numbers_below_a_bound_take_every_value() -> None:
    source = SeededSource(1)
    assert {uniform_below(5, source=source) for _ in range(200)} == {0, 1, 2, 3, 4}
    assert uniform_below(1, source=source) == 0
    assert uniform_below(2**64, source=Script(2**64 - 1)) == 2**64 - 1
