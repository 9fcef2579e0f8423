"""The Gaussian noise that hides no better than a pure mechanism does: for accountants that know Gaussians only.

P and Q are a mechanism's output distributions on two neighbours, and delta(e) = sup over events of P - e^e Q. A pair
with no smaller delta at any e *dominates* the mechanism, and may stand for it in every composition (Zhu, Dong & Wang
2022, theorem 10).

**Claim.** The Gaussian of shift m with 2 Phi(m/2) - 1 = tanh(epsilon/2), which is m = 2 Phi^-1(e^epsilon/(1 +
e^epsilon)), dominates every epsilon-private mechanism. That of half the epsilon dominates every mechanism of bounded
range epsilon, such as the exponential mechanism.

**Proof.** Write x for the loss ln(P/Q). The pairs that dominate these two kinds are symmetric (see the top of
`composition`), and so is a Gaussian. Such a pair is a measure v on the losses that is symmetric around 0, with P =
e^(x/2) v and Q = e^(-x/2) v:

- randomised response, for pure mechanisms: v has one point at each of -epsilon and epsilon;
- bounded range: v has a constant density on [-epsilon, epsilon];
- Gaussian: v is a multiple of N(0, m^2).

Then delta(e) = 2 e^(e/2) I(e), where I(e) is the integral over x > e of sinh((x - e)/2) dv, and P has mass 1, so that
cosh(x/2) dv has 1/2 on each side of 0. Let D be the Gaussian's v less the other one, and F the difference of their I.
Then

    F(0) = 0, F'(0) = 0, F -> 0 at infinity, and F'' = F/4 + D/2.

F(0) = 0 is how m was chosen: delta(0) is 2 Phi(m/2) - 1 for the Gaussian, tanh(epsilon/2) for randomised response and
tanh(epsilon/4) for a bounded range. F'(0) is minus half the difference of two masses of 1/2. For x > 0 a Gaussian's v
falls and is positive beyond epsilon, so D is first positive (or nowhere), then negative (or nowhere), then positive.
While D is positive at first, F'' >= F/4 from F(0) = F'(0) = 0 on, and F is not negative. On the last part F is an
integral of positive values. Between the two D is negative, and F has no negative minimum there: at one, F'' >= 0, but
F/4 + D/2 < 0. So F >= 0 for all e >= 0. For e < 0, delta(e) = 1 - e^e + e^e delta(-e) for symmetric pairs, and the
order is the same. []

The first half is also Dong, Roth & Su 2022: the trade-off curve of a Gaussian is convex, and that of randomised
response is its chord from (0, 1) to where both types of error are equal.
"""

from __future__ import annotations

import math

from scipy import special

from fedhist.protocol.privacy.calibration import check_epsilon

# Relative error of the inverse error function and of the inverse normal distribution, from above.
_ERROR = 1e-12


def pure_as_gaussian(epsilon: float) -> float:
    """The noise multiplier 1/m of a Gaussian that dominates every epsilon-private mechanism, rounded down.

    | epsilon | 0.01 | 0.1  | 1    | 5     |
    |---------|------|------|------|-------|
    | result  | 79.8 | 7.98 | 0.81 | 0.202 |
    """
    check_epsilon(epsilon, "epsilon")
    if epsilon < 1:
        shift = 2 * math.sqrt(2) * float(special.erfinv(math.tanh(epsilon / 2)))
    else:
        # ln(1/(1 + e^epsilon)), which keeps its digits however small the share of wrong answers is.
        shift = -2 * float(special.ndtri_exp(-(epsilon + math.log1p(math.exp(-epsilon)))))
    return (1 - _ERROR) / shift


def bounded_range_as_gaussian(epsilon: float) -> float:
    """The noise multiplier of a Gaussian that dominates every mechanism of bounded range epsilon, rounded down."""
    check_epsilon(epsilon, "epsilon")
    return pure_as_gaussian(epsilon / 2)
