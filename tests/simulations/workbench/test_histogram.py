"""`fedhist.histogram`: what goes in, what comes out, and what is refused before anything is spent."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

import fedhist
from tests.builders import Fedhist, files_in, runs_in
from tests.support.api import FIELDS, PlanFields, PlanSettings, Question, RunSettings, in_python
from tests.support.api import carrying_out_module as carrying_out
from tests.support.refusals import refused

NAMES = ["tea", "coffee", "milk"]
# 600 users who have tea three times and coffee once, and one who has something of their own.
ROWS = [(f"u{user}", name) for user in range(600) for name in ("tea", "tea", "tea", "coffee")] + [
    ("u0", "mine")
]
FRAME = pd.DataFrame(ROWS, columns=["user", "item"])
KINDS = {"pandas": FRAME, "polars": pl.from_pandas(FRAME), "pyarrow": pa.Table.from_pandas(FRAME)}


class ArrowStream:
    """A table of a library that nobody knows."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return KINDS["pyarrow"].__arrow_c_stream__(requested_schema)


class TestArguments:
    def test_every_field_of_a_plan_is_one_with_its_own_type(self) -> None:
        named = {"users", "items", "epsilon"}
        assert set(PlanSettings.__annotations__) == set(FIELDS) - named
        declared = get_type_hints(PlanFields)
        for name, kind in get_type_hints(PlanSettings).items():
            assert kind in (declared[name], declared[name] | None, declared[name] | str), name

    def test_help_shows_all_of_them_and_a_session_takes_the_same(self) -> None:
        shown = inspect.signature(fedhist.histogram).parameters
        assert [*shown][:7] == ["data", "user", "item", "count", "time", "items", "epsilon"]
        assert set(shown) == {"data", "ledger", *Question.__annotations__}
        assert (
            set(Question.__annotations__)
            > set(RunSettings.__annotations__)
            > set(FIELDS)
            - {
                "users",
                "items",
                "epsilon",
            }
        )
        asked = inspect.signature(fedhist.Session.histogram).parameters
        assert set(asked) == {"self", "data", *Question.__annotations__}
        assert {name: one.default for name, one in shown.items()}["epsilon"] == 1.0

    def test_a_name_that_does_not_exist_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="epsilon_select"):
            fedhist.histogram(FRAME, epsilon_selekt=1.0)


class TestFrames:
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_kind_that_came_in_comes_back(self, kind: str) -> None:
        result = fedhist.histogram(KINDS[kind], items=NAMES, epsilon=5.0)
        frame = result.to_frame()
        assert type(frame) is type(KINDS[kind])
        columns = pl.DataFrame(frame)
        assert columns.columns == ["item", "value", "standard_error", "estimate", "at_least"]
        assert columns["item"].to_list() == NAMES
        assert columns["value"].to_list() == pytest.approx([1800, 600, 0], abs=60)
        assert result.release.private and not result.release.seeded

    def test_others_come_back_as_polars(self, tmp_path: Path) -> None:
        FRAME.to_csv(tmp_path / "t.csv", index=False)
        for data in (tmp_path / "t.csv", str(tmp_path / "t.csv")):
            assert isinstance(fedhist.histogram(data, items=NAMES).to_frame(), pl.DataFrame)
        assert fedhist.histogram(ArrowStream(), items=NAMES).to_frame()["item"].to_list() == NAMES

    def test_matrices_populations_and_synthetic_ones_are_closed_domains(self) -> None:
        matrix = csr_array(np.full((300, 3), 2))
        populations: list[Any] = [
            matrix,
            fedhist.SparsePopulation.from_scipy(matrix),
            "synthetic:poisson?items=3",
        ]
        for data in populations:
            result = fedhist.histogram(data)
            assert (result.release.plan.domain, result.release.plan.items) == ("closed", 3)
            assert result.to_frame()["item"].to_list() == [0, 1, 2]
        assert fedhist.histogram(matrix, items=NAMES).to_frame()["item"].to_list() == NAMES

    def test_columns_bins_and_the_names_of_a_set_an_array_or_a_column(self) -> None:
        renamed = FRAME.rename(columns={"user": "who", "item": "what"}).assign(age=7, item=1.5)
        asked: dict[str, Any] = {"user": "who", "item": "what", "count": "age"}
        for items in (set(NAMES), np.array(sorted(NAMES)), pd.Series(sorted(NAMES)), pa.array(sorted(NAMES))):
            result = fedhist.histogram(renamed, **asked, items=items)
            assert list(result.release.names) == sorted(NAMES)
        binned = fedhist.histogram(renamed, user="who", bins=[0, 1, 2])
        assert list(binned.release.names) == ["[0, 1)", "[1, 2)"]

    def test_an_empty_release_is_a_frame_of_texts_and_numbers(self) -> None:
        with pytest.warns(UserWarning, match="nothing was released"):
            result = fedhist.histogram(FRAME.head(8))
        assert [kind.is_numeric() for kind in pl.DataFrame(result.to_frame()).dtypes] == [False, *[True] * 4]
        assert list(result.to_frame()) == list(fedhist.histogram(FRAME).to_frame())
        assert any("nothing was released" in note for note in result.notes)
        assert "0 of 0 items" in result._repr_html_()

    def test_names_that_a_frame_does_not_take(self) -> None:
        frame = fedhist.histogram(csr_array(np.full((9, 3), 2)), items=["half \ud800", 7, "é"]).to_frame()
        assert frame["item"].to_list() == ["half ?", "7", "é"]

    def test_other_names_are_one_for_each_item(self) -> None:
        release = fedhist.histogram(FRAME, items=NAMES).release
        assert list(release.to_frame(labels=["a", "b", "c"])["item"]) == ["a", "b", "c"]
        with refused(fedhist.InvalidInput, "wrong-number-of-labels"):
            release.to_frame(labels=["a", "b"])
        found = fedhist.histogram(FRAME).release
        assert list(found.to_frame(labels=[*NAMES, "others"])["item"]) == list(found.names)


