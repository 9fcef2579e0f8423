"""What earlier windows are worth to later ones: thresholds and known items, on synthetic weeks of the same people.

    python benchmarks/campaign_thresholds.py             # the table of docs/campaigns.md
    python benchmarks/campaign_thresholds.py --trials 2 --only open  # a quick look at some rows

Thirteen weeks under epsilon 3 at delta 1e-5, split evenly as `fedhist campaign new` does. Errors are the relative loss
of a week, |released - true|_1 / |true|_1, as a mean over weeks 2 to 13 and trials; over an open domain what was not
found is a loss, too. No ledger is charged: the plans are those of a campaign.
"""

from __future__ import annotations

import argparse
from statistics import fmean, stdev
from typing import Any

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.concentrated import Limit, Spending
from fedhist.server.campaign.budget import SOME_ITEMS, SOME_USERS, even_split, split_of_later
from fedhist.server.campaign.carried_over import like_later, narrowed, of_known_items
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation, materialise
from fedhist.simulations.simulation import simulate

TOTAL, WEEKS = Limit(3, 1e-5), 13
CLOSED: dict[str, Any] = {"domain": "closed", "min_threshold": 1.0, "max_threshold": 1500.0}
OPEN: dict[str, Any] = CLOSED | {"domain": "open", "mechanism": "gaussian"}

# A selector whose noise grows with the range, over one that is far too wide.
WIDE: dict[str, Any] = CLOSED | {"selector": "output-perturbation", "max_threshold": 1e5}


def budgets(
    fields: dict[str, Any], thresholds: str, discover: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Those of a first and of a later window."""
    kind = fields | {"users": SOME_USERS} | ({"items": SOME_ITEMS} if fields["domain"] == "closed" else {})
    rooms = [(TOTAL, Spending())]
    first = even_split(kind, windows=WEEKS, total=TOTAL, rooms=rooms)
    if thresholds != "first" and discover != "first":
        return dict(first.fields), dict(first.fields)
    like = like_later(kind, thresholds=thresholds, discover=discover)
    later = split_of_later(like, first, windows=WEEKS, total=TOTAL, rooms=rooms)
    return dict(first.fields), dict(later.fields)


def weeks_of(
    fields: dict[str, Any], users: int, items: int, trial: int, *, thresholds: str, discover: str, known: bool
) -> list[float]:
    """The loss of each week after the first."""
    first, later = budgets(fields, thresholds, discover)
    threshold: float | None = None
    keys: dict[str, None] = {}
    losses = []
    for week in range(WEEKS):
        population = materialise(HeavyTailedPopulation(users=users, items=items, seed=1000 * trial + week))
        plan = dict(fields) | (first if week == 0 else later) | {"users": population.users}
        if week and thresholds == "first":
            plan |= {"selector": "fixed", "threshold": threshold}
        elif week and thresholds == "narrow" and threshold:
            plan |= narrowed(plan, threshold)
        if week and keys and fields["domain"] == "open" and known:
            plan |= {"known_items": "\n".join(keys)} if discover == "each" else of_known_items(plan)
        if plan["domain"] == "closed":
            plan["items"] = population.domain_size
        result = simulate(population, Plan(**plan), seed=7919 * trial + week, evaluate=True)
        if week:
            losses.append(float(result.relative_loss or 0.0))
        if result.release.threshold > 0:
            threshold = threshold if thresholds == "first" and threshold else float(result.release.threshold)
        if fields["domain"] == "open":
            keys |= dict.fromkeys(map(str, result.release.names))
    return losses


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--only", help="rows whose domain is called so")
    arguments = parser.parse_args()
    rows: list[tuple[str, dict[str, Any], str, str, bool]] = [
        ("closed", CLOSED, "choose", "each", True),
        ("closed", CLOSED, "narrow", "each", True),
        ("closed", CLOSED, "first", "each", True),
        ("closed, wide range", WIDE, "choose", "each", True),
        ("closed, wide range", WIDE, "narrow", "each", True),
        ("open, nothing known", OPEN, "choose", "each", False),
        ("open", OPEN, "choose", "each", True),
        ("open", OPEN, "narrow", "each", True),
        ("open", OPEN, "first", "each", True),
    ]
    print(f"{'users':>8}{'items':>7}  {'domain':<22}{'thresholds':<12}{'loss':>8}{'± 2 s.e.':>10}")
    for users, items in ((2_000, 50), (20_000, 200)):
        for name, fields, thresholds, discover, known in rows:
            if arguments.only not in (None, name):
                continue
            means = [
                fmean(
                    weeks_of(
                        fields, users, items, trial, thresholds=thresholds, discover=discover, known=known
                    )
                )
                for trial in range(arguments.trials)
            ]
            spread = 2 * stdev(means) / len(means) ** 0.5 if len(means) > 1 else float("nan")
            print(
                f"{users:>8,}{items:>7}  {name:<22}{thresholds:<12}{fmean(means):>8.4f}{spread:>10.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
