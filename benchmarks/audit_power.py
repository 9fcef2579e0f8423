"""Which seeded bugs `fedhist audit` catches, and how often it fails without one.

    python benchmarks/audit_power.py [--effort 1] [--only TEXT] [--false-alarms N]

A bug is a change of one or two lines of the installed package's source, made in a process that ends with the audit, so
nothing in the package can switch one on. The audit is the command's: all checks, at the command's level and effort. It
stops at the first check that fails. What a check draws depends on the seed and its name alone, so the order of the
checks does not change the verdict, only the time: the table FIRST names the check to begin with. An audit that fails
nowhere has run them all. With --false-alarms no bug is seeded, the level is 0.2, and the audits that fail are counted.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import multiprocessing
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.pool import Pool
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
    """One place of the source, `module:function` or `module:Class.method`, and its old and new text."""

    place: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """A named mistake."""

    name: str
    edits: tuple[Edit, ...]


def bug(name: str, *edits: tuple[str, str, str]) -> Bug:
    """A bug of these edits."""
    return Bug(name, tuple(Edit(f"fedhist.{place}", old, new) for place, old, new in edits))


_LAPLACE = "protocol.privacy.mechanisms:laplace_noise"
_GAUSSIAN = "protocol.privacy.mechanisms:gaussian_noise"
_SCALE = "Fraction(sensitivity.whole) / Fraction(epsilon)"
_VARIANCE = "Fraction(multiplier) ** 2 * sensitivity.square"
BUGS = (
    bug(
        "a seeded run that says it is private, and is charged",
        ("protocol.labels.item_origin:why_never_private", "if seeded:", "if False:"),
        ("protocol.labels.item_origin:check_private", "(evaluated or seeded)", "evaluated"),
    ),
    bug(
        "an evaluated run that is charged",
        ("protocol.labels.item_origin:check_private", "(evaluated or seeded)", "seeded"),
    ),
    bug(
        "items numbered by exact counts in a private release",
        ("simulations.simulation:simulating", "release = release.without_numbers()", "pass"),
    ),
    bug(
        "a campaign's bound forgotten",
        ("protocol.clips.campaign_bound:bounds_of", "left * visits >= ONE", "left >= 0"),
    ),
    bug("Laplace noise halved", (_LAPLACE, _SCALE, f"{_SCALE} / 2")),
    bug("Gaussian noise halved", (_GAUSSIAN, _VARIANCE, f"{_VARIANCE} / 4")),
    bug("Laplace noise 5 % low", (_LAPLACE, _SCALE, f"{_SCALE} * Fraction(95, 100)")),
    bug("Gaussian noise 5 % low", (_GAUSSIAN, _VARIANCE, f"{_VARIANCE} * Fraction(95, 100) ** 2")),
    bug("clip forgotten, closed", ("protocol.clips.clipping:sum_clipped", "if clipped.any():", "if False:")),
    bug(
        "clip forgotten, open",
        ("protocol.clips.random_clip:random_clipped", "if clipped.any():", "if False:"),
    ),
    bug(
        "weight not cut to sqrt(s)",
        ("protocol.measurements.tail:binned_users", "np.minimum(scaled, weight_cap(sparsity))", "scaled"),
    ),
    bug(
        "1 where sqrt(s) belongs (weighted quantile)",
        (
            "server.selection.weighted_quantile:WeightedQuantile.choice",
            "sensitivity=tail_weight(plan.tail_cap, neighbours",
            "sensitivity=tail_weight(1 << WEIGHT_BITS, neighbours",
        ),
    ),
    bug(
        "l2 clip under Laplace noise",
        (
            "protocol.measurements.clipped_sum:ClippedSum.of",
            "norm=self.plan.norm, source",
            "norm=type(self.plan.norm)('l2'), source",
        ),
    ),
    bug(
        "sqrt(d) where d belongs (items one by one)",
        (
            "server.releases.debiased_items:item_sensitivity",
            "else (items * steps) ** 2",
            "else items * steps**2",
        ),
    ),
    bug(
        "bar 10 % low",
        (
            "protocol.privacy.bars:_calibrated",
            "OpenNoise(kind, scale, bar,",
            "OpenNoise(kind, scale, 9 * bar // 10,",
        ),
    ),
    bug(
        "round 1 not charged",
        (
            "server.steps:Choose.charges",
            "return selector_charges(self.selector, _settled(handed).plan_for(plan))",
            "return ()",
        ),
    ),
    bug(
        "zero-out Laplace sold as replacement",
        ("protocol.privacy.neighbours:clipped_sum_l1", "2 * whole if doubled else whole", "whole"),
    ),
    bug(
        "zero-out Gaussian sold as replacement",
        ("protocol.privacy.neighbours:clipped_sum_l2", "2 * square if doubled else square", "square"),
    ),
    bug(
        "noise on the unclipped support",
        ("protocol.measurements.kept_items:held_sums", "np.flatnonzero(sums)", "np.arange(len(sums))"),
        (
            "server.releases.keys_above_bar:KeysAboveBar.build",
            "keys, counts = keys[counts > 0], counts[counts > 0]",
            "pass",
        ),
    ),
    bug(
        "factor 2 forgotten in the exponential mechanism",
        ("protocol.privacy.choice:_gammas", "Fraction(epsilon) / (2 * bound)", "Fraction(epsilon) / bound"),
    ),
    bug(
        "range of V halved",
        (
            "server.selection.exponential_v:choice_by_range",
            "(1 << SHARE_BITS)) // 2)",
            "(1 << SHARE_BITS)) // 4)",
        ),
    ),
    bug(
        "dpsgd: steps not composed",
        (
            "server.selection.dpsgd:_noise",
            "whole_multiplier(plan) * math.sqrt(STEPS)",
            "whole_multiplier(plan)",
        ),
    ),
    bug(
        "m-quantile: updates not composed",
        (
            "server.selection.m_quantile:_noise",
            "whole_multiplier(plan) * math.sqrt(UPDATES)",
            "whole_multiplier(plan)",
        ),
    ),
    bug(
        "output perturbation: a quarter of the sensitivity",
        (
            "server.selection.output_perturbation:minimiser_sensitivity",
            "Sensitivity(square=steps**2,",
            "Sensitivity(square=(-(-steps // 4)) ** 2,",
        ),
    ),
    bug(
        "floating-point noise",
        (
            "protocol.privacy.mechanisms:Noise.draw",
            "return discrete_laplace(size, self.spread, source=source)",
            "return discrete_laplace(size, self.spread, source=source) + source.words(size) / 2.0**64",
        ),
    ),
    bug(
        "shares of noise: twice as many counted on",
        (
            "protocol.plan.masking_terms:masks_of",
            "noise_shares=survivors",
            "noise_shares=2 * survivors",
        ),
    ),
    bug(
        "shares of noise: corrupt participants counted on",
        (
            "protocol.plan.masking_terms:masks_of",
            "noise_shares=survivors - corrupt",
            "noise_shares=survivors",
        ),
    ),
    bug(
        "self-mask reused over rounds",
        (
            "protocol.masking.device_session:prepare",
            "seed=draw_bytes(KEY_BYTES, source=source)",
            "seed=derive(bytes(KEY_BYTES), b'seed', me.to_bytes(8, 'little'))",
        ),
    ),
    bug(
        "modulus too small",
        ("protocol.masking.encoding:width_for", "reach < 1 << (width - 1)", "reach < 1 << width"),
    ),
    bug(
        "PRG without round separation",
        ("protocol.masking.keys:_info", " + context", ""),
    ),
    bug(
        "a device answering twice, masked",
        ("protocol.masking.server_stage:Stage.add", "if sender in self._heard:", "if False:"),
    ),
    bug(
        "a device answering twice, without masks",
        ("server.collection:matched", "elif reply.asked in heard:", "elif False:"),
    ),
    bug(
        "a device opening a second masking session",
        ("client.policy:check", " and plan.is_masked:", " and False:"),
    ),
    bug(
        "a device clipping to a second threshold",
        ("client.policy:_is_known", "known != fingerprint:", "False:"),
    ),
    bug(
        "a masked sum read before its noise",
        (
            "server.releases.central_noise:CentralNoise.build",
            "signed(reading.values + noise.draw(len(reading.values), source=source), reading.width)",
            "signed(reading.values, reading.width) + noise.draw(len(reading.values), source=source)",
        ),
    ),
    bug(
        "items one by one read before their noise",
        (
            "server.releases.debiased_items:DebiasedItems.build",
            "signed(reading.values[chosen] + drawn, reading.width)",
            "signed(reading.values[chosen], reading.width) + drawn",
        ),
    ),
    bug(
        "scores that are no distances on the circle",
        (
            "server.selection.contract:nearness_scores",
            "nearness(sums, min(target, most), width)",
            "-abs(sums - min(target, most))",
        ),
    ),
    bug(
        "open scores that are no distances on the circle",
        (
            "protocol.measurements.bucket_totals:BucketTotals.read",
            "size(overflow, mass, total.width)",
            "overflow",
        ),
    ),
    bug(
        "a sum over buckets that wraps around",
        ("server.selection.exponential_v:added_up", "if len(parts) * each <= MOST:", "if True:"),
    ),
    bug(
        "range of V under masks as without",
        (
            "server.selection.exponential_v:score_range",
            "return 2 * one_way if plan.is_masked else one_way",
            "return one_way",
        ),
    ),
    bug(
        "dpsgd: a sum read before its noise",
        (
            "server.selection.dpsgd:DpSgd.select",
            "signed(coarse[index : index + 1] + drawn[step], tail.width - shift).item()",
            "coarse[index].item() + drawn[step].item()",
        ),
    ),
    bug(
        "m-quantile: a sum read before its noise",
        (
            "server.selection.m_quantile:MQuantile.select",
            "signed(tail.counts[index : index + 1] - step_noise, tail.width).item()",
            "tail.counts[index].item() - step_noise.item()",
        ),
    ),
    bug(
        "the table's salt known before the data",
        (
            "server.discovery:Discover.request",
            "Salt(new_salt(source=source))",
            "Salt(plan.digest)",
        ),
    ),
    bug(
        "a table's room tested without noise",
        (
            "server.releases.keys_in_table:check_table_read",
            "len(reading.keys) + drawn >",
            "len(reading.keys) >",
        ),
    ),
    bug(
        "the test of a table's room not charged",
        (
            "server.releases.keys_in_table:table_charges",
            "(fit, decoding)",
            "(decoding,)",
        ),
    ),
    bug(
        "a table with too little room",
        (
            "protocol.plan.table_terms:table_room",
            "plan.table_capacity + 2 * noise.bar",
            "plan.table_capacity // 16 + 1",
        ),
    ),
    bug(
        "clipping drawn afresh when asked again",
        (
            "client.device:clear_answer",
            "source if source.seeded else KeyedSource(secret, purpose=envelope.fingerprint)",
            "source",
        ),
    ),
    bug(
        "a node's fewest participants not checked",
        ("client.policy:_check_floors", "plan.minimum_survivors < policy.fewest", "False"),
    ),
    bug(
        "a plan's delta left to the server",
        (
            "client.policy:_check_promise",
            "not cost.fits(epsilon=math.inf, delta=policy.max_plan_delta)",
            "False",
        ),
    ),
    bug(
        "a plan's delta capped round by round",
        (
            "protocol.plan.round_costs:run_cost",
            "[choice_cost(plan), release_cost(plan), table_cost(plan)]",
            "[release_cost(plan)]",
        ),
    ),
    bug(
        "a limit on epsilon alone",
        ("client.policy:Policy.__post_init__", "DEFAULT_MAX_DELTA if", "0.99 if"),
    ),
    bug(
        "a method that is not private answered",
        ("protocol.plan.round_costs:promises", "plan.selector not in _EXACT", "True"),
    ),
    bug(
        "a seeded run answered",
        ("client.policy:_check_promise", "if envelope.seeded or", "if False or"),
    ),
    bug(
        "a request that does not say that it is seeded",
        ("protocol.wire.envelope:Envelope.to_fields", "if self.seeded else {}", "if False else {}"),
    ),
    bug(
        "a bad box that stops its receiver",
        (
            "protocol.masking.boxes:open_all",
            "bad.append(sender)",
            "raise DecodeError('a bad box') from None",
        ),
    ),
    bug(
        "discovery: the bar of one key for many",
        ("protocol.privacy.discovery:pass_chance", "counts * log_ndtr", "1 * log_ndtr"),
    ),
    bug(
        "discovery: weights of 1",
        (
            "protocol.measurements.key_weights:KeyWeights.of",
            "user_weights(most, self.plan.discovery.bits)[lengths]",
            "user_weights(most, self.plan.discovery.bits)[np.minimum(lengths, 1)]",
        ),
    ),
    bug(
        "discovery: more than D items weighed",
        (
            "protocol.measurements.key_weights:KeyWeights.of",
            "most = self.plan.user_items",
            "most = 8 * self.plan.user_items",
        ),
    ),
    bug(
        "discovery: noise halved",
        (
            "protocol.plan.discovery_terms:discovery_of",
            "multiplier=multiplier,",
            "multiplier=multiplier / 2,",
        ),
    ),
    bug(
        "discovery: the release has the whole precision",
        (
            "protocol.plan.discovery_terms:Discovery.release_multiplier",
            "math.sqrt(1 - share - self.coverage_share)",
            "1",
        ),
    ),
    bug(
        "discovery: a Laplace release has the whole epsilon",
        (
            "protocol.plan.discovery_terms:Discovery.release_epsilon",
            "return epsilon_beside(",
            "return self.epsilon or epsilon_beside(",
        ),
    ),
    bug(
        "discovery: charged after it ran",
        (
            "server.coordinator:advance",
            """            if not _charged_ahead(request):
                _charge(request.plan, step, handed, ledger)
            with _plugins_words_hidden(source):
                reading = request.measurement.read(event)
                draws = source.fork("server")
                made = step.conclude(request.plan, reading, handed, ledger=ledger, source=draws)
