"""A plan in words: who sends, what each round asks, how users are clipped and sums noised. For reports."""

from __future__ import annotations

from fedhist.display.text import counted
from fedhist.protocol.histograms import Floats
from fedhist.protocol.measurements.base import Round, Words
from fedhist.protocol.plan import Plan
from fedhist.server.estimates import LEVEL
from fedhist.server.releases import rule_for
from fedhist.server.releases.contract import RuleWords
from fedhist.server.steps import measurements_of


def round_words(plan: Plan) -> dict[Round, Words]:
    """What each round of the plan asks for."""
    return {
        round_: kind.words(plan if round_ is Round.DISCOVER else plan.releasing)
        for round_, kind in measurements_of(plan).items()
    }


def sender(plan: Plan) -> str:
    """Whose message the server sees: a user's device, or under masks a participant with any number of users."""
    return "a participant" if plan.is_masked else "one user's device"


def release_words(plan: Plan) -> RuleWords:
    """What the server does with the sum that it releases."""
    return rule_for(plan.releasing).words(plan.releasing)


def method(plan: Plan, mechanism: str | None = None) -> str:
    """How users are clipped, and how the sum is noised; `mechanism` is the one that the run chose, if it did."""
    found, chosen, way = "discovered items, " if plan.discovers else "", "", plan.releasing
    if way.chooses_mechanism and (settled := way.ways.get(mechanism or "")):
        chosen, way = " (chosen by the run)", settled
    return f"{found}{round_words(way)[Round.RELEASE].clip}, {release_words(way).noise} noise{chosen}"


def users_words(plan: Plan) -> str:
    """The plan's number of users, and whether it is theirs."""
    known = "given, the real number is hidden" if plan.hides_users else "the number is public"
    return f"{plan.users:,} users ({known})"


def lost_words(plan: Plan) -> str:
    """What stands between the exact histogram and the sum before noise."""
    return "not found or clipped" if plan.discovers else "clipping alone"


def discovery_words(plan: Plan) -> RuleWords:
    """What the server does with the sum that it finds items in."""
    known = f" The {len(plan.known):,} items that are public already are added." if plan.known else ""
    bars = [f"{bar / 2**plan.discovery.bits:,.1f}" for bar in plan.discovery.bars]
    second = (
        f" If these cover too little of all weight, it looks again with less noise and a bar of {bars[-1]}."
        if len(bars) > 1
        else ""
    )
    return RuleWords(
        "adds noise, a bar",
        "The server adds discrete Gaussian noise to every item's weight and keeps the items above the bar, "
        f"{bars[0]}.{second} From here on the list of items is public.{known}",
        "gaussian",
    )


def significant(limits: Floats) -> str:
    """The number of items whose `at_least` is above 0, which is what significant means everywhere."""
    clear = int((limits > 0).sum())
    verb = "is" if clear == 1 else "are"
    return f"{clear:,} of {counted(len(limits), 'item')} {verb} significantly above 0 ({100 * LEVEL:.0f} %)"


def charged_ahead(plan: Plan) -> set[Round]:
    """The rounds that are charged before devices are asked, because their answers are results already."""
    return {round_ for round_, kind in measurements_of(plan).items() if kind.charged_ahead(plan)}
