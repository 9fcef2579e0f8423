"""Over an open domain a message is longer the more its users have: where its size is told, and where it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.plan import Plan
from fedhist.protocol.privacy.randomness import SeededSource
from fedhist.protocol.rounds import ReleaseRequest, SelectRequest
from fedhist.protocol.withholding import length_tells
from fedhist.simulations.engines.in_process import message_bytes
from fedhist.simulations.simulation import simulate

Fedhist = Callable[..., Any]
ROUNDS = ("select", "release")
NOT_PRIVATE = "not private, simulation only"
PLAIN = ("--domain", "open", "--max-threshold", 50, "--seed", 1, "--epsilon", 20)
BUCKETED = (*PLAIN, "--statistic", "bucketed", "--buckets", 16)


def people(path: Path, *, last: list[str]) -> Path:
    """21 users: 20 who have "common", and one who has these."""
    rows = [f"u{user:02},common,1" for user in range(20)] + [f"u20,{item},1" for item in last]
    path.write_text("\n".join(["user,item,count", *rows]) + "\n", encoding="ascii")
    return path


@pytest.fixture
def worlds(tmp_path: Path) -> list[Path]:
    """Two populations that differ in one user."""
    own = [f"only mine {number}" for number in range(50)]
    return [people(tmp_path / "few.csv", last=["common"]), people(tmp_path / "many.csv", last=own)]


def told_of(document: dict[str, Any]) -> tuple[Any, Any]:
    return document["bytes_per_user"], {name: r["bytes"] for name, r in document["rounds"].items()}


class TestWithoutTheTruth:
    @pytest.mark.parametrize("flags", [PLAIN, BUCKETED], ids=["plain", "bucketed"])
    def test_one_user_with_many_items_of_their_own_changes_no_size(
        self, fedhist: Fedhist, worlds: list[Path], flags: tuple[Any, ...]
    ) -> None:
        told = []
        for world in worlds:
            folder = world.with_suffix("")
            outcome = fedhist("run", "--data", world, *flags, "--no-truth", "--out", folder)
            assert outcome.code == 0, outcome.err
            told.append(told_of(json.loads((folder / "result.json").read_text())))
        assert told[0] == told[1]
        assert told[0][0]["release"] is None
        assert (told[0][0]["select"] is None) == (flags is PLAIN)
        assert told[0][1]["release"] is None

    def test_summary_page_and_words_of_the_run_say_that_sizes_are_withheld(
        self, fedhist: Fedhist, worlds: list[Path]
    ) -> None:
        outcome = fedhist("run", "--data", worlds[1], *PLAIN, "--no-truth", "--verbose", "--out", "r")
        assert "select withheld · release withheld" in outcome.out
        assert "not private" not in outcome.out
        assert "bytes" not in outcome.err
        page = Path("r/report.html").read_text(encoding="utf-8")
        body = page.split("<main>")[1].split("</main>")[0]
        assert "How many bytes were sent is withheld for select and release" in body
        assert NOT_PRIVATE not in body
        data = json.loads(page.split('id="data">')[1].split("</script>")[0])
        assert "bytes" not in data["charts"]

    def test_a_size_that_the_plan_fixes_stays_beside_one_that_is_withheld(
        self, fedhist: Fedhist, worlds: list[Path]
    ) -> None:
        outcome = fedhist("run", "--data", worlds[1], *BUCKETED, "--no-truth", "--out", "r")
        size = json.loads(Path("r/result.json").read_text())["bytes_per_user"]["select"]
        assert f"select {size:,} B · release withheld" in outcome.out
        page = Path("r/report.html").read_text(encoding="utf-8")
        data = json.loads(page.split('id="data">')[1].split("</script>")[0])
        assert [bar["label"] for bar in data["charts"]["bytes"]["bars"]] == ["select"]
        assert "is withheld for release:" in page
        assert NOT_PRIVATE not in page.split("<main>")[1].split("</main>")[0]
        assert fedhist("figure", "r", "bytes", "--out", "b.svg").code == 0

    def test_a_figure_of_withheld_sizes_is_refused_with_the_reason(
        self, fedhist: Fedhist, worlds: list[Path]
    ) -> None:
        assert fedhist("run", "--data", worlds[0], *PLAIN, "--no-truth", "--out", "r").code == 0
        outcome = fedhist("figure", "r", "bytes", "--out", "b.svg")
        assert outcome.code != 0
        assert "depend on the data" in outcome.err
        assert not Path("b.svg").exists()

    def test_a_round_that_was_not_run_has_nothing_to_withhold(self) -> None:
        population = SparsePopulation.from_scipy(csr_array(np.eye(4, dtype=np.int64)))
        plan = Plan(users=4, domain="open", selector="fixed", threshold=3)
        result = simulate(population, plan, seed=1, truth=False)
        assert result.bytes_per_user == {"select": 0, "release": None}
        assert "release withheld" in result._repr_html_()

    @pytest.mark.parametrize(
        "settings",
        [{"items": 6}, {"domain": "open", "masking": "secagg", "participants": 4, "buckets": 16}],
        ids=["closed", "masked"],
    )
    def test_fixed_lengths_are_told(self, settings: dict[str, Any]) -> None:
        population = SparsePopulation.from_scipy(csr_array(np.ones((12, 6), dtype=np.int64)))
        result = simulate(population, Plan(users=12, **settings), seed=1, truth=False)
        with_truth = simulate(population, Plan(users=12, **settings), seed=1)
        assert result.bytes_per_user == with_truth.bytes_per_user
        assert all(result.bytes_per_user.values())
        assert "bytes_per_user" not in with_truth.to_json()["not_private"]


class TestWithTheTruth:
    def test_sizes_are_listed_and_marked_as_not_private(self, fedhist: Fedhist, worlds: list[Path]) -> None:
        outcome = fedhist("run", "--data", worlds[1], *PLAIN, "--out", "r")
        document = json.loads(Path("r/result.json").read_text())
        sizes, rounds = told_of(document)
        assert {"bytes_per_user", "rounds"} <= set(document["not_private"])
        assert all(sizes.values()) and all(rounds.values())
        line = next(line for line in outcome.out.splitlines() if line.startswith("sent by"))
        assert line.rstrip().endswith(f"select {sizes['select']:,} B · release {sizes['release']:,} B  (*)")
        page = Path("r/report.html").read_text(encoding="utf-8")
        data = json.loads(page.split('id="data">')[1].split("</script>")[0])
        assert data["charts"]["bytes"]["warning"] == NOT_PRIVATE
        assert f"{rounds['release']:,} ({NOT_PRIVATE})" in page
        assert f"{sizes['release']:,} bytes from a device with one user ({NOT_PRIVATE})" in page
        assert fedhist("figure", "r", "bytes", "--out", "b.svg").code == 0
        assert NOT_PRIVATE in Path("b.svg").read_text()

    def test_a_closed_domain_has_nothing_to_mark(self, fedhist: Fedhist, worlds: list[Path]) -> None:
        outcome = fedhist("run", "--data", worlds[1], "--seed", 1, "--out", "r")
        document = json.loads(Path("r/result.json").read_text())
        assert "bytes_per_user" not in document["not_private"]
        line = next(line for line in outcome.out.splitlines() if line.startswith("sent by"))
        assert "(*)" not in line
        page = Path("r/report.html").read_text(encoding="utf-8")
        data = json.loads(page.split('id="data">')[1].split("</script>")[0])
        assert "warning" not in data["charts"]["bytes"]


@pytest.mark.parametrize(
    "settings",
    [
        {"items": 40},
        {"items": 40, "mechanism": "laplace"},
        {"items": 40, "mechanism": "laplace", "debias": "poisson"},
        {"domain": "open"},
        {"domain": "open", "statistic": "bucketed", "buckets": 16},
    ],
    ids=["gaussian", "laplace", "debiased", "plain", "bucketed"],
)
def test_lengths_differ_exactly_where_they_are_said_to_tell(settings: dict[str, Any]) -> None:
    """Two users, one item each against forty: the codec's own bytes."""
    plan = Plan(users=2, candidates=8, max_threshold=50, **settings)
    bounds = None if plan.debias is None else np.full(40, plan.at_steps(9 << plan.grid_bits).steps)
    threshold = plan.at_steps(9 << plan.grid_bits)
    few, many = np.zeros((2, 40), dtype=np.int64), np.full((2, 40), 3)
    few[:, 0] = 1
    requests = (SelectRequest(plan), ReleaseRequest(plan, threshold, item_thresholds=bounds))
    for name, request in zip(ROUNDS, requests, strict=True):
        sizes = {
            message_bytes(request, SparsePopulation.from_scipy(csr_array(table)), source=SeededSource(1))
            for table in (few, many)
        }
        assert (len(sizes) == 2) == length_tells(plan, name)
