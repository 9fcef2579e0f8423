"""What a run without the truth prints, writes or fails with is the same for populations that differ in one user."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from fedhist.client.populations import SHARD_NONZEROS
from fedhist.server import recorded_run

Fedhist = Callable[..., Any]
OPEN = ("--domain", "open", "--max-threshold", 50, "--seed", 1)
MASKED = (*OPEN, "--masking", "secagg", "--nodes", 8, "--buckets", 16)
LONG = "n" * 3000


def people(path: Path, *own: str) -> Path:
    """40 users who have "common", one of whom has these, too."""
    rows = [f"u{user:02},common,1" for user in range(40)] + [f"u00,{item},1" for item in own]
    path.write_text("\n".join(["user,item,count", *rows]) + "\n", encoding="ascii")
    return path


def outputs(fedhist: Fedhist, data: Path, folder: str, *flags: object) -> Any:
    """What a run tells of itself: exit code, errors, and all of its document but what was released."""
    outcome = fedhist("run", "--data", data, *flags, "--no-truth", "--trace", "--verbose", "--out", folder)
    released = ("threshold", "standard_error", "released_items", "ledger", "notes")
    document = json.loads(Path(folder, "result.json").read_text()) if outcome.code == 0 else {}
    trace = [json.loads(line) for line in Path(folder, "trace.jsonl").read_text().splitlines()]
    events = [line for line in trace if line.get("event") not in ("state", "charge")]
    told = [line for line in outcome.err.splitlines() if not line.startswith(("The threshold", "Charged"))]
    return outcome.code, told, {k: v for k, v in document.items() if k not in released}, events


@pytest.mark.parametrize(
    "flags", [OPEN, (*OPEN, "--statistic", "bucketed"), MASKED], ids=["plain", "bucketed", "masked"]
)
def test_one_users_long_name_does_not_end_a_run_without_the_truth(
    fedhist: Fedhist, tmp_path: Path, flags: tuple[Any, ...]
) -> None:
    with_it, without = people(tmp_path / "a.csv", LONG), people(tmp_path / "b.csv", "short")
    assert outputs(fedhist, with_it, "a", *flags) == outputs(fedhist, without, "b", *flags)
    refused = fedhist("run", "--data", with_it, *flags, "--out", "c")
    assert refused.code == 2
    assert "name has" in refused.err


def test_the_number_of_shards_is_not_told(fedhist: Fedhist, tmp_path: Path) -> None:
    """Users are read in shards of so many entries: how many there are depends on what the users have."""
    users, items = 2000, SHARD_NONZEROS // 1000
    told = []
    for name, most in (("few", 1), ("many", items)):
        table = np.zeros((users, items), dtype=np.int64)
        table[:, :most] = 1
        save_npz(tmp_path / f"{name}.npz", csr_array(table))
        code, err, document, events = outputs(fedhist, tmp_path / f"{name}.npz", name, "--seed", 1)
        assert code == 0
        told.append((err, document, events))
    assert told[0] == told[1]
    assert {report["nodes"] for report in told[0][1]["rounds"].values()} == {1}


def test_the_room_for_a_result_does_not_tell_how_many_names_there_are(
    fedhist: Fedhist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(recorded_run, "check_room", lambda target, plan, labels: asked.append(labels))
    data = people(tmp_path / "a.csv", "mine", "mine too")
    assert fedhist("run", "--data", data, *OPEN, "--no-truth", "--out", "a").code == 0
    assert fedhist("run", "--data", data, *OPEN, "--out", "b").code == 0
    assert asked[0] is None
    assert len(asked[1]) == 3


def test_notes_of_a_run_without_the_truth_do_not_come_from_the_exact_data(
    fedhist: Fedhist, tmp_path: Path
) -> None:
    """At this budget an all-zero histogram is nearer, which only the truth can say."""
    (tmp_path / "items.txt").write_text("common\nrare\n")
    command = ("run", "--data", people(tmp_path / "a.csv"), "--items-file", "items.txt", "--epsilon", 0.001)
    with_it = fedhist(*command, "--seed", 1, "--json").document()
    without = fedhist(*command, "--seed", 1, "--json", "--no-truth").document()
    assert any("all-zero" in note for note in with_it["notes"])
    assert without["notes"] == [note for note in with_it["notes"] if "all-zero" not in note]


def test_a_failed_run_tells_its_cohort_and_no_more(fedhist: Fedhist, tmp_path: Path) -> None:
    failures = []
    for name, own in (("a", ["mine"]), ("b", ["x", "y", "z"])):
        data = people(tmp_path / f"{name}.csv", *own)
        outcome = fedhist(
            "run", "--data", data, *MASKED, "--dropout", 0.9, "--no-truth", "--trace", "--out", "r"
        )
        assert outcome.code == 4
        traces = sorted(tmp_path.glob("r.failed*"))
        failures.append((re.sub(r"failed-\d+-", "failed-", outcome.err), traces[-1].read_text()))
        traces[-1].unlink()
    assert failures[0] == failures[1]
