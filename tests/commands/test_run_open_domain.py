"""`fedhist run --domain open`: which keys are released, under which names, and what it costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedhist import Plan, simulate
from tests.builders import Fedhist, population_of, rows_of
from tests.support.api import write_results

FOUND = ("run", "--domain", "open", "--users", 2000, "--items", 150, "--seed", 1)
SMALL = (*FOUND, "--release", "truncated-laplace")


class TestJson:
    def test_the_keys_of_a_closed_run_stay_and_those_of_an_open_one_are_added(self, fedhist: Fedhist) -> None:
        closed = fedhist("run", "--users", 100, "--items", 5, "--json").document()
        document = fedhist(*SMALL, "--json").document()
        assert set(document) == {*closed, "precision_recall"}
        assert set(document["precision_recall"]) == {"precision", "recall"}
        assert set(document["not_private"]) >= {"precision_recall", "relative_loss"}
        assert document["plan"]["domain"] == "open"
        assert document["plan"]["items"] is None
        assert all(entry["private"] for entry in document["ledger"])

    def test_what_was_released_agrees_with_itself(self, fedhist: Fedhist, tmp_path: Path) -> None:
        document = fedhist(*SMALL, "--json", "--epsilon", 4, "--out", "r").document()
        shown = rows_of(tmp_path / "r/histogram.csv")
        choice, noise = document["ledger"]
        bar = noise["parameters"]["bar"]
        assert document["released_items"] == len(shown) > 0
        assert all(float(row["value"]) > bar for row in shown)
        assert document["threshold"] == noise["parameters"]["threshold"] == noise["sensitivity"]
        assert document["threshold"] == int(document["threshold"])
        assert document["precision_recall"]["precision"] == 1
        assert 0 < document["precision_recall"]["recall"] < 1
        assert choice["parameters"]["score"] == "V"
        assert noise["delta"] <= document["plan"]["delta"]
        assert document["total"] == {"epsilon": pytest.approx(4.1), "delta": noise["delta"]}
        assert document["bytes_per_user"]["select"] > document["bytes_per_user"]["release"] > 45


class TestDiscovery:
    def test_what_was_released_agrees_with_itself(self, fedhist: Fedhist, tmp_path: Path) -> None:
        (tmp_path / "known.txt").write_text("3\nnobody's\n")
        flags = (*FOUND, "--epsilon", 4, "--known-items", "known.txt")
        document = fedhist(*flags, "--json", "--out", "r").document()
        shown = [row["item"] for row in rows_of(tmp_path / "r/histogram.csv")]
        assert document["released_items"] == len(shown) == len(set(shown)) > 2
        assert {"3", "nobody's"} <= set(shown)
        assert document["plan"]["known_items"] == "3\nnobody's"
        assert [charge["round"] for charge in document["ledger"]] == ["discover", "select"]
        assert document["total"] == {"epsilon": pytest.approx(4.1), "delta": document["plan"]["delta"]}
        assert document["precision_recall"]["precision"] == pytest.approx(1 - 1 / len(shown))
        assert "discovered items, l2 clip, gaussian noise" in fedhist(*flags, "--out", "s").out


class TestStrings:
    def test_a_long_name_of_a_closed_domain_never_travels(self, fedhist: Fedhist, tmp_path: Path) -> None:
        (tmp_path / "d.csv").write_text(f"user,item\nann,{'secret' * 200}\n")
        assert fedhist("run", "--data", "d.csv", "--json").code == 0

    def test_half_a_character_survives_a_whole_run(self, tmp_path: Path) -> None:
        labels = ["\ud800", "\udc80x", "whole"]
        population = population_of(np.full((200, 3), 4), labels=labels)
        for release in ("discover", "truncated-laplace"):
            plan = Plan(users=200, domain="open", epsilon=50.0, release=release, max_threshold=20)
            result = simulate(population, plan, seed=1)
            assert sorted(result.release.labels or []) == sorted(labels)
            folder = tmp_path / release
            folder.mkdir()
            write_results(folder, result.to_json(), result.release, labels)
            written = (folder / "histogram.csv").read_text(encoding="utf-8", errors="surrogatepass")
            assert all(label in written for label in labels)
