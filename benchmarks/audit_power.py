"""Which seeded bugs the tests and `fedhist audit` catch, and how often the audit fails without one.

    python benchmarks/audit_power.py [--effort 1] [--only TEXT] [--tests | --false-alarms N]

A bug is a change of one or two lines of the installed package's source, made in a process that ends with the audit, so
nothing in the package can switch one on. A line is found by its marker, `# audited: NAME` at its end, wherever it
moves; what changes is the value that it tests, returns or assigns.

What can be checked exactly is a test's to catch: TESTS names it, and with --tests these bugs alone are tried, in one
process. The others are the audit's.

The audit is the command's: all checks, at the command's level and effort. It stops at the first check that fails. What
a check draws depends on the seed and its name alone, so the order of the checks does not change the verdict, only the
time: the table FIRST names the check to begin with. An audit that fails nowhere has run them all. With --false-alarms
no bug is seeded, the level is 0.2, and the audits that fail are counted.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import pytest

from fedhist.auditing import all_checks
from fedhist.simulations.audit.checks import LEVEL, QUICK, Effort, Finding, run_audit

ROOT = Path(__file__).resolve().parents[1]
FALSE_ALARM_LEVEL = 0.2
# Cheap ones first: a bug that they catch takes seconds.
ORDER = (
    "a lying", "one run", "rows", "release, laplace", "release, items", "fresh", "a full", "one masked", "selector",
    "shares", "release",
)  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """The marker of a line and the value that the line has instead, where `{}` is the one that it has."""

    marker: str
    value: str


@dataclass(frozen=True)
class Bug:
    """A named mistake."""

    name: str
    edits: tuple[Edit, ...]


def bug(name: str, *edits: tuple[str, str]) -> Bug:
    """A bug of these edits."""
    return Bug(name, tuple(Edit(*edit) for edit in edits))


BUGS = (
    bug(
        "a seeded run that says it is private, and is charged",
        ("seeds say so", "False"),
        ("charged", "charged and origin is not ItemOrigin.SYNTHETIC and evaluated"),
    ),
    bug(
        "an evaluated run that is charged",
        ("charged", "charged and origin is not ItemOrigin.SYNTHETIC and seeded"),
    ),
    bug("items numbered by exact counts in a private release", ("numbers dropped", "release")),
    bug("Laplace noise halved", ("laplace scale", "{} / 2")),
    bug("Gaussian noise halved", ("gaussian variance", "{} / 4")),
    bug("Laplace noise 5 % low", ("laplace scale", "{} * Fraction(95, 100)")),
    bug("Gaussian noise 5 % low", ("gaussian variance", "{} * Fraction(95, 100) ** 2")),
    bug("clip forgotten, closed", ("closed clip", "False")),
    bug("clip forgotten, open", ("open clip", "False")),
    bug("weight not cut to sqrt(s)", ("weights cut", "bins, scaled")),
    bug(
        "1 where sqrt(s) belongs (weighted quantile)",
        ("tail weight", "tail_weight(1 << WEIGHT_BITS, neighbours=plan.neighbours).whole"),
    ),
    bug("l2 clip under Laplace noise", ("norm clipped", "type({})('l2')")),
    bug("sqrt(d) where d belongs (items one by one)", ("items at once", "items * steps**2")),
    bug("bar 10 % low", ("bar", "OpenNoise(kind, scale, 9 * bar // 10, _round_up(achieved))")),
    bug("round 1 not charged", ("choice charged", "()")),
    bug("zero-out Laplace sold as replacement", ("l1 of two", "bound")),
    bug("zero-out Gaussian sold as replacement", ("l2 of two", "bound**2")),
    bug("noise on the unclipped support", ("support", "np.arange(len(sums))"), ("keys held", "keys, counts")),
    bug("factor 2 forgotten in the exponential mechanism", ("exponential rate", "2 * {}")),
    bug("range of V halved", ("range of V", "-(-{} // 2)")),
    bug("dpsgd: steps not composed", ("dpsgd steps", "whole_multiplier(plan)")),
    bug("m-quantile: updates not composed", ("m-quantile updates", "whole_multiplier(plan)")),
    bug(
        "output perturbation: a quarter of the sensitivity",
        ("minimiser", "Sensitivity(square=(-(-steps // 4)) ** 2, norm=Norm.L1, neighbours=plan.neighbours)"),
    ),
    bug("floating-point noise", ("laplace drawn", "{} + source.words(size) / 2.0**64")),
    bug("shares of noise: twice as many counted on", ("noise shares", "2 * survivors")),
    bug("shares of noise: corrupt participants counted on", ("noise shares", "survivors")),
    bug(
        "self-mask reused over rounds",
        ("self-mask", "derive(bytes(KEY_BYTES), b'seed', me.to_bytes(8, 'little'))"),
    ),
    bug("modulus too small", ("width", "reach < 1 << width")),
    bug("PRG without round separation", ("separation", "_TAG + purpose + b'\\x00'")),
    bug("a device answering twice, masked", ("heard, masked", "False")),
    bug("a device answering twice, without masks", ("heard", "False")),
    bug("a device opening a second masking session", ("one session", "False")),
    bug("a device clipping to a second threshold", ("one threshold", "False")),
    bug(
        "a masked sum read before its noise",
        ("central noise", "signed(reading.values, reading.width) + drawn"),
    ),
    bug(
        "items one by one read before their noise",
        ("items noised", "signed(reading.values[chosen], reading.width) + drawn"),
    ),
    bug("scores that are no distances on the circle", ("nearness", "-abs(sums - min(target, most))")),
    bug("dpsgd: a sum read before its noise", ("dpsgd noised", "exact.item() + drawn[step].item()")),
    bug("m-quantile: a sum read before its noise", ("m-quantile noised", "exact.item() - step_noise.item()")),
    bug(
        "the table's salt known before the data",
        ("salt", "Salt(plan.digest) if kind.takes is Salt else NOTHING"),
    ),
    bug(
        "a table's room tested without noise",
        ("room noised", "len(reading.keys) > plan.max_items + noise.bar"),
    ),
    bug("the test of a table's room not charged", ("room charged", "(decoding,)")),
    bug(
        "a table with too little room",
        ("room", "plan.max_items if noise is None else plan.max_items // 16 + 1"),
    ),
    bug("clipping drawn afresh when asked again", ("draws repeated", "False")),
    bug("a node's fewest participants not checked", ("fewest", "False")),
    bug("a plan's delta left to the server", ("plan's delta", "False")),
    bug("a plan's delta capped round by round", ("rounds added", "[release_cost(plan)]")),
    bug("a limit on epsilon alone", ("default delta", "0.99 if self.is_limited else math.inf")),
    bug("a method that is not private answered", ("promises", "private")),
    bug("a seeded run answered", ("seeded asked", "not promises(plan)")),
    bug("a request that does not say that it is seeded", ("seeded said", "dict()")),
    bug("a bad box that stops its receiver", ("bad box", "raise DecodeError('a bad box') from None")),
    bug("discovery: the bar of one key for many", ("bar of many", "one_passes_not")),
    bug(
        "discovery: weights of 1",
        ("key weights", "user_weights(most, self.plan.discovery.bits)[np.minimum(lengths, 1)]"),
    ),
    bug("discovery: more than D items weighed", ("items weighed", "8 * {}")),
    bug("discovery: noise halved", ("discovery noise", "{} / 2")),
    bug("discovery: the release has the whole precision", ("precision left", "self.multiplier")),
    bug("discovery: a Laplace release has the whole epsilon", ("epsilon left", "self.epsilon or {}")),
    bug(
        "discovery: charged after it ran",
        ("charged first", "False"),
        ("round over", "(_charged_ahead(request) or _charge(request.plan, step, handed, ledger), {})[1]"),
    ),
    bug(
        "the real number of users in the plan",
        ("given users", '{"users": population.users, "items": items, **fields}'),
    ),
    bug(
        "sums cut to the given number of users",
        ("all users", "replace(shard.rows(0, self.users), first_user=shard.first_user + 1)"),
    ),
    bug("a release without a discovery not charged", ("release unpaid", "False")),
)


_GUARANTEES, _MASKS, _POLICY = "tests/guarantees", "tests/protocol/masking", "tests/client/test_policy.py"
_CONTRACT = "tests/contracts/test_selectors.py::test_each_keeps_the_contract"
_TOLD_APART = "neighbours_are_as_hard_to_tell_apart_as_charged"
TESTS = {
    "a seeded run that says it is private, and is charged": f"{_GUARANTEES}/test_what_runs_say.py",
    "an evaluated run that is charged": f"{_GUARANTEES}/test_what_runs_say.py",
    "items numbered by exact counts in a private release": "tests/scenarios/test_order_of_items.py",
    "weight not cut to sqrt(s)": f"{_CONTRACT}[weighted-quantile-{_TOLD_APART}]",
    "1 where sqrt(s) belongs (weighted quantile)": f"{_CONTRACT}[weighted-quantile-{_TOLD_APART}]",
    "range of V halved": f"{_CONTRACT}[exponential-v-{_TOLD_APART}]",
    "factor 2 forgotten in the exponential mechanism": "tests/statistical/test_choice_distributions.py",
    "self-mask reused over rounds": f"{_MASKS}/test_mask_secrets.py",
    "modulus too small": f"{_MASKS}/test_mask_encoding.py",
    "PRG without round separation": f"{_MASKS}/test_mask_secrets.py",
    "a bad box that stops its receiver": f"{_MASKS}/test_complaints.py",
    "a device answering twice, masked": f"{_MASKS}/test_server_session.py",
    "a device answering twice, without masks": f"{_GUARANTEES}/test_answers.py",
    "a device opening a second masking session": _POLICY,
    "a device clipping to a second threshold": _POLICY,
    "clipping drawn afresh when asked again": f"{_GUARANTEES}/test_answers.py",
    "a node's fewest participants not checked": f"{_GUARANTEES}/test_answers.py",
    "a masked sum read before its noise": f"{_GUARANTEES}/test_sums_under_masks.py",
    "items one by one read before their noise": f"{_GUARANTEES}/test_sums_under_masks.py",
    "scores that are no distances on the circle": f"{_GUARANTEES}/test_sums_under_masks.py",
    "dpsgd: a sum read before its noise": f"{_GUARANTEES}/test_sums_under_masks.py",
    "m-quantile: a sum read before its noise": f"{_GUARANTEES}/test_sums_under_masks.py",
    "the table's salt known before the data": f"{_GUARANTEES}/test_tables_of_a_discovery.py",
    "a table with too little room": f"{_GUARANTEES}/test_tables_of_a_discovery.py",
    "discovery: the release has the whole precision": f"{_GUARANTEES}/test_budgets_of_a_discovery.py",
    "discovery: a Laplace release has the whole epsilon": f"{_GUARANTEES}/test_budgets_of_a_discovery.py",
    "discovery: noise halved": f"{_GUARANTEES}/test_budgets_of_a_discovery.py",
    "dpsgd: steps not composed": f"{_GUARANTEES}/test_baselines.py",
    "m-quantile: updates not composed": f"{_GUARANTEES}/test_baselines.py",
    "output perturbation: a quarter of the sensitivity": "tests/protocol/privacy/test_sensitivities.py",
    "floating-point noise": f"{_GUARANTEES}/test_lattice.py",
    "discovery: charged after it ran": "tests/server/test_discovery.py",
    "a release without a discovery not charged": _POLICY,
}
"""The test that catches a bug without leaving anything to chance."""


FIRST = {
    "Gaussian noise halved": "release, gaussian, replaced",
    "Gaussian noise 5 % low": "release, gaussian",
    "clip forgotten, closed": "one run, laplace, spread",
    "clip forgotten, open": "fresh keys, laplace-threshold, one key",
    "sqrt(d) where d belongs (items one by one)": "release, items",
    "bar 10 % low": "fresh keys, laplace-threshold, a key each",
    "round 1 not charged": "selector quantile, laplace",
    "zero-out Gaussian sold as replacement": "release, gaussian, replaced",
    "noise on the unclipped support": "fresh keys, laplace-threshold, many keys",
    "shares of noise: corrupt participants counted on": "shares of noise, gaussian, round 2",
    "Laplace noise halved": "one run, laplace",
    "l2 clip under Laplace noise": "one run, laplace, spread",
    "zero-out Laplace sold as replacement": "one run, laplace, replaced",
    "shares of noise: twice as many counted on": "one masked run, laplace",
    "a plan's delta left to the server": "a lying server",
    "a plan's delta capped round by round": "a lying server",
    "a limit on epsilon alone": "a lying server",
    "a method that is not private answered": "a lying server",
    "a seeded run answered": "a lying server",
    "a request that does not say that it is seeded": "a lying server",
    "a table's room tested without noise": "a full table",
    "the test of a table's room not charged": "a full table",
    "discovery: the bar of one key for many": "fresh keys, discover, a key each",
    "discovery: weights of 1": "fresh keys, discover, a key each",
    "discovery: more than D items weighed": "fresh keys, discover, many keys",
    "the real number of users in the plan": "rows removed, add-or-remove-one",
    "sums cut to the given number of users": "rows removed, add-or-remove-one",
}
"""The check to begin with, to save time."""


_PACKAGES = ("fedhist", "fedhist.protocol", "fedhist.client", "fedhist.server", "fedhist.simulations")
_MARKED = re.compile(r"(.*\S)  # audited: (.+)")
_VALUE = re.compile(
    r"^(\s*(?:(?:if|elif|return|yield) |case .+? if |\*\*|[A-Za-z_][\w., :]*? ?= ?(?!=))?)"
    r"(.*?)([:,]?)$"
)


@dataclass(frozen=True)
class Place:
    """A function or a method of a module that has a marked line."""

    module: str
    path: tuple[str, ...]
    source: str


@cache
def marked_places() -> dict[str, list[Place]]:
    """Where each marker stands."""
    places: dict[str, list[Place]] = {}
    seen: set[Path] = set()
    # The innermost first: installed from a wheel, the others lie inside fedhist.
    for package in reversed(_PACKAGES):
        root = Path(importlib.import_module(package).__path__[0])
        for file in sorted(set(root.rglob("*.py")) - seen):
            seen.add(file)
            text = file.read_text()
            if "# audited: " not in text:
                continue
            module = ".".join([package, *file.relative_to(root).with_suffix("").parts]).removesuffix(
                ".__init__"
            )
            lines = text.splitlines()
            for path, first, last in _functions(ast.parse(text).body):
                source = textwrap.dedent("\n".join(lines[first - 1 : last]))
                for line in source.splitlines():
                    if found := _MARKED.fullmatch(line):
                        places.setdefault(found[2], []).append(Place(module, path, source))
    return places


def _functions(body: Sequence[ast.stmt]) -> Iterator[tuple[tuple[str, ...], int, int]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from (((node.name, *path), first, last) for path, first, last in _functions(node.body))
        elif isinstance(node, ast.FunctionDef):
            first = min(line.lineno for line in (node, *node.decorator_list))
            yield (node.name,), first, node.end_lineno or first


def edited(source: str, values: dict[str, str]) -> str:
    """The source with other values in the lines of these markers."""

    def with_value(line: str) -> str:
        found = _MARKED.fullmatch(line)
        if not found or found[2] not in values:
            return line
        new = values[found[2]]
        return _VALUE.sub(
            lambda parts: f"{parts[1]}{new.replace('{}', f'({parts[2]})')}{parts[3]}", found[1], count=1
        )

    return "\n".join(with_value(line) for line in source.splitlines())


@contextmanager
def seeded(mistake: Bug) -> Iterator[None]:
    """The installed package with this bug, in this process, until the end of the block."""
    undo: list[tuple[Place, Any, Any]] = []
    try:
        for place, values in changes(mistake).items():
            old, new = _with(place, edited(place.source, values))
            undo.append((place, new, old))
            _replace(place, old, new)
        _forget_results()
        yield
    finally:
        for place, new, old in reversed(undo):
            _replace(place, new, old)
        _forget_results()


def changes(mistake: Bug) -> dict[Place, dict[str, str]]:
    """The functions that a bug changes, and the new values by their markers."""
    made: dict[Place, dict[str, str]] = {}
    for edit in mistake.edits:
        places = marked_places().get(edit.marker, [])
        if len(places) != 1:
            raise SystemExit(f"the marker {edit.marker!r} stands at {len(places)} lines of the source")
        made.setdefault(places[0], {})[edit.marker] = edit.value
    return made


def _with(place: Place, source: str) -> tuple[Any, Any]:
    """The function or method as it is, and with this source."""
    module = importlib.import_module(place.module)
    made: dict[str, Any] = {}
    code = compile(
        "from __future__ import annotations\n" + source, f"<seeded {place.module}:{place.path[-1]}>", "exec"
    )
    exec(code, vars(module), made)  # noqa: S102 - our own source, edited
    return vars(_owner(place))[place.path[-1]], made[place.path[-1]]


def _owner(place: Place) -> Any:
    """The module or class that has it."""
    owner: Any = importlib.import_module(place.module)
    for step in place.path[:-1]:
        owner = getattr(owner, step)
    return owner


def _replace(place: Place, old: Any, new: Any) -> None:
    """Put one in the place of the other, wherever a function is known; also where it was imported in the meantime."""
    if len(place.path) > 1:
        setattr(_owner(place), place.path[-1], new)
        return
    for known in list(sys.modules.values()):
        if getattr(known, "__name__", "").startswith(("fedhist", "tests")):
            for other, value in list(vars(known).items()):
                if value is old:
                    setattr(known, other, new)


def _forget_results() -> None:
    """Drop what functions remember from before a bug came or went."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("fedhist"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def in_order(names: Sequence[str]) -> list[str]:
    """The checks' names, cheap ones first."""
    return sorted(
        names, key=lambda name: next((i for i, p in enumerate(ORDER) if name.startswith(p)), len(ORDER))
    )


