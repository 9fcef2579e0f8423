"""The first screen of a run's page: what was released, how far to trust it, and what it cost, in words.

Every sentence is made from what the plan and the release say. `tests/scenarios/test_words_of_runs.py` checks them for
every kind of plan.
"""

from __future__ import annotations

import math
from typing import Any

from fedhist.display.plurals import counted
from fedhist.display.visible_text import visible
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.protocol.rounds import Round
from fedhist.server.words import lost_words, method, release_words, round_words, significant
from fedhist.simulations.report.charts import number
from fedhist.simulations.report.pieces import BADGE, Card, cards, head
from fedhist.simulations.report.run_data import RunData

_NAME_LETTERS = 60
_NOT_PRIVATE, _BESIDE = "not private: ", "run, not private: "
# A factor of e^epsilon beyond this one is no limit that means anything to a reader.
_LARGEST_EPSILON = 12.0
_OTHERS = {
    Neighbours.ZERO_OUT: "With or without any one user's data",
    Neighbours.REPLACE_ONE: "Whatever data any one user had",
    Neighbours.ADD_OR_REMOVE_ONE: "With or without any one user",
}
_LOSS_WORDS = (
    "The absolute errors of all values add up to this share of all counts: 0\u00a0% is exact, and a histogram of zeros "
    "loses 100\u00a0%."
)


def first_screen(run: RunData) -> str:
    """The name of the run, one sentence that can be forwarded, and three answers."""
    answers = (
        Card("What was released", _released_value(run), _released_words(run), _true_words(run)),
        Card("How far to trust it", _trust_value(run), _trust_words(run), _loss_words(run)),
        Card("What it cost in privacy", _cost_value(run), _cost_words(run)),
    )
    return head("fedhist run", run.name, headline(run), *_kinds(run)) + cards(answers)


def headline(run: RunData) -> str:
    """The run in one sentence."""
    users, cost = _users(run), "and not private"
    if is_private(run):
        cost = f"at a privacy cost of {_guarantee(run.document['tight'])}"
    if run.found_nothing:
        said = f"no item was found among those of {users}, and nothing was released, {cost}."
    elif len(run.values) == 0:
        said = f"no item of {users} was above the bar, and only the threshold was released, {cost}."
    else:
        items = counted(len(run.values), "item")
        clip = "clipping, which takes away most from large items, and " if bias_words(run) else ""
        said = (
            f"{items} counted over {users}, with {clip}noise with a standard error of {_error(run)}, {cost}."
        )
    kinds = ["simulation"] if run.document.get("simulation_only") else []
    kinds += [f"first of {run.trials} trials"] if run.trials > 1 else []
    return _sentence(": ".join(filter(None, [", ".join(kinds), said])))


def is_private(run: RunData) -> bool:
    """Whether its methods are private: a seed, or an evaluation beside it, is said apart."""
    return run.document["tight"]["epsilon"] is not None and not any(
        map(why_not, run.document.get("notes", []))
    )


def why_not(note: str) -> bool:
    """Whether a note of the result says why the run is not private."""
    return note.startswith(_NOT_PRIVATE)


def bound_words(run: RunData) -> str:
    """What the threshold means for a user."""
    return round_words(run.way)[Round.RELEASE].bound.format(C=number(run.threshold))


def bias_words(run: RunData) -> str:
    """What clipping does to the values, and what the release tells of it; empty where that is undone."""
    bias = release_words(run.way).bias
    return f"{bias}; a release does not show by how much." if bias else ""


def _kinds(run: RunData) -> list[str]:
    kinds = []
    if not is_private(run):
        kinds.append('<span class="badge loud">not private: do not publish</span>')
    elif not run.document.get("private", True):
        how = "evaluated" if run.document.get("seed") is None else "seeded"
        kinds.append(f'<span class="badge loud">{how}, not private: do not publish</span>')
    if run.simulated:
        kinds.append(f'<span class="hint">What is marked {BADGE} was computed from the exact data.</span>')
    return kinds


def _users(run: RunData) -> str:
    """The number of users in the last sum, and of all users if some did not answer."""
    answered: dict[str, int] = run.document.get("users_answered", {})
    last = answered.get(Round.RELEASE.value, answered.get(Round.DISCOVER.value, run.plan.users))
    everybody = counted(run.plan.users, "user")
    when = f" in {run.plan.window}" if run.plan.window else ""
    return f"{everybody}{when}" if last == run.plan.users else f"{last:,} of {everybody}{when}"


def _guarantee(cost: dict[str, Any]) -> str:
    delta = f", delta {cost['delta']:.3g}" if cost["delta"] else ""
    return f"epsilon {number(cost['epsilon'])}{delta}"


def _error(run: RunData) -> str:
    """The standard error of the noise on a count; of items with noise of their own, the least and the most."""
    least, most = _about(float(run.errors.min())), _about(float(run.errors.max()))
    return least if least == most else f"{least} to {most}"


def _released_value(run: RunData) -> str:
    return "nothing" if run.found_nothing else counted(len(run.values), "item")


