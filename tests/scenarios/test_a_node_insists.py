"""What a node insists on, whatever the server asks: attacks that a server can mount with a plan of its choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from local_grid import LocalGrid, Node, message_of, outcome, run_server_app

from fedhist import InvalidInput, Plan, RoundFailed
from fedhist.client import Policy, mount
from fedhist.server import run_on_grid
from tests.asking import first_request, release_at
from tests.builders import population_of
from tests.support.api import (
    Envelope,
    GridTransport,
    Identity,
    InvalidFile,
    Refused,
    Threshold,
    line_of,
    numbered_identities,
)
from tests.support.refusals import refused

ROW = [3, 1, 4, 1, 5, 9]
VICTIM = 100
IDENTITIES = numbered_identities([bytes([number]) * 32 for number in range(100)])


def node_of(number: int, row: list[int], *, folder: Path, policy: Policy, identity: Identity | None) -> Any:
    """A real node: it has a memory file."""
    app = mount(
        ClientApp(),
        lambda context: population_of([row]),
        policy=policy,
        memory=lambda context: folder / f"{number}.memory",
        identity=lambda context: identity,
    )
    return Node(app, number)


def surrounded(folder: Path, policy: Policy) -> Any:
    """The node under attack, with a key of its own in a directory of 100, and two that are the server's."""
    identities = dict(zip(range(VICTIM, VICTIM + 3), IDENTITIES, strict=False))
    return LocalGrid(
        {
            number: node_of(
                number,
                ROW if number == VICTIM else [0] * len(ROW),
                folder=folder,
                policy=policy if number == VICTIM else Policy(minimum_masking="none"),
                identity=identity,
            )
            for number, identity in identities.items()
        }
    )


def victim(folder: Path, policy: Policy) -> Any:
    """The node under attack alone."""
    return surrounded(folder, policy).nodes[VICTIM]


def plan_of(**settings: Any) -> Plan:
    usual = {"users": 60, "items": len(ROW), "selector": "fixed", "threshold": 60.0, "max_threshold": 60}
    return Plan(**(usual | {"masking": "secagg", "participants": 3} | settings))


def sum_seen_by_the_server(grid: Any, plan: Plan) -> list[float]:
    """What a server that keeps the sum of round 2 to itself has in hand."""
    transport = GridTransport(
        grid, node_timeout=0.01, directory=IDENTITIES[0].directory if plan.is_signed else None
    )
    threshold = Threshold(steps=plan.step_range[1], bits=plan.grid_bits)
    total = transport.total(release_at(plan, threshold))
    return np.ldexp(total.values.astype(float), -plan.grid_bits).tolist()


def refusals(node: Any) -> list[str]:
    return [outcome(reply)[1] for reply in node.replies]


def assert_refused(node: Any, plan: Plan, reason: str) -> None:
    """The node's answer to the first message of a round of this plan."""
    threshold = Threshold(steps=plan.step_range[1], bits=plan.grid_bits)
    envelope = Envelope(run="one", request=release_at(plan, threshold))
    reply = node.answer(message_of(envelope, "advertising" if plan.is_masked else None))
    assert outcome(reply) == ("refused", reason)
    assert not reply.content.array_records


class TestInventedNeighbours:
    def test_under_plain_masks_they_show_a_nodes_row(self, tmp_path: Path) -> None:
        """The attack, on a node that says that it takes part in anything."""
        grid = surrounded(tmp_path, Policy(minimum_masking="secagg"))
        assert sum_seen_by_the_server(grid, plan_of()) == ROW

    @pytest.mark.parametrize("has_identity", [True, False])
    def test_a_node_that_insists_on_signed_masks_accepts_no_others(
        self, tmp_path: Path, has_identity: bool
    ) -> None:
        """One with an identity does so by default."""
        policy = Policy() if has_identity else Policy(minimum_masking="secagg-signed")
        identity = IDENTITIES[0] if has_identity else None
        node = node_of(VICTIM, ROW, folder=tmp_path, policy=policy, identity=identity)
        assert_refused(node, plan_of(masking="none", participants=None), "not-masked")
        assert_refused(node, plan_of(), "not-signed")

    def test_a_signed_round_without_an_identity_is_refused_before_it_is_charged(self, tmp_path: Path) -> None:
        node = node_of(VICTIM, ROW, folder=tmp_path, policy=Policy(), identity=None)
        assert_refused(node, plan_of(masking="secagg-signed"), "no-identity")
        assert not (tmp_path / f"{VICTIM}.memory").exists()


