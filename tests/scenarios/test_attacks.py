"""Attacks in benchmarks/attack_rows succeed once the guard that they are about is taken away."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import polars
import pytest

from fedhist import Limit
from fedhist.client import Policy
from tests.builders import ROOT
from tests.support.api import GraphParameters, LeftOut, Recovery, memory_file_module
from tests.support.api import count_module as count
from tests.support.api import database_module as database
from tests.support.api import graph_module as graph
from tests.support.api import masking_client_module as masking_client
from tests.support.api import parquet_tables_module as parquet_tables

# Last, so that none of the scripts hides a module of that name.
sys.path.append(str(ROOT / "benchmarks"))

from attack_rows import budgets, masking, readers


def one_roster_like_another(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(masking_client, "roster_digest", lambda bodies: bytes(32))


def no_signatures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(masking_client, "verify", lambda *arguments: True)


def corrupt_ones_that_the_server_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Policy, "expects", lambda self, corrupt_share, participants: True)


def few_neighbours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(graph, "_parameters", lambda devices, *others: GraphParameters(devices, 6, 3))


def everybody_who_is_accused(patch: pytest.MonkeyPatch) -> None:
    def believed(complaints: dict[int, Any]) -> dict[int, LeftOut]:
        return dict.fromkeys(set().union(*complaints.values()), LeftOut.BAD_BOXES)

    patch.setattr(masking, "devices_to_leave_out", believed)


def secrets_that_nobody_checks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_accept", lambda self, device: lambda secret: True)


def a_limit_with_room_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limit, "admits", lambda self, spent, due: True)


def runs_that_are_not_written_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory_file_module, "admit", lambda policy, memory, envelope: memory)


def errors_of_polars_as_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parquet_tables, "read_by_polars", lambda path, read, advice: read())


def errors_of_databases_word_for_word(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database, "_kind", str)


def names_that_are_patterns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(polars.selectors, "by_name", lambda *names: list(names))


def counts_of_any_type(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(count, "_check_counted", lambda kind: None)


@pytest.mark.parametrize(
    ("attack", "take_away"),
    [
        (budgets.moved_fields, a_limit_with_room_for_all),
        (budgets.all_at_once, a_limit_with_room_for_all),
        (budgets.copied_while_used, runs_that_are_not_written_down),
        (masking.many_faces, one_roster_like_another),
        (masking.padded_roster, no_signatures),
        (masking.chosen_cohort, corrupt_ones_that_the_server_counts),
        (masking.drawn_again, few_neighbours),
        (masking.false_complaints, everybody_who_is_accused),
        (masking.spoiled_sums, secrets_that_nobody_checks),
        (readers.parquet_claims, errors_of_polars_as_they_are),
        (readers.queries, errors_of_databases_word_for_word),
        (readers.column_names, names_that_are_patterns),
        (readers.odd_frames, counts_of_any_type),
    ],
    ids=lambda one: one.__name__,
)
def test_without_its_guard_the_attack_succeeds(
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[bool], tuple[int, int]],
    take_away: Callable[[pytest.MonkeyPatch], None],
) -> None:
    take_away(monkeypatch)
    tries, successes = attack(True)
    assert 0 < successes <= tries
