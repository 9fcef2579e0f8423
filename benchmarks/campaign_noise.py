"""What one bound for a campaign saves: mean relative loss over 30 windows, against 30 runs of the same total.

    python benchmarks/campaign_noise.py
    python benchmarks/campaign_noise.py --data FILE ...

Every user is active in some of 30 windows, with a histogram of its own in each. A campaign and 30 runs by themselves
have the same epsilon and delta in all. Runs are composed as Gaussian noise is (z sqrt(30) each). "limits" is the ratio
where a ledger's limit of this epsilon and delta admits either: it has to hold for runs that are chosen in view of
results, and asks both for more noise. Losses are expected ones: exact for the clipped sums, in closed form for the
noise. Thresholds are the best of a grid for all windows, or chosen privately in the first window and kept.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from scipy.special import erf

from fedhist.client.campaign_users import taken_by
from fedhist.client.files.records import read_population
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.clips.campaign_bound import ONE, sum_bounded
from fedhist.protocol.clips.clipping import sum_clipped
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Population
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.concentrated import Limit
from fedhist.protocol.privacy.neighbours import Norm
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.simulations.datasets.guessed import GuessedPopulation
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, PoissonPopulation, materialise
from fedhist.simulations.simulation import simulate

WINDOWS = 30
EPSILON, DELTA = 1.0, 1e-6
COMES = (1, 3, 10, 30)
BITS = 6


@dataclass(frozen=True)
class Windows:
    """The users of every window."""

    name: str
    each: list[SparsePopulation]

    @property
    def users(self) -> int:
        """Their number, the same in all windows."""
        return self.each[0].users

    @property
    def items(self) -> int:
        """The number of items."""
        return self.each[0].domain_size


def active(whole: csr_array, windows: int, rng: np.random.Generator, name: str) -> Windows:
    """Each user's histogram, dealt at random to this number of the windows, count by count."""
    users, items = whole.shape
    order = np.argsort(rng.random((users, WINDOWS)), axis=1)[:, :windows]
    entries = whole.tocoo()
    shares = rng.multinomial(entries.data, np.full(windows, 1 / windows))
    each = []
    for number in range(WINDOWS):
        there = order[entries.row] == number
        counts = np.where(there, shares, 0).sum(axis=1)
        rows = csr_array((counts, (entries.row, entries.col)), shape=(users, items))
        rows.eliminate_zeros()
        each.append(SparsePopulation.from_scipy(rows))
    return Windows(name, each)


def kinds(users: int, items: int) -> dict[str, Population]:
    """Users who are alike, and with tails that are heavier and heavier."""
    return {
        "alike": PoissonPopulation(users=users, items=items, seed=1, mean=20),
        "tail index 2.5": GuessedPopulation(users=users, items=items, seed=1, mean_total=20, tail_index=2.5),
        "tail index 1.5": GuessedPopulation(users=users, items=items, seed=1, mean_total=20, tail_index=1.5),
        "heavy-tailed": HeavyTailedPopulation(users=users, items=items, seed=1),
    }


def synthetic(population: Population, name: str, windows: int, rng: np.random.Generator) -> Windows:
    """Users who have in every window that they come to as much as the population says."""
    drawn = materialise(population).histograms
    shape = (population.users, population.domain_size)
    whole = csr_array((drawn.counts.astype(np.int64) * windows, drawn.items, drawn.offsets), shape=shape)
    return active(whole, windows, rng, f"{name}, {windows} of {WINDOWS}")


def loss(summed: np.ndarray, truth: np.ndarray, deviation: float) -> float:
    """The expected relative loss of this sum under Gaussian noise of this deviation."""
    off = summed - truth
    mean = deviation * math.sqrt(2 / math.pi) * np.exp(-((off / deviation) ** 2) / 2)
    return float((mean + off * erf(off / (deviation * math.sqrt(2)))).sum() / truth.sum())


def of_campaign(windows: Windows, threshold: float, visits: int, multiplier: float) -> float:
    """The mean loss over all windows of a campaign with this multiplier of all releases together."""
    bound, left = Threshold(round(threshold * 2**BITS), BITS), np.full(windows.users, ONE)
    losses = []
    for number, users in enumerate(windows.each):
        summed = sum_bounded(users.histograms, left, bound, visits=visits, source=SeededSource(number))
        losses.append(
            loss(np.ldexp(summed, -BITS), users.totals(), multiplier * math.sqrt(visits) * bound.value)
        )
        left = left - taken_by(users, left, bound, visits=visits)
    return float(np.mean(losses))


