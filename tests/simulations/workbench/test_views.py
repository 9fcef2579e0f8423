"""Reports, figures and notebook views of what a function returned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure

import fedhist
from tests.builders import Fedhist, page_in
from tests.simulations.workbench.typed_use import ask
from tests.support.refusals import refused

HOSTILE = "<script>alert(1)</script>"
FRAME = pd.DataFrame(
    {"user": [f"u{n % 300}" for n in range(1200)], "item": ["tea", HOSTILE, "tea", "a\u202eb"] * 300}
)
NAMES = ["tea", HOSTILE, "a\u202eb"]


@pytest.fixture(scope="module")
def experiment() -> fedhist.Result:
    return fedhist.histogram(FRAME, items=NAMES, seed=1, evaluate=True)


@pytest.fixture(scope="module")
def private() -> fedhist.Result:
    return fedhist.histogram(FRAME, items=NAMES)


class TestRows:
    def test_one_item_and_the_largest_are_those_of_the_frame(self, private: fedhist.Result) -> None:
        rows = {row["item"]: row for row in private.to_frame().to_dict("records")}
        for name in NAMES:
            assert private[name] == {key: of for key, of in rows[name].items() if key != "item"}
        values = [row["value"] for row in private.top(2).to_dict("records")]
        assert values == sorted((row["value"] for row in rows.values()), reverse=True)[:2]

    def test_its_plot_is_the_figure_of_the_released_items(self, private: fedhist.Result) -> None:
        drawn, same = private.plot(), fedhist.figure(private, "released")
        assert [one.get_title() for one in drawn.axes] == [one.get_title() for one in same.axes]
        with refused(fedhist.InvalidInput, "chart-without-data"):
            private.plot("curve")

    def test_an_item_that_was_not_released_is_no_key(self, private: fedhist.Result) -> None:
        assert "tea" in private and "teas" not in private
        with pytest.raises(KeyError, match="did you mean 'tea'"):
            private["teas"]
        with pytest.raises(TypeError):
            iter(private)  # type: ignore[call-overload]

    def test_printed_it_has_the_largest_items_and_what_it_cost_in_visible_text(
        self, private: fedhist.Result
    ) -> None:
        first, _, *items = str(private).splitlines()
        assert f"epsilon {private.tight.epsilon:.4g}" in first and len(items) == 3
        assert "\u202e" not in str(private)


class TestReport:
    def test_of_a_result_shows_what_that_of_its_folder_shows(self, tmp_path: Path) -> None:
        result = fedhist.histogram(FRAME, items=NAMES, seed=1, evaluate=True, out=tmp_path / "run")
        assert fedhist.report(result, tmp_path / "one.html") == tmp_path / "one.html"
        fedhist.report(str(tmp_path / "run"), str(tmp_path / "two.html"))
        one, two = page_in(tmp_path, "one.html"), page_in(tmp_path, "two.html")
        assert one.charts == two.charts
        assert {"released", "curve", "scores", "users", "budget"} <= set(one.charts)

    def test_of_a_private_one_has_nothing_of_the_truth_and_stays_unless_it_is_forced(
        self, private: fedhist.Result, experiment: fedhist.Result, tmp_path: Path
    ) -> None:
        fedhist.report(private, tmp_path / "r.html")
        before, _, charts = page_in(tmp_path, "r.html")
        assert set(charts) == {"released", "budget", "bytes"}
        assert HOSTILE not in before
        # The file stays unless it is forced.
        with refused(fedhist.InvalidInput, "exists-already") as refusal:
            fedhist.report(experiment, tmp_path / "r.html")
        assert "--" not in str(refusal.value)
        fedhist.report(experiment, tmp_path / "r.html", force=True)
        assert page_in(tmp_path, "r.html").text != before

    @pytest.mark.parametrize(
        ("what", "code"),
        [(3, "nothing-to-report"), (None, "nothing-to-report"), ("nowhere", "no-result-folder")],
    )
    def test_of_something_else_is_refused(self, what: Any, code: str, tmp_path: Path) -> None:
        with refused(fedhist.InvalidInput, code):
            fedhist.report(what, tmp_path / "r.html")


class TestFigure:
    def test_of_a_result_and_of_its_folder_are_the_same(self, fedhist: Fedhist, tmp_path: Path) -> None:
        import fedhist as library

        result = library.histogram(FRAME, items=NAMES, seed=1, evaluate=True, out="run")
        before = dict(matplotlib.rcParams)
        for chart in ("released", "curve"):
            drawn = library.figure(result, chart=chart)
            assert isinstance(drawn, Figure)
            assert fedhist("figure", "run", chart, "--out", f"{chart}.png").code == 0
            assert drawn._repr_png_() == (tmp_path / f"{chart}.png").read_bytes()  # type: ignore[attr-defined]
        assert dict(matplotlib.rcParams) == before

    def test_of_a_private_result(self, private: fedhist.Result) -> None:
        assert isinstance(fedhist.figure(private), Figure)
        with refused(fedhist.InvalidInput, "chart-without-data", "curve"):
            fedhist.figure(private, "curve")
        with refused(fedhist.InvalidInput, "unknown-chart", "pie"):
            fedhist.figure(private, "pie")

    def test_of_a_run_with_a_plan_of_ones_own(self) -> None:
        population = fedhist.PoissonPopulation(users=60, items=3, seed=1)
        result = fedhist.simulate(population, fedhist.Plan(users=60, items=3), seed=1)
        assert isinstance(fedhist.figure(result, "curve"), Figure)
        with refused(fedhist.InvalidInput, "chart-without-data"):
            fedhist.figure(result, "scores")


def test_a_script_with_types_runs(tmp_path: Path) -> None:
    names, left, page = ask(tmp_path, ["tea", "coffee", "milk"])
    assert sorted(names[:-3]) == ["coffee", "tea"] and names[-3:] == ["tea", "coffee", "milk"]
    assert left.epsilon == pytest.approx(2.4) and page.is_file()


SHOWN: dict[str, Callable[[fedhist.Result], Any]] = {
    "result": lambda result: result,
    "release": lambda result: result.release,
    "plan": lambda result: result.release.plan,
    "diagnostics": lambda result: result.diagnostics,
    "synthetic": lambda _: fedhist.HeavyTailedPopulation(users=10, items=3, seed=1),
    "population": lambda _: fedhist.SparsePopulation.from_arrays([0, 1], [0], [1], domain_size=3),
}


class TestNotebook:
    @pytest.mark.parametrize("kind", SHOWN)
    def test_every_object_shows_itself_with_names_escaped(
        self, kind: str, experiment: fedhist.Result
    ) -> None:
        shown = SHOWN[kind](experiment)._repr_html_()
        assert shown.startswith('<div class="fedhist">')
        assert "<script" not in shown and "\u202e" not in shown
        if kind in ("result", "release"):
            assert "tea" in shown and "&lt;script&gt;" in shown and "not private" in shown

    def test_the_ledger_and_the_session_show_what_is_left(self, tmp_path: Path) -> None:
        session = fedhist.Session(tmp_path / "<b>.ledger", epsilon=3, delta=1e-5)
        session.histogram(FRAME, items=NAMES)
        for view in (session._repr_html_(), session.ledger._repr_html_()):
            assert "<b>.ledger" not in view and "&lt;b&gt;.ledger" in view
            assert "pandas DataFrame" in view and f"{session.spent.epsilon:.4g}" in view

    def test_a_private_result_shows_no_times_and_no_truth(self, private: fedhist.Result) -> None:
        shown = private._repr_html_()
        assert "relative loss" not in shown and "seconds" not in shown and "simulation only" not in shown
        assert "seconds" not in repr(private) and private.seconds