class TestPrivacy:
    def test_items_that_the_data_alone_names_are_found_privately(self) -> None:
        result = fedhist.histogram(FRAME, epsilon=4.0)
        assert result.release.plan.domain == "open"
        assert set(result.release.names) == {"tea", "coffee"}
        assert result.release.private and result.diagnostics is None
        assert repr(result).startswith("Result(only 2 items were found above the bar")
        assert 'domain="open"' in result.notes[0] and "--" not in "".join(result.notes)

    def test_a_table_too_narrow_for_the_names_says_what_was_left_out(self) -> None:
        with pytest.warns(UserWarning, match=r"Names above 2 bytes are left out \(max_item_bytes\)"):
            assert not fedhist.histogram(FRAME, masking="secagg", nodes=4, max_item_bytes=2).release.names

    def test_the_truth_is_there_when_it_is_asked_for(self) -> None:
        result = fedhist.histogram(FRAME, items=NAMES, evaluate=True, seed=1)
        assert result.relative_loss is not None and result.release.seeded
        again = fedhist.histogram(FRAME, items=NAMES, seed=1)
        assert (again.release.histogram == result.release.histogram).all()
        assert again.relative_loss is None and again.story is None


class TestBudget:
    def test_a_total_takes_the_place_of_epsilon_and_only_of_its_default(self) -> None:
        result = fedhist.histogram(FRAME, items=NAMES, total_epsilon=1.1)
        assert result.tight.epsilon <= 1.1 < result.total.epsilon
        with refused(fedhist.InvalidInput, "epsilon-and-total"):
            fedhist.histogram(FRAME, items=NAMES, epsilon=1.0, total_epsilon=1.1)

    def test_a_delta_of_zero_asks_for_laplace(self) -> None:
        assert fedhist.histogram(FRAME, items=NAMES, delta=0).total.delta == 0

    def test_a_ledger_is_charged_before_it_runs_even_if_it_is_stopped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = tmp_path / "people.ledger"
        fedhist.histogram(FRAME, items=NAMES, ledger=ledger)

        def stop(*_: object, **options: Any) -> None:
            options["journal"](charges[0])
            raise KeyboardInterrupt

        charges = runs_in(ledger)[0].charges
        monkeypatch.setattr(carrying_out, "simulate", stop)
        with pytest.raises(KeyboardInterrupt):
            fedhist.histogram(FRAME, items=NAMES, ledger=str(ledger), out=tmp_path / "out")
        first, second = runs_in(ledger)
        assert (first.status, second.status, second.reason) == ("released", "failed", "KeyboardInterrupt")
        assert second.charges == charges[:1]
        assert files_in(tmp_path) == ["people.ledger"]