""",
            """            with _plugins_words_hidden(source):
                reading = request.measurement.read(event)
                draws = source.fork("server")
                made = step.conclude(request.plan, reading, handed, ledger=ledger, source=draws)
            if not _charged_ahead(request):
                _charge(request.plan, step, handed, ledger)
""",
        ),
    ),
    bug(
        "the real number of users in the plan",
        (
            "simulations.workbench.carrying_out:plan_fields",
            "asked.users or population.users",
            "population.users",
        ),
    ),
    bug(
        "sums cut to the given number of users",
        (
            "simulations.given_users:GivenUsers.shards",
            "yield replace(shard,",
            "yield replace(shard.rows(0, self.users),",
        ),
    ),
    bug(
        "a release without a discovery not charged",
        ("client.policy:round_cost", "case Round.RELEASE if not paid:", "case Round.RELEASE if False:"),
    ),
)


FIRST = {
    "a campaign's bound forgotten": "campaign, adaptive windows",
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
    "open scores that are no distances on the circle": "others send anything, masked scores",
    "range of V under masks as without": "others send anything, masked scores",
    "a sum over buckets that wraps around": "others send anything, many buckets",
    "the table's salt known before the data": "tables, fresh salts",
    "a table's room tested without noise": "tables, too full or not",
    "the test of a table's room not charged": "tables, too full or not",
    "a table with too little room": "tables, at their room",
    "discovery: the bar of one key for many": "discovery, fresh keys, a key each, one look",
    "discovery: weights of 1": "discovery, fresh keys, a key each, two looks",
    "discovery: more than D items weighed": "discovery, fresh keys, many keys, one look",
    "discovery: noise halved": "discovery, at the bar",
    "discovery: the release has the whole precision": "discovery, parts of the budget",
    "discovery: a Laplace release has the whole epsilon": "discovery, parts of the budget",
    "discovery: charged after it ran": "discovery, charged first",
    "the real number of users in the plan": "rows removed, add-or-remove-one",
    "sums cut to the given number of users": "rows removed, add-or-remove-one",
    "a release without a discovery not charged": "discovery, made-up items",
}
"""The check to begin with, to save time."""


@contextmanager
def seeded(mistake: Bug) -> Iterator[None]:
    """The installed package with this bug, in this process, until the end of the block."""
    undo: list[tuple[Any, str, Any]] = []
    try:
        for edit in mistake.edits:
            for owner, name, old, new in _replacements(edit):
                undo.append((owner, name, old))
                setattr(owner, name, new)
        _forget_results()
        yield
    finally:
        for owner, name, old in reversed(undo):
            setattr(owner, name, old)
        _forget_results()


def _replacements(edit: Edit) -> list[tuple[Any, str, Any, Any]]:
    """Everywhere that the edited function is known: (owner, name, the function as it was, the edited one)."""
    module_name, path = edit.place.split(":")
    module = importlib.import_module(module_name)
    *classes, name = path.split(".")
    owner: Any = module
    for step in classes:
        owner = getattr(owner, step)
    raw = vars(owner)[name]
    source = textwrap.dedent(inspect.getsource(raw))
    if source.count(edit.old) != 1:
        raise SystemExit(
            f"{edit.place} has changed: {edit.old!r} stands there {source.count(edit.old)} times"
        )
    made: dict[str, Any] = {}
    code = "from __future__ import annotations\n" + source.replace(edit.old, edit.new)
    exec(compile(code, f"<seeded {edit.place}>", "exec"), vars(module), made)  # noqa: S102 - our own source, edited
    if classes:
        return [(owner, name, raw, made[name])]
    return [
        (place, other, raw, made[name])
        for place in list(sys.modules.values())
        if getattr(place, "__name__", "").startswith("fedhist")
        for other, value in list(vars(place).items())
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
