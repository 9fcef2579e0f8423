"""Methods of one's own on the command line: `--plugin FILE`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars
import pytest

import fedhist
from fedhist import InvalidInput
from tests.support.api import Effort, checks_of, registered, run_audit
from tests.support.api import cli_module as cli
from tests.support.api import restore_plugins as restore
from tests.support.refusals import refused

SIZE = ("--users", "300", "--items", "12")


@pytest.fixture
def call(samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a command in the samples' folder; its exit code, what it printed, and what it said on stderr."""
    monkeypatch.chdir(samples)

    def call(*arguments: str) -> tuple[int, str, str]:
        restore([])
        code = cli._run([*arguments])
        return (code, *capsys.readouterr())

    return call


def test_a_run_names_it_and_what_its_file_prints_is_no_part_of_the_document(call, samples: Path) -> None:
    path = samples / "mine.py"
    path.write_text(path.read_text() + "print('hello')\n")
    code, printed, said = call(
        "run", "--plugin", "mine.py", "--selector", "mine", *SIZE, "--no-evaluate", "--json"
    )
    document = json.loads(printed)
    assert (code, "hello" in said) == (0, True)
    assert document["plan"]["plugins"][0] == "selector mine@1.0"
    assert document["private"]


def test_a_result_is_read_again_with_its_plugin_and_says_which_it_needs(call, samples: Path) -> None:
    run = ("run", "--plugin", "holders.py", "--release", "holders", *SIZE, "--out", "out", "--quiet")
    assert call(*run, "--trace", "--seed", "1")[0] == 0
    for command in (("report", "out", "--force"), ("trace", "show", "out")):
        code, _, said = call(*command)
        assert code == 2
        assert "this run used the release holders" in said
        assert call(*command, "--plugin", "holders.py")[0] == 0
    assert call("run", "--plugin", "mine.py", "--selector", "mine", *SIZE, "--out", "own", "--quiet")[0] == 0
    # What a selector chose is described without it.
    assert call("report", "own", "--force")[0] == 0


def test_one_that_is_not_private_is_refused_by_a_ledger_and_says_so_elsewhere(call, samples: Path) -> None:
    path = samples / "mine.py"
    path.write_text(path.read_text().replace("return (exponential_charge", "return (); (exponential_charge"))
    run = ("run", "--plugin", "mine.py", "--selector", "mine", *SIZE, "--seed", "1")
    code, _, said = call(*run, "--ledger", "ledger.db")
    assert code == 2
    assert "the selector mine is not private and can't be charged" in said
    compare = ("compare", "--plugin", "mine.py", "--selectors", "mine", "--trials", "2", "--workers", "1")
    (row,) = json.loads(call(*compare, *SIZE, "--json")[1])
    assert (row["private"], row["epsilon_total"]) == (False, None)


def test_a_comparison_in_two_processes_goes_on_and_refuses_another_version(call, samples: Path) -> None:
    compare = (
        "compare",
        "--plugin",
        "mine.py",
        "--selectors",
        "mine,weighted-quantile",
    )
    more = (*SIZE, "--workers", "2", "--out", "compared")
    for _ in range(2):
        assert call(*compare, *more, "--trials", "2")[0] == 0
        rows = polars.read_csv(samples / "compared" / "table.csv")
        assert rows["selector"].to_list() == ["mine", "weighted-quantile"]
    path = samples / "mine.py"
    path.write_text(path.read_text().replace('version = "1.0"', 'version = "1.1"'))
    code, _, said = call(*compare, *more, "--trials", "2")
    assert code == 2
    assert "made with another version of plug-ins" in said


def test_an_error_of_a_plugin_is_one_sentence_here_and_in_a_worker(call, samples: Path) -> None:
    path = samples / "mine.py"
    path.write_text(
        path.read_text().replace("return WeightedChoice(", "raise KeyError('data')\n        return dict(")
    )
    mine = ("--plugin", "mine.py", *SIZE, "--json")
    for command in (
        ("run", "--selector", "mine"),
        ("compare", "--selectors", "mine", "--trials", "4", "--workers", "2"),
    ):
        code, _, said = call(*command, *mine)
        assert code == 1
        assert "the plugin mine.py failed in line 29 (KeyError)" in said
        assert "data" not in said


def test_the_other_commands_take_names_from_it(call) -> None:
    for method in (("mine.py", "--selector", "mine"), ("holders.py", "--release", "holders")):
        _, printed, _ = call("plan", "--plugin", *method, *SIZE, "--epsilon", "1,2", "--json")
        assert len(json.loads(printed)["rows"]) == 2


FEW = Effort(canaries=1, runs=500, slow_runs=500, gaussian_runs=1, masked_canaries=1)


