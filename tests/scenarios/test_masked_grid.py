"""Masked rounds on a Flower grid that copies messages: good cohorts, bad nodes, and a server that asks too much."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message
from flwr.clientapp import ClientApp
from local_grid import Fault, LocalGrid, Reports, at, changed, data_of, dead, outcome, silent

from fedhist import Ledger, Plan, RoundFailed, SeededSource, SparsePopulation
from fedhist.client import mount
from fedhist.server import run_on_grid
from tests.asking import select_request
from tests.support.api import (
    BOX_BYTES,
    HEADER_BYTES,
    MASKED_STAGES,
    MASKING,
    VERSION,
    DroppedOut,
    Event,
    GridTransport,
    Identity,
    Round,
    numbered_identities,
    participant_number,
)
from tests.support.api import MaskingKind as Kind
from tests.support.refusals import refused

STAGES = tuple(stage for stage in MASKED_STAGES if stage != "confirming")


def plan_of(**settings: Any) -> Plan:
    """Sixty users on twelve nodes, of which two may vanish."""
    usual = {"users": 60, "items": 6, "masking": "secagg", "participants": 12, "dropout_share": 0.2}
    return Plan(**(usual | settings))


def signed_grid(lab: Any, identities: Sequence[Identity]) -> Any:
    """A node for each identity."""
    whole, count = lab.population(), len(identities)

    def app(place: int) -> ClientApp:
        return mount(
            ClientApp(),
            lambda context: lab.part(whole, place, count),
            identity=lambda context: identities[place],
            simulated=lambda context: True,
        )

    return LocalGrid.of(map(app, range(count)))


def asked(grid: Any, stage: str) -> list[Message]:
    """The messages of a stage, in the order in which they were sent."""
    return [message for message in grid.asked if message.metadata.message_type == f"query.{stage}"]


IDENTITIES = numbered_identities([bytes([number]) * 32 for number in range(12)])
SIGNED = plan_of(masking="secagg-signed")


class TestAGoodCohort:
    @pytest.mark.parametrize(("masking", "length"), [("none", 1025), ("secagg", 33)])
    def test_one_user_s_long_name_does_not_take_its_node_out_of_the_sum(
        self, lab: Any, masking: str, length: int
    ) -> None:
        """Everybody is counted in both rounds; the item is left out and the others are released."""
        whole = lab.population(named=True)
        names = [*(whole.labels or ())[:-1], "x" * length]
        whole = SparsePopulation(whole.histograms, labels=names)
        settings: dict[str, Any] = {
            "domain": "open",
            "items": None,
            "selector": "fixed",
            "threshold": 60,
        }
        settings |= {"epsilon": 50.0, "max_threshold": 60}
        masked = plan_of(max_items=9, **settings)
        plan = masked if masking == "secagg" else Plan(users=60, **settings)
        reports = Reports()
        release = run_on_grid(lab.grid(whole, 12, seed=5), plan, source=SeededSource(5), on_report=reports)
        assert all(report.answered == 12 and not report.faults for report in reports.values())
        assert release.labels is not None and sorted(map(str, release.labels)) == names[:-1]

    def test_no_message_of_a_node_shows_its_values(self, lab: Any) -> None:
        """The same users without masks send bytes of which no eight in a row are in what the masked node sends."""
        whole, settings = lab.population(), {"selector": "fixed", "threshold": 50.0}
        plain, masked = lab.grid(whole, 12), lab.grid(whole, 12)
        run_on_grid(plain, Plan(users=60, items=6, **settings))
        run_on_grid(masked, plan_of(**settings))
        open_bytes = data_of(plain.nodes[103].replies[0])[-6 * 8 :]
        sent = b"".join(data_of(reply) for reply in masked.nodes[103].replies)
        assert np.count_nonzero(np.frombuffer(open_bytes, dtype=np.uint8))
        assert all(open_bytes[i : i + 8] not in sent for i in range(0, len(open_bytes) - 7))


class TestSigned:
    STRANGER = b"\xee" * 32

    def reports(self, grid: Any, directory: Mapping[int, bytes] = IDENTITIES[0].directory) -> Reports:
        reports = Reports()
        run_on_grid(grid, SIGNED, directory=directory, on_report=reports)
        return reports

    def test_a_node_that_nobody_registered_is_left_out(self, lab: Any) -> None:
        """It has a key, and the others' directory does not list it."""
        stranger = Identity(self.STRANGER, IDENTITIES[0].directory)
        assert self.reports(signed_grid(lab, [*IDENTITIES[:11], stranger]))[Round.SELECT].answered == 11

    def test_a_server_that_slips_in_a_key_of_its_own_gets_nothing(self, lab: Any) -> None:
        """The server's directory lists a key that the devices' directory does not: every device gives up."""
        invented = Identity(self.STRANGER, {}).public
        directory = {**IDENTITIES[0].directory, participant_number(invented): invented}
        grid = signed_grid(lab, [*IDENTITIES[:11], Identity(self.STRANGER, directory)])
        with pytest.raises(RoundFailed):
            self.reports(grid, directory)

    def test_a_key_that_is_not_its_own_does_not_push_its_owner_out(self, lab: Any) -> None:
        """Under signed masking the first to claim a number had it, signature or not."""
        victim = participant_number(IDENTITIES[7].public).to_bytes(8, "little")
        grid = signed_grid(lab, IDENTITIES)
        grid.nodes[100].fault = at("advertising", changed(lambda data: victim + data[8:]))
        reports = self.reports(grid)
        assert [reports[round_].answered for round_ in (Round.SELECT, Round.RELEASE)] == [11, 11]
        assert reports.faults(Round.SELECT) == {"malformed": 1}
        assert reports[Round.RELEASE].nodes == 11 and reports.faults(Round.RELEASE) == {}


