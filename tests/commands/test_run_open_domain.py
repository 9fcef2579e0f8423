"""Runs over an open domain, on the command line and by the API."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse

import fedhist as api
from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidPopulation
from fedhist.protocol.histograms import Histograms
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.checks import OPEN_RELEASES
from fedhist.server.ledger.budget_file import BudgetFile
from fedhist.server.result_folder import write_results
from fedhist.simulations.simulation import simulate

SMALL = ("run", "--domain", "open", "--users", 2000, "--items", 150, "--seed", 1)


# What the fixture `fedhist` gives: it returns the exit code, the output and the errors of a call.
Fedhist = Callable[..., Any]


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def released_in(folder: Path) -> dict[str, float]:
    with (folder / "histogram.csv").open(newline="", encoding="utf-8") as file:
        return {row["item"]: float(row["value"]) for row in csv.DictReader(file)}


class TestJson:
    def test_the_keys_of_a_closed_run_stay_and_those_of_an_open_one_are_added(self, fedhist: Fedhist) -> None:
        closed = fedhist("run", "--users", 100, "--items", 5, "--json").document()
        document = fedhist(*SMALL, "--json").document()
        assert set(document) == {*closed, "precision_recall"}
        assert set(document["precision_recall"]) == {"precision", "recall"}
        assert set(document["not_private"]) >= {"precision_recall", "relative_loss"}
        assert document["plan"]["domain"] == "open"
        assert document["plan"]["items"] is None
        assert document["private"] is True

    def test_what_was_released_agrees_with_itself(self, fedhist: Fedhist, tmp_path: Path) -> None:
        document = fedhist(*SMALL, "--json", "--epsilon", 4, "--out", "r").document()
        shown = released_in(tmp_path / "r")
        choice, noise = document["ledger"]
        bar = noise["parameters"]["bar"]
        assert document["released_items"] == len(shown) > 0
        assert all(value > bar for value in shown.values())
        assert document["threshold"] == noise["parameters"]["threshold"] == noise["sensitivity"]
        assert document["threshold"] == int(document["threshold"])
        assert document["precision_recall"]["precision"] == 1
        assert 0 < document["precision_recall"]["recall"] < 1
        assert choice["parameters"]["score"] == "V"
        assert noise["delta"] <= document["plan"]["delta"]
        assert document["total"] == {"epsilon": pytest.approx(4.1), "delta": noise["delta"]}
        assert document["bytes_per_user"]["select"] > document["bytes_per_user"]["release"] > 45

    def test_the_recall_is_the_share_of_all_items_that_somebody_has(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        table = np.zeros((200, 8), dtype=int)
        table[:, :3], table[0, 3] = 2, 1
        scipy.sparse.save_npz(tmp_path / "d.npz", scipy.sparse.csr_array(table))
        document = fedhist(
            "run", "--domain", "open", "--data", "d.npz", "--json", "--seed", 2, "--epsilon", 9,
            "--selector", "fixed", "--threshold", 7,
        ).document()  # fmt: skip
        assert document["released_items"] == 3
        assert document["precision_recall"] == {"precision": 1, "recall": 0.75}

    def test_without_the_truth_nothing_is_measured(self, fedhist: Fedhist) -> None:
        document = fedhist(*SMALL, "--json", "--no-truth").document()
        assert document["relative_loss"] is None
        assert "precision_recall" not in document
        assert document["released_items"] >= 0

    def test_trials_tell_the_mean_of_the_recalls(self, fedhist: Fedhist) -> None:
        few = (*SMALL[:-1], 3, "--epsilon", 4, "--json")
        together = fedhist(*few, "--trials", 3).document()
        alone = [
            fedhist(*few[: few.index("--seed")], "--seed", seed, "--epsilon", 4, "--json").document()
            for seed in (3, 4, 5)
        ]
        assert together["precision_recall"]["recall"] == pytest.approx(
            np.mean([one["precision_recall"]["recall"] for one in alone])
        )
        assert [trial["threshold"] for trial in together["trials"]] == [one["threshold"] for one in alone]

    def test_a_person_can_read_it(self, fedhist: Fedhist) -> None:
        document = fedhist(*SMALL, "--json").document()
        text = fedhist(*SMALL, "--out", "r").out
        bar = document["ledger"][1]["parameters"]["bar"]
        assert "2,000 users x an open domain" in text
        assert "random clip, truncated-laplace" in text
        assert f"{document['released_items']:,} keys above {bar:,}" in text
        assert f"{document['precision_recall']['recall']:.2%} of all keys" in text
        assert "chosen by exponential-v" in text


class TestFlags:
    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            ([], {"mechanism": "laplace", "selector": "exponential-v", "release": "truncated-laplace"}),
            (["--mechanism", "laplace"], {"mechanism": "laplace", "delta": 1e-6}),
            (["--release", "laplace-threshold"], {"release": "laplace-threshold"}),
            (["--selector", "exponential-sharp"], {"selector": "exponential-sharp"}),
            (["--statistic", "bucketed", "--buckets", "32"], {"statistic": "bucketed", "buckets": 32}),
            (["--score-sensitivity", "paper"], {"score_sensitivity": "paper"}),
            (["--delta", "1e-9", "--epsilon", "0.5"], {"delta": 1e-9, "epsilon": 0.5}),
            (["--neighbours", "replace"], {"neighbours": "replace"}),
            (["--selector", "fixed", "--threshold", "12"], {"threshold": 12}),
        ],
    )
    def test_a_flag_reaches_the_plan(
        self, fedhist: Fedhist, flags: list[str], expected: dict[str, Any]
    ) -> None:
        plan = fedhist(*SMALL, "--json", "--no-truth", *flags).document()["plan"]
        assert {name: plan[name] for name in expected} == expected

    def test_release_mechanisms_in_the_order_of_their_bars(self, fedhist: Fedhist) -> None:
        bars, recalls = [], []
        for release in OPEN_RELEASES:
            document = fedhist(
                *SMALL, "--json", "--release", release, "--selector", "fixed", "--threshold", 30
            ).document()
            (noise,) = document["ledger"]
            assert noise["name"] == release
            assert 0 < noise["delta"] <= 1e-6
            bars.append(noise["parameters"]["bar"])
            recalls.append(document["precision_recall"]["recall"])
        truncated, tight, printed = bars
        assert truncated < tight < printed
        assert recalls == sorted(recalls, reverse=True)
        assert recalls[0] > recalls[2]

    def test_the_papers_sensitivity_is_charged_when_it_is_used(self, fedhist: Fedhist) -> None:
        for flags, expected in ((["range"], 1499.5), (["paper"], 3750)):
            choice = fedhist(*SMALL, "--json", "--score-sensitivity", *flags).document()["ledger"][0]
            assert choice["sensitivity"] == expected
            assert choice["epsilon"] == 0.1

    def test_replacement_needs_a_higher_bar(self, fedhist: Fedhist) -> None:
        fixed = (*SMALL, "--json", "--selector", "fixed", "--threshold", 10)
        added, replaced = (
            fedhist(*fixed, "--neighbours", name).document()["ledger"][0]
            for name in ("add-remove", "replace")
        )
        assert replaced["parameters"]["bar"] > 1.9 * added["parameters"]["bar"]
        assert replaced["sensitivity"] == 20

    @pytest.mark.parametrize("selector", ["oracle", "median", "p90"])
    def test_baselines_are_marked_as_not_private(
        self, fedhist: Fedhist, tmp_path: Path, selector: str
    ) -> None:
        document = fedhist(*SMALL, "--json", "--selector", selector, "--out", "r").document()
        assert document["private"] is False
        assert document["total"]["epsilon"] is None
        assert any(f"the selector {selector} read the exact statistic" in note for note in document["notes"])
        assert (tmp_path / "r/NOT-PRIVATE.txt").exists()

    def test_help_names_what_an_open_domain_has(self, fedhist: Fedhist) -> None:
        text = re.sub(r"-\s+", "-", fedhist("run", "--help").out)
        for name in ("exponential-v", "exponential-sharp", "median", "p90", "--debias", *OPEN_RELEASES):
            assert name in text

    def test_a_ledger_holds_the_exact_delta_and_no_more_than_was_planned(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        document = fedhist(*SMALL, "--json", "--ledger", "l.db").document()
        (run,) = BudgetFile.open(tmp_path / "l.db", create=False).runs()
        assert run.charges[-1].delta == document["ledger"][-1]["delta"] < 1e-6
        assert fedhist("ledger", "show", "l.db").code == 0


class TestBuckets:
    def test_errors_against_the_items_are_told(self, fedhist: Fedhist) -> None:
        few, many = (
            fedhist(*SMALL, "--json", "--statistic", "bucketed", "--buckets", count).document()
            for count in (16, 2**14)
        )
        for document in (few, many):
            assert 0 <= document["bucketed_v_error_chosen"] <= document["bucketed_v_error"] < 1
            assert "bucketed_v_error" in document["not_private"]
            assert document["ledger"][0]["parameters"]["statistic"] == "bucketed"
        assert few["bucketed_v_error"] > 0.01
        assert many["bucketed_v_error"] < 0.2 * few["bucketed_v_error"]
        assert "bucketed_v_error" not in fedhist(*SMALL, "--json").document()
        assert "V(C) by buckets is off by at most" in fedhist(*SMALL, "--statistic", "bucketed").out

    def test_a_message_has_one_length_whatever_the_data(self, fedhist: Fedhist) -> None:
        flags = ("--statistic", "bucketed", "--buckets", 16, "--candidates", 20, "--json", "--no-truth")
        sizes = set()
        for users, items in ((300, 20), (900, 400)):
            document = fedhist(
                "run", "--domain", "open", "--users", users, "--items", items, *flags
            ).document()
            sizes.add(document["bytes_per_user"]["select"])
        assert len(sizes) == 1

    def test_a_fixed_threshold_has_no_statistic_to_compare(self, fedhist: Fedhist) -> None:
        document = fedhist(
            *SMALL, "--json", "--statistic", "bucketed", "--selector", "fixed", "--threshold", 9
        ).document()
        assert "bucketed_v_error" not in document


STRANGE = [
    "été",
    "e\u0301te\u0301",
    "語",
    "🙂",
    "007",
    "7",
    "a,b",
    'say "hi"',
    " space ",
    "line\nbreak",
    "",
    "NULL",
    "nan",
]


def write_strings(path: Path, users: int = 300) -> Path:
    """Everybody has every label, the i-th of them 2 + i times."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["user", "item", "count"])
        for user in range(users):
            writer.writerows([f"u{user}", label, 2 + i] for i, label in enumerate(STRANGE))
    return path


