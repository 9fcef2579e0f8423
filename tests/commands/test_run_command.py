"""`fedhist run` as a person and as another program use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist import BudgetFile, Plan
from tests.builders import Fedhist, document_in, files_in, rows_of, write_npz, write_records
from tests.support.api import carrying_out_module as carrying_out

SMALL = ("run", "--users", 800, "--items", 20)
WRITTEN = ["NOT-PRIVATE.txt", "histogram.csv", "plan.json", "report.html", "result.json", "simulation.json"]


class TestJson:
    def test_it_is_one_document_with_every_promised_key_and_nothing_else(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        outcome = fedhist(*SMALL, "--json")
        document = outcome.document()
        assert outcome.err == ""
        assert outcome.out.endswith("}\n")
        assert outcome.out.count("\n") == 1
        assert set(document) >= {
            "plan", "threshold", "relative_loss", "released_items", "ledger", "total", "tight",
            "bytes_per_user", "seconds",
        }  # fmt: skip
        assert "trials" not in document
        assert document["released_items"] == 20
        assert set(document["bytes_per_user"]) == {"select", "release"}
        assert document["relative_loss"] > 0
        assert 1 <= document["threshold"] <= 1500
        assert set(document["seconds"]) >= {"population", "select", "release", "truth"}
        assert all(spent >= 0 for spent in document["seconds"].values())
        assert set(document["not_private"]) >= {"relative_loss", "clipped_users"}
        # The plan without flags is the plan of the library.
        assert document["plan"] == json.loads(json.dumps(Plan(users=800, items=20).to_json()))
        assert files_in(tmp_path) == []
        select, release = document["ledger"]
        for entry in (select, release):
            assert set(entry) >= {
                "round", "name", "parameters", "sensitivity", "neighbours", "epsilon", "delta",
            }  # fmt: skip
        assert (select["round"], release["round"]) == ("select", "release")
        assert (select["epsilon"], select["delta"]) == (0.1, 0)
        assert (release["epsilon"], release["delta"]) == (1, 1e-6)
        assert document["total"] == {"epsilon": pytest.approx(1.1), "delta": 1e-6}
        assert set(document["tight"]) == {"epsilon", "delta"}
        assert 1 <= document["tight"]["epsilon"] < 1.1


class TestFlags:
    @pytest.mark.parametrize(
        ("settings", "follows"),
        [
            ({"delta": 0}, {"mechanism": "laplace"}),
            ({"selector": "dpsgd", "delta_select": 1e-7}, {}),
            (
                {
                    "domain": "closed", "epsilon": 0.5, "epsilon_select": 0.25, "neighbours": "replace-one",
                    "min_threshold": 2, "max_threshold": 64, "candidates": 32, "sparsity": 4,
                    "release": "classic-gaussian", "minimum_cohort": 800,
                },
                {},
            ),
            (
                {"domain": "open"},
                {"mechanism": "auto", "selector": "weighted-quantile", "release": "discover"},
            ),
            (
                {"domain": "open", "release": "discover"},
                {},
            ),
            (
                {"domain": "open", "release": "truncated-laplace"},
                {"mechanism": "laplace", "selector": "exponential-v"},
            ),
            (
                {
                    "domain": "open", "mechanism": "laplace", "selector": "exponential-sharp",
                    "release": "laplace-threshold", "delta": 1e-9,
                },
                {},
            ),
        ],
    )  # fmt: skip
    def test_a_flag_reaches_the_plan(
        self, fedhist: Fedhist, settings: dict[str, Any], follows: dict[str, Any]
    ) -> None:
        flags = [text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", value)]
        plan = fedhist(*SMALL, "--json", "--no-evaluate", *flags).document()["plan"]
        assert {name: plan[name] for name in settings | follows} == settings | follows

    def test_top_items_keeps_the_most_frequent(self, fedhist: Fedhist, tmp_path: Path) -> None:
        data = write_npz(tmp_path / "d.npz", np.tile([[1, 5, 0, 9]], (50, 1)))
        outcome = fedhist(
            "run", "--data", data, "--top-items", 2, "--evaluate", "--epsilon", 1e4, "--out", "r", "--seed", 1,
            "--selector", "fixed", "--threshold", 20,
        )  # fmt: skip
        assert outcome.code == 0
        rows = rows_of(tmp_path / "r/histogram.csv")
        assert [round(float(row["value"])) for row in rows] == pytest.approx([450, 250], abs=2)
        assert "not private" in outcome.out

    def test_an_items_file_fixes_the_domain_and_its_order(self, fedhist: Fedhist, tmp_path: Path) -> None:
        rows = [("u1", "pear", 1), ("u2", "apple", 1), ("u3", "apple", 1)] * 20
        data = write_records(tmp_path / "d.csv", rows)
        (tmp_path / "items.txt").write_text("\ufeffapple\r\nplum\npear\n", encoding="utf-8")
        outcome = fedhist("run", "--data", data, "--items-file", "items.txt", "--out", "r", "--epsilon", 1e4)
        assert outcome.code == 0
        assert [row["item"] for row in rows_of(tmp_path / "r/histogram.csv")] == ["apple", "plum", "pear"]
        assert "inferred from the data" not in outcome.out


class TestSeedsAndTrials:
    def test_a_seed_repeats_the_release_and_marks_it_and_without_one_each_is_new(
        self, fedhist: Fedhist
    ) -> None:
        written = []
        for number, seed in enumerate((5, 5, 6, None, None)):
            flags = () if seed is None else ("--seed", seed)
            assert fedhist(*SMALL, *flags, "--out", f"r{number}").code == 0
            document = document_in(f"r{number}")
            assert (document["seed"], document["simulation_only"], document["private"]) == (seed, True, False)
            assert any("seeded run" in note for note in document["notes"]) == (seed is not None)
            assert any("seed" in note for note in document["notes"]) == (seed is not None)
            written.append(Path(f"r{number}/histogram.csv").read_bytes())
        assert written[0] == written[1]
        assert len(set(written)) == 4


class TestSummary:
    def test_what_only_a_simulation_knows_is_marked(self, fedhist: Fedhist) -> None:
        assert "not private" in fedhist(*SMALL).out
        text = fedhist(*SMALL, "--no-evaluate").out
        assert "relative loss" not in text
        assert "clipped" not in text
        assert "not private" not in text

    def test_the_oracle_is_marked_not_private_in_every_output(self, fedhist: Fedhist, tmp_path: Path) -> None:
        outcome = fedhist(*SMALL, "--selector", "oracle", "--out", "r", "--no-evaluate")
        assert "chosen by oracle (not private)" in outcome.out
        assert "note: not private" in outcome.out
        printed = fedhist(*SMALL, "--selector", "oracle", "--json", "--no-evaluate").document()
        for document in (document_in("r"), printed):
            assert document["private"] is False
            assert any(note.startswith("not private") for note in document["notes"])
            assert document["ledger"][0]["private"] is False
            assert document["total"]["epsilon"] is None
            assert document["tight"]["epsilon"] is None
        assert (tmp_path / "r/NOT-PRIVATE.txt").read_text().startswith("not private")


class TestLedger:
    def test_runs_accumulate_and_each_says_its_plan(self, fedhist: Fedhist, tmp_path: Path) -> None:
        first = fedhist(*SMALL, "--json", "--ledger", "l.db").document()
        second = fedhist(*SMALL, "--json", "--ledger", "l.db", "--epsilon", 0.5).document()
        budget = BudgetFile.open(tmp_path / "l.db", create=False)
        assert budget.spent().epsilon == pytest.approx(1.7)
        assert budget.spent().delta == pytest.approx(2e-6)
        assert budget.reserved().epsilon == 0
        assert [run.status for run in budget.runs()] == ["released"] * 2
        for run, document in zip(budget.runs(), (first, second), strict=True):
            assert run.plan_hash == document["plan_digest"]
            assert dict(run.plan) == document["plan"]
            assert [charge.to_json() for charge in run.charges] == document["ledger"]

    def test_the_limit_refuses_before_anything_is_spent_or_written(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        assert fedhist("ledger", "limit", "l.db", "--epsilon", 1.2, "--delta", 1e-5).code == 0
        assert fedhist(*SMALL, "--json", "--ledger", "l.db").code == 0
        before = fedhist("ledger", "show", "l.db", "--json").document()
        outcome = fedhist(*SMALL, "--ledger", "l.db", "--out", "r")
        assert outcome.code == 3
        assert outcome.out == ""
        assert outcome.err.startswith("error: the limit of ")
        assert "Nothing was spent" in outcome.err
        assert outcome.err.count("\n") == 1
        assert files_in(tmp_path) == ["l.db"]
        assert fedhist("ledger", "show", "l.db", "--json").document() == before


class TestResultFolder:
    def test_it_holds_the_result_the_histogram_and_the_plan(self, fedhist: Fedhist, tmp_path: Path) -> None:
        document = fedhist(*SMALL, "--seed", 4, "--json", "--out", "r").document()
        folder = tmp_path / "r"
        assert files_in(folder) == WRITTEN
        assert document_in(folder) == document
        plan = json.loads((folder / "plan.json").read_text())
        assert plan == document["plan"]
        assert Plan.from_json(plan).digest.hex() == document["plan_digest"]
        assert (folder / "histogram.csv").read_text().splitlines()[0] == (
            "item,value,standard_error,estimate,at_least"
        )
        rows = rows_of(folder / "histogram.csv")
        assert [row["item"] for row in rows] == [str(item) for item in range(20)]
        assert {float(row["standard_error"]) for row in rows} == {document["standard_error"]}
        assert len({float(row["value"]) for row in rows}) > 1

    def test_a_default_name_taken_during_the_run_is_not_a_lost_release(
        self, fedhist: Fedhist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def meanwhile(*arguments: Any, **options: Any) -> Any:
            for name in names:
                (tmp_path / name).mkdir()
            return real(*arguments, **options)

        real, names = carrying_out.simulate, []
        keep = carrying_out.check_target
        monkeypatch.setattr(carrying_out, "check_target", lambda path: (names.append(path.name), keep(path)))
        monkeypatch.setattr(carrying_out, "simulate", meanwhile)
        outcome = fedhist(*SMALL)
        assert outcome.code == 0
        assert f"written: {names[0]}-2/result.json" in outcome.out
        assert list((tmp_path / names[0]).iterdir()) == []


def test_a_reader_that_leaves_early_sees_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedhist", *map(str, SMALL), "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 1
    assert err == b""
