"""`fedhist compare`: what it prints and writes, what it refuses, and that it goes on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.builders import files_in, rows_of
from tests.support.api import names_of

SMALL = ("--users", 300, "--items", 20, "--trials", 2, "--workers", 1)
FEW = ("--selectors", "oracle", "--trials", 1, "--workers", 1)
DATA = "user,item\n" + "".join(
    f"u{user},{item}\n" for user in range(40) for item in ("a", "b", f"c{user % 5}")
)
WANTED = {"selector", "items", "epsilon_select", "loss_mean", "loss_std", "threshold_mean"}


def losses(rows):
    names = ("selector", "items", "loss_mean", "loss_std", "threshold_mean")
    return [[row[name] for name in names] for row in rows]


@pytest.fixture
def data(tmp_path):
    (tmp_path / "a.csv").write_text(DATA)
    return "a.csv"


class TestRows:
    def test_json_has_one_row_for_each_combination(self, fedhist, tmp_path, data):
        rows = fedhist(
            "compare", "--data", data, "--selectors", "weighted-quantile,oracle", "--top-items", "2,4",
            "--epsilon-select", "0.1,1", "--trials", 3, "--workers", 1, "--json",
        ).document()  # fmt: skip
        assert len(rows) == 8
        assert all(row.keys() >= WANTED for row in rows)
        found = {(row["selector"], row["items"], row["epsilon_select"]) for row in rows}
        assert found == {(s, d, e) for s in ("weighted-quantile", "oracle") for d in (2, 4) for e in (0.1, 1)}
        assert all(
            row["trials"] == 3 and row["loss_low"] <= row["loss_mean"] <= row["loss_high"] for row in rows
        )
        assert all("NOT private" in row["note"] for row in rows)
        assert files_in(tmp_path) == ["a.csv"]

    def test_the_cost_is_that_of_both_rounds_and_none_without_privacy(self, fedhist):
        rows = fedhist(
            "compare", *SMALL, "--selectors", "weighted-quantile,dpsgd,oracle", "--json"
        ).document()
        totals = {row["selector"]: (row["epsilon_total"], row["delta_total"]) for row in rows}
        assert totals["weighted-quantile"] == pytest.approx((1.1, 1e-6))
        assert totals["dpsgd"] == pytest.approx((1.1, 2e-6))
        assert totals["oracle"] == (None, None)
        assert [row["private"] for row in rows] == [True, True, False]

    def test_open_domains_with_several_releases(self, fedhist):
        rows = fedhist(
            "compare", *SMALL, "--domain", "open", "--selectors", "exponential-v,median,fixed", "--threshold", "5",
            "--release", "truncated-laplace,laplace-threshold-paper", "--epsilon", "5,20", "--delta", "1/2n", "--json",
        ).document()  # fmt: skip
        assert len(rows) == 12
        assert {row["release"] for row in rows} == {"truncated-laplace", "laplace-threshold-paper"}
        assert {row["delta"] for row in rows} == {1 / 600}
        assert {row["threshold_mean"] for row in rows if row["selector"] == "fixed"} == {5}


class TestGrids:
    def test_methods_of_every_kind_stand_in_one_grid_and_the_rest_is_counted(self, fedhist, data):
        shown = fedhist(
            "compare", "--data", data, "--selectors", "weighted-quantile,quantile", "--mechanism", "gaussian,laplace",
            "--debias", "none,poisson", "--masking", "none,secagg", "--nodes", 5, "--trials", 2, "--workers", 1,
            "--json",
        )  # fmt: skip
        rows = shown.document()
        assert "combinations do not go together and are left out" in shown.err
        assert {(row["debias"], row["masking"]) for row in rows} == {
            (debias, masking) for debias in (None, "poisson") for masking in ("none", "secagg")
        }
        assert len({row["method"] for row in rows}) == len(rows)

    def test_noise_of_devices_differs_in_every_trial(self, fedhist, data):
        (row,) = fedhist(
            "compare", "--data", data, "--selectors", "weighted-quantile", "--masking", "secagg", "--noise-from",
            "devices", "--nodes", 20, "--trials", 3, "--workers", 1, "--json",
        ).document()  # fmt: skip
        assert row["loss_std"] > 0 and row["threshold_std"] > 0
        assert (row["participants"], row["noise_from"]) == (20, "devices")


class TestAnswer:
    def test_it_ends_with_the_best_method_and_the_command_that_runs_it(self, fedhist, tmp_path, data):
        shown = fedhist(
            "compare", "--data", data, "--selectors", "weighted-quantile,oracle", "--mechanism", "laplace",
            "--epsilon", 3, "--trials", 3, "--workers", 1, "--out", "c",
        )  # fmt: skip
        assert shown.code == 0, shown.err
        assert "best on a: weighted-quantile, with a mean loss of" in shown.out
        (command,) = [line for line in shown.out.splitlines() if line.startswith("to run it: ")]
        words = command.removeprefix("to run it: fedhist ").split()
        assert words == [
            "run", "--data", "a.csv", "--domain", "closed", "--evaluate",
            "--selector", "weighted-quantile", "--mechanism", "laplace", "--epsilon", "3",
        ]  # fmt: skip
        assert fedhist(*words, "--json").document()["plan"]["mechanism"] == "laplace"
        assert "give a public list with --items-file" in shown.out

    def test_each_budget_and_each_data_set_has_its_own_best(self, fedhist, tmp_path, data):
        shown = fedhist(
            "compare", "--data", data, "--synthetic", "poisson", "--users", 50, "--items", 4, "--epsilon", "1,9",
            "--selectors", "weighted-quantile,m-quantile", "--trials", 2, "--workers", 1, "--out", "c",
        )  # fmt: skip
        for where in ("a, epsilon 1", "a, epsilon 9", "poisson, epsilon 1", "poisson, epsilon 9"):
            assert f"best on {where}: " in shown.out
        assert [row["result"] for row in rows_of(tmp_path / "c/table.csv")].count("best") == 4

    def test_a_round_that_fails_is_a_loss_of_one_and_is_told(self, fedhist, tmp_path):
        (tmp_path / "many.csv").write_text("user,item\n" + "".join(f"u{n},i{n}\n" for n in range(300)))
        shown = fedhist(
            "compare", "--data", "many.csv", "--domain", "open", "--masking", "secagg", "--nodes", 5,
            "--max-items", 1, "--selectors", "weighted-quantile", "--epsilon", 50, "--epsilon-select", 50,
            "--trials", 2, "--workers", 1, "--json",
        )  # fmt: skip
        (row,) = shown.document()
        assert (row["failed"], row["loss_mean"], row["released_mean"]) == (2, 1.0, 0.0)
        assert row["threshold_mean"] is None
        assert "a round failed" in shown.err


class TestFolder:
    def test_the_files_are_there_and_agree(self, fedhist, tmp_path):
        import polars

        shown = fedhist("compare", *SMALL, "--items", "10,20", "--out", "run")
        assert shown.code == 0, shown.err
        assert "NOT private" in shown.out
        folder = tmp_path / "run"
        assert files_in(folder) == [
            "NOT-PRIVATE.txt", "figure.png", "figure.svg", "table.csv", "table.parquet", "trials.jsonl",
        ]  # fmt: skip
        table = polars.read_parquet(folder / "table.parquet")
        assert [float(row["loss_mean"]) for row in rows_of(folder / "table.csv")] == table[
            "loss_mean"
        ].to_list()
        assert ET.parse(folder / "figure.svg").getroot().tag.endswith("svg")  # noqa: S314 - our own file
        assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG\r\n")

    def test_a_finished_folder_prints_its_table_again_and_takes_more_trials(self, fedhist, tmp_path):
        first = fedhist("compare", *SMALL, "--out", "run", "--json").document()
        lines = (tmp_path / "run/trials.jsonl").read_text()
        assert fedhist("compare", *SMALL, "--out", "run", "--json").document() == first
        assert (tmp_path / "run/trials.jsonl").read_text() == lines
        more = fedhist("compare", *SMALL, "--trials", 3, "--out", "run", "--json").document()
        assert [row["trials"] for row in more] == [3] * len(first)
        assert (tmp_path / "run/trials.jsonl").read_text().startswith(lines)

    def test_another_experiment_is_refused(self, fedhist):
        few = ("compare", "--users", 300, "--items", 20, *FEW, "--out", "run")
        assert fedhist(*few).code == 0
        for change in (("--seed", 1), ("--epsilon", 2), ("--users", 301), ("--selectors", "dpsgd")):
            refused = fedhist(*few, *change)
            assert refused.code == 2
            assert "made with another" in refused.err

    def test_changed_data_is_another_experiment(self, fedhist, tmp_path, data):
        call = ("compare", "--data", data, *FEW, "--out", "run")
        assert fedhist(*call).code == 0
        (tmp_path / data).write_text(DATA + "u1,a\n")
        assert fedhist(*call).code == 2


class TestPopulations:
    """Every row can be told from every other, and no flag is passed over in silence."""

    def test_more_top_items_than_there_are_is_one_row_and_is_told(self, fedhist, data):
        shown = fedhist("compare", "--data", data, "--top-items", "3,7,500", *FEW, "--json")
        assert [row["items"] for row in shown.document()] == [3, 7]
        assert "a has 7 items: --top-items 500 keeps them all" in shown.err

    def test_a_synthetic_population_by_name_is_the_one_of_a_run(self, fedhist):
        text = "synthetic:zipf?users=300&items=20"
        (row,) = fedhist("compare", "--data", text, *FEW, "--json").document()
        assert (row["data"], row["users"], row["items"]) == ("zipf?users=300&items=20", 300, 20)
        other = fedhist("compare", "--data", text, *FEW, "--seed", 5, "--json").document()[0]
        assert row["loss_mean"] != other["loss_mean"]


def test_names_are_as_short_as_they_can_be():
    paths = ("/p/a.csv", "/p/a.npz", "/p/a.csv.gz", "/b/c.csv", "synthetic:zipf", "/d/zipf.csv", "/d/w.csv")
    names = names_of([Path(path) for path in paths], taken=["c"])
    assert list(names.values()) == [
        "p/a.csv", "a.npz", "a.csv.gz", "c.csv", "synthetic:zipf", "zipf.csv", "w",
    ]  # fmt: skip
    paths = [Path("x/visits.csv"), Path("y/visits.csv"), Path("y/words.csv")]
    assert names_of(paths) == dict(zip(paths, ["x/visits.csv", "y/visits.csv", "words"], strict=True))
    assert names_of(paths[1:]) == dict(zip(paths[1:], ["visits", "words"], strict=True))


RUN = [
    sys.executable, "-m", "fedhist", "compare", "--users", "20000", "--items", "200", "--trials", "4", "--json",
]  # fmt: skip


def started(tmp_path: Path, *more: str) -> subprocess.Popen[bytes]:
    """A run of two workers whose file has begun to fill."""
    process = subprocess.Popen(
        [*RUN, "--workers", "2", "--out", "run", *more],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell's background job ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    while not begun(process, tmp_path):
        time.sleep(0.01)
    return process


def begun(process: subprocess.Popen[bytes], tmp_path: Path) -> bool:
    """Whether the file has its first trials, or never will."""
    trials = tmp_path / "run/trials.jsonl"
    return process.poll() is not None or (trials.exists() and trials.read_bytes().count(b"\n") >= 3)


def children(process: subprocess.Popen[bytes]) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(number) for number in listed.split()]


def running(number: int) -> bool:
    """Whether this process has not ended; one that nobody has asked about yet has."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