class TestASmallCohort:
    SIGNED = plan_of(masking="secagg-signed")

    def test_three_of_a_hundred_show_a_nodes_row(self, tmp_path: Path) -> None:
        policy = Policy(minimum_participants=3, minimum_corrupt_share=0.0)
        assert sum_seen_by_the_server(surrounded(tmp_path, policy), self.SIGNED) == ROW

    def test_the_corrupt_ones_of_a_hundred_among_57(self, tmp_path: Path) -> None:
        """Five percent of 57 is two, and five percent of the directory, all of whom the server may ask, is five."""
        plan = plan_of(masking="secagg-signed", participants=57, dropout_share=0.08)
        assert plan.minimum_survivors > 51
        assert_refused(victim(tmp_path, Policy()), plan, "small-corrupt-share")
        expected = plan_of(masking="secagg-signed", participants=57, dropout_share=0.08, corrupt_share=0.09)
        envelope = Envelope(
            run="one", request=release_at(expected, Threshold(steps=plan.step_range[1], bits=plan.grid_bits))
        )
        assert outcome(victim(tmp_path, Policy()).answer(message_of(envelope, "advertising")))[0] == "answer"

    @pytest.mark.parametrize("policy", [Policy(), Policy(minimum_participants=50)])
    def test_a_node_asks_for_more_company(self, tmp_path: Path, policy: Policy) -> None:
        assert_refused(victim(tmp_path, policy), self.SIGNED, "few-participants")

    def test_those_who_may_vanish_do_not_count(self, lab: Any, tmp_path: Path) -> None:
        """Twelve are asked, and the plan unmasks a sum of ten."""
        plan = plan_of(participants=12, dropout_share=0.2)
        assert plan.minimum_survivors == 10
        assert_refused(
            victim(tmp_path, Policy(minimum_masking="secagg", minimum_participants=11)),
            plan,
            "few-participants",
        )
        whole = lab.population()
        run_on_grid(lab.grid(whole, 12, policy=Policy(minimum_participants=10)), plan)

    def test_masks_are_what_company_means(self, tmp_path: Path) -> None:
        policy = Policy(minimum_masking="none", minimum_participants=2)
        plan = plan_of(masking="none", participants=None)
        assert_refused(victim(tmp_path, policy), plan, "not-masked")


class TestNoise:
    def test_a_corrupt_share_below_the_nodes_own(self, tmp_path: Path) -> None:
        """With noise from devices it says how much of the noise is honest, and was the server's word alone."""
        plan = plan_of(participants=20, corrupt_share=0.0, noise_from="devices")
        policy = Policy(minimum_masking="secagg", minimum_corrupt_share=0.2)
        assert_refused(victim(tmp_path, policy), plan, "small-corrupt-share")

    def test_noise_that_is_left_to_the_server(self, tmp_path: Path) -> None:
        policy = Policy(minimum_masking="secagg", noise_from_devices=True)
        assert_refused(victim(tmp_path, policy), plan_of(), "server-noise")

    def test_what_meets_every_floor_is_answered(self, tmp_path: Path) -> None:
        policy = Policy(
            minimum_cohort=30,
            minimum_masking="secagg-signed",
            minimum_participants=9,
            minimum_corrupt_share=0.1,
            noise_from_devices=True,
        )
        plan = plan_of(
            masking="secagg-signed",
            participants=10,
            corrupt_share=0.1,
            noise_from="devices",
            minimum_cohort=30,
        )
        ten = numbered_identities([bytes([number]) * 32 for number in range(10)])
        people = enumerate(ten, start=VICTIM)
        nodes = {n: node_of(n, ROW, folder=tmp_path, policy=policy, identity=one) for n, one in people}
        grid = LocalGrid(nodes)
        with refused(RoundFailed, "too-few-users", "30"):
            run_on_grid(grid, plan, directory=ten[0].directory)
        assert all(set(refusals(node)) == {""} for node in grid.nodes.values())