def first_failure(effort: Effort, *, level: float, seed: int, first: str = "") -> tuple[Finding | None, int]:
    """The first finding that fails, with each check at its share of the level, and how many checks ran."""
    checks = {check.name: check for check in all_checks()}
    names = in_order(list(checks))
    names = [*(name for name in names if name == first), *(name for name in names if name != first)]
    for number, name in enumerate(names, start=1):
        result = run_audit([checks[name]], effort, level=level / len(checks), seed=seed, cores=1)
        if not result.passed:
            return result.findings[0], number
    return None, len(checks)


def scaled(factor: float) -> Effort:
    """The command's effort times a factor, with at least 40 of everything."""
    return Effort(**{name: max(int(count * factor), 40) for name, count in asdict(QUICK).items()})


def _catch(number: int, factor: float, seed: int) -> tuple[Finding | None, int, float]:
    begin = time.perf_counter()
    with seeded(BUGS[number]):
        first = FIRST.get(BUGS[number].name, "")
        found, ran = first_failure(scaled(factor), level=LEVEL, seed=seed, first=first)
    return found, ran, time.perf_counter() - begin


def _alarm(seed: int, factor: float) -> Finding | None:
    return first_failure(scaled(factor), level=FALSE_ALARM_LEVEL, seed=seed)[0]


