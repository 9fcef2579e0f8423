"""The first screen of a run's page: what was released, how far to trust it, and what it cost, in words.

Every sentence is made from what the plan and the release say. `tests/scenarios/test_words_of_runs.py` checks them for
every kind of plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fedhist.display.plurals import counted
from fedhist.display.visible_text import visible
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.protocol.rounds import Round
from fedhist.server.words import lost_words, method, release_words, round_words, significant
from fedhist.simulations.report.charts import number
from fedhist.simulations.report.page import BADGE, card, head
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
    released, trusted = "nothing" if run.found_nothing else counted(len(run.values), "item"), "no counts"
    if len(run.values):
        trusted = f"{int((run.at_least > 0).sum()):,} of {len(run.values):,}"
    cost = f"ε\u00a0{number(run.document['tight']['epsilon'])}" if is_private(run) else "not private"
    return (
        head("fedhist run", run.name, headline(run), *_kinds(run))
        + '<div class="cards">'
        + card("What was released", released, _released_words(run), _true_words(run))
        + card("How far to trust it", trusted, _trust_words(run), _loss_words(run))
        + card("What it cost in privacy", cost, _cost_words(run))
        + "</div>"
    )


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
        clip = "clipping, which takes away most from large items, and " if bias_words(run) else ""
        noise = f"with {clip}noise with a standard error of {_error(run)}"
        said = f"{counted(len(run.values), 'item')} counted over {users}, {noise}, {cost}."
    kinds = ["simulation"] if run.document.get("simulation_only") else []
    kinds += [f"first of {run.trials} trials"] if run.trials > 1 else []
    return _sentence(": ".join(filter(None, [", ".join(kinds), said])))


def is_private(run: RunData) -> bool:
    """Whether its methods are private: a seed, or an evaluation beside it, is said apart."""
    notes = run.document.get("notes", [])
    return run.document["tight"]["epsilon"] is not None and not any(map(why_not, notes))


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


def _kinds(run: RunData) -> Iterator[str]:
    how = "evaluated, " if run.document.get("seed") is None else "seeded, "
    if not is_private(run) or not run.document.get("private", True):
        said = f"{how if is_private(run) else ''}not private: do not publish"
        yield f'<span class="badge loud">{said}</span>'
    if run.simulated:
        yield f'<span class="hint">What is marked {BADGE} was computed from the exact data.</span>'


def _users(run: RunData) -> str:
    """The number of users in the last sum, and of all users if some did not answer."""
    answered: dict[str, int] = run.document.get("users_answered", {})
    last = answered.get(Round.RELEASE.value, answered.get(Round.DISCOVER.value, run.plan.users))
    when = f" in {run.plan.window}" if run.plan.window else ""
    some = "" if last == run.plan.users else f"{last:,} of "
    return f"{some}{counted(run.plan.users, 'user')}{when}"


def _guarantee(cost: dict[str, Any]) -> str:
    delta = f", delta {cost['delta']:.3g}" if cost["delta"] else ""
    return f"epsilon {number(cost['epsilon'])}{delta}"


def _error(run: RunData) -> str:
    """The standard error of the noise on a count; of items with noise of their own, the least and the most."""
    least, most = _about(float(run.errors.min())), _about(float(run.errors.max()))
    return least if least == most else f"{least} to {most}"


def _released_words(run: RunData) -> Iterator[str]:
    plan, several = run.plan, len(run.values) > 1
    if len(run.values) == 0:
        what = (
            "weight was above the bar of the discovery." if run.found_nothing else "count was above the bar."
        )
        yield f"No item's noisy {what}{'' if run.found_nothing else ' Only the threshold was released.'}"
        return
    if plan.discovers:
        known = ", or public already" if plan.known else ""
        yield f"Items that were found privately{known}, each with a noisy count. Others are not in it."
    elif plan.is_open:
        yield "The items whose noisy count is above a bar, with these counts. Others are not in it."
    else:
        read_off = "items" in run.document.get("not_private", [])
        list_ = f"of a list that was {'inferred from the data' if read_off else 'fixed beforehand'}"
        yield f"A noisy count for {'each' if several else 'the one'} item {list_}."
    name, estimate, least = _largest(run)
    yield (
        f"{'The largest estimate' if several else 'The estimate'} is {estimate}, and the count at least {least} "
        f"(95\u00a0%), for “{name}”."
    )
    yield f"Method: {method(plan, run.document.get('mechanism'))}. {bound_words(run)}"


def _largest(run: RunData) -> tuple[str, str, str]:
    """The name, the estimate and the lower limit of the item with the largest estimate."""
    row = int(run.estimates.argmax())
    name = visible(run.labels[row], _NAME_LETTERS)
    return name, number(float(run.estimates[row])), number(float(run.at_least[row]))


def _true_words(run: RunData) -> Iterator[str]:
    """The true count of the item whose estimate is named."""
    if len(run.estimates) and (count := run.true.get(int(run.estimates.argmax()))) is not None:
        yield f"The true count of “{_largest(run)[0]}” is {count:,}."


def _trust_words(run: RunData) -> Iterator[str]:
    if len(run.values) == 0:
        return
    yield f"{significant(run.at_least)}."
    yield f"The standard error of the noise on a count is {_error(run)}{', by item' if run.has_own_noise else ''}."
    yield from filter(None, [bias_words(run)])
    # What simulated liars do to all that is said of noise.
    faults: dict[str, Any] = run.document.get("faults") or {"rounds": {}}
    lying = max((one.get("inflate", 0) for one in faults["rounds"].values()), default=0)
    if lying:
        yield f"{lying:,} of {counted(faults['nodes'], 'node')} made answers up. No lower limit allows for that."


def _loss_words(run: RunData) -> Iterator[str]:
    """What only the exact data tells."""
    document, loss = run.document, run.document.get("relative_loss")
    if loss is None:
        return
    name = "Relative loss" if run.trials == 1 else f"Mean relative loss of {run.trials} trials"
    said = f"{name}: {_percent(loss)}. {_LOSS_WORDS}"
    if len(run.values) == 0 or document.get("faults") is not None:
        yield said
        return
    clipped = f"{lost_words(run.plan)} {_percent(document['clipping_error'])}"
    parts = f"{clipped}, {release_words(run.way).adds} {_percent(document['noise_error'])}"
    if run.plan.per_item:
        yield f"{said} Before debiasing: {parts}, both {_percent(document['relative_loss_clipped'])}."
    else:
        estimates = f"Estimates lose {_percent(document['estimate_loss'])}."
        yield f"{said} Its parts, which may cancel: {parts}. {estimates}"


def _cost_words(run: RunData) -> Iterator[str]:
    document, notes = run.document, run.document.get("notes", [])
    if not is_private(run):
        reasons = [f"{_sentence(note.removeprefix(_NOT_PRIVATE))}." for note in notes if why_not(note)]
        yield from reasons or ["A step of this run is not private."]
        return
    beside = [f"{_sentence(note)}." for note in notes if _BESIDE in note]
    yield from [*beside, "What follows holds without that."] if beside else []
    cost, other = document["tight"], _OTHERS[run.plan.neighbours]
    yield f"{_sentence(_guarantee(cost))}, for all rounds together."
    if cost["epsilon"] > _LARGEST_EPSILON:
        yield "An epsilon this large limits little of what can be told about one user."
    else:
        factor = f"the same up to a factor of {_about(math.exp(cost['epsilon']))}"
        apart = f", apart from a probability of {cost['delta']:.3g}" if cost["delta"] else ""
        public = "" if run.plan.hides_users else " The number of users is public."
        yield f"{other}, the probability of what was released is {factor}{apart}.{public}"
    # Who saw what, beside the release.
    if run.plan.noise_by_devices:
        yield "Participants masked what they sent and added the noise: the server saw noisy sums only."
    elif run.plan.is_masked:
        yield "Participants masked what they sent: the server saw sums only, and added the noise."
    else:
        yield "The server is trusted: it saw what participants sent, and added the noise."


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _about(value: float) -> str:
    """Three digits, for a sentence."""
    return number(float(f"{value:.3g}"))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
