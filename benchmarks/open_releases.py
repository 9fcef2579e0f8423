"""The release mechanisms of the open domain at one budget: `python benchmarks/open_releases.py`.

Bar, released keys and relative loss of each, in the mean over the trials, at the threshold that is best for it (the
oracle's, not private) and at the one that the default selector chooses. epsilon = 1, epsilon' = 0.1, delta = 1/(2n).
The real sets, with all their items, are read from a folder and left out if it does not have them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from open_selectors import found_in, outcomes, real, synthetic

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.measurements.keys import KeptItems
from fedhist.simulations.datasets.paper_sets import ZipfPopulation
from fedhist.simulations.datasets.synthetic import materialise

SELECTORS = ("oracle", "exponential-v")
SETTINGS = {
    f"{release} {selector}": {"release": release, "selector": selector}
    for release in KeptItems.releases
    for selector in SELECTORS
}
REAL = (
    "gowalla_counts_19k",
    "brightkite_counts_10core",
    "sentiment140_by_author_subset",
    "sentiment140_by_addressee",
)


def sets(data: Path, *, quick: bool) -> Iterator[tuple[str, Callable[[int], SparsePopulation]]]:
    for kind in ("iid", "non-iid"):
        for items in (50,) if quick else (50, 100, 200):
            yield f"{kind} {items}", synthetic(kind, items)
    yield "zipf, 100,000 items", lambda trial: materialise(ZipfPopulation(100_000, 100_000, seed=trial))
    for name, path in found_in(data, REAL[:-1] if quick else REAL):
        yield name, real(path, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real sets")
    parser.add_argument("--quick", action="store_true", help="2 trials, and the small sets only")
    arguments = parser.parse_args()
    trials = 2 if arguments.quick else arguments.trials
    columns = f"{'C':>8}{'bar':>9}{'keys':>8}{'loss':>9}"
    print(f"means over {trials} trials")
    print(f"{'':<56}{'best threshold':<34}{'chosen by exponential-v'}")
    print(f"{'set':<30}{'release':<24}{columns}{columns}")
    for name, draw in sets(arguments.data, quick=arguments.quick):
        found = list(outcomes(draw, SETTINGS, trials))
        for release in KeptItems.releases:
            cells = ""
            for selector in SELECTORS:
                these = [one[f"{release} {selector}"] for one in found]
                threshold, bar, keys, loss = (
                    statistics.fmean(getattr(one, field) for one in these)
                    for field in ("threshold", "bar", "keys", "loss")
                )
                cells += f"{threshold:>8,.0f}{bar:>9,.0f}{keys:>8,.1f}{loss:>9.4f}"
            print(f"{name:<30}{release:<24}{cells}", flush=True)


if __name__ == "__main__":
    main()
