"""What is left of a user's bound for a campaign: no sequence of windows passes it, and every share adds up."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist import Histograms, Neighbours, Plan, SeededSource
from tests.builders import population_of
from tests.support.api import (
    COUNTED,
    MAX_BOUND_STEPS,
    MAX_USER_TOTAL,
    MAX_VISITS,
    ONE,
    Integers,
    Norm,
    Threshold,
    bounds_of,
    sum_bounded,
    sum_clipped,
    taken_from,
    user_squares,
)

COUNTS = st.lists(st.integers(0, 50) | st.integers(0, MAX_USER_TOTAL // 6), min_size=1, max_size=6)
THRESHOLDS = st.builds(
    Threshold, steps=st.integers(1, 4000) | st.integers(1, MAX_BOUND_STEPS), bits=st.integers(0, 10)
)


def user_of(counts: list[int]) -> Histograms:
    return population_of([counts]).histograms


def left_of(*left: int) -> Integers:
    return np.array(left, dtype=np.int64)


def sent(users: Histograms, left: Integers, threshold: Threshold, visits: int, seed: int) -> Integers:
    return sum_bounded(users, left, threshold, visits=visits, source=SeededSource(seed))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(COUNTS, THRESHOLDS), min_size=1, max_size=12),
    st.integers(1, 6) | st.integers(1, MAX_VISITS),
    st.integers(0, 2**32),
)
def test_whatever_comes_and_whatever_the_thresholds_are_no_user_passes_the_bound(
    windows: list[tuple[list[int], Threshold]], visits: int, seed: int
) -> None:
    left, exact = ONE, Fraction(0)
    for number, (counts, threshold) in enumerate(windows):
        user = user_of(counts)
        values = sent(user, left_of(left), threshold, visits, seed + number)
        square = sum(int(value) ** 2 for value in values)
        (taken,) = taken_from(user_squares(user), left_of(left), threshold, visits=visits).tolist()
        share = Fraction(square, visits * threshold.steps**2)
        assert (values >= 0).all() and square <= threshold.steps**2
        assert 0 <= taken <= left and share <= Fraction(taken, ONE)
        exact, left = exact + share, left - taken
    assert exact <= Fraction(ONE - left, ONE) <= 1


@settings(max_examples=30, deadline=None)
@given(
    st.lists(COUNTS, min_size=1, max_size=20),
    THRESHOLDS,
    st.integers(1, 100),
    st.integers(0, 2**32),
    st.data(),
)
def test_a_batch_is_its_users_one_by_one(
    rows: list[list[int]], threshold: Threshold, visits: int, seed: int, data: st.DataObject
) -> None:
    rows = [row + [0] * (6 - len(row)) for row in rows]
    users = population_of(rows).histograms
    left = left_of(*(data.draw(st.integers(0, ONE)) for _ in rows))
    single = [users.rows(place, place + 1) for place in range(users.users)]
    parts = [sent(one, left[place : place + 1], threshold, visits, seed) for place, one in enumerate(single)]
    assert (sent(users, left, threshold, visits, seed) == sum(parts)).all()
    taken = taken_from(user_squares(users), left, threshold, visits=visits)
    alone = [
        int(taken_from(user_squares(one), left[place : place + 1], threshold, visits=visits)[0])
        for place, one in enumerate(single)
    ]
    assert taken.tolist() == alone


@settings(max_examples=30, deadline=None)
@given(COUNTS, THRESHOLDS, st.integers(1, 50), st.integers(0, 2**32))
def test_a_user_with_a_whole_visit_left_is_clipped_as_in_any_other_run(
    counts: list[int], threshold: Threshold, visits: int, seed: int
) -> None:
    user, left = user_of(counts), left_of(-(-ONE // visits))
    usual = sum_clipped(user, threshold, norm=Norm.L2, source=SeededSource(seed))
    assert (sent(user, left, threshold, visits, seed) == usual).all()


@pytest.mark.parametrize("visits", [1, 3, 30, 1000])
def test_visits_full_windows_are_hardly_clipped_and_the_next_one_is_empty(visits: int) -> None:
    threshold, left, user = Threshold(steps=10 << 10, bits=10), ONE, user_of([3, 4])
    for _ in range(visits):
        # Half the threshold: a quarter of a visit each.
        assert sent(user, left_of(left), threshold, visits, 0).tolist() == [3 << 10, 4 << 10]
        left -= int(taken_from(user_squares(user), left_of(left), threshold, visits=visits)[0])
    assert math.isclose(left / ONE, 3 / 4, abs_tol=1e-6)
    heavy, left = user_of([600, 800]), ONE
    for _ in range(visits):
        values = sent(heavy, left_of(left), threshold, visits, 0)
        assert math.isclose(np.linalg.norm(values), threshold.steps, rel_tol=1e-3)
        left -= int(taken_from(user_squares(heavy), left_of(left), threshold, visits=visits)[0])
    assert left / ONE < 1e-3 and not sent(heavy, left_of(0), threshold, visits, 0).any()


def test_the_bound_is_met_and_never_passed_at_the_ends() -> None:
    for steps, visits, left in product(
        (1, 2, 1000, MAX_BOUND_STEPS), (1, 7, MAX_VISITS), (0, 1, ONE // 7, ONE - 1, ONE)
    ):
        (bound,) = bounds_of(left_of(left), Threshold(steps=steps, bits=0), visits=visits).tolist()
        most = math.isqrt(visits * steps * steps * left // ONE)
        assert 0 <= bound <= min(steps, most) and bound >= min(steps, most) * (1 - 1e-9) - 1


def test_a_threshold_of_numpy_s_whole_numbers_takes_the_same() -> None:
    squares, left = left_of(1 << 60), left_of(ONE)
    taken = [
        int(taken_from(squares, left, Threshold(steps=steps, bits=0), visits=MAX_VISITS)[0])
        for steps in (MAX_BOUND_STEPS, np.int64(MAX_BOUND_STEPS))
    ]
    assert taken[0] == taken[1] >= ONE // MAX_VISITS * Fraction(1 << 60, MAX_BOUND_STEPS**2)


def test_a_forgotten_factor_would_be_seen() -> None:
    """The test above rejects a bound that ignores what is left."""
    threshold, visits, user = Threshold(steps=1000, bits=0), 2, user_of([9000])
    square = sum(
        int(value) ** 2 for value in sum_clipped(user, threshold, norm=Norm.L2, source=SeededSource(0))
    )
    assert 3 * Fraction(square, visits * threshold.steps**2) > 1


@pytest.mark.parametrize("neighbours", COUNTED)
@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("visits", [1, 2])
def test_neighbours_over_all_windows_are_no_further_apart_than_one_release_allows(
    neighbours: Neighbours, items: int, visits: int
) -> None:
    """Every pair of users with small counts in three windows, whose thresholds depend on the window.

    In deviations of the noise, two users are at most 1/z apart over the whole campaign, and some pair nearly is.
    """
    z = 1.5
    thresholds = [Threshold(steps=steps, bits=3) for steps in (800, 1600, 1100)]
    plan = Plan(users=3, items=items, window="2026-W01", campaign="c", visits=visits, neighbours=neighbours)
    histories = []
    rows = [list(row) for row in product((0, 100, 300), repeat=items)]
    for history in product(rows, repeat=3):
        left, vectors = ONE, []
        for counts, threshold in zip(history, thresholds, strict=True):
            user = user_of(counts)
            deviation = z * math.sqrt(visits) * plan.release_sensitivity(threshold.steps).value
            vectors.append(sent(user, left_of(left), threshold, visits, 1) / deviation)
            left -= int(taken_from(user_squares(user), left_of(left), threshold, visits=visits)[0])
        histories.append(np.concatenate(vectors))
    table = np.array(histories)
    others = (
        table[:, None, :] - table[None, :, :] if neighbours is Neighbours.REPLACE_ONE else table[:, None, :]
    )
    furthest = math.sqrt((others**2).sum(axis=-1).max())
    assert furthest <= 1 / z * (1 + 1e-12)
    # Of two visits, the third window leaves the other user one.
    assert (
        furthest
        > (0.98 if visits == 1 or items == 2 or neighbours is not Neighbours.REPLACE_ONE else 0.85) / z
    )


def test_what_one_window_holds_is_seen_in_others_but_never_by_more_than_two_bounds() -> None:
    """Why a ledger counts all releases of a campaign for one user in one window."""
    visits, threshold = 2, Threshold(steps=1000, bits=3)
    sizes, apart = (0, 30, 60, 125, 300), []
    for history in product(sizes, repeat=3):
        paths = []
        for counts in (history, (0, *history[1:])):
            left, path = ONE, []
            for count in counts:
                user = user_of([count])
                path.append(int(sent(user, left_of(left), threshold, visits, 1)[0]))
                left -= int(taken_from(user_squares(user), left_of(left), threshold, visits=visits)[0])
            paths.append(path)
        apart.append(sum((one - other) ** 2 for one, other in zip(*paths, strict=True)))
    bound = visits * threshold.steps**2
    # More than one window's own C^2, and at most the two bounds that are proved.
    assert 0.9 * bound < max(apart) <= 2 * bound