class TestGoingOn:
    def test_after_a_kill_nothing_is_lost_or_done_twice_and_the_rows_are_the_same(self, fedhist, tmp_path):
        process = started(tmp_path)
        workers = children(process)
        process.kill()
        process.communicate()
        trials = tmp_path / "run/trials.jsonl"
        before = trials.read_bytes()
        assert 3 <= before.count(b"\n") < 21, "it was killed on the way"
        # As a kill in the middle of a write leaves it.
        trials.write_bytes(before + b'{"cell": "abc", "tri')
        rows = fedhist(*RUN[3:], "--workers", 2, "--out", "run").document()
        lines = trials.read_bytes().splitlines()
        done = [(line["cell"], line["trial"]) for line in map(json.loads, lines[1:])]
        assert trials.read_bytes().startswith(before)
        assert len(done) == len(set(done)) == 20
        assert losses(rows) == losses(fedhist(*RUN[3:], "--workers", 1).document())
        # The test's own limit is the limit.
        while any(running(number) for number in workers):
            time.sleep(0.01)

    def test_ctrl_c_says_how_to_go_on(self, tmp_path):
        # More than it can do before the signal comes.
        process = started(tmp_path, "--trials", "500")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert out == b""
        assert b"give the same command with --out run" in err
        assert b"Traceback" not in err

    def test_ctrl_c_does_not_reach_workers(self, tmp_path):
        """The signal is sent to them alone, again and again from their birth on: they go on and say nothing."""
        process = subprocess.Popen(
            [*RUN, "--users", "2000", "--trials", "2", "--workers", "2", "--out", "run"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        sent = 0
        while not begun(process, tmp_path):
            for number in children(process):
                os.kill(number, signal.SIGINT)
                sent += 1
            time.sleep(0.001)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, b"")
        assert len(json.loads(out)) == 5
        assert sent > 2
