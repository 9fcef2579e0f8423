"""Microseconds per draw of our noise and of OpenDP's, in one run: `python benchmarks/noise_rate.py`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fractions import Fraction

import opendp.prelude as dp
from two_rounds import best_of

from fedhist.protocol.privacy.noise import (
    discrete_gaussian,
    discrete_laplace,
    gaussian_variance,
    laplace_scale,
)
from fedhist.protocol.privacy.randomness import SeededSource, Source, SystemSource

WIDTHS = (10.0, 1e3, 1e6)


def ours(kind: str, width: float, size: int, source: Source) -> Callable[[], object]:
    if kind == "laplace":
        scale = laplace_scale(Fraction(width))
        return lambda: discrete_laplace(size, scale, source=source)
    variance = gaussian_variance(Fraction(width) ** 2)
    return lambda: discrete_gaussian(size, variance, source=source)


def theirs(kind: str, width: float, size: int) -> Callable[[], object]:
    integers = dp.vector_domain(dp.atom_domain(T=int))
    zeros = [0] * size
    if kind == "laplace":
        laplace = dp.m.make_laplace(integers, dp.l1_distance(T=int), scale=width)
        return lambda: laplace(zeros)
    gaussian = dp.m.make_gaussian(integers, dp.l2_distance(T=float), scale=width)
    return lambda: gaussian(zeros)


def microseconds(draw: Callable[[], object], size: int, repeats: int) -> float:
    """Microseconds per value."""
    return 1e6 * best_of(draw, repeats) / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1_000_000, help="of ours per measurement")
    parser.add_argument("--opendp-draws", type=int, default=50_000, help="of OpenDP's per measurement")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    dp.enable_features("contrib")
    print(f"microseconds a draw, best of {arguments.repeats}; the ratio is OpenDP to ours from the system")
    print(f"{'noise':<10}{'width':>10}{'system':>10}{'seeded':>10}{'OpenDP':>10}{'ratio':>8}")
    for kind in ("laplace", "gaussian"):
        for width in WIDTHS:
            system, seeded = (
                microseconds(ours(kind, width, arguments.draws, source), arguments.draws, arguments.repeats)
                for source in (SystemSource(), SeededSource(1))
            )
            size = arguments.opendp_draws
            opendp = microseconds(theirs(kind, width, size), size, arguments.repeats)
            print(
                f"{kind:<10}{width:>10g}{system:>10.3f}{seeded:>10.3f}{opendp:>10.2f}{opendp / system:>8.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
