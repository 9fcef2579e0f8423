"""A plan in words: who sends, what each round asks, how users are clipped and sums noised. For reports."""

from __future__ import annotations

from fedhist.protocol.measurements.contract import Round, Words
from fedhist.protocol.plan import Plan
from fedhist.server.releases import rule_for
from fedhist.server.steps import measurements_of


def round_words(plan: Plan) -> dict[Round, Words]:
    """What each round of the plan asks for."""
    return {round_: kind.words(plan) for round_, kind in measurements_of(plan).items()}


def sender(plan: Plan) -> str:
    """Whose message the server sees: a user's device, or under masks a participant with any number of users."""
    return "a participant" if plan.is_masked else "one user's device"


def method(plan: Plan) -> str:
    """How users are clipped, and how the sum is noised."""
    noise = rule_for(plan).words(plan).noise
    return f"{round_words(plan)[Round.RELEASE].clip}, {noise} noise"


def charged_ahead(plan: Plan) -> set[Round]:
    """The rounds that are charged before devices are asked, because their answers are results already."""
    ahead = {Round.SELECT} if plan.noise_by_devices else set()
    return ahead | ({Round.RELEASE} if rule_for(plan).charged_ahead else set())