class TestStrings:
    FLAGS = ("--epsilon", 100, "--selector", "fixed", "--threshold", 110, "--seed", 4)

    def test_strings_come_back_as_they_were_written(self, fedhist: Fedhist, tmp_path: Path) -> None:
        write_strings(tmp_path / "d.csv")
        document = fedhist(
            "run", "--domain", "open", "--data", "d.csv", *self.FLAGS, "--json", "--out", "r"
        ).document()
        shown = released_in(tmp_path / "r")
        assert set(shown) == set(STRANGE)
        for place, label in enumerate(STRANGE):
            assert shown[label] == pytest.approx(300 * (2 + place), abs=20)
        assert document["precision_recall"] == {"precision": 1, "recall": 1}

    def test_integers_of_a_parquet_file_come_back_as_integers(self, fedhist: Fedhist, tmp_path: Path) -> None:
        numbers = [7, -12, 2**40]
        pl.DataFrame(
            {"user": np.repeat(np.arange(200), 3), "item": numbers * 200, "count": [3] * 600}
        ).write_parquet(tmp_path / "d.parquet")
        assert fedhist(
            "run", "--domain", "open", "--data", "d.parquet", *self.FLAGS, "--out", "r"
        ).code == 0  # fmt: skip
        assert set(released_in(tmp_path / "r")) == {str(number) for number in numbers}

    def test_nobody_is_told_that_the_items_were_read_off_the_data(
        self, fedhist: Fedhist, tmp_path: Path
    ) -> None:
        write_strings(tmp_path / "d.csv", users=50)
        closed = fedhist("run", "--data", "d.csv", "--json").document()
        open_ = fedhist("run", "--domain", "open", "--data", "d.csv", "--json").document()
        assert any("read off the data" in note for note in closed["notes"])
        assert not any("read off the data" in note for note in open_["notes"])
        top = fedhist("run", "--domain", "open", "--data", "d.csv", "--top-items", 3, "--json").document()
        assert any("top items were read off the data" in note for note in top["notes"])

    @pytest.mark.parametrize("place", [0, 450])
    def test_a_name_that_is_too_long_is_refused_wherever_it_stands(
        self, fedhist: Fedhist, tmp_path: Path, place: int
    ) -> None:
        rows = [f"u{user},{'secret' * 200 if user == place else 'fine'}" for user in range(500)]
        (tmp_path / "d.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
        outcome = fedhist(
            "run", "--domain", "open", "--data", "d.csv", "--out", "r", "--ledger", "l.db", "--seed", 1
        )
        assert outcome.code == 2
        assert "1200 bytes; allowed: up to 1024 bytes" in outcome.err
        assert "secret" not in outcome.err
        assert files_in(tmp_path) == ["d.csv"]
        # A closed domain's names never travel.
        assert fedhist("run", "--data", "d.csv", "--json").code == 0

    def test_half_a_character_survives_a_whole_run(self, tmp_path: Path) -> None:
        labels = ["\ud800", "\udc80x", "whole"]
        population = SparsePopulation.from_scipy(scipy.sparse.csr_array(np.full((200, 3), 4)), labels=labels)
        for statistic in ("plain", "bucketed"):
            plan = Plan(
                users=200, domain="open", epsilon=50.0, statistic=statistic, buckets=8, max_threshold=20
            )
            result = simulate(population, plan, seed=1)
            assert sorted(result.release.labels or []) == sorted(labels)
            folder = tmp_path / statistic
            folder.mkdir()
            write_results(folder, result.to_json(), result.release, labels)
            written = (folder / "histogram.csv").read_text(encoding="utf-8", errors="surrogatepass")
            assert all(label in written for label in labels)


BAD = [
    (["--domain", "open", "--mechanism", "gaussian"], "an open domain with the gaussian mechanism"),
    (["--domain", "open", "--debias", "poisson"], "debiasing over an open domain"),
    (["--domain", "open", "--sparsity", "5"], "an open domain with a number of items or a sparsity"),
    (["--domain", "open", "--delta", "0"], "delta is 0.0; allowed: a number strictly between 0 and 1/2"),
    (["--domain", "open", "--delta", "0.5"], "delta is 0.5; allowed"),
    (
        ["--domain", "open", "--min-threshold", "2.2", "--max-threshold", "2.8"],
        "a range with a whole number in it",
    ),
    (["--domain", "open", "--selector", "weighted-quantile"], "allowed: exponential-v, exponential-sharp"),
    (["--domain", "open", "--selector", "quantile"], "allowed: exponential-v"),
    (["--domain", "open", "--selector", "fixed"], "has no threshold; allowed"),
    (["--domain", "open", "--buckets", "0"], "buckets is 0; allowed"),
    (
        ["--domain", "open", "--statistic", "bucketed", "--buckets", "99999999"],
        "buckets is 99999999; allowed",
    ),
    (["--domain", "open", "--max-threshold", "1e9"], "allowed"),
    (["--domain", "open", "--release", "gaussian"], "'truncated-laplace', 'laplace-threshold'"),
    (["--domain", "open", "--selector", "median"], "is not private and can't be charged"),
    (["--release", "truncated-laplace"], "a release mechanism or a bucketed statistic for a closed domain"),
    (["--statistic", "bucketed"], "add --domain open or leave it out"),
    (["--selector", "exponential-v"], "does not go with the gaussian mechanism"),
    (["--selector", "median"], "does not go with the gaussian mechanism"),
]


@pytest.mark.parametrize(("flags", "words"), BAD, ids=[" ".join(flags) for flags, _ in BAD])
def test_what_does_not_go_together_is_one_sentence(
    fedhist: Fedhist, tmp_path: Path, flags: list[str], words: str
) -> None:
    outcome = fedhist("run", "--users", 200_000, "--items", 5, "--out", "r", "--ledger", "l.db", *flags)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert words in outcome.err
    assert "allowed: " in outcome.err or "--help'" in outcome.err
    assert files_in(tmp_path) == []


# --- The API.


@dataclass(frozen=True)
class Resharded:
    """The same users in other pieces."""

    population: SparsePopulation
    users_each: int

    @property
    def users(self) -> int:
        return self.population.users

    @property
    def domain_size(self) -> int:
        return self.population.domain_size

    @property
    def labels(self) -> Sequence[str | int] | None:
        return self.population.labels

    def shards(self) -> Iterator[Histograms]:
        for start in range(0, self.users, self.users_each):
            yield self.population.histograms.rows(start, min(start + self.users_each, self.users))


@pytest.fixture(scope="module")
def words() -> SparsePopulation:
    """700 users of Zipf words, some with very many."""
    generator = np.random.default_rng(9)
    chances = 1 / np.arange(1, 201)
    totals = np.minimum(np.exp(generator.normal(2.5, 1.4, size=700)), 100_000).astype(int)
    totals[5] = 90_000
    table = np.stack([generator.multinomial(total, chances / chances.sum()) for total in totals])
    return SparsePopulation.from_scipy(
        scipy.sparse.csr_array(table), labels=[f"wörd-{i}" for i in range(200)]
    )


@pytest.mark.parametrize("selector", ["exponential-v", "exponential-sharp", "oracle", "p90"])
@pytest.mark.parametrize("statistic", ["plain", "bucketed"])
def test_the_same_seed_gives_the_same_release_bit_for_bit_in_any_sharding(
    words: SparsePopulation, selector: str, statistic: str
) -> None:
    plan = Plan(
        users=700, domain="open", selector=selector, statistic=statistic, buckets=64, max_threshold=300,
        epsilon=5.0, candidates=40,
    )  # fmt: skip
    expected = simulate(words, plan, seed=6, truth=False).release
    assert len(expected.histogram) > 1
    for users_each in (700, 101, 7):
        found = simulate(Resharded(words, users_each), plan, seed=6, truth=False).release
        assert found.threshold == expected.threshold
        assert found.labels == expected.labels
        assert found.histogram.tobytes() == expected.histogram.tobytes()
    other = simulate(words, plan, seed=7, truth=False).release
    assert other.histogram.tolist() != expected.histogram.tolist()


def test_without_a_seed_two_releases_differ(words: SparsePopulation) -> None:
    plan = Plan(users=700, domain="open", selector="fixed", threshold=50.0, epsilon=5.0)
    first, second = (simulate(words, plan, truth=False).release for _ in range(2))
    assert first.histogram.tolist() != second.histogram.tolist()
    assert not first.seeded


def test_the_oracle_is_about_the_best_of_all_fixed_thresholds() -> None:
    totals = np.random.default_rng(8).geometric(1 / 30, size=600)
    chances = 1 / np.arange(1, 31)
    table = [np.random.default_rng(i).multinomial(m, chances / chances.sum()) for i, m in enumerate(totals)]
    population = SparsePopulation.from_scipy(scipy.sparse.csr_array(np.stack(table)))
    plan = Plan(users=600, domain="open", selector="oracle", max_threshold=200, epsilon=4.0, candidates=6)

    def mean_loss(one: Plan) -> float:
        return float(np.mean([simulate(population, one, seed=seed).relative_loss for seed in range(5)]))

    fixed = {
        steps: mean_loss(Plan.from_json(plan.to_json() | {"selector": "fixed", "threshold": float(steps)}))
        for steps in plan.candidate_steps.tolist()
    }
    assert max(fixed.values()) > 1.5 * min(fixed.values())
    assert min(fixed, key=fixed.__getitem__) not in (1, 200)
    assert mean_loss(plan) <= 1.02 * min(fixed.values())


def test_the_public_names_run_an_open_domain() -> None:
    population = api.HeavyTailedPopulation(users=1500, items=80, seed=2)
    plan = api.Plan(users=1500, domain="open", epsilon=3.0)
    result = api.simulate(population, plan, seed=2)
    release = result.release
    assert release.labels is not None
    assert len(release.labels) == len(release.histogram)
    assert release.bar is not None
    assert (release.histogram > release.bar).all()
    assert result.diagnostics is not None
    assert result.diagnostics.recall == len(release.labels) / np.count_nonzero(population.totals())


def test_a_plan_for_a_closed_domain_does_not_fit(words: SparsePopulation) -> None:
    with pytest.raises(InvalidPopulation, match="700 users and 200 items"):
        simulate(words, Plan(users=701, domain="open"), seed=1)