def _released_words(run: RunData) -> list[str]:
    plan = run.plan
    if run.found_nothing:
        return ["No item's noisy weight was above the bar of the discovery."]
    if len(run.values) == 0:
        return ["No item's noisy count was above the bar. Only the threshold was released."]
    if plan.discovers:
        known = ", or public already" if plan.known else ""
        said = f"Items that were found privately{known}, each with a noisy count. Others are not in it."
    elif plan.is_open:
        said = "The items whose noisy count is above a bar, with these counts. Others are not in it."
    else:
        told = (
            "inferred from the data" if "items" in run.document.get("not_private", []) else "fixed beforehand"
        )
        every = "for each item" if len(run.values) > 1 else "for the one item"
        said = f"A noisy count {every} of a list that was {told}."
    largest = int(run.estimates.argmax())
    estimate, least = (number(float(counts[largest])) for counts in (run.estimates, run.at_least))
    name = visible(run.labels[largest], _NAME_LETTERS)
    most = "The largest estimate" if len(run.values) > 1 else "The estimate"
    return [
        said,
        f"{most} is {estimate}, and the count at least {least} (95\u00a0%), for “{name}”.",
        f"Method: {method(plan, run.document.get('mechanism'))}. {bound_words(run)}",
    ]


def _true_words(run: RunData) -> list[str]:
    """The true count of the item whose estimate is named."""
    largest = int(run.estimates.argmax()) if len(run.estimates) else -1
    if largest not in run.true:
        return []
    return [f"The true count of “{visible(run.labels[largest], _NAME_LETTERS)}” is {run.true[largest]:,}."]


def _trust_value(run: RunData) -> str:
    if len(run.values) == 0:
        return "no counts"
    return f"{int((run.at_least > 0).sum()):,} of {len(run.values):,}"


def _trust_words(run: RunData) -> list[str]:
    if len(run.values) == 0:
        return []
    own = ", by item" if run.has_own_noise else ""
    said = [
        f"{significant(run.at_least)}.",
        f"The standard error of the noise on a count is {_error(run)}{own}.",
    ]
    return [*said, *filter(None, [bias_words(run), _lie_words(run)])]


def _lie_words(run: RunData) -> str:
    """What simulated liars do to all that is said of noise; empty without any."""
    faults: dict[str, Any] = run.document.get("faults") or {"rounds": {}}
    nodes = max((sum(one["lying"].values()) for one in faults["rounds"].values()), default=0)
    if not nodes:
        return ""
    return f"{nodes:,} of {counted(faults['nodes'], 'node')} made answers up. No lower limit allows for that."


def _loss_words(run: RunData) -> list[str]:
    """What only the exact data tells."""
    document, plan = run.document, run.plan
    loss = document.get("relative_loss")
    if loss is None:
        return []
    name = "Relative loss" if run.trials == 1 else f"Mean relative loss of {run.trials} trials"
    said = f"{name}: {_percent(loss)}. {_LOSS_WORDS}"
    if len(run.values) == 0 or document.get("faults") is not None:
        return [said]
    clipped = f"{lost_words(plan)} {_percent(document['clipping_error'])}"
    parts = f"{clipped}, {release_words(run.way).adds} {_percent(document['noise_error'])}"
    if plan.per_item:
        return [f"{said} Before debiasing: {parts}, both {_percent(document['relative_loss_clipped'])}."]
    return [
        f"{said} Its parts, which may cancel: {parts}. Estimates lose {_percent(document['estimate_loss'])}."
    ]


def _cost_value(run: RunData) -> str:
    return f"ε\u00a0{number(run.document['tight']['epsilon'])}" if is_private(run) else "not private"


def _cost_words(run: RunData) -> list[str]:
    document = run.document
    if not is_private(run):
        reasons = [note.removeprefix(_NOT_PRIVATE) for note in document.get("notes", []) if why_not(note)]
        return [f"{_sentence(reason)}." for reason in reasons] or ["A step of this run is not private."]
    cost = document["tight"]
    beside = [f"{_sentence(note)}." for note in document.get("notes", []) if _BESIDE in note]
    said = [*beside, "What follows holds without that."] if beside else []
    said += [f"{_sentence(_guarantee(cost))}, for all rounds together.", _factor_words(run, cost)]
    return [*said, _trusted_words(run)]


def _factor_words(run: RunData, cost: dict[str, Any]) -> str:
    """What epsilon and delta promise."""
    if cost["epsilon"] > _LARGEST_EPSILON:
        return "An epsilon this large limits little of what can be told about one user."
    other = _OTHERS[run.plan.neighbours]
    factor = f"the same up to a factor of {_about(math.exp(cost['epsilon']))}"
    apart = f", apart from a probability of {cost['delta']:.3g}" if cost["delta"] else ""
    public = "" if run.plan.hides_users else " The number of users is public."
    return f"{other}, the probability of what was released is {factor}{apart}.{public}"


def _trusted_words(run: RunData) -> str:
    """Who saw what, beside the release."""
    if run.plan.noise_by_devices:
        return "Participants masked what they sent and added the noise: the server saw noisy sums only."
    if run.plan.is_masked:
        return "Participants masked what they sent: the server saw sums only, and added the noise."
    return "The server is trusted: it saw what participants sent, and added the noise."


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _about(value: float) -> str:
    """Three digits, for a sentence."""
    return number(float(f"{value:.3g}"))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