def test_masks_without_a_memory_file_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    app = mount(ClientApp(), lambda context: population_of([ROW]))
    assert_refused(Node(app, VICTIM), plan_of(), "no-memory")
    assert "memory-path" in caplog.text


class TestPromises:
    """What a plan must promise to anybody real, whatever limits a node has set."""

    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("selector", ["oracle", "median", "p90"])
    def test_a_method_that_is_not_private_is_for_simulated_nodes(
        self, tmp_path: Path, selector: str, masked: bool
    ) -> None:
        masks = {} if masked else {"masking": "none", "participants": None}
        plan = plan_of(selector=selector, threshold=None, **masks)
        asked = Envelope("one", release_at(plan, plan.at_steps(1)))
        message = message_of(asked, "advertising" if masked else None)
        real = node_of(VICTIM, ROW, folder=tmp_path, policy=Policy(minimum_masking="none"), identity=None)
        assert outcome(real.answer(message)) == ("refused", "not-private")
        app = mount(ClientApp(), lambda context: population_of([ROW]), simulated=lambda context: True)
        assert outcome(Node(app, VICTIM).answer(message)) == ("answer", "")

    def test_a_deployments_server_asks_nobody_in_a_seeded_run(self, lab: Any, tmp_path: Path) -> None:
        grid = lab.grid(lab.population())
        config = {"users": 60, "items": 6, "max-threshold": 60, "seed": 3, "ledger": str(tmp_path / "l")}
        run_server_app(grid, config | {"ledger": None})
        before = len(grid.asked)
        with refused(InvalidInput, "seed-with-ledger"):
            run_server_app(grid, config)
        grid.kind = "flwr-serverapp"
        with refused(InvalidInput, "seed-in-a-deployment"):
            run_server_app(grid, config)
        assert len(grid.asked) == before
        assert not (tmp_path / "l").exists()

    def test_a_node_without_a_limit_says_so(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        plan = plan_of(masking="none", participants=None)
        for policy, said in ((Policy(), True), (Policy(max_epsilon=2.0), False)):
            caplog.clear()
            node = node_of(VICTIM, ROW, folder=tmp_path, policy=policy, identity=None)
            node.answer(message_of(Envelope("one", release_at(plan, plan.fixed_threshold))))
            assert ("answers any number of runs" in caplog.text) is said


@pytest.mark.parametrize("name", ["one\nfedhist: all is well", "\x1b[2J", "a\u202eb", "\x00"])
def test_the_name_of_a_run_is_printable(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    plan = plan_of(masking="none", participants=None)
    node = node_of(VICTIM, ROW, folder=tmp_path, policy=Policy(max_epsilon=2.0), identity=None)
    reply = node.answer(message_of(Envelope(name, release_at(plan, plan.fixed_threshold))))
    assert outcome(reply) == ("refused", "malformed")
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.parametrize(
    "error",
    [
        Refused("over-budget", local="a\nfedhist: all is well"),
        InvalidFile("\x1b[2J", allowed="one\x07"),
    ],
)
def test_a_nodes_log_has_the_servers_words_in_one_line(error: Exception) -> None:
    assert line_of(error, about=["train.\x1b[2J", "sum a\nb"], config={}).isprintable()


def test_a_plan_that_is_too_large_is_not_the_nodes_configuration(tmp_path: Path) -> None:
    table = {"domain": "open", "max_items": 2**22, "max_item_bytes": 1024}
    plan = plan_of(items=None, selector=None, threshold=None, **table)
    node = node_of(VICTIM, ROW, folder=tmp_path, policy=Policy(minimum_masking="none"), identity=None)
    reply = node.answer(message_of(Envelope(run="one", request=first_request(plan)), "advertising"))
    assert outcome(reply) == ("refused", "malformed")