FAULTS: dict[str, tuple[Fault, dict[str, int]]] = {
    "silent": (silent, {"no-answer": 1}),
    "an error": (dead, {"error": 1}),
    "an answer twice": (lambda message, node: [node.answer(message)] * 2, {"duplicate": 1}),
    "garbage": (changed(lambda data: b"garbage"), {"malformed": 1}),
    "zeros": (changed(lambda data: bytes(60)), {"malformed": 1}),
}


class TestNodesThatFail:
    @pytest.mark.parametrize("stage", STAGES)
    @pytest.mark.parametrize("name", FAULTS)
    def test_at_any_stage_they_are_left_out_and_counted(self, lab: Any, name: str, stage: str) -> None:
        """One that fails in the last stage, or answers twice, is in the sum.

        One that sent nonsense is not asked again in round 2, and one that was silent is.
        """
        (fault, counted), reports = FAULTS[name], Reports()
        grid = lab.grid(lab.population(), 12, faults={3: at(stage, fault)})
        run_on_grid(grid, plan_of(), on_report=reports)
        whole = stage == "unmasking" or name == "an answer twice"
        for round_, report in reports.items():
            lied = round_ is Round.RELEASE and counted == {"malformed": 1}
            assert report.nodes == (11 if lied else 12)
            assert report.answered == (12 if whole and not lied else 11)
            assert report.users == 5 * report.answered
            assert reports.faults(round_) == ({} if lied else counted)

    def test_a_node_that_takes_the_number_of_another_is_left_out(self, lab: Any) -> None:
        impostor, reports = changed(lambda data: (100).to_bytes(8, "little") + data[8:]), Reports()
        grid = lab.grid(lab.population(), 12, faults={5: at("advertising", impostor)})
        run_on_grid(grid, plan_of(), on_report=reports)
        assert reports[Round.SELECT].answered == 11
        assert set(reports.faults(Round.SELECT)) == {"malformed"}

    @pytest.mark.parametrize("stage", STAGES[:4])
    def test_more_than_tolerated_release_nothing(self, lab: Any, stage: str) -> None:
        faults = dict.fromkeys(range(3), at(stage, silent))
        grid, ledger, reports = lab.grid(lab.population(), 12, faults=faults), Ledger(), Reports()
        with refused(RoundFailed, "too-few-survivors"):
            run_on_grid(grid, plan_of(), ledger=ledger, on_report=reports)
        assert ledger.entries == ()
        assert reports[Round.SELECT].answered == 0
        assert "query.unmasking" not in {message.metadata.message_type for message in grid.asked}


class TestWhatADeviceRefuses:
    def reasons(self, grid: Any) -> set[str]:
        return {outcome(reply)[1] for node in grid.nodes.values() for reply in node.replies} - {""}

    def test_a_masked_plan_in_a_message_without_masks(self, lab: Any) -> None:
        grid = lab.grid(lab.population(), 12)
        run_on_grid(grid, plan_of())
        plain = Message(asked(grid, "advertising")[0].content, 100, "query.select")
        reply = lab.grid(lab.population(), 12).nodes[100].answer(plain)
        assert outcome(reply) == ("refused", "not-masked")
        assert "fedhist-answer" not in reply.content.array_records

    def test_a_damaged_session(self, lab: Any) -> None:
        def damage(message: Message, node: Any) -> list[Message]:
            ((run, state),) = node.context.state.config_records[MASKING].items()
            node.context.state.config_records[MASKING] = ConfigRecord({run: state[:-1]})
            return [node.answer(message)]

        grid = lab.grid(lab.population(), 12, faults={2: at("masking", damage)})
        run_on_grid(grid, plan_of())
        assert self.reasons(grid) == {"no-session"}


