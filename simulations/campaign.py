"""A simulated release of a campaign: one memory file that stands for those of all devices.

The same file, and the same arithmetic, as on a node. What users have left is read when the run begins, so that every
engine can hand it out with the users, and spent right before the release is charged, so that a round that fails or is
broken off spends nothing: its sum was seen by nobody. If another run has used the file in between, this one ends
without a charge and without a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from fedhist.client.campaign_users import taken_by, with_left
from fedhist.client.files.user_keys import number_keys
from fedhist.client.memory_file import MemoryFile
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import Population
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
    """Refuse a memory that knows of fewer releases of the campaign than the ledger: a new one, or an older copy.

    Each was spent before it was charged. The ledger counts them all as one bound for each user, of which such a memory
    would hand out some a second time.
    """
    campaign = plan.of_campaign
    if campaign is None or memory is None or ledger is None:
        return
    if not ledger.is_file() or not ledger.stat().st_size:
        return
    charges = BudgetFile.open(ledger, create=False).charges()
    charged = sum(charge.loss == campaign for charge in charges)
    known = MemoryFile(memory).releases(campaign.key)
    if known < charged:
        raise InvalidInput(
            f"the ledger {ledger.name} has {charged} release{'' if charged == 1 else 's'} of the campaign "
            f"{plan.campaign!r}, and the memory {memory.name} knows of {known or 'none'}",
            allowed="the memory of all earlier windows: another one, or an older copy, would give users again what "
            "they have used, and the ledger does not count that",
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
    # Counted first: a run that comes between the two makes this one fail, and not send what is no longer left.
    before = file.releases(campaign.key)
    bounded = with_left(population, file.left(campaign.key, keys))

    def spend(request: Request) -> None:
        if isinstance(request.given, Bound):
            take = partial(taken_by, population, threshold=request.given.threshold, visits=campaign.visits)
            file.spend(campaign.key, keys, take, after=before)

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
