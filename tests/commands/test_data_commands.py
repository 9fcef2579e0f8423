"""Published and synthetic data as a user meets them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import Fedhist

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
# The file has all its bytes and not yet its name. The alarm ends a child that waits for what never comes.
HELD_WHILE_WRITING = """
import select, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.alarm(60)
from fedhist.server import disk
from fedhist.commands import cli

def hold(handle):
    print("writing", flush=True)
    while True:
        select.select([], [], [], 0.01)

disk.os.fsync = hold
cli.main(sys.argv[1:])
"""


class TestSentiment140:
    def test_a_run_reads_what_was_written_names_and_all(self, fedhist: Fedhist, tmp_path: Path) -> None:
        told = fedhist("paper", "sentiment140", VECTORS / "tweets.csv", "--out", "tweets.npz")
        assert told.code == 0, told.err
        assert told.out == "written: tweets.npz, 4 users x 29 words\n"
        closed = ("--domain", "closed", "--evaluate")
        run = fedhist("run", "--data", "tweets.npz", *closed, "--seed", 1, "--out", "result")
        assert run.code == 0, run.err
        assert "note: not private: the items were inferred from the data" in run.out
        first = (tmp_path / "result" / "histogram.csv").read_text().splitlines()[1]
        assert first.startswith("the,")

    def test_an_existing_file_is_replaced_with_force(self, fedhist: Fedhist, tmp_path: Path) -> None:
        (tmp_path / "a.npz").write_bytes(b"precious")
        forced = fedhist("paper", "sentiment140", VECTORS / "tweets.csv", "--out", "a.npz", "--force")
        assert forced.code == 0

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_interrupted_it_leaves_nothing(self, tmp_path: Path, number: signal.Signals) -> None:
        arguments = ["paper", "sentiment140", str(VECTORS / "tweets.csv"), "--out", "a.npz"]
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


class TestSyntheticByName:
    def test_list_shows_every_one_and_each_line_can_be_used(self, fedhist: Fedhist) -> None:
        lines = [line for line in fedhist("data", "list").out.splitlines() if line.startswith("synthetic:")]
        document = fedhist("data", "list", "--json").document()
        assert [line.removeprefix("synthetic:").split("?")[0] for line in lines] == list(document)
        for line in lines:
            smaller = re.sub("users=[0-9]+", "users=50", line)
            run = fedhist("run", "--data", smaller, "--seed", 1, "--json")
            assert run.document()["plan"]["users"] == 50, run.err

    def test_a_run_over_one_which_the_ledger_calls_by_its_name(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        name = "synthetic:zipf?users=300&items=20"
        told = fedhist("run", "--data", name, "--seed", 1, "--out", "r", "--ledger", "l")
        assert told.code == 0, told.err
        assert "300 users (the number is public) x 20 items (synthetic, zipf)" in told.out
        assert (tmp_path / "r" / "histogram.csv").read_text().splitlines()[1].startswith("item-00,")
        assert fedhist("ledger", "show", "l", "--json").document()["runs"][0]["data"] == "synthetic:zipf"
