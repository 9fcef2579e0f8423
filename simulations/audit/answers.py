"""Audits of answers: nobody is counted twice, and a device that is asked again gives no second view of its data.

They run the server's own collection and the devices' own memories, and compare exact sums, so that no noise can hide
an extra answer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from fedhist.client.device import answer_population, clear_answer
from fedhist.client.policy import Memory, Policy, admit, check, round_cost
from fedhist.protocol.errors import FedhistError, Refused
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.composition import epsilon_at
from fedhist.protocol.privacy.randomness import Source, SystemSource
from fedhist.protocol.rounds import Request, Round, Total
from fedhist.protocol.wire.codec import encode
from fedhist.protocol.wire.envelope import Envelope, Status, new_run_name
from fedhist.server.collection import Collector, LabelTable, Reply, matched
from fedhist.server.steps import planned_charges, select_request
from fedhist.simulations.audit.findings import Check, Finding, Setting, none_wrong
from fedhist.simulations.audit.worlds import crafted, release_at, requests_of

NODES = 6
_ASKED = 20
"""How often a device is asked again. One of four items is kept, so that this many equal answers are no coincidence."""
_DELTA_OF_ALL = 1e-4
"""Of all that a device answers that has a limit on epsilon and names none on delta."""
_LABELS = ("a", "b", "c", "d")


# Plans for twice the users, so that a user who is counted twice is in the sum instead of being refused.
_COMMON: dict[str, Any] = {
    "users": 2 * NODES, "epsilon": 1.0, "epsilon_select": 1.0, "candidates": 16, "max_threshold": 64.0,
}  # fmt: skip
_CLOSED = _COMMON | {"items": len(_LABELS), "mechanism": "laplace"}
_SECAGG = _CLOSED | {"masking": "secagg", "participants": NODES, "corrupt_share": 0.0, "dropout_share": 0.0}
_CLEAR = {
    "closed": _CLOSED,
    "open": _COMMON | {"domain": "open", "release": "truncated-laplace"},
}
_MASKED = {"masked": _SECAGG, "masked, noise from devices": _SECAGG | {"noise_from": "devices"}}


def _collected(request: Request, twice: Collection[int], *, source: Source) -> Total | None:
    """The sum of all nodes' answers, some of which arrive twice; None if the collection fails."""
    envelope = Envelope(run=new_run_name(source=source.fork("run")), request=request)
    replies = []
    for node in range(NODES):
        # A user whose counts are not the sum of any other set of users.
        user = crafted([[(node % len(_LABELS), 1 << node)]], len(_LABELS), _LABELS)
        contribution = answer_population(request, user, source=source.fork("device", node))
        reply = Reply(
            asked=f"message {node}",
            node=node,
            failed=False,
            fields=envelope.reply_fields(Status.ANSWER),
            data=encode(contribution, request, user.labels),
        )
        replies += [reply] * (2 if node in twice else 1)
    collector = Collector(envelope, LabelTable())
    asked = {f"message {node}": node for node in range(NODES)}
    for _, reply in matched(asked, replies, lambda fault, node: None):
        collector.add(reply.fields, reply.data)
    try:
        return collector.total()
    except FedhistError:
        return None


def counted_once(setting: Setting) -> Finding:
    """If some nodes' answers arrive twice, the sums of both rounds are those of every node answering once.

    Masked answers have a check of their own.
    """
    wrong = cases = 0
    for name, settings in _CLEAR.items():
        for request in requests_of(Plan(**settings)):
            source = setting.auditor().fork(name, request.round.value)
            once = _parts(_collected(request, (), source=source))
            for twice in ((0,), (NODES - 1,), range(NODES)):
                cases += 1
                wrong += once is None or _parts(_collected(request, twice, source=source)) != once
    return none_wrong(setting, wrong, cases, "sums with repeated answers wrong")


def one_view(setting: Setting) -> Finding:
    """A server that asks again within a run gets no second view, and no device is charged less than was promised.

    A device that gets the same request again repeats its answer, bit by bit. It must not answer if the first answer was
    masked (two masked answers would have two shares of noise), nor for another threshold or another plan.
    """
    wrong = cases = 0
    for name, settings in (_CLEAR | _MASKED).items():
        plan = Plan(**settings)
        run = new_run_name(source=setting.auditor().fork(name))
        memory = Memory()
        other = replace(plan, epsilon=plan.epsilon / 2)
        lower = release_at(plan, int(plan.candidate_steps[0]))
        for request, changed in zip(requests_of(plan), requests_of(other), strict=True):
            memory = admit(Policy(), memory, Envelope(run=run, request=request))
            forbidden = [changed, *([request] if name in _MASKED else [])]
            forbidden += [lower] if request.round is Round.RELEASE else []
            cases += len(forbidden)
            wrong += sum(_admits(memory, Envelope(run=run, request=again)) for again in forbidden)
        if name in _CLEAR:
            cases += 1
            # A device whose clipping is random: it has more of every item than the threshold.
            user = crafted([[(item, 40) for item in range(len(_LABELS))]], len(_LABELS), _LABELS)
            asked = Envelope(run=run, request=lower)
            answers = (
                clear_answer(asked, user, secret=bytes(32), source=SystemSource()) for _ in range(_ASKED)
            )
            wrong += len(set(answers)) > 1
        due = round_cost(plan, Round.SELECT, paid=False) + round_cost(plan, Round.RELEASE, paid=False)
        cases += 1
        wrong += memory.spent.epsilon < due.epsilon or memory.spent.delta < due.delta
    return none_wrong(setting, wrong, cases, "second views given or charges missing")