class TestFolder:
    def test_it_is_the_one_of_the_command(self, fedhist: Fedhist, tmp_path: Path) -> None:
        import fedhist as library

        FRAME.to_csv(tmp_path / "t.csv", index=False)
        (tmp_path / "items.txt").write_text("\n".join(NAMES))
        flags = ("--items-file", "items.txt", "--seed", 3, "--evaluate", "--trace", "--out", "one")
        assert fedhist("run", "--data", "t.csv", *flags).code == 0
        library.histogram("t.csv", items=NAMES, seed=3, evaluate=True, trace=True, out="two")
        assert files_in(tmp_path / "one") == files_in(tmp_path / "two")
        for name in ("histogram.csv", "plan.json"):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()

    def test_one_that_exists_is_refused_before_anything_is_charged(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        with refused(fedhist.InvalidInput, "exists-already"):
            fedhist.histogram(FRAME, items=NAMES, out=tmp_path / "out", ledger=tmp_path / "ledger")
        assert files_in(tmp_path) == ["out"]

    def test_a_result_that_is_paid_for_comes_back_without_one(self, tmp_path: Path) -> None:
        class Vanishing(fedhist.PoissonPopulation):
            def shards(self) -> Any:
                if (tmp_path / "disk").exists():
                    (tmp_path / "disk").rmdir()
                return super().shards()

        (tmp_path / "disk").mkdir()
        with pytest.warns(UserWarning, match="disk/out"):
            result = fedhist.histogram(
                Vanishing(users=500, items=3, seed=1),
                evaluate=False,
                out=tmp_path / "disk" / "out",
                ledger=tmp_path / "ledger",
            )
        assert len(result.to_frame()) == 3 and "can't be written" in result.notes[0]
        assert runs_in(tmp_path / "ledger")[0].status == "released"

    def test_a_thread_may_ask(self, tmp_path: Path) -> None:
        asked: list[Any] = []

        def ask() -> None:
            asked.append(
                fedhist.histogram(FRAME, items=NAMES, ledger=tmp_path / "ledger", out=tmp_path / "out")
            )

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert len(asked) == 1 and runs_in(tmp_path / "ledger")[0].status == "released"


REFUSED: dict[str, tuple[object, dict[str, Any], *tuple[str, ...]]] = {
    "nothing": (None, {}, "no-data"),
    "a list": ([1, 2], {}, "not-a-data-frame"),
    "an empty frame": (FRAME.head(0), {}, "no-users"),
    "no such file": ("nowhere.csv", {}, "missing-file", "nowhere.csv"),
    "no such column": (FRAME, {"user": "who"}, "missing-column", "who"),
    "two columns of a name": (
        pd.DataFrame([["a", "b", "c"]], columns=["user", "item", "item"]),
        {},
        "repeated-column",
    ),
    "items as a text": (FRAME, {"items": "tea"}, "bad-items", "str"),
    "items as a number": (FRAME, {"items": 3}, "bad-items", "int"),
    "items of other types": (FRAME, {"items": [1.5, None]}, "bad-item"),
    "items twice": (FRAME, {"items": ["tea", "tea"]}, "repeated-item"),
    "items as a pandas frame": (FRAME, {"items": FRAME}, "bad-items", "DataFrame"),
    "items as a polars frame": (
        FRAME,
        {"items": KINDS["polars"]},
        "bad-items",
        "DataFrame",
    ),
    "items as a table": (FRAME, {"items": KINDS["pyarrow"]}, "bad-items", "Table"),
    "items of two dimensions": (FRAME, {"items": np.array([NAMES])}, "bad-items", "ndarray"),
    "items as truth values": (FRAME, {"items": [True, False]}, "bad-item"),
    "names for numbers": (
        fedhist.PoissonPopulation(users=9, items=3, seed=1),
        {"items": NAMES},
        "numbered-items",
    ),
    "no items": (FRAME, {"items": []}, "empty-item-list"),
    "a trace without a folder": (FRAME, {"trace": True}, "trace-without-out"),
    "nodes without an engine of nodes": (FRAME, {"nodes": 3}, "engine-without-nodes"),
    "a fault of no kind": (FRAME, {"faulty": {"lazy": 0.2}}, "unknown-fault", "faulty", "lazy"),
    "no such engine": (FRAME, {"engine": "cloud"}, "unknown-engine"),
    "no such spelling": (FRAME, {"normalise": "upper"}, "bad-value", "normalise"),
    "an epsilon below zero": (FRAME, {"epsilon": -1}, "bad-epsilon"),
    "an epsilon of text": (FRAME, {"epsilon": "1"}, "bad-value", "epsilon"),
    "a seed of text": (FRAME, {"seed": "one"}, "bad-value", "seed"),
    "the truth as a text": (
        FRAME,
        {"items": NAMES, "evaluate": "no"},
        "bad-value",
        "evaluate",
    ),
    "nodes and other participants": (
        FRAME,
        {"items": NAMES, "masking": "secagg", "nodes": 9, "participants": 8},
        "two-numbers-of-nodes",
    ),
    "nodes of text": (FRAME, {"nodes": "one", "masking": "secagg"}, "bad-value", "nodes"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_bad_input_is_a_sentence_and_costs_nothing(how: str, tmp_path: Path) -> None:
    data, asked, *told = REFUSED[how]
    with refused(fedhist.InvalidInput, *told) as refusal:
        fedhist.histogram(data, **asked, ledger=tmp_path / "ledger")
    assert "--" not in str(refusal.value)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (
            "raise --epsilon-select, name it with --selector fixed, or see 'fedhist ledger close --run 3'",
            "raise epsilon_select, name it with selector=\"fixed\", or see 'fedhist ledger close --run 3'",
        ),
        ("--ledger, and --no-evaluate", "ledger=..., and evaluate=False"),
    ],
)
def test_options_are_written_as_arguments(said: str, written: str) -> None:
    assert in_python(said) == written
