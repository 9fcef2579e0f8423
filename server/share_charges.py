"""What noise from devices costs, with corrupt participants and without."""

from __future__ import annotations

import math

from fedhist.protocol.grid import Threshold
from fedhist.protocol.measurements.noisy_tail import select_multiplier, tail_design
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.terms import release_share, smallest_steps
from fedhist.protocol.privacy.calibration import gaussian_epsilon
from fedhist.protocol.privacy.ledger import Charge, GaussianLoss, PureLoss
from fedhist.protocol.privacy.neighbours import Norm, Sensitivity
from fedhist.protocol.privacy.shares import Share


def select_shares_charge(plan: Plan, column: str) -> Charge:
    """The noisy tail of round 1: one mechanism on the whole vector."""
    design = tail_design(plan, column)
    pure = plan.norm is Norm.L1
    # In the unit of the column: a user's count or weight, measured by coefficients that begin with one.
    unit = design.unit * int(design.coefficients[0])
    return _shares_charge(
        plan,
        "select",
        design.share,
        design.sensitivity,
        coordinates=len(plan.candidate_steps),
        epsilon=plan.epsilon_select,
        delta=0.0 if pure else plan.delta_select,
        multiplier=None if pure else select_multiplier(plan),
        parameters={"column": "counts" if design.counted else "weights"},
        unit=unit,
    )


def release_shares_charge(plan: Plan, threshold: Threshold | None) -> Charge:
    """The noisy histogram of round 2; before the threshold is known (None), what it may cost at most."""
    steps = smallest_steps(plan) if threshold is None else threshold.steps
    sensitivity = plan.release_sensitivity(0 if threshold is None else steps)
    parameters: dict[str, float | int | str] = {"grid_bits": plan.grid_bits}
    if threshold is not None:
        parameters["threshold"] = threshold.value
    return _shares_charge(
        plan,
        "release",
        # The narrowest share has the largest slack, so that what is planned covers every threshold.
        release_share(plan, steps),
        sensitivity,
        coordinates=plan.closed.items,
        epsilon=plan.epsilon,
        delta=plan.delta,
        multiplier=plan.multiplier if plan.norm is Norm.L2 else None,
        parameters=parameters,
        unit=2.0**plan.grid_bits,
    )


def epsilon_without_corrupt(plan: Plan, *, epsilon: float, delta: float, multiplier: float | None) -> float:
    """What an outsider's view costs when no participant is corrupt: every survivor's share hides then, not n_min only.

    Gaussian: m = minimum_survivors shares of variance v sum to m v >= (m/n_min) ((z S)^2 + 9) >= (z' S)^2 + 9 with z' =
    z sqrt(m/n_min), so this is the epsilon of the multiplier z' at the same delta.

    Laplace: epsilon, and no less. The sum of m > n_min shares is a difference of negative binomials of shape m/n_min,
    whose chances fall like x^(m/n_min - 1) e^(-x/b): the ratio of neighbouring ones still tends to e^(1/b). The noise
    is wider, but where it is widest it tells no less.
    """
    if multiplier is None:
        return epsilon
    wider = multiplier * math.sqrt(plan.minimum_survivors / plan.noise_shares)
    return min(epsilon, gaussian_epsilon(wider, delta))


def _shares_charge(
    plan: Plan,
    round_: str,
    share: Share,
    sensitivity: Sensitivity,
    *,
    coordinates: int,
    epsilon: float,
    delta: float,
    multiplier: float | None,
    parameters: dict[str, float | int | str],
    unit: float,
) -> Charge:
    slack = share.slack(coordinates)
    without = epsilon_without_corrupt(plan, epsilon=epsilon, delta=delta, multiplier=multiplier)
    return Charge(
        round=round_,
        name=share.kind,
        parameters=parameters
        | {
            "values": coordinates,
            "noise_shares": share.shares,
            "share_deviation": share.deviation(1) / unit,
            "slack": slack,
            "epsilon_without_corrupt": without + slack,
        },
        sensitivity=sensitivity.value / unit,
        norm=sensitivity.norm.value,
        neighbours=plan.neighbours.value,
        epsilon=epsilon + slack,
        delta=delta,
        loss=PureLoss() if multiplier is None else GaussianLoss(multiplier=multiplier),
    )
