"""Files, installed packages and worker processes: what is loaded, when, and what is said of what can't be."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from pathlib import Path
from traceback import format_exception

import pytest

import fedhist
from fedhist import InvalidInput
from fedhist.testing import check_plugin
from tests.extending.conftest import SAMPLES
from tests.support.api import (
    SELECTORS,
    Answers,
    FlowerSimulation,
    InvalidFile,
    InvalidPlan,
    OtherPlugin,
    RayCrew,
    blamed,
    engine_named,
    files_for,
    fitting,
    load_files_once,
    registered,
    select_request,
)
from tests.support.api import plugins_module as plugins
from tests.support.api import restore_plugins as restore
from tests.support.refusals import refused

SMALL = {"users": 50, "items": 5}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = 1\ny = (\n", ("plugin-failed", "bad.py", "line 2", "SyntaxError")),
        ("x = 1\n\n1 / 0\n", ("plugin-failed", "bad.py", "line 3", "ZeroDivisionError")),
        ("raise ValueError('what a user holds')", ("plugin-failed", "line 1", "ValueError")),
        ("import nothing_of_the_kind", ("plugin-failed", "nothing_of_the_kind")),
        ("import sys\nsys.exit(3)", ("plugin-failed", "line 2", "SystemExit")),
        ("x = 1", ("registers-nothing",)),
        ("import fedhist\nfedhist.register(3)", ("not-a-plugin", "line 2", "int")),
        ("\x00", ("plugin-failed",)),
        ("# -*- coding: klingon -*-", ("plugin-failed", "SyntaxError")),
    ],
)
def test_a_file_that_can_t_be_run_is_one_sentence(code: str, told: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(code)
    with refused(InvalidFile, *told):
        fedhist.load_plugin(path)
    assert registered() == ()


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_what_is_no_file_is_named(name: str, tmp_path: Path) -> None:
    with refused(InvalidFile, "not-readable"):
        fedhist.load_plugin(tmp_path / name)


def test_an_edited_file_replaces_what_it_had_and_a_broken_one_changes_nothing(samples: Path) -> None:
    path = samples / "mine.py"
    text = path.read_text()
    (first,) = fedhist.load_plugin(path)
    assert first == "selector mine@1.0"
    path.write_text(text.replace('name = "mine"', 'name = "ours"'))
    (second,) = fedhist.load_plugin(path)
    assert "ours" in SELECTORS
    assert "mine" not in SELECTORS
    path.write_text(text + "\n1 / 0\n")
    with pytest.raises(InvalidFile):
        fedhist.load_plugin(path)
    assert [str(plugin) for plugin in registered()] == [second]
    assert "mine" not in SELECTORS
    assert SELECTORS["ours"].name == "ours"


class TestInstalled:
    CODE = (SAMPLES / "mine.py").read_text().replace("@fedhist.register\n", "").replace('version = "1.0"', "")

    MINE = "[fedhist.selectors]\nmine = fedhist_mine:Mine\n"

    def test_a_package_is_looked_at_when_a_name_is_not_known_and_a_plan_of_one_that_is_gone_is_refused(
        self, install, monkeypatch
    ) -> None:
        site = install("fedhist_mine", self.CODE, self.MINE)
        assert fedhist.Plan(**SMALL).plugins == ()
        assert "fedhist_mine" not in sys.modules
        plan = fedhist.Plan(**SMALL, selector="mine")
        assert plan.plugins == ("selector mine@2.5",)
        # Other processes find it themselves.
        assert files_for(plan.plugins, "workers") == ()
        # As in an environment without the package.
        restore([])
        plugins._points.cache_clear()
        monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(site)])
        with refused(OtherPlugin, "other-plugin", "2.5"):
            fedhist.Plan.from_json(plan.to_json())

    def test_a_broken_one_is_a_warning_and_the_others_stay(self, install) -> None:
        install("fedhist_mine", self.CODE, self.MINE)
        install("fedhist_broken", "1 / 0", "[fedhist.selectors]\nbroken = fedhist_broken:Broken\n")
        with pytest.warns(RuntimeWarning, match="the selector broken"):
            names = fitting(fedhist.Plan(**SMALL))
        assert "mine" in names
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert fitting(fedhist.Plan(**SMALL)) == names

    @pytest.mark.parametrize(
        ("name", "code", "told"),
        [
            ("yours", CODE, "the selector yours"),
            # It can't end the process.
            ("exit", "import sys\nsys.exit()", "SystemExit"),
        ],
    )
    def test_one_that_is_called_otherwise_or_ends_is_left_out(
        self, install, name: str, code: str, told: str
    ) -> None:
        install("fedhist_mine", code, f"[fedhist.selectors]\n{name} = fedhist_mine:Mine\n")
        with pytest.warns(RuntimeWarning, match=told):
            assert fedhist.Plan(**SMALL, selector=name).plugins == ()
        assert registered() == ()

    def test_one_that_was_imported_before_is_the_package_all_the_same(self, install) -> None:
        install("fedhist_mine", (SAMPLES / "mine.py").read_text(), self.MINE)
        import_module("fedhist_mine")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert "mine" in fitting(fedhist.Plan(**SMALL))
        assert [one.source.package for one in registered() if one.name == "mine"] == ["fedhist_mine"]

    def test_all_kinds(self, install) -> None:
        code = (SAMPLES / "holders.py").read_text()
        points = (
            "[fedhist.measurements]\nholders = fedhist_all:Holders\n[fedhist.releases]\nholders = "
            "fedhist_all:ReleaseHolders\n"
        )
        code = "\n".join(line for line in code.splitlines() if not line.startswith("@fedhist"))
        install("fedhist_all", code, points)
        assert len(fedhist.Plan(**SMALL, release="holders").plugins) == 2


class TestOtherProcesses:
    def test_they_load_the_files_of_what_a_plan_names(self, samples: Path) -> None:
        fedhist.load_plugin(samples / "mine.py")
        fedhist.load_plugin(samples / "holders.py")
        assert files_for(["selector mine@1.0"], "workers") == (str(samples / "mine.py"),)
        both = ["release holders", "measurement holders"]
        files = files_for(both, "workers")
        assert files == (str(samples / "holders.py"),)
        restore([])
        for _ in range(2):
            load_files_once(files)
        assert sorted(map(str, registered())) == sorted(both)

    def test_what_a_session_made_stays_here_and_in_forks(self) -> None:
        exec((SAMPLES / "mine.py").read_text(), {"__name__": "__main__"})  # noqa: S102 - as a notebook's cell
        population = fedhist.HeavyTailedPopulation(users=400, items=5, seed=1)
        plan = fedhist.Plan(users=400, items=5, selector="mine")
        here, forked = (
            fedhist.simulate(population, plan, seed=1, engine=engine_named("in-process", workers=workers))
            for workers in (1, 2)
        )
        assert (here.release.histogram == forked.release.histogram).all()
        asked = select_request(plan)
        nodes = FlowerSimulation(population, Path(), 1, 2)
        crew = RayCrew(population)
        for run in (lambda: nodes.total(asked), lambda: crew([Answers(asked, fedhist.SeededSource(1))])):
            with pytest.raises(InvalidPlan) as caught:
                run()
            assert "put it into a file" in caught.value.advice
        options = {"users": 400, "items": 5, "selectors": ["mine"], "trials": 2, "seed": 1}
        one, two = (fedhist.compare(**options, workers=workers)["loss_mean"].to_list() for workers in (1, 2))
        assert one == two


FAILS = ("KeyError('secret')", "SystemExit('secret')", "fedhist.FedhistError('secret')")


@pytest.mark.parametrize("failure", FAILS)
def test_the_text_of_a_plugins_error_is_for_runs_with_a_seed_alone(samples: Path, failure: str) -> None:
    """It has seen the exact sum, and a server writes what ends a run to its log."""
    path = samples / "mine.py"
    path.write_text(
        path.read_text().replace("return WeightedChoice(", f"raise {failure}\n        return dict(")
    )
    fedhist.load_plugin(path)
    assert blamed(ValueError("ours")) == ""
    population = fedhist.HeavyTailedPopulation(**SMALL, seed=1)
    plan = fedhist.Plan(**SMALL, selector="mine")
    told = "plugin-failed", "mine.py", "line 29", failure.partition("(")[0].rpartition(".")[2]
    with refused(fedhist.FedhistError, *told) as caught:
        fedhist.simulate(population, plan, seed=1)
    assert "secret" in str(caught.value.__cause__)
    with refused(fedhist.FedhistError, *told) as caught:
        fedhist.simulate(population, plan)
    assert "secret" not in "".join(format_exception(caught.value))


def test_a_file_is_the_same_in_two_spellings_and_another_in_another_folder(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(samples)
    assert fedhist.load_plugin("mine.py") == fedhist.load_plugin(samples / "mine.py")
    (samples / "other").mkdir()
    (samples / "other" / "mine.py").write_text((samples / "mine.py").read_text())
    monkeypatch.chdir(samples / "other")
    with refused(fedhist.InvalidInput, "registered-already"):
        fedhist.load_plugin("mine.py")


def test_the_contracts_take_a_file_and_what_is_registered(samples: Path) -> None:
    assert len(check_plugin(samples / "mine.py")) == 1
    settings = {"users": 60, "items": 3, "max_threshold": 1.0, "release": "holders"}
    fedhist.load_plugin(samples / "holders.py")
    plans = (
        fedhist.Plan(**settings),
        fedhist.Plan(**settings, mechanism="laplace", neighbours="replace-one"),
    )
    assert len(check_plugin("holders", plans=plans)) == 2
    with refused(InvalidInput, "not-a-plugin"):
        check_plugin(3)


ONCE = "return super().of(replace(users, counts=np.minimum(users.counts, 1)), source=source)"
TWICE = "once = super().of(users, source=source)\n        return replace(once, values=2 * once.values)"


@pytest.mark.parametrize(
    ("name", "right", "wrong", "told"),
    [
        ("mine.py", "=plan.epsilon_select", "=2 * plan.epsilon_select", r"1\.4"),
        ("distinct.py", ONCE, TWICE, "the_shape_is_what_is_sent"),
    ],
)
def test_the_contracts_catch_what_costs_or_moves_more_than_it_says(
    samples: Path, name: str, right: str, wrong: str, told: str
) -> None:
    path = samples / name
    path.write_text(path.read_text().replace(right, wrong))
    with pytest.raises(AssertionError, match=told):
        check_plugin(path)
