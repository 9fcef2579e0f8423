"""How much Gaussian noise a budget asks for, and which budgets make sense."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from numbers import Real
from typing import TypeGuard

from fedhist.protocol.errors import InvalidPlan

# Outside of these the classic formula is used, which is valid too: such noise is useless, or such a delta is none.
_LEAST_EPSILON, _LEAST_DELTA = 1e-6, 1e-300
_ROOT_2 = math.sqrt(2)
# Above this argument a normal tail is taken from its series, which is exact to 2e-10 there.
_FAR_TAIL = 30.0


def check_epsilon(value: float, name: str) -> None:
    """Refuse an epsilon that is not a finite number above 0; `name` is the user's name for the setting."""
    if not is_number(value) or not math.isfinite(value) or value <= 0:
        raise InvalidPlan(f"{name} is {value!r}", allowed="a finite number above 0", code="bad-epsilon")


def check_delta(value: float, name: str) -> None:
    """Refuse a delta that is not strictly between 0 and 1/2; `name` is the user's name for the setting."""
    if not is_number(value) or not 0 < value < 0.5:
        raise InvalidPlan(
            f"{name} is {value!r}",
            allowed="a number strictly between 0 and 1/2",
            advice="choose one well below 1 over the number of users, such as 1e-6",
            code="bad-delta",
        )


@functools.lru_cache(maxsize=1024, typed=True)
def noise_multiplier(epsilon: float, delta: float) -> float:
    """The least standard deviation of Gaussian noise, per unit of l2 sensitivity, that is (epsilon, delta)-private.

    Balle & Wang 2018, theorem 8. It is rounded up, never down: its true delta does not exceed the one asked for.
    """
    check_epsilon(epsilon, "epsilon")
    check_delta(delta, "delta")
    epsilon, delta = float(epsilon), float(delta)
    enough = classic_multiplier(min(epsilon, 1.0), delta)
    if epsilon < _LEAST_EPSILON or delta < _LEAST_DELTA:
        return enough
    return _least(lambda multiplier: gaussian_delta(multiplier, epsilon) <= delta, enough)


def classic_multiplier(epsilon: float, delta: float) -> float:
    """sqrt(2 ln(1.32 / delta)) / epsilon: enough for an epsilon of at most 1, as in Liu et al."""
    return math.sqrt(2 * math.log(1.32 / delta)) / epsilon


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """The epsilon at this delta of Gaussian noise of `multiplier` l2 sensitivities, rounded up (Balle & Wang 2018)."""
    check_delta(delta, "delta")
    # The privacy loss is N(1/(2z^2), 1/z^2), and its tail is at most e^(-t^2/2): here delta is surely reached.
    high = 1 / (2 * multiplier**2) + math.sqrt(2 * math.log(1 / delta)) / multiplier
    if gaussian_delta(multiplier, 0.0) <= delta:
        return 0.0
    return _least(lambda epsilon: gaussian_delta(multiplier, epsilon) <= delta, high * (1 + 1e-12))


def _least(suffices: Callable[[float], bool], enough: float) -> float:
    """The least value that suffices, up to 1e-13 of it; `enough` is known to."""
    low, high = 0.0, enough
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def gaussian_delta(multiplier: float, epsilon: float) -> float:
    """Delta at epsilon of Gaussian noise of z = `multiplier` l2 sensitivities: at most this, as tight as doubles allow.

    Delta is P(N > near) - e^epsilon P(N > far), where near, far = epsilon z -+ 1/(2z) (Balle & Wang 2018, theorem 8).
    They are known to a few times 2^-53 of `far`, and a tail at x changes by a factor of at most e^(|x| + 2) for each
    unit of x. So both tails, exp and erfc are right up to a factor of 1 +- slack, and the bound takes the worse end of
    each. e^epsilon times the density at `far` is the density at `near`, which keeps what would overflow out of the far
    tail; its series, cut after a negative term, lies below it.
    """
    near, far = (epsilon * multiplier + sign / (2 * multiplier) for sign in (-1, 1))
    slack = 2.0**-50 * (8 + 4 * far * (far + 2))
    upper = math.erfc(near / _ROOT_2) / 2
    if far > _FAR_TAIL:
        series = (1 - far**-2 + 3 * far**-4 - 15 * far**-6) / far
        lower = math.exp(-(near**2) / 2) / math.sqrt(2 * math.pi) * series
    else:
        lower = math.exp(epsilon) * math.erfc(far / _ROOT_2) / 2
    return upper * (1 + slack) - lower * (1 - slack)


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is a number that a double can hold: JSON's integers have no end."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True
