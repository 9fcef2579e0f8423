"""What a plan can't achieve, known before anything is spent, and what the end of a range says after a run.

Everything here is computed from the plan, and after a run from the release: both are public. A warning is true for all
data or says of which users it speaks; it names what to change.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedhist.protocol.measurements.base import Round
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.rules import usual_delta
from fedhist.protocol.plan.terms import table_notes
from fedhist.protocol.privacy.composition import basic_total, tight_total
from fedhist.server.releases import rule_for
from fedhist.server.releases.contract import Release
from fedhist.server.selection import selector_for
from fedhist.server.steps import planned_charges
from fedhist.server.words import round_words

_FEW_ITEMS = 64
_FEW_FOUND = 10
_MOST_EPSILON = 11.0
"""Of all rounds: 10, beyond which a guarantee is called weak or none (Ponomareva et al. 2023), and a tenth more."""
_SURE = 2.0
"""Standard errors by which a released sum must differ from what it is compared with."""


def plan_warnings(plan: Plan) -> dict[str, str]:
    """What to change in the plan before it is run, a sentence each, by a short name. Empty for most plans."""
    useless = _one_user(plan) or _release_warnings(plan)
    if not {"users", "bar"} & set(useless):
        useless |= _choice_by_chance(plan)
    return useless | _weak_promises(plan)


def warnings_of_all(plans: Collection[Plan]) -> list[str]:
    """The warnings of the plans of a table whose rows show errors, the first of each name.

    What only some rows have is left out if their errors show it. Weak promises are not seen there.
    """
    found: dict[str, list[str]] = {}
    for plan in plans:
        for name, text in plan_warnings(plan).items():
            found.setdefault(name, []).append(text)
    return [
        texts[0] if len(texts) == len(plans) else f"in {len(texts):,} of {len(plans):,} rows {texts[0]}"
        for name, texts in found.items()
        if len(texts) == len(plans) or name in ("epsilon", "delta")
    ]


def plan_notes(plan: Plan) -> list[str]:
    """The warnings, and what else a plan's user should know before it costs anything."""
    return [*plan_warnings(plan).values(), *table_notes(plan)]


def release_advice(release: Release) -> list[str]:
    """What to change after a run that released nothing or chose an end of the range of thresholds."""
    plan, little = release.plan, little_released(release)
    if little or plan.threshold is not None:
        return little
    chosen = release.round_plan
    lowest, highest = (math.ldexp(steps, -chosen.grid_bits) for steps in chosen.step_range)
    if lowest == highest:
        return []
    if release.threshold >= highest:
        return [_largest_chosen(release)]
    if release.threshold <= lowest:
        return [note] if (note := _smallest_chosen(release)) else []
    return []


def _one_user(plan: Plan) -> dict[str, str]:
    """A cohort of one, which no budget makes useful: the release is of nobody else."""
    if plan.users > 1:
        return {}
    warning = (
        "the plan is for one user, and a release could show nothing but this user's own counts: at most C of an item, "
        f"C being the threshold, under noise with a standard error of {plan.releasing.one_way.unit_error:.3g} C. Noise "
        "that hides the user leaves nothing to see, and less hides nobody. Ask more users"
    )
    return {"users": warning}


