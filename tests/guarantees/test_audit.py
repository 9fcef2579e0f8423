"""The audit passes what is right, it and the tests catch what is wrong, and its bounds are what the theorems say."""

from __future__ import annotations

import builtins
import dis
import importlib
import importlib.util
import math
import sys
from pathlib import Path
from types import CodeType, ModuleType

import mpmath
import numpy as np
import polars as pl
import pytest

from tests.builders import ROOT, Fedhist, python
from tests.support.api import LEVEL, Effort, Finding, all_checks, run_audit
from tests.support.api import bounds_module as bounds
from tests.support.api import choice_module as choice
from tests.support.api import mechanisms_module as mechanisms

SMALL = Effort(canaries=2_000, runs=50, slow_runs=20, gaussian_runs=50, masked_canaries=600)
CHECKS = {check.name: check for check in all_checks()}


def effort_of(size: int) -> Effort:
    return Effort(canaries=size, runs=size, slow_runs=size, gaussian_runs=size, masked_canaries=size)


def load_power() -> ModuleType:
    """benchmarks/audit_power.py, which seeds the bugs and is in no package."""
    spec = importlib.util.spec_from_file_location("audit_power", ROOT / "benchmarks/audit_power.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_power"] = module
    spec.loader.exec_module(module)
    return module


POWER = load_power()
BUGS = {bug.name: bug for bug in POWER.BUGS}


# --- Bounds.


def test_the_p_value_of_one_run_is_the_theorem_s() -> None:
    """Against the definition, term by term, in high precision."""
    canaries, guesses, correct, epsilon, delta = 60, 40, 33, 0.7, 1e-4
    with mpmath.workdps(40):
        chance = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))

        def tail(least: int) -> mpmath.mpf:
            return mpmath.fsum(
                mpmath.binomial(guesses, k) * chance**k * (1 - chance) ** (guesses - k)
                for k in range(max(least, 0), guesses + 1)
            )

        steepest = max((tail(correct - i) - tail(correct)) / i for i in range(1, canaries + 1))
        exact = tail(correct) + 2 * canaries * delta * steepest
    found = bounds.one_run_p_value(canaries, guesses, correct, epsilon=epsilon, delta=delta)
    assert found == pytest.approx(float(exact), rel=1e-9)
    pure = bounds.one_run_p_value(canaries, guesses, correct, epsilon=epsilon, delta=0.0)
    assert pure == pytest.approx(float(tail(correct)), rel=1e-9)


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (3, 50), (25, 50), (49, 50), (50, 50)])
def test_confidence_bounds_are_where_the_binomial_tail_is_alpha(hits: int, trials: int) -> None:
    alpha = 1e-3
    low, high = bounds.at_least(hits, trials, alpha), bounds.at_most(hits, trials, alpha)
    ways = [math.comb(trials, k) for k in range(trials + 1)]
    if hits > 0:
        above = sum(ways[k] * low**k * (1 - low) ** (trials - k) for k in range(hits, trials + 1))
        assert above == pytest.approx(alpha, rel=1e-6)
    if hits < trials:
        below = sum(ways[k] * high**k * (1 - high) ** (trials - k) for k in range(hits + 1))
        assert below == pytest.approx(alpha, rel=1e-6)
    assert low <= hits / trials <= high


def test_bounds_on_randomised_response_come_near_its_epsilon_and_seldom_pass_it() -> None:
    """2,000 guesses, each right with chance e/(1 + e): epsilon is 1."""
    chance = 1 / (1 + math.exp(-1.0))
    correct = np.random.default_rng(1).binomial(2_000, chance, size=400)
    found = np.array(
        [bounds.one_run_epsilon(2_000, 2_000, int(c), delta=0.0, alpha=0.05) for c in correct[:60]]
    )
    assert np.median(found) == pytest.approx(0.92, abs=0.04)
    guessed = np.array([bounds.accuracy_epsilon(int(c), 2_000, delta=0.0, alpha=0.05) for c in correct])
    assert 0.01 < np.mean(guessed > 1.0) < 0.09
    # At half the epsilon the same counts are refuted.
    assert (guessed > 0.5).all()