def test_signed_masking_without_keys_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    from fedhist import InvalidInput
    from tests.support.api import read_settings

    config = {"users": 60, "items": 6, "masking": "secagg-signed", "participants": 12}
    with refused(InvalidInput, "directory-without-signatures"):
        read_settings(config)
    assert read_settings(config | {"directory": str(tmp_path / "keys")}).plan.is_signed


class TestOneBadParticipant:
    """Ten nodes with masks, five with signatures. One of them is bad: it is left out by name, and nobody else is."""

    BAD, PLACE = 102, 2

    def cohort(self, lab: Any, masking: str) -> tuple[Any, Plan, list[int], dict[int, bytes] | None]:
        """A grid, its plan, the participants' numbers by place, and the directory."""
        count = 10 if masking == "secagg" else 5
        plan = plan_of(masking=masking, participants=count)
        if masking == "secagg":
            return lab.grid(lab.population(), count), plan, list(range(100, 110)), None
        identities = numbered_identities([bytes([number]) * 32 for number in range(count)])
        numbers = [participant_number(identity.public) for identity in identities]
        return signed_grid(lab, identities), plan, numbers, dict(identities[0].directory)

    def garbage(self, receivers: Collection[int] | None = None) -> Any:
        def change(data: bytes) -> bytes:
            size = 8 + BOX_BYTES
            entries = [data[begin : begin + size] for begin in range(HEADER_BYTES, len(data), size)]
            hit = [receivers is None or int.from_bytes(entry[:8], "little") in receivers for entry in entries]
            return data[:HEADER_BYTES] + b"".join(
                entry[:8] + bytes(BOX_BYTES) if bad else entry
                for entry, bad in zip(entries, hit, strict=True)
            )

        return at("sharing", changed(change))

    def liar(self, accused: Collection[int]) -> Any:
        def change(data: bytes) -> bytes:
            assert data[2:4] == bytes([VERSION, Kind.COMPLAINTS])
            return data[:HEADER_BYTES] + b"".join(number.to_bytes(8, "little") for number in sorted(accused))

        return at("checking", changed(change))

    def assert_left_out(self, lab: Any, masking: str, fault: Any, reason: str) -> None:
        """The sum is that of a cohort in which the bad one never shared, and the report and the trace say who it is."""
        totals, reports, events = [], Reports(), list[Event]()
        for one in (at("sharing", silent), fault):
            grid, plan, _, directory = self.cohort(lab, masking)
            grid.nodes[self.BAD].fault = one
            transport = GridTransport(
                grid, timeout=5.0, directory=directory, on_report=reports, observe=events.append
            )
            totals.append(transport.total(select_request(plan)))
        without, left_out = totals
        assert left_out.values.tolist() == without.values.tolist()
        assert left_out.users == without.users == 60 - 60 // (plan.participants or 0)
        report = reports[Round.SELECT]
        assert report.left_out == {reason: (self.BAD,)}
        assert report.complaints
        assert report.answered == report.nodes - 1
        assert report.to_json(truth=False)["left_out"] == {reason: [self.BAD]}
        assert report.in_words().endswith(f"left out: {reason} {self.BAD}")
        assert DroppedOut("select", "", f"node {self.PLACE + 1}", reason, None) in events

    @pytest.mark.parametrize("masking", ["secagg", "secagg-signed"])
    @pytest.mark.parametrize("fault", ["garbage to everybody", "garbage to some", "accuses everybody"])
    def test_it_is_left_out_by_name(self, lab: Any, masking: str, fault: str) -> None:
        numbers = self.cohort(lab, masking)[2]
        if fault == "accuses everybody":
            others = [number for place, number in enumerate(numbers) if place != self.PLACE]
            self.assert_left_out(lab, masking, self.liar(others), "complaints")
        else:
            receivers = None if fault == "garbage to everybody" else numbers[3:5]
            self.assert_left_out(lab, masking, self.garbage(receivers), "bad-boxes")
