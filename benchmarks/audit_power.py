"""Which seeded bugs `fedhist audit` catches, and how often it fails without one.

    python benchmarks/audit_power.py [--effort 1] [--only TEXT] [--false-alarms N]

A bug is a change of one or two lines of the installed package's source, made in a process that ends with the audit, so
nothing in the package can switch one on. A line is found by its marker, `# audited: NAME` at its end, wherever it
moves; what changes is the value that it tests, returns or assigns.

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
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from fedhist.simulations.audit.findings import QUICK, Effort, Finding
from fedhist.simulations.audit.registry import LEVEL, all_checks, run_audit

FALSE_ALARM_LEVEL = 0.2
# Cheap ones first: a bug that they catch takes seconds.
ORDER = (
    "claims", "one run", "lattice", "masks", "answers", "others", "tables", "rows", "discovery, p", "discovery, c",
    "discovery, m", "shares, one", "fresh", "discovery", "two worlds, w", "two worlds", "shares, two",
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


FIRST = {
    "Gaussian noise halved": "two worlds, gaussian, replaced",
    "Gaussian noise 5 % low": "two worlds, gaussian",
    "clip forgotten, closed": "one run, laplace, spread",
    "clip forgotten, open": "fresh keys, laplace-threshold, one key",
    "weight not cut to sqrt(s)": "two worlds, weighted-quantile, gaussian",
    "1 where sqrt(s) belongs (weighted quantile)": "two worlds, weighted-quantile, gaussian",
    "sqrt(d) where d belongs (items one by one)": "two worlds, items, laplace",
    "bar 10 % low": "fresh keys, laplace-threshold, a key each",
    "round 1 not charged": "two worlds, quantile",
    "zero-out Gaussian sold as replacement": "two worlds, gaussian, replaced",
    "noise on the unclipped support": "fresh keys, laplace-threshold, many keys",
    "factor 2 forgotten in the exponential mechanism": "two worlds, quantile",
    "range of V halved": "two worlds, exponential-v",
    "dpsgd: steps not composed": "two worlds, dpsgd",
    "m-quantile: updates not composed": "two worlds, m-quantile",
    "output perturbation: a quarter of the sensitivity": "two worlds, output-perturbation",
    "shares of noise: corrupt participants counted on": "shares, two worlds, gaussian, round 2",
    "Laplace noise halved": "one run, laplace",
    "l2 clip under Laplace noise": "one run, laplace, spread",
    "zero-out Laplace sold as replacement": "one run, laplace, replaced",
    "shares of noise: twice as many counted on": "shares, one masked run, laplace",
    "floating-point noise": "lattice",
    "self-mask reused over rounds": "masks, fresh secrets",
    "PRG without round separation": "masks, fresh keystream",
    "modulus too small": "masks, sums at the limit",
    "a device answering twice, masked": "masks, counted once",
    "a device answering twice, without masks": "answers, counted once",
    "a device opening a second masking session": "answers, one view",
    "a device clipping to a second threshold": "answers, one view",
    "clipping drawn afresh when asked again": "answers, one view",
    "a node's fewest participants not checked": "answers, floors",
    "a plan's delta left to the server": "answers, a lying server",
    "a plan's delta capped round by round": "answers, a lying server",
    "a limit on epsilon alone": "answers, a lying server",
    "a method that is not private answered": "answers, a lying server",
    "a seeded run answered": "answers, a lying server",
    "a request that does not say that it is seeded": "answers, a lying server",
    "a bad box that stops its receiver": "masks, bad boxes",
    "a masked sum read before its noise": "others send anything, laplace",
    "items one by one read before their noise": "others send anything, items",
    "m-quantile: a sum read before its noise": "others send anything, m-quantile",
    "dpsgd: a sum read before its noise": "others send anything, dpsgd",
    "scores that are no distances on the circle": "others send anything, masked scores",
    "the table's salt known before the data": "tables, fresh salts",
    "a table's room tested without noise": "tables, too full or not",
    "the test of a table's room not charged": "tables, too full or not",
    "a table with too little room": "tables, at their room",
    "discovery: the bar of one key for many": "discovery, fresh keys, a key each",
    "discovery: weights of 1": "discovery, fresh keys, a key each",
    "discovery: more than D items weighed": "discovery, fresh keys, many keys",
    "discovery: noise halved": "discovery, at the bar",
    "discovery: the release has the whole precision": "discovery, parts of the budget",
    "discovery: a Laplace release has the whole epsilon": "discovery, parts of the budget",
    "discovery: charged after it ran": "discovery, charged first",
    "the real number of users in the plan": "rows removed, add-or-remove-one",
    "sums cut to the given number of users": "rows removed, add-or-remove-one",
    "a release without a discovery not charged": "discovery, made-up items",
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
    for package in _PACKAGES:
        root = Path(importlib.import_module(package).__path__[0])
        for file in sorted(root.rglob("*.py")):
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
    undo: list[tuple[Any, str, Any]] = []
    try:
        for place, values in changes(mistake).items():
            for owner, name, old, new in _replacements(place, edited(place.source, values)):
                undo.append((owner, name, old))
                setattr(owner, name, new)
        _forget_results()
        yield
    finally:
        for owner, name, old in reversed(undo):
            setattr(owner, name, old)
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


def _replacements(place: Place, source: str) -> list[tuple[Any, str, Any, Any]]:
    """Everywhere that the edited function is known: (owner, name, the function as it was, the edited one)."""
    module = importlib.import_module(place.module)
    *classes, name = place.path
    owner: Any = module
    for step in classes:
        owner = getattr(owner, step)
    raw = vars(owner)[name]
    made: dict[str, Any] = {}
    code = compile("from __future__ import annotations\n" + source, f"<seeded {place.module}:{name}>", "exec")
    exec(code, vars(module), made)  # noqa: S102 - our own source, edited
    if classes:
        return [(owner, name, raw, made[name])]
    return [
        (known, other, raw, made[name])
        for known in list(sys.modules.values())
        if getattr(known, "__name__", "").startswith("fedhist")
        for other, value in list(vars(known).items())
        if value is raw
    ]


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
        result = run_audit(effort, level=level / len(checks), seed=seed, checks=[checks[name]], cores=1)
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


def print_power(factor: float, only: str, seed: int, pool: Pool) -> None:
    """The table of bugs."""
    print("| seeded bug | caught by | claimed | at least | seen | seconds |")
    print("|---|---|---|---|---|---|")
    chosen = [number for number, mistake in enumerate(BUGS) if only in mistake.name]
    running = {number: pool.apply_async(_catch, (number, factor, seed)) for number in chosen}
    for number, caught in running.items():
        found, ran, seconds = caught.get()
        if found is None:
            print(f"| {BUGS[number].name} | **nothing** ({ran} checks) | | | | {seconds:.0f} |", flush=True)
            continue
        numbers = (
            ["exact", ""] if found.observed is None else [f"{found.claimed:.3g}", f"{found.observed:.3g}"]
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
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # New processes, used once each, so that no bug outlives its audit.
    fresh = multiprocessing.get_context("spawn")
    with fresh.Pool(2, maxtasksperchild=1) as pool:
        if options.false_alarms:
            print_false_alarms(options.false_alarms, options.effort, options.seed, pool)
        else:
            print_power(options.effort, options.only, options.seed, pool)


if __name__ == "__main__":
    main()
