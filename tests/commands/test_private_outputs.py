"""What a run without the truth prints, writes or fails with is the same for populations that differ in one user.

Times, and the sizes of messages over an open domain, depend on what users have: with the truth they are shown and
marked as not private, without it they are withheld.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist import Plan, SeededSource, simulate
from tests.asking import release_at, select_request
from tests.builders import Fedhist, document_in, page_in, population_of, write_npz, write_records
from tests.support.api import SHARD_NONZEROS, length_tells, message_bytes
from tests.support.api import folder_module as recorded_run

NOT_PRIVATE = "not private, simulation only"
SMALL = ("run", "--users", 300, "--items", 20, "--seed", 1)
TINY = ("--seed", 1, "--epsilon", 0.001)
DISCOVERED = ("--domain", "open", "--max-threshold", 50, "--seed", 1)
OPEN = (*DISCOVERED, "--release", "truncated-laplace")
MODES = {
    "plain": OPEN,
    "discovered": DISCOVERED,
    "masked discovered": (*DISCOVERED, "--masking", "secagg", "--nodes", 8),
}


def people(path: Path, *own: str) -> Path:
    """40 users who have "common", one of whom has these, too."""
    return write_records(
        path, [(f"u{user:02}", "common", 1) for user in range(40)] + [("u00", i, 1) for i in own]
    )


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A population in which one user has fifty items of their own."""
    return people(tmp_path / "many.csv", *(f"only mine {number}" for number in range(50)))


def line_of(out: str, beginning: str) -> str:
    return next(line.rstrip() for line in out.splitlines() if line.startswith(beginning))


def outputs(fedhist: Fedhist, data: Path, folder: str, *flags: object) -> Any:
    """What a run tells of itself: exit code, errors, and all of its document but what was released."""
    outcome = fedhist("run", "--data", data, *flags, "--trace", "--verbose", "--out", folder)
    released = ("threshold", "standard_error", "released_items", "significant_items", "ledger", "notes")
    document = document_in(folder) if outcome.code == 0 else {}
    trace = [json.loads(line) for line in Path(folder, "trace.jsonl").read_text().splitlines()]
    events = [line for line in trace if line.get("event") not in ("state", "charge")]
    told = [line for line in outcome.err.splitlines() if not line.startswith(("The threshold", "Charged"))]
    return outcome.code, told, {k: v for k, v in document.items() if k not in released}, events