def passes(name: str) -> bool:
    """What one check says of what is registered."""
    checks = [check for check in checks_of(registered()) if check.name == name]
    (finding,) = run_audit(checks, FEW, seed=1, cores=1).findings
    assert finding.observed is not None, finding.detail
    return finding.passed


def test_the_audit_passes_an_honest_selector_and_catches_one_that_costs_more(samples: Path) -> None:
    path = samples / "mine.py"
    fedhist.load_plugin(path)
    kinds = ("gaussian", "gaussian, one item", "laplace")
    assert [check.name for check in checks_of(registered())] == [f"selector mine, {kind}" for kind in kinds]
    assert passes("selector mine, laplace")
    path.write_text(path.read_text().replace("_select,\n", "_select * 5,\n"))
    fedhist.load_plugin(path)
    assert not passes("selector mine, laplace")


def test_the_audit_catches_a_selector_that_draws_nothing_and_charges_for_noise(samples: Path) -> None:
    """Its chances can't be computed, so the search draws."""
    path = samples / "mine.py"
    choice = "Selection(plan.at_steps(int(plan.candidate_steps[np.argmax(tail.counts <= target)])))"
    code = path.read_text().split("    def choice")[0].replace("ScoringSelector)", "Selector)")
    code = code.replace("import fedhist\n", "import fedhist\nimport numpy as np\n", 1)
    code = code.replace("ScoringSelector,", "Selection,\n    Selector,")
    code += "    def select(self, plan, statistic, *, source):\n        tail = reading_as(Tail, statistic)\n"
    path.write_text(f"{code}        target = SHARE * plan.users\n        return {choice}\n")
    fedhist.load_plugin(path)
    assert not passes("selector mine, laplace")


def test_the_audit_passes_an_honest_rule_and_catches_one_with_too_little_noise(samples: Path) -> None:
    fedhist.load_plugin(samples / "holders.py")
    assert len(checks_of(registered())) == 6
    assert passes("release rule holders, laplace, one item")
    assert passes("release rule holders, gaussian, replaced")
    narrow = (
        "import numpy as np\nfrom dataclasses import replace\nimport fedhist\n"
        "from fedhist.server.releases.central_noise import CentralNoise\n\n@fedhist.register\n"
        "class Narrow(CentralNoise):\n    name = 'narrow'\n\n"
        "    def build(self, plan, selection, reading, *, ledger, source):\n"
        "        exact = np.ldexp(reading.values[: plan.items].astype(float), -plan.grid_bits)\n"
        "        release = super().build(plan, selection, reading, ledger=ledger, source=source)\n"
        "        return replace(release, histogram=exact + 0.3 * (release.histogram - exact))\n"
    )
    (samples / "narrow.py").write_text(narrow)
    fedhist.load_plugin(samples / "narrow.py")
    assert not passes("release rule narrow, laplace, one item")


MISTAKES = """
from dataclasses import replace
from fedhist.server.releases.central_noise import CentralNoise

@fedhist.register
class Best(Mine):
    "The candidate with the best score, without a draw."
    name = "best"

    def select(self, plan, statistic, *, source):
        choice = self.choice(plan, statistic)
        return choice.selection(int(choice.scores.argmax()))

@fedhist.register
class Elsewhere(Mine):
    "Reads what nothing here offers."
    name = "elsewhere"
    reads = (("nothing-of-the-kind", ANY_NORM),)

@fedhist.register
class Halved(CentralNoise):
    "Noise for a user who comes or goes, whatever the plan says."
    name = "halved"

    def build(self, plan, selection, reading, *, ledger, source):
        plan = replace(plan, neighbours="zero-out")
        return super().build(plan, selection, reading, ledger=ledger, source=source)
"""


def test_the_audit_catches_forgotten_noise_and_replaced_users_and_says_what_it_can_t_test(
    samples: Path,
) -> None:
    (samples / "mistakes.py").write_text((samples / "mine.py").read_text() + MISTAKES)
    fedhist.load_plugin(samples / "mistakes.py")
    assert not passes("selector best, laplace")
    assert not passes("release rule halved, laplace, replaced")
    untested = checks_of(registered())[-1]
    found = run_audit([untested], FEW, seed=1, cores=1).findings[0]
    assert (found.name, found.detail[:10]) == ("selector elsewhere", "not tested")


def test_audit_gives_a_frame(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedhist.auditing.QUICK", replace(FEW, runs=60))
    frame = fedhist.audit(plugin=samples / "mine.py", only="laplace", seed=1)
    assert frame.columns == ["name", "passed", "claimed", "delta", "observed", "detail", "seconds"]
    assert frame["passed"].to_list() == [True]
    assert fedhist.audit("mine", only="laplace", seed=1)["claimed"].to_list() == frame["claimed"].to_list()
    with refused(InvalidInput, "unknown-plugin", "yours"):
        fedhist.audit("yours")