def failures(test: str) -> list[str]:
    """The tests that fail of those that this name stands for; at most one."""
    failed: list[str] = []

    class Report:
        @staticmethod
        def pytest_runtest_logreport(report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid)

    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        pytest.main(["-x", "-q", "-p", "no:cacheprovider", str(ROOT / test)], plugins=[Report()])
    return failed


def print_tests(only: str) -> bool:
    """The table of bugs that tests catch; whether all are caught."""
    all_caught = True
    for mistake in BUGS:
        if mistake.name not in TESTS or only not in mistake.name:
            continue
        begin = time.perf_counter()
        with seeded(mistake):
            failed = failures(TESTS[mistake.name])
        all_caught &= bool(failed)
        caught = failed[0].partition("::")[2] if failed else "**nothing**"
        row = [mistake.name, f"test: {caught}", "", "exact", "", f"{time.perf_counter() - begin:.0f}"]
        print(f"| {' | '.join(row)} |", flush=True)
    return all_caught


def print_power(factor: float, only: str, seed: int, pool: Pool) -> None:
    """The table of bugs that are the audit's."""
    chosen = [n for n, mistake in enumerate(BUGS) if only in mistake.name and mistake.name not in TESTS]
    running = {number: pool.apply_async(_catch, (number, factor, seed)) for number in chosen}
    for number, caught in running.items():
        found, ran, seconds = caught.get()
        if found is None:
            print(f"| {BUGS[number].name} | **nothing** ({ran} checks) | | | | {seconds:.0f} |", flush=True)
            continue
        numbers = (
            ["", "exact"] if found.observed is None else [f"{found.claimed:.3g}", f"{found.observed:.3g}"]
        )
        row = [BUGS[number].name, found.name, *numbers, found.detail, f"{seconds:.0f}"]
        print(f"| {' | '.join(row)} |", flush=True)


