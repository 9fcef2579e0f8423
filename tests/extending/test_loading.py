"""Files, installed packages and worker processes: what is loaded, when, and what is said of what can't be."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from traceback import format_exception

import pytest

import fedhist
from fedhist import InvalidInput
from fedhist.testing import check_plugin
from tests.builders import ROOT
from tests.extending.conftest import SAMPLES
from tests.support.api import (
    SELECTORS,
    Fixed,
    InvalidFile,
    OtherPlugin,
    blamed,
    fitting,
    own_digest,
    parcels,
    receive,
    registered,
)
from tests.support.api import loading_module as loading
from tests.support.api import registry_module as registry
from tests.support.api import restore_plugins as restore

SMALL = {"users": 50, "items": 5}


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("x = 1\ny = (\n", r"bad\.py, line 2 can't be run \(SyntaxError\)"),
        ("x = 1\n\n1 / 0\n", r"bad\.py, line 3 can't be run \(ZeroDivisionError\)"),
        ("raise ValueError('what a user holds')", r"line 1 can't be run \(ValueError\); allowed"),
        ("import nothing_of_the_kind", r"\(ModuleNotFoundError: No module named 'nothing_of_the_kind'\)"),
        ("import sys\nsys.exit(3)", r"line 2 can't be run \(SystemExit\)"),
        ("x = 1", r"registers nothing; allowed: a file that calls fedhist\.register"),
        ("import fedhist\nfedhist.register(3)", "line 2: int is no selector"),
        ("\x00", r"can't be run \((SyntaxError|ValueError)\)"),
        ("# -*- coding: klingon -*-", r"can't be run \(SyntaxError\)"),
    ],
)
def test_a_file_that_can_t_be_run_is_one_sentence(code: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(code)
    with pytest.raises(InvalidFile, match=sentence):
        fedhist.load_plugin(path)
    assert registered() == ()


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_what_is_no_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="can't be read"):
        fedhist.load_plugin(tmp_path / name)


def test_an_edited_file_replaces_what_it_had_and_a_broken_one_changes_nothing(samples: Path) -> None:
    path = samples / "mine.py"
    text = path.read_text()
    (first,) = fedhist.load_plugin(path)
    assert first.endswith(hashlib.sha256(path.read_bytes()).hexdigest())
    path.write_text(text.replace('name = "mine"', 'name = "ours"'))
    (second,) = fedhist.load_plugin(path)
    assert "ours" in SELECTORS
    assert "mine" not in SELECTORS
    path.write_text(text + "\n1 / 0\n")
    with pytest.raises(InvalidFile):
        fedhist.load_plugin(path)
    assert [str(plugin.identity) for plugin in registered()] == [second]
    assert "mine" not in SELECTORS
    assert SELECTORS["ours"].name == "ours"


def test_a_file_is_the_same_by_any_path_and_another_one_is_not(samples: Path, monkeypatch) -> None:
    monkeypatch.chdir(samples)
    first = fedhist.load_plugin("mine.py")
    assert fedhist.load_plugin(samples / "mine.py") == first
    (samples / "copy.py").write_text((samples / "mine.py").read_text())
    with pytest.raises(InvalidFile, match=r"copy\.py, line \d+: a selector mine is registered already, from"):
        fedhist.load_plugin("copy.py")


class TestInstalled:
    CODE = (SAMPLES / "mine.py").read_text().replace("@fedhist.register\n", "").replace('version = "1.0"', "")

    def test_a_package_is_looked_at_when_a_name_is_not_known(self, install) -> None:
        install("fedhist_mine", self.CODE, "[fedhist.selectors]\nmine = fedhist_mine:Mine\n")
        assert fedhist.Plan(**SMALL).plugins == ()
        assert "fedhist_mine" not in sys.modules
        (identity,) = fedhist.Plan(**SMALL, selector="mine").plugins
        assert identity.startswith("selector mine@2.5 sha256:")
        sys.modules.pop("fedhist_mine")

    def test_a_plan_of_a_package_that_is_gone_is_refused(self, install) -> None:
        install("fedhist_mine", self.CODE, "[fedhist.selectors]\nmine = fedhist_mine:Mine\n")
        document = fedhist.Plan(**SMALL, selector="mine").to_json()
        restore({})
        with pytest.raises(OtherPlugin, match=r"the selector mine@2.5 .* here it is missing"):
            fedhist.Plan.from_json(document)
        sys.modules.pop("fedhist_mine")

    def test_a_broken_one_is_a_warning_and_the_others_stay(self, install) -> None:
        install("fedhist_mine", self.CODE, "[fedhist.selectors]\nmine = fedhist_mine:Mine\n")
        install("fedhist_broken", "1 / 0", "[fedhist.selectors]\nbroken = fedhist_broken:Broken\n")
        with pytest.warns(
            RuntimeWarning, match="the selector broken of the package fedhist.broken can't be used"
        ):
            names = fitting(fedhist.Plan(**SMALL))
        assert "mine" in names
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert fitting(fedhist.Plan(**SMALL)) == names
        sys.modules.pop("fedhist_mine")

    def test_a_package_may_also_register_what_it_defines(self, install) -> None:
        code = (SAMPLES / "mine.py").read_text()
        install("fedhist_mine", code, "[fedhist.selectors]\nmine = fedhist_mine:Mine\n")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(fedhist.Plan(**SMALL, selector="mine").plugins) == 1
        assert registered()[0].origin.how == "installed"
        sys.modules.pop("fedhist_mine")

    def test_one_that_is_called_otherwise_is_left_out(self, install) -> None:
        install("fedhist_mine", self.CODE, "[fedhist.selectors]\nyours = fedhist_mine:Mine\n")
        with pytest.warns(
            RuntimeWarning, match="it is called mine; allowed: the name of its entry point, yours"
        ):
            assert fedhist.Plan(**SMALL, selector="yours").plugins == ()
        assert registered() == ()
        sys.modules.pop("fedhist_mine")

    def test_a_package_that_is_installed_in_place_has_the_digest_of_its_module(self, install) -> None:
        site = install("fedhist_mine", self.CODE, "[fedhist.selectors]\nmine = fedhist_mine:Mine\n")
        (site / "fedhist_mine-2.5.dist-info" / "RECORD").write_text("fedhist_mine-2.5.dist-info/METADATA,,\n")
        (first,) = fedhist.Plan(**SMALL, selector="mine").plugins

        for seen in (loading._loaded_points, registry._unknown):
            seen.clear()
        restore({})
        (site / "fedhist_mine.py").write_text(self.CODE + "\n# edited\n")
        (second,) = fedhist.Plan(**SMALL, selector="mine").plugins
        assert first != second
        sys.modules.pop("fedhist_mine")

    def test_a_package_can_t_end_the_process(self, install) -> None:
        install("fedhist_exit", "import sys\nsys.exit()", "[fedhist.selectors]\nexit = fedhist_exit:Exit\n")
        with pytest.warns(RuntimeWarning, match="left out: SystemExit"):
            fedhist.Plan(**SMALL, selector="exit")

    def test_one_that_was_imported_before_is_the_package_all_the_same(self, install) -> None:
        code = (SAMPLES / "mine.py").read_text()
        install("fedhist_mine", code, "[fedhist.selectors]\nmine = fedhist_mine:Mine\n")
        import_module("fedhist_mine")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert "mine" in fitting(fedhist.Plan(**SMALL))
        assert [one.origin.how for one in registered()] == ["installed"]
        sys.modules.pop("fedhist_mine")

    def test_all_kinds(self, install) -> None:
        code = (SAMPLES / "holders.py").read_text()
        points = (
            "[fedhist.measurements]\nholders = fedhist_all:Holders\n[fedhist.releases]\nholders = "
            "fedhist_all:ReleaseHolders\n"
        )
        code = "\n".join(line for line in code.splitlines() if not line.startswith("@fedhist"))
        install("fedhist_all", code, points)
        assert len(fedhist.Plan(**SMALL, release="holders").plugins) == 2
        sys.modules.pop("fedhist_all")


class TestWorkers:
    def test_a_worker_gets_the_code_that_was_registered_not_what_the_file_says_now(
        self, samples: Path
    ) -> None:
        path = samples / "mine.py"
        (identity,) = fedhist.load_plugin(path)
        sent = parcels(registered())
        path.write_text("1 / 0")
        restore({})
        receive(sent)
        assert [str(plugin.identity) for plugin in registered()] == [identity]

    def test_a_worker_with_another_version_of_a_package_says_so(self, install) -> None:
        site = install("fedhist_mine", TestInstalled.CODE, "[fedhist.selectors]\nmine = fedhist_mine:Mine\n")
        fedhist.Plan(**SMALL, selector="mine")
        sent = parcels(registered())
        restore({})
        # As in a fresh process with other files.

        loading._loaded_points.clear()
        (site / "fedhist_mine.py").write_text(TestInstalled.CODE + "\n")
        with pytest.raises(OtherPlugin, match="has another one or none"):
            receive(sent)
        sys.modules.pop("fedhist_mine")

    def test_what_a_session_made_is_sent_by_value(self) -> None:
        share = 0.5

        @fedhist.register
        class Made(Fixed):
            name = "session"

            @property
            def share(self):
                return share

        sent = parcels(registered())
        before = [plugin.identity for plugin in registered()]
        restore({})
        receive(sent)
        assert [plugin.identity for plugin in registered()] == before
        assert SELECTORS["session"].share == 0.5

    def test_what_can_t_be_sent_says_what_to_do(self) -> None:
        import threading

        lock = threading.Lock()

        @fedhist.register
        class Locked(Fixed):
            name = "locked"

            def check(self, plan):
                with lock:
                    super().check(plan)

        with pytest.raises(InvalidInput, match=r"can't be sent to a worker process .*--plugin"):
            parcels(registered())


FAILS = ("KeyError('secret')", "SystemExit('secret')", "fedhist.FedhistError('secret')")


@pytest.mark.parametrize("failure", FAILS)
def test_the_text_of_a_plugins_error_is_for_runs_with_a_seed_alone(samples: Path, failure: str) -> None:
    """It has seen the exact sum, and a server writes what ends a run to its log."""
    path = samples / "mine.py"
    path.write_text(
        path.read_text().replace("return WeightedChoice(", f"raise {failure}\n        return dict(")
    )
    fedhist.load_plugin(path)
    population = fedhist.HeavyTailedPopulation(**SMALL, seed=1)
    plan = fedhist.Plan(**SMALL, selector="mine")
    where = rf"mine.py failed in line 29 \({failure.partition('(')[0].rpartition('.')[2]}\)"
    with pytest.raises(fedhist.FedhistError, match=where) as caught:
        fedhist.simulate(population, plan, seed=1)
    assert "secret" in str(caught.value.__cause__)
    with pytest.raises(fedhist.FedhistError, match=where) as caught:
        fedhist.simulate(population, plan)
    assert "secret" not in "".join(format_exception(caught.value))


def test_a_file_that_imports_from_beside_it_is_warned_of(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest is of the file alone."""
    monkeypatch.syspath_prepend(samples)
    (samples / "beside.py").write_text("SHARE = 0.02\n")
    path = samples / "mine.py"
    path.write_text(path.read_text().replace("SHARE = 0.02", "from beside import SHARE"))
    with pytest.warns(RuntimeWarning, match="imports beside from beside it"):
        fedhist.load_plugin(path)
    sys.modules.pop("beside")


