"""`fedhist data` as a user meets it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.builders import Fedhist, population_of, write_npz
from tests.support.api import bar, describe

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
# The file has all its bytes and not yet its name. The alarm ends a child that waits for what never comes.
HELD_WHILE_WRITING = """
import select, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.alarm(60)
from fedhist.client.files import new_files
from fedhist.commands import cli

def hold(handle):
    print("writing", flush=True)
    while True:
        select.select([], [], [], 0.01)

new_files.os.fsync = hold
cli.main(sys.argv[1:])
"""


class TestImport:
    def test_a_run_reads_what_was_imported_names_and_all(self, fedhist: Fedhist, tmp_path: Path) -> None:
        told = fedhist("data", "import", VECTORS / "tweets.csv", "--out", "tweets.npz")
        assert told.code == 0, told.err
        assert "sentiment140, 6 lines, 0 malformed" in told.out
        assert "4 users x" in told.out
        assert "note: not private: the items were inferred from the data" in told.out
        closed = ("--domain", "closed", "--evaluate")
        run = fedhist("run", "--data", "tweets.npz", *closed, "--seed", 1, "--out", "result")
        assert run.code == 0, run.err
        assert "note: not private: the items were inferred from the data" in run.out
        first = (tmp_path / "result" / "histogram.csv").read_text().splitlines()[1]
        assert first.startswith("the,")

    def test_json_says_the_same(self, fedhist: Fedhist) -> None:
        document = fedhist("data", "import", VECTORS / "u.data", "--out", "m.npz", "--json").document()
        assert {key: document[key] for key in ("format", "lines", "malformed", "users", "items", "total")} == {
            "format": "movielens", "lines": 4, "malformed": 0, "users": 3, "items": 3, "total": 4,
        }  # fmt: skip

    def test_malformed_lines_are_named_and_too_many_are_refused(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        (tmp_path / "a.csv").write_text("user,item\na,b\nbroken\nc,d\n")
        arguments, malformed = (
            ("data", "import", "a.csv", "--out", "a.npz"),
            "1 of 3 lines is malformed (line 3)",
        )
        refused = fedhist(*arguments)
        assert refused.code == 2
        assert refused.err.startswith(f"error: in a.csv, read as records, {malformed}; allowed:")
        assert [one.name for one in tmp_path.iterdir()] == ["a.csv"]
        told = fedhist(*arguments, "--max-malformed", "0.5")
        assert told.code == 0
        assert f"{malformed} and left out" in told.out

    def test_an_existing_file_is_refused_before_any_reading(self, fedhist: Fedhist, tmp_path: Path) -> None:
        (tmp_path / "a.npz").write_bytes(b"precious")
        told = fedhist("data", "import", "missing.csv", "--out", "a.npz")
        assert told.code == 2 and "a.npz exists already" in told.err
        forced = fedhist("data", "import", VECTORS / "visits.csv", "--out", "a.npz", "--force")
        assert forced.code == 0

    @pytest.mark.parametrize(
        "mistake",
        ["--out a.csv", "--format netflix", "--format snap", "--by addressee", "--max-malformed 2",
         "--max-malformed nan", "--encoding ebcdic"],
    )  # fmt: skip
    def test_a_mistake_is_one_sentence_and_leaves_nothing(
        self, fedhist: Fedhist, tmp_path: Path, mistake: str
    ) -> None:
        self.check_refused(fedhist, tmp_path, VECTORS / "visits.csv", "--out", "a.npz", *mistake.split())

    def test_the_file_and_its_target_are_needed(self, fedhist: Fedhist, tmp_path: Path) -> None:
        self.check_refused(fedhist, tmp_path, "nothing.csv", "--out", "a.npz")
        self.check_refused(fedhist, tmp_path, VECTORS / "visits.csv")

    @staticmethod
    def check_refused(fedhist: Fedhist, tmp_path: Path, *arguments: object) -> None:
        told = fedhist("data", "import", *arguments)
        assert told.code == 2
        assert told.err.startswith("error: ") and told.err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_interrupted_it_leaves_nothing(self, tmp_path: Path, number: signal.Signals) -> None:
        arguments = ["data", "import", str(VECTORS / "visits.csv"), "--out", "a.npz"]
        with subprocess.Popen(
            [sys.executable, "-c", HELD_WHILE_WRITING, *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == "writing\n"
            assert len(list(tmp_path.iterdir())) == 1
            process.send_signal(number)
            told = process.stderr.read()
        assert process.returncode == 130
        assert told.strip().startswith("interrupted") and "Traceback" not in told
        assert list(tmp_path.iterdir()) == []


class TestDescribe:
    def test_figures_are_those_of_the_table(self) -> None:
        counts = [[3, 0, 4, 0], [0, 0, 0, 0], [1, 1, 1, 0], [0, 60, 0, 0]]
        population = population_of(counts, labels=["a", "b", "c", "d"])
        found = describe(population, name="x", head=2)
        assert (found.users, found.items, found.items_used, found.empty_users) == (4, 4, 3, 1)
        assert (found.total, found.nonzeros, found.largest_count) == (70, 6, 60)
        assert found.density == 6 / 16
        assert (found.totals["p0"], found.totals["p50"], found.totals["p100"]) == (0, 3, 60)
        assert found.norms["p75"] == 5
        assert found.rates["p100"] == pytest.approx(3 / 3**0.5)
        assert found.distinct["mean"] == 1.5
        assert [(one.item, one.total, one.users) for one in found.head] == [("b", 61, 2), ("c", 5, 2)]
        spans = {(one.low, one.high): (one.users, one.counts) for one in found.bins if one.users}
        assert spans == {(0, 0): (1, 0), (2, 3): (1, 3), (4, 7): (1, 7), (32, 63): (1, 60)}

    def test_every_kind_of_source(self, fedhist: Fedhist) -> None:
        fedhist("data", "import", VECTORS / "checkins.txt", "--out", "c.npz")
        files = ("c.npz", VECTORS / "visits.csv", VECTORS / "visits.jsonl")
        for source in (*files, "synthetic:rates?users=1000"):
            told = fedhist("data", "describe", source)
            assert told.code == 0, told.err
            assert "not private" in told.out and "█" in told.out
            document = fedhist("data", "describe", source, "--json").document()
            assert document["users"] >= 2 and document["user_totals"]["p100"] > 0

    def test_the_seed_makes_the_synthetic_users(self, fedhist: Fedhist) -> None:
        one, same, other = (
            fedhist("data", "describe", "synthetic:zipf?users=50", "--json", "--seed", seed).out
            for seed in (1, 1, 2)
        )
        assert one == same != other

    @pytest.mark.parametrize(("name", "magic"), [("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG")])
    def test_a_figure_is_drawn_and_not_overwritten(
        self, fedhist: Fedhist, tmp_path: Path, name: str, magic: bytes
    ) -> None:
        arguments = ("data", "describe", "synthetic:heavy-tailed?users=300&items=30", "--figure", name)
        assert fedhist(*arguments).code == 0
        content = (tmp_path / name).read_bytes()
        assert content.startswith(magic)
        assert "exists already" in fedhist(*arguments).err
        assert fedhist(*arguments, "--force").code == 0

    def test_a_population_without_anything_can_be_described(self, fedhist: Fedhist, tmp_path: Path) -> None:
        write_npz(tmp_path / "e.npz", np.zeros((3, 2), dtype=np.int64))
        told = fedhist("data", "describe", "e.npz", "--figure", "e.png")
        assert told.code == 0, told.err
        assert "empty users  3" in told.out

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([VECTORS / "checkins.txt"], "fedhist data import"),
            (["synthetic:zipf", "--figure", "a.pdf"], "does not end in .svg or .png"),
            (["synthetic:zipf", "--head", "-1"], "--head is -1"),
        ],
    )
    def test_mistakes(self, fedhist: Fedhist, arguments: list[object], words: str) -> None:
        told = fedhist("data", "describe", *arguments)
        assert told.code == 2 and words in told.err and told.err.count("\n") == 1

    def test_bars_are_as_long_as_their_share_and_never_empty(self) -> None:
        assert (bar(0), bar(1e-9), bar(1, 4), bar(0.5, 4)) == ("", "▏", "████", "██")


class TestSyntheticByName:
    def test_list_shows_every_one_and_each_line_can_be_used(self, fedhist: Fedhist) -> None:
        lines = [line for line in fedhist("data", "list").out.splitlines() if line.startswith("synthetic:")]
        document = fedhist("data", "list", "--json").document()
        assert [line.removeprefix("synthetic:").split("?")[0] for line in lines] == list(document)
        for line in lines:
            smaller = re.sub("users=[0-9]+", "users=50", line)
            assert fedhist("data", "describe", smaller, "--json").document()["users"] == 50

    def test_a_run_over_one_which_the_ledger_calls_by_its_name(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        name = "synthetic:zipf?users=300&items=20"
        told = fedhist("run", "--data", name, "--seed", 1, "--out", "r", "--ledger", "l")
        assert told.code == 0, told.err
        assert "300 users (the number is public) x 20 items (synthetic, zipf)" in told.out
        assert (tmp_path / "r" / "histogram.csv").read_text().splitlines()[1].startswith("item-00,")
        assert fedhist("ledger", "show", "l", "--json").document()["runs"][0]["data"] == "synthetic:zipf"

    def test_the_default_population_has_a_name_too(self, fedhist: Fedhist) -> None:
        default = fedhist("run", "--users", 300, "--items", 20, "--seed", 1, "--json").document()
        arguments = ("--data", "synthetic:heavy-tailed?users=300", "--items", 20, "--seed", 1, "--json")
        named = fedhist("run", *arguments).document()
        for key in ("threshold", "relative_loss"):
            assert named[key] == default[key]
