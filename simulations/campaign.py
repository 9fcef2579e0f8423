"""A simulated release of a campaign: one memory file that stands for those of all devices.

The same file, and the same arithmetic, as on a node. What users have left is read when the run begins, so that every
engine can hand it out with the users, and spent right before the release is charged, so that a round that fails or is
broken off spends nothing: its sum was seen by nobody. If another run has used the file in between, this one ends
without a charge and without a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedhist.client.campaign_users import taken_by, with_left
from fedhist.client.files.user_keys import number_keys
from fedhist.client.memory_file import MemoryFile
from fedhist.protocol.errors import InvalidInput, RoundFailed
from fedhist.protocol.grid import Threshold
from fedhist.protocol.histograms import Integers, Population
from fedhist.protocol.measurements.given import Bound
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.campaign_loss import CampaignLoss
from fedhist.protocol.privacy.ledger import Charge
from fedhist.protocol.rounds import Request, Round
from fedhist.server.ledger.budget_file import BudgetFile

Spend = Callable[[Request], None]
"""Called with the request of the release before it is charged."""


def check_memory(campaign: str | None, memory: Path | None) -> None:
    """Refuse a campaign without a memory, and a memory without a campaign."""
    if campaign is not None and memory is None:
        raise InvalidInput(
            "a campaign without a memory of what its users have left",
            allowed="--campaign with --campaign-memory, a file that is made if missing and kept for all windows",
            advice="add --campaign-memory FILE; nodes of a deployment have a memory-path of their own",
        )
    if campaign is None and memory is not None:
        raise InvalidInput(
            "--campaign-memory without a campaign",
            allowed="--campaign-memory with --campaign and --visits",
            advice="leave it out",
        )


def check_same_memory(plan: Plan, memory: Path | None, ledger: Path | None) -> None:
    """Refuse a memory that knows of fewer releases of a campaign than the ledger: another file, or an older copy.

    The ledger counts them all as one bound for each user, and under such a memory users would get more than that. A
    release is noted in the memory before it is charged, so the right one knows of all that are charged.
    """
    campaign = plan.of_campaign
    if (
        campaign is None
        or memory is None
        or ledger is None
        or not ledger.is_file()
        or not ledger.stat().st_size
    ):
        return
    charged = sum(charge.loss == campaign for charge in BudgetFile.open(ledger, create=False).charges())
    known = MemoryFile(memory).asked(campaign.key) if charged else 0
    if known < charged:
        knows = "nothing of them" if not known else f"only {known:,}: it is an older copy"
        raise InvalidInput(
            f"the ledger {ledger.name} has {charged:,} releases of the campaign {plan.campaign!r}, and the memory "
            f"{memory.name} knows {knows}",
            allowed="the memory of the campaign's earlier windows, as the last one left it: with another one users "
            "would get a second bound, which the ledger does not count",
            advice="put that file back; if it is lost, begin another campaign, which is charged anew",
        )


def in_campaign(population: Population, plan: Plan, memory: Path | None) -> tuple[Population, Spend]:
    """The population with what its users have left, and what spends it; as it is outside of campaigns."""
    check_memory(plan.campaign, memory)
    campaign = plan.of_campaign
    if campaign is None or memory is None:
        return population, lambda request: None
    file = MemoryFile(memory)
    keys = getattr(population, "user_keys", None)
    if keys is None:
        keys = number_keys(0, population.users, file.user_key())
    left = file.left(campaign.key, keys)
    bounded = with_left(population, left)

    def spend(request: Request) -> None:
        if isinstance(request.given, Bound):
            take = partial(_taken, _Seen(memory, population, left), request.given.threshold, campaign.visits)
            file.spend(campaign.key, keys, take)

    return bounded, spend


def spent_first(
    spend: Spend, requests: Mapping[Round, Request], journal: Callable[[Charge], None] | None
) -> Callable[[Charge], None]:
    """A journal that has what users send of their bounds on disk before it charges the release.

    Args:
        spend: see `in_campaign`.
        requests: what was asked, the release by the time that it is charged.
        journal: charges; None for none.
    """

    def charge(charged: Charge) -> None:
        if isinstance(charged.loss, CampaignLoss):
            spend(requests[Round.RELEASE])
        if journal is not None:
            journal(charged)

    return charge


@dataclass(frozen=True, eq=False)
class _Seen:
    """What the run was begun with."""

    memory: Path
    population: Population
    left: Integers


def _taken(seen: _Seen, threshold: Threshold, visits: int, left: Integers) -> Integers:
    if not np.array_equal(left, seen.left):
        raise RoundFailed(
            f"another run has used {seen.memory} since this one began; nothing was released. Run it again"
        )
    return taken_by(seen.population, left, threshold, visits=visits)
