"""How much Gaussian noise a budget asks for, and which budgets make sense."""

from __future__ import annotations

import functools
import math
from numbers import Real
from typing import Literal, TypeGuard, get_args

from fedhist.protocol.errors import InvalidPlan

Calibration = Literal["analytic", "classic"]

# Where dp_accounting's root finder keeps its digits (below, it divides by zero; above, it overflows).
_SOLVABLE_EPSILON = (1e-6, 1e4)


def check_epsilon(value: float, name: str) -> None:
    """Refuse an epsilon that is not a finite number above 0; `name` is the user's name for the setting."""
    if not is_number(value) or not math.isfinite(value) or value <= 0:
        raise InvalidPlan(f"{name} is {value!r}", allowed="a finite number above 0")


def check_delta(value: float, name: str) -> None:
    """Refuse a delta that is not strictly between 0 and 1/2; `name` is the user's name for the setting."""
    if not is_number(value) or not 0 < value < 0.5:
        raise InvalidPlan(
            f"{name} is {value!r}",
            allowed="a number strictly between 0 and 1/2",
            advice="choose one well below 1 over the number of users, such as 1e-6",
        )


def noise_multiplier(epsilon: float, delta: float, *, calibration: Calibration = "analytic") -> float:
    """The standard deviation of Gaussian noise, per unit of l2 sensitivity, that is (epsilon, delta)-private.

    | calibration | what it is                                                     | epsilon      |
    |-------------|----------------------------------------------------------------|--------------|
    | analytic    | the least noise there is (Balle & Wang 2018, theorem 8)        | any above 0  |
    | classic     | sqrt(2 ln(1.32 / delta)) / epsilon, as in Liu et al.           | at most 1    |

    The result is rounded up, never down: its true delta does not exceed the one asked for.
    """
    check_epsilon(epsilon, "epsilon")
    check_delta(delta, "delta")
    match calibration:
        case "analytic":
            return _analytic_multiplier(float(epsilon), float(delta))
        case "classic":
            if epsilon > 1:
                raise InvalidPlan(
                    f"the classic calibration was asked for epsilon = {epsilon!r}",
                    allowed="epsilon of at most 1, where its proof holds",
                    advice="use --calibration analytic, which holds for every epsilon",
                )
            return _classic_multiplier(epsilon, delta)
        case _:
            raise InvalidPlan(
                f"the calibration is {calibration!r}", allowed=" or ".join(map(repr, get_args(Calibration)))
            )


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """The epsilon at this delta of Gaussian noise of `multiplier` l2 sensitivities, rounded up (Balle & Wang 2018)."""
    from dp_accounting import get_epsilon_gaussian

    check_delta(delta, "delta")
    return float(get_epsilon_gaussian(multiplier, delta)) * (1 + 1e-9) + 1e-9


def _classic_multiplier(epsilon: float, delta: float) -> float:
    return math.sqrt(2 * math.log(1.32 / delta)) / epsilon


@functools.lru_cache(maxsize=1024)
def _analytic_multiplier(epsilon: float, delta: float) -> float:
    from dp_accounting import get_sigma_gaussian

    smallest, largest = _SOLVABLE_EPSILON
    if epsilon < smallest:
        return _classic_multiplier(epsilon, delta)  # valid too, and such noise is useless in any case
    root = float(get_sigma_gaussian(min(epsilon, largest), delta))
    # The root finder may stop below the root: by its tolerance of 1e-12, and by what its difference of two
    # tails loses to cancellation, which grows like epsilon times the square of the root. This margin is ten
    # times the largest error seen against 80 digits.
    return root * (1 + 1e-14 * (100 + root)) + 2e-12


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is a number that a double can hold: JSON's integers have no end."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True
