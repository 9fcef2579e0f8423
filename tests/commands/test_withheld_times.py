"""How long a step takes depends on what users have: where times are told, and where they are not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedhist.simulations.simulation import simulate

Fedhist = Callable[..., Any]
NOT_PRIVATE = "not private, simulation only"
RUNS = {
    "closed": (),
    "open": ("--domain", "open", "--max-threshold", 50),
    "masked": ("--masking", "secagg", "--nodes", 8),
    "trials": ("--trials", 2),
}


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


@pytest.mark.parametrize("flags", RUNS.values(), ids=RUNS)
def test_no_shared_file_of_a_private_run_has_times(fedhist: Fedhist, flags: tuple[Any, ...]) -> None:
    command = ("run", "--users", 300, "--items", 20, "--seed", 1, "--no-truth", *flags)
    outcome = fedhist(*command, "--trace", "--out", "r")
    assert outcome.code == 0, outcome.err
    assert re.search(r"^seconds +withheld", outcome.out, re.MULTILINE)
    documents = [json.loads(Path("r/result.json").read_text()), fedhist(*command, "--json").document()]
    documents += [json.loads(line) for line in Path("r/trace.jsonl").read_text().splitlines()]
    times = [time for document in documents for time in times_in(document)]
    assert len(times) > 10
    assert set(times) == {None}
    page = Path("r/report.html").read_text(encoding="utf-8")
    body = page.split("<main>")[1].split("</main>")[0]
    assert "Times are withheld" in body
    assert not re.search(r"\d s\b", body)
    assert "seconds" not in json.loads(page.split('id="data">')[1].split("</script>")[0])["charts"]
    refused = fedhist("figure", "r", "seconds", "--out", "s.svg")
    assert refused.code == 2
    assert "times depend on the data" in refused.err


def test_two_private_runs_of_one_seed_share_the_same_bytes(fedhist: Fedhist) -> None:
    """Nothing of the clock is left in any file: two runs that differ in their times alone are alike."""
    written = []
    for folder in ("a", "b"):
        Path(folder).mkdir()
        command = ("run", "--users", 300, "--items", 20, "--seed", 1, "--no-truth", "--trace")
        assert fedhist(*command, "--out", f"{folder}/r").code == 0
        written.append({path.name: path.read_bytes() for path in Path(folder, "r").iterdir()})
    assert written[0] == written[1]


def test_the_trace_of_a_private_run_is_shown_by_number(fedhist: Fedhist) -> None:
    assert fedhist("run", "--users", 30, "--items", 5, "--no-truth", "--trace", "--out", "r").code == 0
    shown = fedhist("trace", "show", "r").out
    assert " 1.   Phase" in shown or " 1.   The plan" in shown
    assert not re.search(r"\d s\b", shown)


def test_with_the_truth_times_are_told_and_listed_as_not_private(fedhist: Fedhist) -> None:
    outcome = fedhist("run", "--users", 300, "--items", 20, "--seed", 1, "--trace", "--out", "r")
    document = json.loads(Path("r/result.json").read_text())
    assert {"seconds", "rounds"} <= set(document["not_private"])
    assert None not in times_in(document)
    line = next(line for line in outcome.out.splitlines() if line.startswith("seconds"))
    assert line.rstrip().endswith("(*)")
    page = Path("r/report.html").read_text(encoding="utf-8")
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["charts"]["seconds"]["warning"] == NOT_PRIVATE
    assert fedhist("figure", "r", "seconds", "--out", "s.svg").code == 0
    assert NOT_PRIVATE in Path("s.svg").read_text()


def test_python_keeps_times_for_the_one_who_runs_it_and_does_not_write_them() -> None:
    import fedhist

    population = fedhist.HeavyTailedPopulation(users=100, items=5, seed=1)
    result = simulate(population, fedhist.Plan(users=100, items=5), seed=1, truth=False)
    assert result.seconds["select"] >= 0
    assert set(times_in(result.to_json())) == {None}
