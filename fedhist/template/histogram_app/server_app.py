"""The server: it asks the nodes twice, charges a ledger before each draw of noise, and prints what it may release."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import fedhist
from fedhist.server import charged, run_on_grid

from .items import ITEMS

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the plan in the run-config, and print the histogram."""
    config = context.run_config
    plan = fedhist.Plan(
        users=int(config["users"]),
        items=len(ITEMS),
        epsilon=float(config["epsilon"]),
        delta=float(config["delta"]),
        max_threshold=float(config["max-threshold"]),
        minimum_cohort=int(config["minimum-cohort"]),
    )
    file = Path(str(config["ledger"])) if config["ledger"] else None
    with charged(file, plan, label="histogram") as journal:
        ledger = fedhist.Ledger(journal=journal)
        release = run_on_grid(
            grid,
            plan,
            labels=ITEMS,
            ledger=ledger,
            timeout=float(config["timeout"]),
            minimum_nodes=int(config["minimum-nodes"]),
        )
    for item, estimate, least in zip(ITEMS, release.estimate, release.at_least, strict=True):
        print(f"{item}: {estimate:,.0f}, at least {least:,.0f}")
    cost = ledger.tight()
    print(f"epsilon {cost.epsilon:.4g}, delta {cost.delta:.3g}")