def _weak_promises(plan: Plan) -> dict[str, str]:
    """Budgets that protect nobody, whatever the data is. A selector that is not private is reported as such instead.

    With epsilon for all rounds, a guess at whether a user's data is there, even odds before, may be right but for odds
    of e^-epsilon. With delta in a round, it may show all data of each user with a chance of delta.
    """
    found, charges = {}, [charge for charge in planned_charges(plan) if charge.private]
    # Tight totals take longer, and are never larger.
    if (
        basic_total(charges).epsilon > _MOST_EPSILON
        and (all_ := tight_total(charges).epsilon) > _MOST_EPSILON
    ):
        found["epsilon"] = (
            f"epsilon is {all_:.4g} for all rounds together and protects hardly anybody: a release may be e^{all_:.4g} "
            "times likelier with a user's data than without, and a guess whether it is there may be wrong less than "
            f"once in {min(math.exp(min(all_, 99.0)), 1e6):,.0f} times. Lower --epsilon, --epsilon-select or "
            "--total-epsilon: at most 10 is usual"
        )
    for charge in charges:
        if charge.delta > 1 / (10 * plan.users):
            found["delta"] = (
                f"delta {charge.delta:g} is above 1/(10 users): a round that shows all data of "
                f"{charge.delta * plan.users:,.3g} of {plan.users:,} users, drawn at random, would keep this promise. "
                f"Lower --delta{'-select' if charge.round == Round.SELECT else ''} to "
                f"{usual_delta(plan.users):.3g} or less"
            )
    return found


def _release_warnings(plan: Plan) -> dict[str, str]:
    """Those of the rule. Before items are found, of the fewest that there may be: more make a typical one smaller."""
    if not plan.discovers:
        return rule_for(plan).warnings(plan)
    fewest = plan.discovered(max(len(plan.known), 1), plan.discovery.shares[0])
    return _bar_too_high(plan) or rule_for(fewest).warnings(fewest)


def _is_by_chance(plan: Plan) -> bool:
    """Whether all users together are fewer than those that the choice can't tell from none."""
    return plan.users < _resolution(plan)


def _resolution(plan: Plan) -> float:
    """Of the plan's choice; before items are found, as over a few dozen of them: more make it coarser."""
    after = plan.discovered(_FEW_ITEMS, plan.discovery.shares[0]) if plan.discovers else plan
    return selector_for(after).resolution(after)


def _needed_users(plan: Plan, fewer: str) -> str:
    needed = math.ceil(_resolution(plan))
    return (
        f"with --epsilon-select {plan.epsilon_select:g} it takes about {needed:,} users to be resolved"
        f"{fewer and f' (fewer if {fewer})'}, and the plan has {plan.users:,}"
    )


def _choice_by_chance(plan: Plan) -> dict[str, str]:
    """A choice that can't tell all users from none; of selectors that pay for the range's end, a range too wide."""
    if not _is_by_chance(plan):
        return {}
    if selector_for(plan.releasing).range_costs:
        return {"range": _range_too_wide(plan)}
    words = round_words(plan)[Round.SELECT]
    warning = (
        f"the choice of the threshold will be close to chance: {_needed_users(plan, words.fewer)}. Raise "
        f"--epsilon-select{words.sharper and f', {words.sharper}'}, ask more users, or name a threshold with "
        "--selector fixed"
    )
    return {"choice": warning}


def _range_too_wide(plan: Plan) -> str:
    """The largest end of the range that is not too far."""
    ends = np.ldexp(plan.candidate_steps.astype(np.float64), -plan.grid_bits)[::-1].tolist()
    enough = next((end for end in ends if not _is_by_chance(replace(plan, max_threshold=end))), ends[-1])
    return (
        f"the largest threshold, {plan.max_threshold:g}, is far from what the plan can afford, and the choice up to it "
        f"will be close to chance: {_needed_users(plan, 'they have many counts')}. Lower --max-threshold to about "
        f"{float(f'{enough:.2g}'):g}, raise --epsilon-select or ask more users"
    )


def _bar_too_high(plan: Plan) -> dict[str, str]:
    """All users at the bar of a discovery or below: one weighs at most 1 there. See `KeysAboveBar.warnings`."""
    bar = math.ldexp(plan.discovery.bars[-1], -plan.discovery.bits)
    if plan.known or bar < plan.users:
        return {}
    warning = (
        f"no item can be found with so few users: one that all {plan.users:,} users have, and nothing else, would be "
        f"found less than half of the time, because the bar is {bar:.3g} users. Ask more users, or raise --epsilon, "
        "or --delta"
    )
    return {"bar": warning}


