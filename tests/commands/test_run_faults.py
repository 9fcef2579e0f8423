"""`fedhist run --dropout --faulty`: what it prints, writes and shows of faulty nodes, and what it warns of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

import fedhist as package
from tests.builders import ROOT, Fedhist, page_in

RUN = ("run", "--users", 500, "--items", 5, "--seed", 1, "--nodes", 20)
FAULTS = ("--dropout", 0.1, "--faulty", "inflate=0.1", "--faulty", "fail=0.05")
TABLE = re.compile(r"^\| `(--[^`]*)` \| ([\d.]+) \|", re.MULTILINE)
STRUCK = "2 dropout, 1 fail, 2 inflate"


def test_the_summary_says_whom_faults_struck_and_what_they_did(fedhist: Fedhist) -> None:
    done = fedhist(*RUN, *FAULTS, "--out", "r")
    assert done.code == 0, done.err
    known = json.loads(Path("r/result.json").read_text())
    assert f"select {STRUCK} · release {STRUCK} of 20 nodes" in done.out
    loss, without = known["relative_loss"], known["faults"]["loss_without_faults"]
    assert f"relative loss {without:.4f} (with {loss:.4f})" in done.out
    assert "simulation only: 2 of 20 nodes made their answers up (--faulty)" in done.out
    assert "faults" in known["not_private"]


def test_the_loss_without_faults_is_that_of_the_run_without_them(fedhist: Fedhist) -> None:
    known = fedhist(*RUN, *FAULTS, "--json").document()
    clean = fedhist(*RUN[:-2], "--json").document()
    assert known["faults"]["loss_without_faults"] == clean["relative_loss"]
    assert known["faults"]["threshold_without_faults"] == clean["threshold"]
    assert "faults" not in clean


def test_without_the_truth_it_says_only_who_answered(fedhist: Fedhist) -> None:
    done = fedhist(*RUN, *FAULTS, "--no-evaluate", "--out", "r")
    assert done.code == 0, done.err
    assert f"select {STRUCK}" in done.out
    assert "without faults" not in done.out
    page = page_in("r").text
    assert "What faults did" in page and "would have had" not in page
    known = json.loads(Path("r/result.json").read_text())
    assert "loss_without_faults" not in known["faults"] and known["simulation_only"]
    assert known["rounds"]["release"]["faults"] == {"error": 1, "no-answer": 2}


def test_what_can_only_go_wrong_is_said_before(fedhist: Fedhist) -> None:
    done = fedhist(*RUN, "--dropout", 0.5, "--minimum-cohort", 300, "--faulty", "fail=0.01")
    assert done.code == 4
    assert "note: --faulty fail=0.01 of 20 nodes is none; raise it, or raise --nodes" in done.err
    assert "note: at most 250 of 500 users can be in a sum and --minimum-cohort asks for 300" in done.err
    assert "dropped: 10 no-answer" in done.err.splitlines()[-1]
    assert "note:" not in fedhist(*RUN, *FAULTS).err


def test_python_takes_the_same(fedhist: Fedhist) -> None:
    rows = [(user, item) for user in range(100) for item in ("tea", "milk")]
    table = pd.DataFrame(rows, columns=["user", "item"])
    result = package.histogram(
        table, items=["tea", "milk"], nodes=10, dropout=0.2, faulty={"inflate": 0.1}, seed=1, evaluate=True
    )
    assert result.users == {"select": 80, "release": 80}
    assert result.faults is not None and result.faults.rounds["release"] == {"dropout": 2, "inflate": 1}
    assert "simulation only: 1 of 10 nodes made their answers up (faulty)" in result.notes


PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "loss"), TABLE.findall(PAGE))
def test_the_page_has_the_losses_of_its_commands(fedhist: Fedhist, flags: str, loss: str) -> None:
    known = fedhist("run", "--seed", 1, "--json", *flags.split()).document()
    digits = len(loss.partition(".")[2])
    assert f"{known['relative_loss']:.{digits}f}" == loss
    assert f"has a loss of {known['faults']['loss_without_faults']:.4f}." in PAGE


def test_the_page_has_such_a_table() -> None:
    assert len(TABLE.findall(PAGE)) == 6
