"""What a plan says of its campaign: many windows, one release each, and one l2 bound for a user over all of them.

With a campaign, the plan's epsilon and delta are those of all its releases together, for one user over the whole
campaign (`privacy/campaign_loss` has the proof). The choice of the threshold is not bounded by it: it costs anew each
time that it is made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedhist.protocol.errors import InvalidPlan
from fedhist.protocol.privacy.calibration import noise_multiplier
from fedhist.protocol.privacy.campaign_loss import MAX_VISITS, CampaignLoss, Releases

if TYPE_CHECKING:
    from fedhist.protocol.plan import Plan

_TAG = b"fedhist/1/campaign\x00"
_LONGEST_NAME = 100
_TERMS = ("campaign", "visits", "epsilon", "delta", "calibration", "neighbours")


def campaign_of(plan: Plan) -> CampaignLoss | None:
    """The campaign that a release of this plan belongs to; None for a plan without one."""
    if plan.campaign is None:
        return None
    return campaign_in({name: getattr(plan, name) for name in _TERMS})


def campaign_in(plan: Mapping[str, Any]) -> CampaignLoss | None:
    """The same for a plan as JSON has it."""
    if plan.get("campaign") is None:
        return None
    terms = [plan[name] for name in _TERMS]
    text = json.dumps([str(one) if isinstance(one, str) else one for one in terms], allow_nan=False)
    multiplier = noise_multiplier(plan["epsilon"], plan["delta"], calibration=plan["calibration"])
    return CampaignLoss(
        key=hashlib.sha256(_TAG + text.encode()).hexdigest(),
        visits=plan["visits"],
        multiplier=multiplier,
        epsilon=plan["epsilon"],
        delta=plan["delta"],
    )


def releases_in(plan: Mapping[str, Any]) -> Releases:
    """What of a run of this plan, as JSON has it, is a release of a campaign."""
    campaign = campaign_in(plan)
    return () if campaign is None else ((campaign, 1),)


def check_campaign(plan: Plan) -> None:
    """Refuse a campaign without its number of visits, and one of releases that the bound is not made for."""
    if (plan.campaign is None) != (plan.visits is None):
        raise InvalidPlan(
            "a campaign without visits" if plan.visits is None else "visits without a campaign",
            allowed="both: the campaign's name, and the number of windows that one user may fill",
            advice=f"give --{'visits' if plan.visits is None else 'campaign'}, too, or leave both out",
        )
    if plan.campaign is None or plan.visits is None:
        return
    if not plan.campaign.isprintable() or not 1 <= len(plan.campaign) <= _LONGEST_NAME:
        raise InvalidPlan(
            "the campaign's name is empty, too long or has characters that can't be shown",
            allowed=f"1 to {_LONGEST_NAME} printable characters",
        )
    if not 1 <= plan.visits <= MAX_VISITS:
        raise InvalidPlan(f"visits is {plan.visits}", allowed=f"a whole number from 1 to {MAX_VISITS}")
    problems = {
        "without a window": plan.window is None,
        "over an open domain": plan.is_open,
        "with a release rule": plan.release is not None,
        f"with the mechanism {plan.mechanism}": plan.mechanism != "gaussian",
        "with debiasing": plan.per_item,
        "with noise from devices": plan.noise_by_devices,
    }
    for problem, there in problems.items():
        if there:
            raise InvalidPlan(
                f"a campaign {problem}",
                allowed="a campaign of windows over a closed domain, with Gaussian noise that the server adds",
                advice=_way_out(plan),
            )


def _way_out(plan: Plan) -> str:
    """What to do about a campaign that the bound is not made for."""
    if plan.window is None:
        return "name the --window"
    if plan.is_open:
        return "give the items with --items-file or --bins, or leave --visits out, and --campaign with it"
    return "leave that out, or leave --visits out, and --campaign with it"