def print_false_alarms(audits: int, factor: float, seed: int, pool: Pool) -> None:
    """How many audits of the package as it is fail at a level at which some may."""
    alarms = [pool.apply_async(_alarm, (seed + number, factor)) for number in range(audits)]
    failed = [found for alarm in alarms if (found := alarm.get()) is not None]
    print(f"{len(failed)} of {audits} audits without a bug failed at level {FALSE_ALARM_LEVEL}")
    for found in failed:
        print(f"  {found.name}: claimed {found.claimed}, at least {found.observed}; {found.detail}")


def main() -> None:
    """Print the table of bugs, or the count of false alarms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--effort", type=float, default=1.0, help="of each check, as a multiple of the command's"
    )
    parser.add_argument("--only", default="", help="bugs whose names contain this text")
    parser.add_argument(
        "--false-alarms", type=int, default=0, metavar="N", help="audits without a bug instead"
    )
    parser.add_argument("--tests", action="store_true", help="only the bugs that tests catch")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not options.false_alarms:
        print("| seeded bug | caught by | claimed | at least | seen | seconds |")
        print("|---|---|---|---|---|---|")
        all_caught = print_tests(options.only)
        if options.tests:
            raise SystemExit(not all_caught)
    # New processes, used once each, so that no bug outlives its audit.
    fresh = multiprocessing.get_context("spawn")
    with fresh.Pool(2, maxtasksperchild=1) as pool:
        if options.false_alarms:
            print_false_alarms(options.false_alarms, options.effort, options.seed, pool)
        else:
            print_power(options.effort, options.only, options.seed, pool)


if __name__ == "__main__":
    main()
