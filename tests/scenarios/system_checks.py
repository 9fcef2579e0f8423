"""What must hold after every scenario, whatever happened in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from system_data import FIRST, LABELS, PLANS, SEED, USERS_EACH, part

from fedhist import BudgetExceeded, Ledger, Plan, Release, SeededSource, Spending, run_rounds
from tests.support.api import (
    Keyed,
    KeyedSum,
    MemoryFile,
    Request,
    Round,
    Total,
    answer_population,
    numbered,
    participant_vector,
    planned_charges,
    round_cost,
    to_total,
)
from tests.support.api import PolicyMemory as Memory

if TYPE_CHECKING:
    from whole_system import Device, Outcome


def check_outcome(outcome: Outcome) -> None:
    """Released, right and charged; or not released, and no more spent than was planned."""
    planned, record = planned_charges(outcome.plan), outcome.record
    names = {path.name for path in outcome.folder.parent.iterdir()}
    assert not [name for name in names if name.endswith(".partial")]
    if outcome.release is None:
        assert outcome.folder.name not in names
        if record is not None:
            assert record.status == "failed"
            assert record.reason == type(outcome.error).__name__
            assert [(charge.round, charge.epsilon) for charge in record.charges] == [
                (charge.round, charge.epsilon) for charge in planned[: len(record.charges)]
            ]
        else:
            assert isinstance(outcome.error, BudgetExceeded)
        return
    assert record is not None and record.status == "released"
    assert [charge.round for charge in record.charges] == [charge.round for charge in planned]
    assert record.charged.epsilon <= record.reserved.epsilon * (1 + 1e-9)
    document = json.loads((outcome.folder / "result.json").read_text())
    for round_ in Round:
        if round_ not in outcome.doubtful and round_.value in document["rounds"]:
            report = document["rounds"][round_.value]
            assert report["answered"] == len(outcome.included[round_])
            assert report["users"] == USERS_EACH * len(outcome.included[round_])
    if not outcome.doubtful:
        check_values(outcome.release, outcome)


def check_values(release: Release, outcome: Outcome) -> None:
    """The same threshold and values as from the plain sums over the included nodes, with the same server's draws."""
    known = _PlainSums(outcome.plan, outcome.included)
    expected = run_rounds(outcome.plan, known, ledger=Ledger(), source=SeededSource(SEED))
    assert release.threshold == expected.threshold
    assert release.histogram.tolist() == expected.histogram.tolist()
    assert list(map(str, release.labels or ())) == list(map(str, expected.labels or ()))


@dataclass
class _PlainSums:
    """A transport that adds up what each included node's users are worth, without messages, masks or copies."""

    plan: Plan
    included: dict[Round, set[int]]
    simulated: bool = True

    def total(self, request: Request) -> Total:
        places = sorted(self.included[request.round])
        if self.plan.is_masked:
            vectors = [self._vector(request, place) for place in places]
            return numbered(to_total(np.sum(vectors, axis=0), request, participants=len(places)), LABELS)
        answers = [answer_population(request, part(place), source=SeededSource(SEED)) for place in places]
        keyed: Keyed | None = None
        if request.measurement.shape.columns:
            sums = KeyedSum(request.measurement.shape.columns)
            for answer in answers:
                assert answer.keyed is not None
                sums.add(answer.keyed)
            keyed = sums.total()
        values = np.sum([answer.values for answer in answers], axis=0)
        users = sum(answer.users for answer in answers)
        return Total(users=users, values=values, keyed=keyed, labels=LABELS)

    def _vector(self, request: Request, place: int) -> Any:
        source = SeededSource(SEED)
        own = source.fork("masking", request.round.value, "noise", FIRST + place)
        return participant_vector(request, part(place), source=source, own=own)


def check_device(device: Device) -> None:
    """One request a round, one session a round under masks, charged once, and never above the limit."""
    fingerprints: dict[tuple[str, Round], set[str]] = {}
    stages: dict[tuple[str, Round, str], int] = {}
    for kind, envelope in device.answered:
        key = envelope.run, envelope.request.round
        fingerprints.setdefault(key, set()).add(envelope.fingerprint)
        if envelope.request.plan.is_masked:
            stages[*key, kind] = stages.get((*key, kind), 0) + 1
    assert all(len(asked) == 1 for asked in fingerprints.values())
    assert all(count == 1 for count in stages.values())
    memory = MemoryFile(device.memory).read() if device.memory.exists() else Memory()
    plans = {plan.digest.hex(): plan for plan in PLANS.values()}
    costs = []
    for key in memory.charged | memory.prepaid:
        run, _, round_ = key.rpartition("/")
        paid = f"{run}/discover" in memory.charged
        costs.append(round_cost(plans[memory.plans[run]], Round(round_), paid=paid).epsilon)
    assert abs(memory.spent.epsilon - sum(costs)) < 1e-9
    assert device.policy.limit is not None
    assert device.policy.limit.admits(Spending(), memory.spent)
    assert {f"{run}/{round_.value}" for run, round_ in fingerprints} <= memory.requests.keys()
    # What left it, in the clear or under masks, and nothing else.
    left = {
        f"{envelope.run}/{envelope.request.round.value}"
        for kind, envelope in device.answered
        if kind == "query.masking" or not envelope.request.plan.is_masked
    }
    assert left == memory.charged


def error_texts(error: BaseException | None) -> Iterable[str]:
    """The texts of an error and of those that it came from."""
    while error is not None:
        yield f"{error} {error!r}"
        error = error.__cause__ or error.__context__
