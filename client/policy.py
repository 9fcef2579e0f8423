"""What a device refuses: its own limits, and its memory of what it was asked.

A device trusts the server to add the noise that the plan promises, and no further. It counts what the plans it
answered may cost (`protocol/plan/round_costs.py` says what a plan promises), and never gives two different views of its
data in one round of a run. Which plans are good enough is for the device to say: the server chooses the plan, and a
device can insist on masks, on company and on noise.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedhist.protocol.errors import DecodeError, InvalidPlan, Refused
from fedhist.protocol.masking.graph import MaskingTerms, share_of
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.fields import FILLED_IN
from fedhist.protocol.plan.round_costs import (
    MAX_PLAN_DELTA,
    choice_cost,
    promises,
    release_cost,
    run_cost,
    table_cost,
)
from fedhist.protocol.plan.terms import MASKINGS, MAX_PARTICIPANTS, MAX_SHARE
from fedhist.protocol.plan.window import Window, window_in
from fedhist.protocol.privacy.ledger import Limit, Spending
from fedhist.protocol.rounds import Round
from fedhist.protocol.wire.envelope import Envelope, Refusal

# Which windows of time a device has answered, and whether it answers another one.
#
# A run over a window that was answered before, or over one that shares a day with it, would be a second look at the
# same rows, at a time and with a plan of the server's choice. The rounds of one run are one look.


def check_not_answered(answered: Mapping[str, str], run: str, window: str | None, *, most: int) -> None:
    """Refuse a run if a day of its window would be in more runs than the device allows.

    Args:
        answered: the window of each run that was charged.
        run: the run's name.
        window: its window. A plan without one is none of this module's business.
        most: the number of runs that may read the same day.
    """
    asked = window_in(window)
    if asked is None:
        return
    others = [Window.parse(text) for name, text in answered.items() if name != run]
    shared = [other for other in others if other.overlaps(asked)]
    # The number of windows over a day grows only where one begins.
    days = {max(other.first, asked.first) for other in shared}
    if max((sum(other.first <= day <= other.last for other in shared) for day in days), default=0) >= most:
        texts = ", ".join(sorted({other.text for other in shared}))
        raise Refused(
            Refusal.ANSWERED_WINDOW,
            local=f"the window {asked} shares days with {texts}, and window-runs is {most}",
        )


def check_has_window(window: str | None, *, times: bool, memory: bool) -> None:
    """Refuse a plan with a window where there are no times, and one without where there are: it reads every window.

    Args:
        window: of the plan.
        times: whether the device names a column of times.
        memory: whether it has a file in which to remember what it answered.
    """
    if times != (window is not None):
        names = "names a time-column" if times else "names no time-column"
        raise Refused(
            Refusal.NO_WINDOW, local=f"the node {names}, and the plan's window is {window or 'none'}"
        )
    if times and not memory:
        raise Refused(Refusal.NO_MEMORY, local="without one it could not tell which windows it has answered")


DEFAULT_MAX_DELTA = 10 * MAX_PLAN_DELTA
"""Of all runs: a chance of one in ten thousand, over a node's life, that all of a user's data shows."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The device's own limits.

    Args:
        max_epsilon, max_delta: what all runs that the device remembers may cost together, a `Limit`: a server may
            choose later plans in view of earlier results. Without `max_epsilon` nothing is limited. With it,
            `max_delta` is 1e-4 if it is left out, ten times what one plan may cost.
        max_plan_delta: the most delta of one plan, the sum over all its rounds, with a limit or without one. Whatever
            its epsilon, a plan may show all that a user has with this probability.
        minimum_cohort: the fewest users. Plans that would release with fewer are refused.
        minimum_masking: the least masking, as in a plan: "none", "secagg" or "secagg-signed". None is "secagg-signed"
            for a device with an identity, and "none" for one without.
        minimum_participants: the fewest participants of a masked sum. Plans that would unmask a sum of fewer are
            refused, and so are a roster and a list of survivors with fewer. None is more than half of its directory for
            a device that demands signed masks, and what the plan says for others.
        minimum_corrupt_share: the least share of participants that the plan must expect to be corrupt. Where devices
            add the noise, it decides how much of it is left when those take theirs away. For a device with a directory
            it is a share of that: the server may ask those who are corrupt, so the plan must expect all of these among
            its participants. None is a twentieth for a device that demands signed masks, and 0 for others.
        directory: the number of keys in the device's directory, which `for_device` fills in.
        noise_from_devices: whether plans that leave the noise to the server are refused.
        window_runs: for plans with a window, the number of runs that may read the same day.
        simulated: whether nobody real is behind the device, which then also answers plans that are not private, seeded
            runs and plans of any delta. For the process that starts the device to say, never a server.

    Those from `minimum_participants` to `noise_from_devices` can be met under masks only, so a device that sets one
    of them refuses plans without masking.
    """

    max_epsilon: float = math.inf
    max_delta: float = FILLED_IN
    max_plan_delta: float = MAX_PLAN_DELTA
    minimum_cohort: int = 1
    minimum_masking: str | None = None
    minimum_participants: int | None = None
    minimum_corrupt_share: float | None = None
    noise_from_devices: bool = False
    window_runs: int = 1
    directory: int = 0
    simulated: bool = False

    def __post_init__(self) -> None:
        if self.max_delta is None:
            default = DEFAULT_MAX_DELTA if self.is_limited else math.inf  # audited: default delta
            object.__setattr__(self, "max_delta", default)
        elif not self.is_limited and self.max_delta != math.inf:
            raise InvalidPlan(
                "a device has a max-delta and no max-epsilon",
                allowed="both, or a max-epsilon alone",
                advice="set max-epsilon: with any epsilon next to nothing is hidden, whatever the delta",
                code="delta-without-epsilon",
            )
        if self.is_limited:
            Limit(self.max_epsilon, self.max_delta)
        if not 0 <= self.max_plan_delta < 1:
            raise InvalidPlan(
                f"a device's largest delta of one plan is {self.max_plan_delta}",
                allowed="from 0 to below 1",
                code="bad-largest-delta",
            )
        if self.minimum_cohort < 1:
            raise InvalidPlan(f"a device's minimum cohort is {self.minimum_cohort}", allowed="1 or more")
        if self.window_runs < 1:
            raise InvalidPlan(f"a device's runs of a window are {self.window_runs}", allowed="1 or more")
        if self.minimum_masking not in (None, *MASKINGS):
            raise InvalidPlan(
                f"a device's least masking is {self.minimum_masking!r}",
                allowed=f"{', '.join(MASKINGS)}, or left out",
            )
        if self.minimum_participants is not None and not 0 <= self.minimum_participants <= MAX_PARTICIPANTS:
            raise InvalidPlan(
                f"a device's minimum number of participants is {self.minimum_participants}",
                allowed=f"0 to {MAX_PARTICIPANTS}",
            )
        if not 0 <= (self.minimum_corrupt_share or 0) <= MAX_SHARE:
            raise InvalidPlan(
                f"a device's smallest corrupt share is {self.minimum_corrupt_share!r}",
                allowed=f"a number from 0 to {MAX_SHARE}, the largest share of a plan",
            )

    @property
    def is_limited(self) -> bool:
        """Whether the cost of runs is limited, which needs a memory of what they cost."""
        return self.max_epsilon != math.inf

    @property
    def limit(self) -> Limit | None:
        """What a ledger would count by; None for a device without a limit."""
        return Limit(self.max_epsilon, self.max_delta) if self.is_limited else None

    def has_room(self, total: Spending) -> bool:
        """Whether this may be spent in runs that were chosen in view of each other."""
        return self.limit is None or self.limit.has_room(total)

    def for_device(self, *, directory: int) -> Policy:
        """The policy with what was left out spelled out.

        Args:
            directory: the number of keys in the device's directory; 0 for a device without an identity.
        """
        masking, fewest, corrupt = self.minimum_masking, self.minimum_participants, self.minimum_corrupt_share
        if masking is None:
            masking = "secagg-signed" if directory else "none"
        if fewest is None:
            # A server could show a device a few keys of many, all its own.
            fewest = directory // 2 + 1 if directory and masking == "secagg-signed" else 0
        if corrupt is None:
            corrupt = MaskingTerms.corrupt_share if directory and masking == "secagg-signed" else 0.0
        return replace(
            self,
            minimum_masking=masking,
            minimum_participants=fewest,
            minimum_corrupt_share=corrupt,
            directory=directory,
        )

    def expects(self, corrupt_share: float, participants: int) -> bool:
        """Whether a masked sum over these participants allows for all corrupt ones that the device expects.

        With a directory these are a share of it. Signed masks hold against a server that lies, and it chooses whom it
        asks: of 60 devices, 3 of them corrupt, it asks 34 with all three. Five percent of 34 is one, so 18 signatures
        are enough for a list, and 31 honest devices can sign two, one of which has a device that the other calls dead.
        """
        least = self.minimum_corrupt_share or 0.0
        if not self.directory:
            return corrupt_share >= least
        return share_of(participants, corrupt_share) >= share_of(self.directory, least)

    @property
    def fewest(self) -> int:
        """The fewest participants, 0 where that is left to the plan."""
        return self.minimum_participants or 0


@dataclass(frozen=True)
class Memory:
    """What the device was asked before, and what that may have cost.

    Args:
        spent: the cost of all rounds that were charged.
        plans: the plan's digest of each run.
        requests: the fingerprint of the request of each run and round that was begun, or charged, or answered.
        answers: the digest of the answer to each, where one may have left the device in the clear.
        charged: those of the requests that were charged.
        prepaid: rounds that were charged before they are asked for, with an earlier one of their run.
        windows: the window of each run that was charged and had one.
    """

    spent: Spending = field(default_factory=Spending)
    plans: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    charged: frozenset[str] = frozenset()
    prepaid: frozenset[str] = frozenset()
    windows: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """The memory as text, for a place that survives a restart. Its digest notices damage, not malice."""
        document = {
            "spent": {name: value for name, value in asdict(self.spent).items() if value != ()},
            "plans": dict(self.plans),
            "requests": dict(self.requests),
            "answers": dict(self.answers),
            "charged": sorted(self.charged),
            "prepaid": sorted(self.prepaid),
            "windows": dict(self.windows),
        }
        return json.dumps({**document, "digest": _digest(document)})

    @classmethod
    def from_text(cls, text: str) -> Memory:
        """The memory that `to_text` wrote. A damaged one is an error: forgetting would be spending anew."""
        try:
            document = json.loads(text)
            if document.pop("digest") != _digest(document):
                raise DecodeError("the device's memory is damaged")
            return cls(
                spent=_spending(document["spent"]),
                plans=dict(document["plans"]),
                requests=dict(document["requests"]),
                answers=dict(document["answers"]),
                charged=frozenset(document["charged"]),
                prepaid=frozenset(document["prepaid"]),
                windows=dict(document["windows"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            raise DecodeError("the device's memory is damaged") from None


def check(policy: Policy, memory: Memory, envelope: Envelope) -> None:
    """Raise Refused for a request that the device declines, without a look at its data. Nothing is noted or charged.

    When a device charges a round (rows: what it remembers of the round; columns: what it is asked to do). Reading comes
    before the charge, because it does not depend on the request: what fails there costs nothing. Data and request meet
    after the charge, so that whatever happens then, also a crash, is paid for.

    | remembered | without masks: read, `admit`, compute, note | masks, first message: `begin` | masks, the vector is due: read, `charge`, compute |
    |---|---|---|---|
    | nothing | charged, if the whole rest of the plan fits | noted, if it fits; not charged | refused |
    | the same request, not charged | charged, if it fits | refused: one session a round | charged, if it fits |
    | the same request, charged | not charged again: a lost message gets the same answer | refused | refused: noise could be averaged away |
    | another request of this round | refused | refused | refused |
    | another plan in this run | refused | refused | refused |

    A run that fits only if it is all that is ever answered (`Limit`, "one run") is charged with all its rounds at its
    first: those are prepaid then, and no others are answered, whether or not the server goes on.

    So a masking session that ends before its vector is due costs nothing: it was given up, or failed, or was never
    continued. Two runs that begin together and fit only one by one both begin, and the later vector is refused.

    The policy's floors are those of today: a request that was admitted under lower ones is not answered again.
    """  # noqa: E501 - a table
    plan = envelope.request.plan
    if not policy.simulated:
        _check_promise(policy, envelope)
    _check_floors(policy, plan)
    if _is_known(memory, envelope) and plan.is_masked:  # audited: one session
        raise Refused(Refusal.SECOND_REQUEST)
    _check_limits(policy, memory, envelope)


def begin(policy: Policy, memory: Memory, envelope: Envelope) -> Memory:
    """The memory of a device that was asked this, and has given nothing away yet; raises Refused like `check`."""
    check(policy, memory, envelope)
    return _noted(memory, envelope)


def charge(policy: Policy, memory: Memory, envelope: Envelope) -> Memory:
    """The memory of a device that is about to answer what it has begun: each round is charged once.

    Raises Refused if the round was not begun, or with another request, or is masked and charged already, or no longer
    fits.
    """
    if not _is_known(memory, envelope):
        raise Refused(Refusal.NO_SESSION)
    key = request_key(envelope)
    if key in memory.charged:
        if envelope.request.plan.is_masked:
            raise Refused(Refusal.SECOND_REQUEST)
        return memory
    _check_limits(policy, memory, envelope)
    now, later = _costs(memory, envelope)
    window = envelope.request.plan.window
    windows = memory.windows if window is None else {**memory.windows, envelope.run: window}
    known = replace(memory, charged=memory.charged | {key}, windows=windows)
    if policy.has_room(memory.spent + now + later) or later == Spending():
        return replace(known, spent=memory.spent + now)
    ahead = {_round_key(envelope.run, due) for due in _rounds_from(envelope.request.round)} - {key}
    return replace(known, spent=memory.spent + now + later, prepaid=memory.prepaid | ahead)


def admit(policy: Policy, memory: Memory, envelope: Envelope) -> Memory:
    """Begin and charge at once, for an answer that leaves at once."""
    return charge(policy, begin(policy, memory, envelope), envelope)


def answered(memory: Memory, envelope: Envelope, answer: bytes) -> Memory:
    """The memory after this answer; raises Refused if another one was given before, or to another request.

    Another answer means other data: a second view of it.
    """
    memory = _noted(memory, envelope)
    key, digest = request_key(envelope), hashlib.sha256(b"fedhist/1/answer\x00" + answer).hexdigest()
    if memory.answers.get(key, digest) != digest:
        raise Refused(Refusal.SECOND_REQUEST)
    return replace(memory, answers={**memory.answers, key: digest})


def _is_known(memory: Memory, envelope: Envelope) -> bool:
    """Whether this very request was begun; Refused if the round had another one, or the run another plan."""
    digest = envelope.request.plan.digest.hex()
    if memory.plans.get(envelope.run, digest) != digest:
        raise Refused(Refusal.OTHER_PLAN)
    known, fingerprint = memory.requests.get(request_key(envelope)), envelope.fingerprint
    if known is not None and known != fingerprint:  # audited: one threshold
        raise Refused(Refusal.SECOND_REQUEST)
    return known is not None


def _noted(memory: Memory, envelope: Envelope) -> Memory:
    """The memory with this request in it."""
    if _is_known(memory, envelope):
        return memory
    return replace(
        memory,
        plans={**memory.plans, envelope.run: envelope.request.plan.digest.hex()},
        requests={**memory.requests, request_key(envelope): envelope.fingerprint},
    )


def _check_limits(policy: Policy, memory: Memory, envelope: Envelope) -> None:
    """Refuse a round that would not fit together with the rest of its plan, or whose window other runs have read.

    One that is charged already is not.
    """
    if request_key(envelope) in memory.charged:
        return
    window = envelope.request.plan.window
    check_not_answered(memory.windows, envelope.run, window, most=policy.window_runs)
    now, later = _costs(memory, envelope)
    spent, due = memory.spent, now + later
    if due == Spending() or policy.limit is None or policy.limit.admits(spent, due):
        return
    claimed = policy.limit.claimed(spent)
    known = f"{claimed:.4g}" if math.isfinite(claimed) else "all"
    raise Refused(
        Refusal.OVER_BUDGET,
        local=f"of epsilon {policy.max_epsilon:g} at delta {policy.max_delta:g}, {known} is spent, and the run by "
        f"itself may cost epsilon {due.epsilon:g} and delta {due.delta:g}",
    )


def _costs(memory: Memory, envelope: Envelope) -> tuple[Spending, Spending]:
    """What this round may cost, and the rounds after it; nothing where that is paid."""
    plan, round_ = envelope.request.plan, envelope.request.round
    paid = round_ is Round.DISCOVER or _round_key(envelope.run, Round.DISCOVER) in memory.charged
    now, *later = (
        Spending() if _round_key(envelope.run, due) in memory.prepaid else round_cost(plan, due, paid=paid)
        for due in _rounds_from(round_)
    )
    return now, Spending.total(later)


def _rounds_from(round_: Round) -> tuple[Round, ...]:
    rounds = tuple(Round)
    return rounds[rounds.index(round_) :]


def request_key(envelope: Envelope) -> str:
    """The name of a round of a run."""
    return _round_key(envelope.run, envelope.request.round)


def _round_key(run: str, round_: Round) -> str:
    return f"{run}/{round_.value}"


def round_cost(plan: Plan, round_: Round, *, paid: bool) -> Spending:
    """The most that a round of this plan may cost. Its delta is the plan's, also for selectors that leave it unspent.

    A discovery pays for the release of what it finds. A device that was not asked to discover has not paid for it: the
    server may ask it for a release all the same, of items that nobody found, and in any number of runs.

    Args:
        plan: of the run.
        round_: what is asked.
        paid: whether the device has answered, or is about to answer, the run's discovery.
    """
    match round_:
        case Round.SELECT:
            return choice_cost(plan)
        case Round.DISCOVER if plan.discovers:
            return release_cost(plan) + table_cost(plan)
        case Round.RELEASE if not plan.discovers:
            return release_cost(plan) + table_cost(plan)
        case Round.RELEASE if not paid:  # audited: release unpaid
            return release_cost(plan)
    return Spending()


def _check_promise(policy: Policy, envelope: Envelope) -> None:
    """Refuse what protects nobody real: methods that are not private, noise that a seed gives away, a large delta."""
    plan = envelope.request.plan
    if envelope.seeded or not promises(plan):  # audited: seeded asked
        raise Refused(Refusal.NOT_PRIVATE, local="the run is seeded" if envelope.seeded else "")
    cost = run_cost(plan).cost
    if not cost.fits(epsilon=math.inf, delta=policy.max_plan_delta):  # audited: plan's delta
        words = (
            f"all its rounds may cost delta {cost.delta:g}, and max-plan-delta is {policy.max_plan_delta:g}"
        )
        raise Refused(Refusal.LARGE_DELTA, local=words)


def _check_floors(policy: Policy, plan: Plan) -> None:
    """Refuse a plan that promises less than the device insists on, or what no device can promise."""
    if plan.hides_users:
        raise Refused(Refusal.TELLS_USERS)
    demanded, masked = MASKINGS.index(policy.minimum_masking or "none"), MASKINGS.index(plan.masking)
    by_masks = policy.minimum_participants or policy.minimum_corrupt_share or policy.noise_from_devices
    if not masked and (demanded or by_masks):
        raise Refused(Refusal.NOT_MASKED)
    if masked < demanded:
        raise Refused(Refusal.NOT_SIGNED)
    if plan.minimum_cohort < policy.minimum_cohort:
        raise Refused(Refusal.SMALL_COHORT)
    # Not the number who are asked: the plan lets some of them vanish, and under plain masks a device can't see who did.
    if plan.minimum_survivors < policy.fewest:  # audited: fewest
        raise Refused(Refusal.FEW_PARTICIPANTS)
    if not policy.expects(plan.corrupt_share, plan.participants or 0):
        raise Refused(Refusal.SMALL_CORRUPT_SHARE)
    # A discovery's table must come out exactly: the server adds its noise.
    if policy.noise_from_devices and (plan.discovers or not plan.noise_by_devices):
        raise Refused(Refusal.SERVER_NOISE)


def _spending(numbers: Mapping[str, Any]) -> Spending:
    return Spending(*(float(numbers[name]) for name in ("epsilon", "delta", "rho", "failure")))


def _digest(document: Mapping[str, object]) -> str:
    """One damaged digit of what was spent would still be a number."""
    text = json.dumps(document, sort_keys=True)
    return hashlib.sha256(b"fedhist/1/memory\x00" + text.encode()).hexdigest()