def little_released(release: Release) -> list[str]:
    """What to do about an open domain of which hardly anything was found, or nothing; else nothing."""
    plan, items = release.plan, len(release.histogram)
    if not plan.discovers:
        return [] if items else [_nothing_released(release)]
    if items >= _FEW_FOUND or plan.known:
        return []
    bar = math.ldexp(plan.discovery.bars[-1], -plan.discovery.bits)
    found = (
        f"only {items} item{'' if items == 1 else 's'}" if items else "nothing was released, since no item"
    )
    long = (
        f". Names above {plan.max_item_bytes} bytes are left out (--max-item-bytes)" if plan.is_masked else ""
    )
    return [
        f"{found} {'were' if items > 1 else 'was'} found above the bar, which is the weight of {bar:.3g} users who "
        f"have nothing else, or of {2 * bar:.3g} users with four items each. Ask more users, give a public list with "
        "--items-file, or raise --epsilon or --delta; to look at data of your own without privacy, "
        f"use --domain closed with --evaluate{long}"
    ]


def _nothing_released(release: Release) -> str:
    plan, bar = release.plan, release.bar or 0
    users = math.ceil(bar / release.threshold)
    lower = "" if plan.threshold is not None else ", lower --max-threshold so that more users count for a key"
    return (
        f"nothing was released: no key passed the bar of {bar:,}. At the threshold {release.threshold:g} that takes "
        f"what {users:,} users keep, if they keep nothing else. Ask more users, raise --epsilon or --delta{lower}"
    )


def _released_mass(release: Release) -> tuple[float, float] | None:
    """The sum of a closed domain's values and its standard error; None where values are not the clipped sum."""
    if release.bar is not None or release.item_release is not None:
        return None
    error = release.standard_error * math.sqrt(len(release.histogram))
    return float(release.histogram.sum()), error


def _noise_price(release: Release) -> float:
    """M of the items that were released."""
    return release.round_plan.noise_price


def _largest_chosen(release: Release) -> str:
    """A higher threshold loses less only if W(C) > M, the price of the noise.

    A clipped user of weight w has w C counts left, so all counts that are left are at least C W(C): if they are less
    than C M, then W(C) < M, and a higher threshold loses more. Their sum is released, with noise.
    """
    plan, mass = release.plan, _released_mass(release)
    start = f"the largest threshold, {release.threshold:g}, was chosen"
    if mass is not None and mass[0] + _SURE * mass[1] < _noise_price(release) * release.threshold:
        return f"{start}, and its noise outweighs all counts that are left: lower --max-threshold, or raise --epsilon"
    if _is_by_chance(plan):
        return (
            f"{start}, by a choice that is close to chance and says little about the users: lower --max-threshold, or "
            "raise --epsilon-select"
        )
    return (
        f"{start}: if many users are above it, a higher --max-threshold loses less; if hardly any is, the range is "
        "wide enough"
    )


def _smallest_chosen(release: Release) -> str:
    """It is right where the noise outweighs the counts, and where hardly anybody has more."""
    plan, mass = release.plan, _released_mass(release)
    start = f"the smallest threshold, {release.threshold:g}, was chosen"
    if mass is not None and mass[0] - _SURE * mass[1] < _noise_price(release) * release.threshold:
        return (
            f"{start}, and its noise outweighs all counts that are left: raise --epsilon, release fewer items or ask "
            "more users"
        )
    if _is_by_chance(plan):
        return (
            f"{start}, by a choice that is close to chance and says little about the users: raise --epsilon-select, or "
            "ask more users"
        )
    if release.bar is not None:
        return f"{start}: more counts of a user would not pay for their noise and bar at this --epsilon"
    if plan.min_threshold > 1:
        return f"{start}: hardly any user is above it, and a lower --min-threshold may lose less"
    return ""