def test_a_delta_is_taken_off_before_worlds_are_compared() -> None:
    assert bounds.event_epsilon(100, 1_000, 0, 1_000, delta=0.2, alpha=0.01) == 0.0
    with_delta = bounds.event_epsilon(500, 1_000, 10, 1_000, delta=0.1, alpha=0.01)
    assert 0 < with_delta < bounds.event_epsilon(500, 1_000, 10, 1_000, delta=0.0, alpha=0.01)
    assert bounds.accuracy_epsilon(700, 1_000, delta=0.5, alpha=0.01) == 0.0


def test_the_learned_event_is_the_tail_where_the_worlds_differ_most() -> None:
    generator = np.random.default_rng(2)
    without, with_user = generator.normal(size=4_000), generator.normal(2.0, size=4_000)
    cut, above = bounds.learn_event(without, with_user, delta=0.0)
    assert above and 1.5 < cut < 4
    # What only the world without the user shows is an event, too: below a cut.
    without[:400] = -5.0
    cut, above = bounds.learn_event(without, np.abs(generator.normal(size=4_000)), delta=0.0)
    assert not above and cut > -5.0


# --- The audit of what is installed.


def test_tables_are_read_where_polars_has_its_threads() -> None:
    """Once polars has threads, a forked process that uses it waits for them without end."""
    pl.DataFrame({"a": range(100_000)}).group_by("a").len()
    names = ["one run, laplace", "rows removed, add-or-remove-one"]
    result = run_audit([CHECKS[name] for name in names], effort_of(60), seed=4, cores=2)
    assert [finding.name for finding in result.findings] == names


@pytest.mark.slow
def test_a_small_audit_of_all_mechanisms_passes() -> None:
    seen: list[Finding] = []
    result = run_audit(list(CHECKS.values()), SMALL, seed=4, cores=2, on_finding=seen.append)
    assert {finding.name for finding in result.findings if not finding.passed} == set()
    assert result.passed and result.level == LEVEL
    assert [finding.name for finding in result.findings] == list(CHECKS)
    assert sorted(finding.name for finding in seen) == sorted(CHECKS)


def test_the_same_seed_finds_the_same() -> None:
    chosen = [CHECKS["one run, laplace"], CHECKS["release, laplace"]]
    first, second = (run_audit(chosen, SMALL, seed=5, cores=1).findings for _ in range(2))
    assert [f.detail for f in first] == [f.detail for f in second]
    other = run_audit(chosen, SMALL, seed=6, cores=1).findings
    assert [f.detail for f in first] != [f.detail for f in other]


def test_one_run_of_laplace_noise_comes_near_its_claim() -> None:
    (finding,) = run_audit([CHECKS["one run, laplace"]], effort_of(40_000), seed=7, cores=1).findings
    assert finding.claimed == 2.0
    assert finding.observed is not None and 1.85 < finding.observed <= 2.0


# --- Power.

SIZES = {
    "one run, laplace": 8_000, "one masked run, laplace": 6_000, "selector quantile, laplace": 2_000,
    "fresh keys, laplace-threshold, many keys": 250, "fresh keys, laplace-threshold, one key": 150,
    "a lying server": 1, "a full table": 500, "rows removed": 1_500,
    "fresh keys, discover, a": 20, "fresh keys, discover, m": 150,
}  # fmt: skip
"""An effort at which a check, by the beginning of its name, is quick and still sees its bugs."""
CAUGHT = [
    (bug, check, size)
    for bug, check in POWER.FIRST.items()
    for beginning, size in SIZES.items()
    if check.startswith(beginning)
]


def passes(check: str, size: int) -> bool:
    level = LEVEL / len(CHECKS)
    return run_audit([CHECKS[check]], effort_of(size), level=level, seed=8, cores=1).passed