def floors(setting: Setting) -> Finding:
    """A device refuses a plan that promises less than its policy demands, and accepts one that promises enough."""
    policy = Policy(
        minimum_masking="secagg", minimum_participants=NODES, minimum_corrupt_share=0.1, noise_from_devices=True,
        minimum_cohort=3,
    )  # fmt: skip
    good = Plan(**_SECAGG | {"noise_from": "devices", "corrupt_share": 0.2, "minimum_cohort": 3})
    lower: dict[str, Plan] = {
        "masks": replace(good, masking="none", participants=None, corrupt_share=0.05, dropout_share=0.1,
                         noise_from="server"),
        "participants": replace(good, participants=NODES - 1),
        "survivors": replace(good, dropout_share=0.3),
        "corrupt share": replace(good, corrupt_share=0.0),
        "noise": replace(good, noise_from="server"),
        "users": replace(good, minimum_cohort=2),
    }  # fmt: skip
    run = new_run_name(source=setting.auditor().fork("floors"))
    wrong = sum(
        _admits(Memory(), Envelope(run=run, request=select_request(plan)), policy) for plan in lower.values()
    )
    signed = replace(policy, minimum_masking="secagg-signed")
    wrong += _admits(Memory(), Envelope(run=run, request=select_request(good)), signed)
    wrong += not _admits(Memory(), Envelope(run=run, request=select_request(good)), policy)
    return none_wrong(setting, wrong, len(lower) + 2, "plans accepted or refused by mistake")


def lying_server(setting: Setting) -> Finding:
    """A device with a limit answers nothing that its users were not promised, whatever the server asks.

    It is asked for plans whose epsilon is next to nothing and whose delta is not, in one round or split over several;
    for methods that say that they are not private; for a seeded run; for another plan or threshold in a run; and for
    run after run, until it refuses: what it has answered by then must fit its limit.
    """
    tiny: dict[str, Any] = {"epsilon": 1e-3, "epsilon_select": 1e-3}
    gaussian = _CLOSED | {"mechanism": "gaussian"}
    signed = gaussian | {"masking": "secagg-signed", "participants": NODES, "noise_from": "devices"}
    half, split = {"delta": 0.49}, {"delta": 6e-6, "delta_select": 6e-6}
    plan = Plan(**gaussian)
    lies = [Plan(**base | tiny | more) for base in (gaussian, signed) for more in (half, split)]
    lies += [Plan(**_CLOSED | tiny | {"delta_select": 0.49})]
    lies += [Plan(**_CLOSED | {"selector": name}) for name in ("oracle", "median", "p90")]
    first, policy = Envelope("run 0", release_at(plan, 1)), Policy(max_epsilon=2.0)
    asked = [replace(first, seeded=True), *(Envelope("run 0", release_at(lie, 1)) for lie in lies)]
    wrong = sum(_admits(Memory(), envelope, policy) for envelope in asked)
    memory, runs = admit(policy, Memory(), first), 1
    again = [Envelope("run 0", requests_of(other)[1]) for other in (plan, replace(plan, epsilon=0.5))]
    wrong += sum(_admits(memory, envelope, policy) for envelope in again)
    while runs < _ASKED and _admits(memory, envelope := replace(first, run=f"run {runs}"), policy):
        memory, runs = admit(policy, memory, envelope), runs + 1
    # Of each run the release alone was asked for; its charge is the last.
    wrong += epsilon_at(runs * planned_charges(plan)[-1:], _DELTA_OF_ALL) > policy.max_epsilon
    return none_wrong(setting, wrong, len(asked) + len(again) + 1, "requests answered that should be refused")


def _admits(memory: Memory, envelope: Envelope, policy: Policy | None = None) -> bool:
    try:
        check(policy or Policy(), memory, Envelope.from_fields(envelope.to_fields()))
    except Refused:
        return False
    return True


def _parts(total: Total | None) -> object:
    """All of a sum, item by item, in a form that can be compared."""
    if total is None:
        return None
    keyed = None if total.keyed is None else (total.keyed.keys.tolist(), total.keyed.values.tolist())
    return total.users, total.values.tolist(), list(total.labels or ()), keyed


CHECKS = (
    Check("answers, counted once", counted_once),
    Check("answers, one view", one_view),
    Check("answers, floors", floors),
    Check("answers, a lying server", lying_server),
)