def of_runs(windows: Windows, threshold: float, multiplier: float) -> float:
    """The mean loss over all windows of runs by themselves, each with this multiplier."""
    bound = Threshold(round(threshold * 2**BITS), BITS)
    losses = []
    for number, users in enumerate(windows.each):
        summed = sum_clipped(users.histograms, bound, norm=Norm.L2, source=SeededSource(number))
        losses.append(loss(np.ldexp(summed, -BITS), users.totals(), multiplier * bound.value))
    return float(np.mean(losses))


def chosen(windows: Windows, visits: int) -> float:
    """The threshold that the first window of a campaign with these visits chooses privately."""
    plan = Plan(
        users=windows.users,
        items=windows.items,
        epsilon=EPSILON,
        delta=DELTA,
        window="2026-01-01",
        campaign="benchmark",
        visits=visits,
    )
    with tempfile.TemporaryDirectory() as folder:
        memory = Path(folder) / "memory.db"
        return simulate(windows.each[0], plan, seed=1, evaluate=False, campaign_memory=memory).threshold


def grid_for(windows: Windows) -> Sequence[float]:
    """Thresholds around the norms of those who are there."""
    norms = np.sqrt(np.concatenate([(rows_of(users).power(2)).sum(axis=1) for users in windows.each[:3]]))
    there = norms[norms > 0]
    low, high = np.quantile(there, [0.02, 0.999])
    return np.geomspace(max(low / 4, 1.0), high, 10).tolist()


def rows_of(users: SparsePopulation) -> csr_array:
    rows = users.histograms
    return csr_array(
        (rows.counts.astype(np.float64), rows.items, rows.offsets), shape=(users.users, users.domain_size)
    )


def compared(windows: Windows, visits: int) -> None:
    """One line: a campaign's loss, and its ratio to runs by themselves."""
    z = noise_multiplier(EPSILON, DELTA)
    limit = Limit(EPSILON, DELTA)
    admitted = math.sqrt(WINDOWS / (2 * limit.rho))
    grid = grid_for(windows)
    campaign = min(of_campaign(windows, threshold, visits, z) for threshold in grid)
    in_ledger = min(
        of_campaign(windows, threshold, visits, math.sqrt(1 / (2 * limit.rho))) for threshold in grid
    )
    exact = min(of_runs(windows, threshold, z * math.sqrt(WINDOWS)) for threshold in grid)
    by_filter = min(of_runs(windows, threshold, admitted) for threshold in grid)
    private = of_campaign(windows, chosen(windows, visits), visits, z)
    composed = of_runs(windows, chosen(windows, WINDOWS), z * math.sqrt(WINDOWS))
    print(
        f"{windows.name:28} {visits:6} {campaign:8.4f} {exact:8.4f} {campaign / exact:6.3f} "
        f"{in_ledger / by_filter:8.3f} {private:8.4f} {composed:8.4f} {private / composed:6.3f}",
        flush=True,
    )


def guessed_wrong(population: Population, name: str, rng: np.random.Generator) -> None:
    """A table of the loss by how often users come and how often they may."""
    print(f"\nvisits guessed wrong, {name}: the loss over that of {WINDOWS} runs, each at its best threshold")
    print(f"{'users come':>12} " + " ".join(f"{f'visits {visits}':>10}" for visits in COMES))
    z = noise_multiplier(EPSILON, DELTA)
    for comes in COMES:
        windows = synthetic(population, name, comes, rng)
        grid = grid_for(windows)
        exact = min(of_runs(windows, threshold, z * math.sqrt(WINDOWS)) for threshold in grid)
        ratios = [
            min(of_campaign(windows, threshold, visits, z) for threshold in grid) / exact for visits in COMES
        ]
        print(f"{comes:12} " + " ".join(f"{ratio:10.3f}" for ratio in ratios), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument(
        "--data", type=Path, nargs="*", default=[], help="users whose counts are dealt to windows"
    )
    parser.add_argument("--top-items", type=int, default=100, help="items of these")
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    print(f"epsilon {EPSILON:g}, delta {DELTA:g} in all; a campaign, {WINDOWS} runs, and their ratio")
    print(f"{'':35} {'best threshold of each':>24} {'':8} {'chosen privately':>24}")
    heads = ("visits", "campaign", "runs", "ratio", "limits", "campaign", "runs", "ratio")
    widths = (6, 8, 8, 6, 8, 8, 8, 6)
    print(f"{'users':28} " + " ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for path in asked.data:
        whole = rows_of(read_population(path, top_items=asked.top_items)).astype(np.int64)
        for comes in (3, WINDOWS):
            compared(active(whole, comes, rng, f"{path.stem[:15]}, {comes} of {WINDOWS}"), comes)
    if asked.data:
        return
    populations = kinds(asked.users, asked.items)
    for name, population in populations.items():
        for comes in (3, WINDOWS):
            compared(synthetic(population, name, comes, rng), comes)
    guessed_wrong(populations["alike"], "alike", rng)


if __name__ == "__main__":
    main()
