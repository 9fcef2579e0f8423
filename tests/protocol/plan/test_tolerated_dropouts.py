"""How many participants may vanish from a masked round: what the default allows, what documents say, what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist import Plan, SeededSource
from tests.asking import select_request
from tests.support.api import (
    MAX_SHARE,
    MIN_PARTICIPANTS,
    TO_DEVICE,
    Envelope,
    InvalidPlan,
    MaskedSum,
    MaskingStage,
    TooFewSurvivors,
    identities,
    masking_graph,
    new_run_name,
    run_cohort,
    terms_of,
    vector_length,
)
from tests.support.refusals import refused

DOCS = Path(__file__).resolve().parents[3] / "docs"
FROM = {"secagg": 4, "secagg-signed": 5}
"""The fewest participants of which one may vanish."""

UNTIL_MASKED = (
    MaskingStage.ADVERTISING,
    MaskingStage.SHARING,
    MaskingStage.CHECKING,
    MaskingStage.MASKING,
)
"""Who vanishes in one of these is not in the sum."""

both_modes = pytest.mark.parametrize("masking", FROM)


def plan_of(masking: str, participants: int, **settings: Any) -> Plan:
    return Plan(users=1000, items=3, masking=masking, participants=participants, **settings)


def tolerated(plan: Plan) -> int:
    """The number of participants that may vanish."""
    return plan.masks.participants - plan.minimum_survivors


def most_that_can_be_set(masking: str, participants: int) -> int:
    """The largest number of drop-outs that any share allows for."""
    most = 0
    for percent in range(round(100 * MAX_SHARE) + 1):
        try:
            most = max(most, tolerated(plan_of(masking, participants, dropout_share=percent / 100)))
        except InvalidPlan:
            continue
    return most


@both_modes
def test_the_default_lets_one_vanish_wherever_masks_can_do_without_one(masking: str) -> None:
    for participants in range(MIN_PARTICIPANTS, 301):
        plan = plan_of(masking, participants)
        usual = max(participants // 10, 1 if participants >= FROM[masking] else 0)
        assert tolerated(plan) == usual, participants
        assert plan.minimum_survivors >= MIN_PARTICIPANTS
        # Whoever advertises of those that may, there is a graph whose secrets the others can rebuild.
        for devices in range(plan.minimum_survivors, participants + 1):
            graph = masking_graph(plan, devices)
            silent = devices - plan.minimum_survivors
            assert not graph.complete or graph.threshold <= graph.neighbours - silent


@both_modes
def test_below_that_no_share_lets_one_vanish(masking: str) -> None:
    for participants in range(MIN_PARTICIPANTS, FROM[masking]):
        assert most_that_can_be_set(masking, participants) == 0


@both_modes
def test_a_share_that_is_given_keeps_its_meaning(masking: str) -> None:
    plan = plan_of(masking, 9, dropout_share=0.1)
    assert (plan.dropout_share, tolerated(plan)) == (0.1, 0)


def test_noise_from_devices_reckons_with_the_one_that_may_vanish() -> None:
    """The three that stay have to hide everybody, so each adds a third of the noise, and the fourth as well."""
    plan = plan_of("secagg", 4, noise_from="devices")
    none = plan_of("secagg", 4, noise_from="devices", dropout_share=0.0)
    assert (plan.noise_shares, none.noise_shares) == (3, 4)
    assert plan.unit_error == pytest.approx(none.unit_error * (4 / 3) ** 0.5)


class Unmasked(Exception):
    """The server asked for shares."""


def summed(plan: Plan, stage: str, gone: int, *, may_unmask: bool = True) -> MaskedSum:
    """A sum over a cohort from which this many fall silent at a stage; device i has i + 1 at the end of its vector."""
    request = select_request(plan)
    envelope = Envelope(run=new_run_name(source=SeededSource(1)), request=request)
    terms, participants = terms_of(envelope), plan.masks.participants

    def vector_of(device: int) -> Any:
        vector = np.zeros(vector_length(request), dtype=np.int64)
        vector[-1] = 1 + device
        return vector

    def watch(at: str, to: str, device: int, message: bytes) -> None:
        if not may_unmask and (at, to) == (MaskingStage.UNMASKING, TO_DEVICE):
            raise Unmasked

    return run_cohort(
        terms,
        participants,
        vector_of,
        source=SeededSource(2),
        dropouts={stage: range(gone)},
        identities=identities(participants, source=SeededSource(3)) if terms.signed else None,
        watch=watch,
    )


@both_modes
@pytest.mark.parametrize("participants", [*range(MIN_PARTICIPANTS, 12), 20])
def test_a_round_comes_to_its_end_without_those_that_may_vanish_and_stops_without_one_more(
    masking: str, participants: int
) -> None:
    plan = plan_of(masking, participants)
    gone = tolerated(plan)
    for stage in UNTIL_MASKED:
        total = summed(plan, stage, gone)
        assert total.included == tuple(range(gone, participants))
        assert total.values[-1] == sum(range(1 + gone, 1 + participants))
        with refused(TooFewSurvivors, "too-few-survivors"):
            summed(plan, stage, gone + 1, may_unmask=False)
    after = [MaskingStage.UNMASKING] + [MaskingStage.CONFIRMING] * plan.is_signed
    for stage in after:
        assert summed(plan, stage, gone).included == tuple(range(participants))


def test_the_table_of_tolerated_dropouts_is_what_plans_say() -> None:
    text = (DOCS / "masking-parameters.md").read_text(encoding="utf-8")
    table = text.split(
        "| participants | may vanish | if signed | at most | if signed |\n|---|---|---|---|---|\n"
    )[1]
    rows = re.findall(r"^\| (\d+)(?: to (\d+))? \| (.*) \|$", table.split("\n\n")[0], re.MULTILINE)
    assert len(rows) == len(table.split("\n\n")[0].splitlines())
    covered = 0
    for first, last, cells in rows:
        for participants in range(int(first), int(last or first) + 1):
            usual = [tolerated(plan_of(masking, participants)) for masking in FROM]
            most = [most_that_can_be_set(masking, participants) for masking in FROM]
            assert list(map(int, cells.split(" | "))) == usual + most, participants
            covered += 1
    assert covered >= 18