class TestNeighbours:
    @pytest.mark.parametrize("flags", MODES.values(), ids=MODES)
    def test_one_users_long_name_does_not_end_a_run_without_the_truth(
        self, fedhist: Fedhist, tmp_path: Path, flags: tuple[Any, ...]
    ) -> None:
        with_it, without = people(tmp_path / "a.csv", "n" * 3000), people(tmp_path / "b.csv", "short")
        assert outputs(fedhist, with_it, "a", *flags) == outputs(fedhist, without, "b", *flags)
        refused = fedhist("run", "--data", with_it, *flags, "--evaluate", "--out", "c")
        assert refused.code == 2
        assert "name has" in refused.err

    def test_the_number_of_shards_is_not_told(self, fedhist: Fedhist, tmp_path: Path) -> None:
        """A shard has a limited number of entries: the number of shards depends on what the users have."""
        users, items = 2000, SHARD_NONZEROS // 1000
        told = []
        for name, most in (("few", 1), ("many", items)):
            table = np.zeros((users, items), dtype=np.int64)
            table[:, :most] = 1
            data = write_npz(tmp_path / f"{name}.npz", table)
            code, *rest = outputs(fedhist, data, name, "--seed", 1)
            assert code == 0
            told.append(rest)
        assert told[0] == told[1]
        assert {report["nodes"] for report in told[0][1]["rounds"].values()} == {1}

    def test_the_room_for_a_result_does_not_tell_how_many_names_there_are(
        self, fedhist: Fedhist, many: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Any] = []
        monkeypatch.setattr(recorded_run, "check_room", lambda target, plan, labels: asked.append(labels))
        assert fedhist("run", "--data", many, *OPEN, "--out", "a").code == 0
        assert fedhist("run", "--data", many, *OPEN, "--evaluate", "--out", "b").code == 0
        assert asked[0] is None
        assert len(asked[1]) == 51

    def test_notes_of_a_run_without_the_truth_do_not_come_from_the_exact_data(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        """At this budget an all-zero histogram is nearer, which only the truth can say."""
        (tmp_path / "items.txt").write_text("common\nrare\n")
        command = ("run", "--data", people(tmp_path / "a.csv"), "--items-file", "items.txt", "--json")
        with_it, without = (fedhist(*command, *TINY, *more).document() for more in (["--evaluate"], ()))
        assert any("all-zero" in note for note in with_it["notes"])
        told = ("all-zero", "evaluated run")
        assert without["notes"] == [
            note for note in with_it["notes"] if not any(words in note for words in told)
        ]

    def test_a_failed_run_tells_its_cohort_and_no_more(self, fedhist: Fedhist, tmp_path: Path) -> None:
        failures = []
        for name, own in (("a", ["mine"]), ("b", ["x", "y", "z"])):
            data = people(tmp_path / f"{name}.csv", *own)
            flags = (*MODES["masked discovered"], "--dropout", 0.9, "--trace", "--out", "r")
            outcome = fedhist("run", "--data", data, *flags)
            assert outcome.code == 4
            (trace,) = tmp_path.glob("r.failed*")
            failures.append((re.sub(r"failed-\d+-", "failed-", outcome.err), trace.read_text()))
            trace.unlink()
        assert failures[0] == failures[1]


class TestSizes:
    @pytest.mark.parametrize(
        ("flags", "withheld"),
        # The rounds after a discovery are as long as the list of what was found, which is public.
        [((*DISCOVERED, "--epsilon", 9), {"discover"}), (OPEN, {"select", "release"})],
    )
    def test_one_user_with_many_items_of_their_own_changes_no_size(
        self, fedhist: Fedhist, tmp_path: Path, many: Path, flags: tuple[Any, ...], withheld: set[str]
    ) -> None:
        told = []
        for data in (people(tmp_path / "few.csv"), many):
            document = fedhist("run", "--data", data, *flags, "--json").document()
            told.append((document["bytes_per_user"], {n: r["bytes"] for n, r in document["rounds"].items()}))
        assert told[0] == told[1]
        assert all({name for name, size in sizes.items() if size is None} == withheld for sizes in told[0])

    def test_where_they_are_withheld_every_output_says_so(self, fedhist: Fedhist, many: Path) -> None:
        outcome = fedhist("run", "--data", many, *OPEN, "--verbose", "--out", "r")
        assert "select withheld · release withheld" in outcome.out
        assert "(*)" not in outcome.out
        assert "bytes" not in outcome.err
        page = page_in("r")
        assert "The number of bytes sent is withheld for select and release" in page.body
        assert NOT_PRIVATE not in page.body
        assert "bytes" not in page.charts
        refused = fedhist("figure", "r", "bytes", "--out", "b.svg")
        assert refused.code != 0
        assert "depend on the data" in refused.err
        assert not Path("b.svg").exists()

    @pytest.mark.parametrize(
        "settings",
        [
            {"items": 6},
            {
                "domain": "open",
                "masking": "secagg",
                "participants": 4,
                "epsilon": 50.0,
            },
        ],
        ids=["closed", "masked"],
    )
    def test_fixed_lengths_are_told(self, settings: dict[str, Any]) -> None:
        population, plan = population_of(np.ones((12, 6), dtype=np.int64)), Plan(users=12, **settings)
        with_truth, without = (simulate(population, plan, seed=1, evaluate=truth) for truth in (True, False))
        assert without.bytes_per_user == with_truth.bytes_per_user
        assert all(without.bytes_per_user.values())
        assert "bytes_per_user" not in with_truth.to_json()["not_private"]

    def test_with_the_truth_they_are_listed_and_marked(self, fedhist: Fedhist, many: Path) -> None:
        outcome = fedhist("run", "--data", many, *OPEN, "--evaluate", "--out", "r")
        document, page = document_in("r"), page_in("r")
        sizes, rounds = document["bytes_per_user"], {n: r["bytes"] for n, r in document["rounds"].items()}
        assert {"bytes_per_user", "rounds"} <= set(document["not_private"])
        assert all(sizes.values()) and all(rounds.values())
        line = f"select {sizes['select']:,} B · release {sizes['release']:,} B  (*)"
        assert line_of(outcome.out, "sent ").endswith(line)
        assert page.charts["bytes"].marked
        assert f"{rounds['release']:,} ({NOT_PRIVATE})" in page.text
        assert fedhist("figure", "r", "bytes", "--out", "b.svg").code == 0
        assert NOT_PRIVATE in Path("b.svg").read_text()

    @pytest.mark.parametrize(
        "settings",
        [
            {"items": 40},
            {"items": 40, "mechanism": "laplace"},
            {"items": 40, "mechanism": "laplace", "debias": "poisson"},
            {"domain": "open", "release": "truncated-laplace"},
        ],
        ids=["gaussian", "laplace", "debiased", "open"],
    )
    def test_lengths_differ_exactly_where_they_are_said_to_tell(self, settings: dict[str, Any]) -> None:
        """Two users, one item each against forty: the codec's own bytes."""
        plan = Plan(users=2, candidates=8, max_threshold=50, **settings)
        threshold = plan.at_steps(9 << plan.grid_bits)
        bounds = None if plan.debias is None else np.full(40, threshold.steps)
        few, all_items = np.zeros((2, 40), dtype=np.int64), np.full((2, 40), 3)
        few[:, 0] = 1
        for request in (select_request(plan), release_at(plan, threshold, item_thresholds=bounds)):
            sizes = {
                message_bytes(request, population_of(table), source=SeededSource(1))
                for table in (few, all_items)
            }
            assert (len(sizes) == 2) == length_tells(plan, request.round.value)


def times_in(document: object, name: str = "") -> Iterator[object]:
    """Every value of a key that is a time, or that stands inside of one."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from times_in(value, key if key in ("seconds", "at") else name)
    elif isinstance(document, list):
        for value in document:
            yield from times_in(value, name)
    elif name:
        yield document


class TestTimes:
    @pytest.mark.parametrize(
        "flags",
        [(), OPEN, ("--masking", "secagg", "--nodes", 8)],
        ids=["closed", "open", "masked"],
    )
    def test_no_shared_file_of_a_private_run_has_them(self, fedhist: Fedhist, flags: tuple[Any, ...]) -> None:
        outcome = fedhist(*SMALL, "--no-evaluate", *flags, "--trace", "--out", "r")
        assert outcome.code == 0, outcome.err
        assert re.search(r"^seconds +withheld", outcome.out, re.MULTILINE)
        documents = [document_in("r"), fedhist(*SMALL, "--no-evaluate", *flags, "--json").document()]
        documents += [json.loads(line) for line in Path("r/trace.jsonl").read_text().splitlines()]
        times = [time for document in documents for time in times_in(document)]
        assert len(times) > 10
        assert set(times) == {None}
        shown = fedhist("trace", "show", "r")
        assert shown.code == 0 and not re.search(r"\d s\b", shown.out)
        page = page_in("r")
        assert "Times are withheld" in page.body
        assert not re.search(r"\d s\b", page.body)
        assert "seconds" not in page.charts
        refused = fedhist("figure", "r", "seconds", "--out", "s.svg")
        assert refused.code == 2
        assert "times depend on the data" in refused.err

    def test_two_private_runs_of_one_seed_share_the_same_bytes(self, fedhist: Fedhist) -> None:
        """Nothing of the clock is left in any file: two runs that differ in their times alone are alike."""
        written = []
        for folder in ("a", "b"):
            Path(folder).mkdir()
            assert fedhist(*SMALL, "--no-evaluate", "--trace", "--out", f"{folder}/r").code == 0
            written.append({path.name: path.read_bytes() for path in Path(folder, "r").iterdir()})
        assert written[0] == written[1]

    def test_with_the_truth_they_are_listed_and_marked(self, fedhist: Fedhist) -> None:
        outcome = fedhist(*SMALL, "--out", "r")
        document = document_in("r")
        assert {"seconds", "rounds"} <= set(document["not_private"])
        assert None not in times_in(document)
        assert line_of(outcome.out, "seconds").endswith("(*)")
        assert page_in("r").charts["seconds"].marked
        assert fedhist("figure", "r", "seconds", "--out", "s.svg").code == 0
        assert NOT_PRIVATE in Path("s.svg").read_text()

    def test_python_keeps_them_for_its_user_and_does_not_write_them(self) -> None:
        population, plan = population_of(np.ones((12, 6), dtype=np.int64)), Plan(users=12, items=6)
        result = simulate(population, plan, seed=1, evaluate=False)
        assert result.seconds["select"] >= 0
        assert set(times_in(result.to_json())) == {None}
