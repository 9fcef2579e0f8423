"""Tables with a user's rows and without them, read and released by the installed system from end to end.

Under add-or-remove-one the rows are taken out, and the table has one user less. Under zero-out the user stays, with a
row of an item that is not listed. Other users are more than the number that the first relation gives, and the last one
has an item of their own: a system that made room for them only when the user goes would be twice as far apart.

Whatever such a run hands out beside values with noise has to be the same for both tables.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.ledger import Cost
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.server.releases.contract import Release
from fedhist.simulations.audit.checks import Check, Finding, Setting, exact
from fedhist.simulations.audit.neighbours import Samples, closed_evidence, judge_events, repeated
from fedhist.simulations.datasets.loading import load
from fedhist.simulations.given_users import with_given_users
from fedhist.simulations.simulation import Result, simulate
from fedhist.simulations.workbench.carrying_out import Asked, check_ready, plan_fields

_GIVEN = 3
_WITHOUT_NOISE = (
    "plan", "private", "users_answered", "users_public", "bytes_per_user", "rounds", "seconds", "ledger", "tight",
    "standard_error", "threshold",
)  # fmt: skip
"""Of a run at a fixed threshold, what noise has no part in."""
_ITEMS = ("own", "other", "last")
_BUDGET = {
    "mechanism": "laplace",
    "epsilon": 2.0,
    "selector": "fixed",
    "threshold": 4.0,
    "max_threshold": 8.0,
}


def removed_rows(neighbours: Neighbours, setting: Setting) -> Finding:
    """The check of a user whose rows are taken out of a table."""
    hidden = neighbours is Neighbours.ADD_OR_REMOVE_ONE
    given = _GIVEN if hidden else None
    gone = [] if hidden else ["user,unlisted,9"]
    with TemporaryDirectory() as folder:
        tables = [_table(Path(folder), name, rows) for name, rows in enumerate((["user,own,9"], gone))]
        seed = next(seed for seed in itertools.count() if _is_user_first(tables[0], seed))
        found = [_released(setting, path, neighbours, given, seed) for path in tables]
    (with_user, told, claim), (without, told_without, _) = found
    if told != told_without:
        return exact(setting, passed=False, detail="a number without noise is another one without the user")
    return judge_events(setting, without, with_user, claim)


def _table(folder: Path, number: int, rows: list[str]) -> Path:
    path = folder / str(number) / "visits.csv"
    path.parent.mkdir()
    others = [f"{place},other,1" for place in range(_GIVEN - 1)]
    path.write_text("\n".join(["user,item,count", *rows, *others, "last,last,9", ""]), encoding="utf-8")
    return path


def _is_user_first(path: Path, seed: int) -> bool:
    """Whether this seed puts the user before all others, and the one with an item of their own behind them."""
    shards = load(Asked(data=path, item_names=_ITEMS), seed).population.shards()
    items = [item for shard in shards for item in shard.items.tolist()]
    return (items[0], items[-1]) == (_ITEMS.index("own"), _ITEMS.index("last"))


def _released(
    setting: Setting, path: Path, neighbours: Neighbours, given: int | None, seed: int
) -> tuple[Samples, dict[str, Any], Cost]:
    """The evidence for the user in runs over this table, what one says beside its values, and its claim."""
    asked = Asked(data=path, item_names=_ITEMS, users=given)
    loaded, source = load(asked, seed), setting.mechanism().fork(path.parent.name)
    plan = Plan(**plan_fields(asked, _BUDGET | {"neighbours": neighbours}, loaded.population))
    check_ready(asked, loaded, plan)
    whole = simulate(loaded.population, plan, seed=1, evaluate=False)
    users = with_given_users(loaded.population, plan)
    found, _ = repeated(plan, users, setting.effort.runs, _evidence, source=source)
    thresholds, evidence = np.array(found).T
    return (thresholds, evidence), _told(whole), whole.tight


def _evidence(release: Release) -> tuple[float, float]:
    """For the user's item and against that of the last user."""
    return release.threshold, closed_evidence([0])(release) - closed_evidence([2])(release)


def _told(result: Result) -> dict[str, Any]:
    """What the result says that does not follow from its values."""
    document = result.to_json()
    return {name: document[name] for name in _WITHOUT_NOISE}


CHECKS = tuple(
    Check(f"rows removed, {neighbours.value}", partial(removed_rows, neighbours), reads_tables=True)
    for neighbours in (Neighbours.ZERO_OUT, Neighbours.ADD_OR_REMOVE_ONE)
)