@pytest.mark.parametrize(("bug", "check", "size"), CAUGHT, ids=[bug for bug, _, _ in CAUGHT])
def test_a_seeded_bug_is_caught(bug: str, check: str, size: int) -> None:
    with POWER.seeded(BUGS[bug]):
        assert not passes(check, size)


@pytest.mark.parametrize(("check", "size"), sorted({(check, size) for _, check, size in CAUGHT}))
def test_the_same_check_passes_without_a_bug(check: str, size: int) -> None:
    assert passes(check, size)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tests_catch_the_bugs_that_are_theirs(tmp_path: Path) -> None:
    table = python(str(ROOT / "benchmarks/audit_power.py"), "--tests", cwd=tmp_path)
    assert table.count("| test: ") == len(POWER.TESTS)


def test_every_bug_is_a_tests_or_the_audits() -> None:
    assert set(POWER.TESTS) <= set(BUGS) and not set(POWER.TESTS) & set(POWER.FIRST)
    for test in POWER.TESTS.values():
        path, _, name = test.partition("::")
        assert name.partition("[")[0] in (ROOT / path).read_text()


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_still_fits_the_source_and_leaves_no_trace(bug: str) -> None:
    before = [dict(vars(module)) for module in (mechanisms, choice)]
    with POWER.seeded(BUGS[bug]):
        pass
    assert [dict(vars(module)) for module in (mechanisms, choice)] == before


def test_every_marker_is_of_one_line_and_of_a_bug() -> None:
    assert {marker for marker, places in POWER.marked_places().items() if len(places) != 1} == set()
    assert set(POWER.marked_places()) == {edit.marker for bug in POWER.BUGS for edit in bug.edits}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_a_mistake_and_no_crash(bug: str) -> None:
    """It changes the source, and names nothing that its function does not know."""
    for place, values in POWER.changes(BUGS[bug]).items():
        wrong = POWER.edited(place.source, values)
        module = vars(importlib.import_module(place.module))
        known = {*module, *vars(builtins), place.path[-1]}
        assert wrong != place.source
        assert _global_names(compile("from __future__ import annotations\n" + wrong, "", "exec")) <= known


def _global_names(code: CodeType) -> set[str]:
    inner = (_global_names(part) for part in code.co_consts if isinstance(part, CodeType))
    read = {step.argval for step in dis.get_instructions(code) if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}}
    return read.union(*inner)


def test_time_savers_name_real_bugs_and_checks() -> None:
    assert set(POWER.FIRST) <= set(BUGS)
    assert set(POWER.FIRST.values()) <= set(CHECKS)
    assert sorted(POWER.in_order(list(CHECKS))) == sorted(CHECKS)


# --- The command.


def test_the_command_prints_a_table(fedhist: Fedhist) -> None:
    code, out, err = fedhist("audit", "--only", "server", "--seed", "1")
    assert code == 0
    assert "a lying server" in out and "1 checks, all passed" in out
    assert "passed  a lying server" in err


def test_the_command_prints_json(fedhist: Fedhist) -> None:
    document = fedhist("audit", "--only", "lying", "--json", "--seed", "1").document()
    assert document["passed"] is True and document["false_alarm_level"] == LEVEL
    (check,) = document["checks"]
    assert check["name"] == "a lying server" and check["passed"] is True and check["claimed"] is None


def test_a_failed_audit_has_an_exit_code_of_its_own(fedhist: Fedhist) -> None:
    with POWER.seeded(BUGS["a seeded run answered"]):
        code, out, err = fedhist("audit", "--only", "lying", "--seed", "1")
    assert code == 5
    assert "1 FAILED" in out and "FAILED  a lying server" in err


def test_an_unknown_check_is_one_sentence(fedhist: Fedhist) -> None:
    code, _, err = fedhist("audit", "--only", "nothing of the kind")
    assert code == 2
    assert err.startswith("error: no check has 'nothing of the kind' in its name")