def test_errors_of_others_are_blamed_on_no_plugin(samples: Path) -> None:
    fedhist.load_plugin(samples / "mine.py")
    assert blamed(ValueError("ours")) == ""


def test_a_file_is_the_same_in_two_spellings_and_another_in_another_folder(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(samples)
    assert fedhist.load_plugin("mine.py") == fedhist.load_plugin(samples / "mine.py")
    (samples / "other").mkdir()
    (samples / "other" / "mine.py").write_text((samples / "mine.py").read_text())
    monkeypatch.chdir(samples / "other")
    with pytest.raises(fedhist.InvalidInput, match="a selector mine is registered already"):
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
    with pytest.raises(InvalidInput, match="this is no plugin"):
        check_plugin(3)


def test_the_contract_catches_a_selector_that_costs_twice_what_it_charges(samples: Path) -> None:
    path = samples / "mine.py"
    path.write_text(path.read_text().replace("=plan.epsilon_select", "=2 * plan.epsilon_select"))
    with pytest.raises(AssertionError, match=r"one user costs epsilon 1.4; charged is 0.7"):
        check_plugin(path)


def test_the_contract_catches_a_measurement_that_moves_further_than_it_says(samples: Path) -> None:
    path = samples / "distinct.py"
    once = "return super().of(replace(users, counts=np.minimum(users.counts, 1)), source=source)"
    twice = "once = super().of(users, source=source)\n        return replace(once, values=2 * once.values)"
    path.write_text(path.read_text().replace(once, twice))
    fedhist.load_plugin(path)
    with pytest.raises(
        AssertionError, match="the_shape_is_what_is_sent: one user adds 2048; the shape says at most"
    ):
        check_plugin("distinct-tail")


def test_the_digest_of_fedhist_itself_is_that_of_its_sources() -> None:
    assert len(own_digest()) == 64
    code = "from fedhist.protocol.plugins.digests import own_digest; print(own_digest())"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == own_digest()
