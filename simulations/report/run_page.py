"""The page of one run: what was released, how good it is, what it cost, and how it came about.

`SECTIONS` is the page from top to bottom. A new part is a function of the run and its charts that returns HTML, or
nothing where it has nothing to say, and a line in that list. Every sentence is made from what the plan and the release
say; `tests/scenarios/test_words_of_runs.py` checks them for every kind of plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.display.text import counted, visible
from fedhist.protocol.errors import names_by_reason
from fedhist.protocol.privacy.neighbours import Neighbours
from fedhist.protocol.rounds import Round
from fedhist.server.steps import length_tells
from fedhist.server.words import lost_words, method, release_words, round_words, sender, significant
from fedhist.simulations.evaluate import SIMULATION_FILE, write_simulation
from fedhist.simulations.report.charts import Chart, figure, number
from fedhist.simulations.report.page import (
    BADGE,
    NOT_PRIVATE,
    card,
    fill,
    grid,
    head,
    panel,
    paragraphs,
    section,
    sentence,
    table,
    text,
    tile,
    tiles,
)
from fedhist.simulations.report.run import RunData, read_run, run_charts
from fedhist.simulations.report.timeline import VIEW_WORDS, lines_of, timeline
from fedhist.simulations.simulation import Result

Charts = Mapping[str, Chart]
REPORT_FILE = "report.html"
_ROWS_SHOWN, _NAME_LETTERS = 100, 60
_CERTAIN = 0.9999
_NOT_PRIVATE, _BESIDE = "not private: ", "run, not private: "
# A factor of e^epsilon beyond this one is no limit that means anything to a reader.
_LARGEST_EPSILON = 12.0
_OTHERS = {
    Neighbours.ZERO_OUT: "With or without any one user's data",
    Neighbours.REPLACE_ONE: "Whatever data any one user had",
    Neighbours.ADD_OR_REMOVE_ONE: "With or without any one user",
}
_LOSS_WORDS = (
    "The absolute errors of all values add up to this share of all counts: 0\u00a0% is exact, and a histogram of zeros "
    "loses 100\u00a0%."
)
_CURVE_NOTE = (
    "Low thresholds cut heavy users' counts, high ones need more noise. The best is where the two meet."
)
_FAULTS = {
    "dropout": "dropped out. The server continues with the rest; in every round others drop out.",
    "fail": "failed. The server counted them and continued with the rest.",
    "inflate": "lied within the bounds: all their users claim the last item alone. No server can see that. Clipping "
    "limits each of their users to the threshold.",
}


def run_page(run: RunData) -> str:
    """One self-contained HTML document."""
    charts = run_charts(run)
    return fill(run.name, *(part(run, charts) for part in SECTIONS))


def write_report_of(folder: Path, *, name: str, result: Result) -> list[str]:
    """Write the page beside a release and, of an evaluated run, simulation.json; the names of the files.

    Args:
        folder: the result folder, with the release in it.
        name: the title of the page.
        result: what was released.
    """
    files = []
    if result.story is not None:
        write_simulation(folder, result.story())
        files.append(SIMULATION_FILE)
    page = run_page(replace(read_run(folder), name=name))
    (folder / REPORT_FILE).write_text(page, encoding="utf-8")
    return [*files, REPORT_FILE]


# --- The first screen: the run in one sentence that can be forwarded, and three answers.


def _first(run: RunData, charts: Charts) -> str:
    released, trusted = "nothing" if run.found_nothing else counted(len(run.values), "item"), "no counts"
    if len(run.values):
        trusted = f"{int((run.at_least > 0).sum()):,} of {len(run.values):,}"
    cost = f"ε\u00a0{number(run.document['tight']['epsilon'])}" if _is_private(run) else "not private"
    cards = (
        card("What was released", released, _released_words(run), _true_words(run)),
        card("How far to trust it", trusted, _trust_words(run), _loss_words(run)),
        card("What it cost in privacy", cost, _cost_words(run)),
    )
    # Why a run is not private is said in the last of them, and so is what is not private beside a private one.
    private = _is_private(run)
    notes = [
        text(note, 600)
        for note in run.document.get("notes", [])
        if not (note.startswith(_NOT_PRIVATE) or (private and _BESIDE in note))
    ]
    listed = f'<ul class="notes"><li>{"</li><li>".join(notes)}</li></ul>' if notes else ""
    top = head("fedhist run", run.name, headline(run), *_kinds(run))
    return f"{top}{panel(*cards, kind='cards')}{listed}{tiles([*_tiles(run)])}"


def headline(run: RunData) -> str:
    """The run in one sentence."""
    answered: dict[str, int] = run.document.get("users_answered", {})
    last = answered.get(Round.RELEASE.value, answered.get(Round.DISCOVER.value, run.plan.users))
    some = "" if last == run.plan.users else f"{last:,} of "
    users = f"{some}{counted(run.plan.users, 'user')}{f' in {run.plan.window}' if run.plan.window else ''}"
    cost = "and not private"
    if _is_private(run):
        cost = f"at a privacy cost of {_guarantee(run.document['tight'])}"
    if run.found_nothing:
        said = f"no item was found among those of {users}, and nothing was released, {cost}."
    elif len(run.values) == 0:
        said = f"no item of {users} was above the bar, and only the threshold was released, {cost}."
    else:
        clip = "clipping, which takes away most from large items, and " if _bias_words(run) else ""
        noise = f"with {clip}noise with a standard error of {_error(run)}"
        said = f"{counted(len(run.values), 'item')} counted over {users}, {noise}, {cost}."
    return sentence(f"{'simulation: ' if run.document.get('simulation_only') else ''}{said}")


def _is_private(run: RunData) -> bool:
    """Whether its methods are private: a seed, or an evaluation beside it, is said apart."""
    notes = run.document.get("notes", [])
    return run.document["tight"]["epsilon"] is not None and not any(
        note.startswith(_NOT_PRIVATE) for note in notes
    )


def _kinds(run: RunData) -> Iterator[str]:
    private, how = _is_private(run), "evaluated, " if run.document.get("seed") is None else "seeded, "
    if not private or not run.document.get("private", True):
        yield f'<span class="badge loud">{how if private else ""}not private: do not publish</span>'
    if run.evaluated:
        yield f'<span class="hint">What is marked {BADGE} was computed from the exact data.</span>'


def _bias_words(run: RunData) -> str:
    """What clipping does to the values, and what the release tells of it; empty where that is undone."""
    bias = release_words(run.way).bias
    return f"{bias}; a release does not show by how much." if bias else ""


def _guarantee(cost: dict[str, Any]) -> str:
    delta = f", delta {cost['delta']:.3g}" if cost["delta"] else ""
    return f"epsilon {number(cost['epsilon'])}{delta}"


def _error(run: RunData) -> str:
    """The standard error of the noise on a count; of items with noise of their own, the least and the most."""
    return " to ".join(dict.fromkeys(_about(float(one)) for one in (run.errors.min(), run.errors.max())))


def _released_words(run: RunData) -> Iterator[str]:
    plan, several = run.plan, len(run.values) > 1
    if run.found_nothing:
        yield "No item's noisy weight was above the bar of the discovery."
    elif len(run.values) == 0:
        yield "No item's noisy count was above the bar. Only the threshold was released."
    if len(run.values) == 0:
        return
    if plan.discovers:
        known = ", or public already" if plan.known else ""
        yield f"Items that were found privately{known}, each with a noisy count. Others are not in it."
    elif plan.is_open:
        yield "The items whose noisy count is above a bar, with these counts. Others are not in it."
    else:
        read_off = "items" in run.document.get("not_private", [])
        list_ = f"of a list that was {'inferred from the data' if read_off else 'fixed beforehand'}"
        yield f"A noisy count for {'each' if several else 'the one'} item {list_}."
    row = int(run.estimates.argmax())
    estimate, least = number(float(run.estimates[row])), number(float(run.at_least[row]))
    yield (
        f"{'The largest estimate' if several else 'The estimate'} is {estimate}, and the count at least {least} "
        f"(95\u00a0%), for “{visible(run.labels[row], _NAME_LETTERS)}”."
    )
    yield f"Method: {method(plan, run.document.get('mechanism'))}. {_bound_words(run)}"


def _bound_words(run: RunData) -> str:
    """What the threshold means for a user."""
    return round_words(run.way)[Round.RELEASE].bound.format(C=number(run.threshold))


def _true_words(run: RunData) -> Iterator[str]:
    """The true count of the item whose estimate is named."""
    row = int(run.estimates.argmax()) if len(run.estimates) else None
    if row is not None and (count := run.true.get(row)) is not None:
        yield f"The true count of “{visible(run.labels[row], _NAME_LETTERS)}” is {count:,}."


def _trust_words(run: RunData) -> Iterator[str]:
    if len(run.values) == 0:
        return
    yield f"{significant(run.at_least)}."
    yield f"The standard error of the noise on a count is {_error(run)}{', by item' if run.has_own_noise else ''}."
    yield from filter(None, [_bias_words(run)])
    # What simulated liars do to all that is said of noise.
    faults: dict[str, Any] = run.document.get("faults") or {"rounds": {}}
    lying = max((one.get("inflate", 0) for one in faults["rounds"].values()), default=0)
    if lying:
        yield f"{lying:,} of {counted(faults['nodes'], 'node')} made answers up. No lower limit allows for that."


def _loss_words(run: RunData) -> Iterator[str]:
    """What only the exact data tells."""
    document = run.document
    if document.get("relative_loss") is None:
        return

    def percent(name: str) -> str:
        return f"{100 * document[name]:.1f}\u00a0%"

    said = f"Relative loss: {percent('relative_loss')}. {_LOSS_WORDS}"
    if len(run.values) and document.get("faults") is None:
        clipped = f"{lost_words(run.plan)} {percent('clipping_error')}"
        parts = f"{clipped}, {release_words(run.way).adds} {percent('noise_error')}"
        if run.plan.per_item:
            said += f" Before debiasing: {parts}, both {percent('relative_loss_clipped')}."
        else:
            said += f" Its parts, which may cancel: {parts}. Estimates lose {percent('estimate_loss')}."
    yield said


def _cost_words(run: RunData) -> Iterator[str]:
    notes, cost = run.document.get("notes", []), run.document["tight"]
    if not _is_private(run):
        reasons = [note.removeprefix(_NOT_PRIVATE) for note in notes if note.startswith(_NOT_PRIVATE)]
        yield from (f"{sentence(reason)}." for reason in reasons or ["A step of this run is not private"])
        return
    beside = [f"{sentence(note)}." for note in notes if _BESIDE in note]
    yield from [*beside, "What follows holds without that."] if beside else []
    yield f"{sentence(_guarantee(cost))}, for all rounds together."
    if cost["epsilon"] > _LARGEST_EPSILON:
        yield "An epsilon this large limits little of what can be told about one user."
    else:
        factor = f"the same up to a factor of {_about(math.exp(cost['epsilon']))}"
        apart = f", apart from a probability of {cost['delta']:.3g}" if cost["delta"] else ""
        public = "" if run.plan.hides_users else " The number of users is public."
        yield f"{_OTHERS[run.plan.neighbours]}, the probability of what was released is {factor}{apart}.{public}"
    # Who saw what, beside the release.
    if run.plan.noise_by_devices:
        yield "Participants masked what they sent and added the noise: the server saw noisy sums only."
    elif run.plan.is_masked:
        yield "Participants masked what they sent: the server saw sums only, and added the noise."
    else:
        yield "The server is trusted: it saw what participants sent, and added the noise."


def _about(value: float) -> str:
    """Three digits, for a sentence."""
    return number(float(f"{value:.3g}"))


def _tiles(run: RunData) -> Iterator[str]:
    sent, clipped = sum(run.sizes.values()), run.document.get("clipped_users")
    if not run.found_nothing:
        chosen = "fixed by the plan" if run.plan.selector == "fixed" else f"chosen by {run.plan.selector}"
        largest = "largest threshold" if run.plan.thresholds > 1 else "threshold"
        yield tile(largest, number(run.threshold), chosen)
    if len(run.values):
        most = ", at most" if run.has_own_noise else ""
        yield tile("standard error", number(float(run.errors.max())), f"of the noise on a count{most}")
    if clipped is not None and not run.found_nothing:
        yield tile("clipped", f"{clipped:.2%}", "of the users", truth=True)
    if sent and not run.withheld:
        yield tile("sent", f"{sent:,} B", f"by {sender(run.plan)}, all rounds", truth=run.sizes_tell)
    if run.seconds:
        yield tile("time", f"{sum(run.seconds.values()):.2f} s", "all phases", truth=True)


# --- The sections below.


def _figures(charts: Charts, *names: str, more: str = "") -> str:
    return grid(*(figure(charts[name]) for name in names if name in charts), more)


def _released(run: RunData, charts: Charts) -> str:
    count, true = len(run.values), run.true
    if count == 0:
        return ""
    rows = np.argsort(-run.values, kind="stable")[:_ROWS_SHOWN].tolist()
    heads, listed = ["item", "estimate", "at least", "value"], []
    heads += ["true count (not private)"] if true else []
    for row in rows:
        numbers = [number(float(column[row])) for column in (run.estimates, run.at_least, run.values)]
        numbers += [number(true[row]) if row in true else ""] if true else []
        listed.append([run.labels[row], *numbers])
    heading = f"The {len(rows)} largest of {count:,} items"
    if count == len(rows):
        heading = f"All {counted(count, 'item')}" if count > 1 else "The item"
    listing = panel(table(heads, listed, caption=f"{heading}, by value"), kind="panel long")
    hidden = ""
    if missed := run.exact.get("missed"):
        where = "were not found" if run.plan.discovers else "stayed below the bar"
        counts = table(["item", "true count"], [[name, f"{count:,}"] for name, count in missed])
        summary = f"<summary>The largest items that {where} {BADGE}</summary>"
        hidden = f"<details class=panel>{summary}{counts}</details>"
    use = f"{sentence(run.document.get('which_to_use', 'use value'))}."
    lead = " ".join(filter(None, [use, _bias_words(run)]))
    return section("released", "The counts", _figures(charts, "released", more=listing), hidden, lead=lead)


def _faults(run: RunData, charts: Charts) -> str:
    """What simulated faults did; nothing for a run without."""
    faults: dict[str, Any] | None = run.document.get("faults")
    if faults is None:
        return ""
    struck, reports, told = faults["rounds"], run.document.get("rounds", {}), ""
    names, last = dict.fromkeys(kind for one in struck.values() for kind in one), [{}, *struck.values()][-1]
    kinds = [f"{last[kind]:,} of {faults['nodes']:,} nodes {_FAULTS[kind]}" for kind in names if kind in last]
    without, loss = faults.get("loss_without_faults"), run.document.get("relative_loss")
    if not names:
        kinds = [f"No node was faulty: the shares that were asked for are none of {faults['nodes']:,} nodes."]
    elif without is not None and loss is not None:
        words = f"The relative loss is {loss:,.4f}, and the same run without faults would have had {without:,.4f}."
        if (other := faults["threshold_without_faults"]) != run.threshold:
            words += f" The threshold is {run.threshold:,.4g}, and would have been {other:,.4g}."
        if run.document.get("seed") is None:
            words += " Each drew noise of its own, since the run has no seed."
        told = f"<h3>Their effect {BADGE}</h3>{paragraphs([words])}"
    rows = [[f"nodes: {kind}", *(one.get(kind, 0) for one in struck.values())] for kind in names]
    rows += [
        [f"{what} in the sum", *(f"{reports[name][field]:,}" for name in struck)]
        for what, field in (("nodes", "answered"), ("users", "users"))
    ]
    lead = "Faults of nodes were simulated. They change nothing in what the run cost."
    shown = grid(panel(paragraphs(kinds), told), panel(table(["", *struck], rows)))
    return section("faults", "What faults did", shown, lead=lead)


def _threshold(run: RunData, charts: Charts) -> str:
    if run.found_nothing:
        return ""
    fixed, said = run.plan.selector == "fixed", [_bound_words(run)]
    if not run.evaluated:
        how = f"It was chosen by {run.plan.selector} in a round before the release."
        said.append("It was fixed by the plan." if fixed else how)
        said.append("Only a simulation with the truth knows what another threshold would have cost.")
    title = "What the threshold does" if fixed else "How the threshold was chosen"
    known = [
        f'<p class="odds">{text(one, 600)} {BADGE}</p>' for one in (*_odds(run), *_other_thresholds(run))
    ]
    drawn = _figures(charts, "curve", "scores", "chances", "users")
    return section("threshold", title, *known, drawn, lead=" ".join(said))


def _odds(run: RunData) -> Iterator[str]:
    """How the exponential mechanism comes to a threshold, with this run's numbers."""
    seen = run.exact.get("scores") or {}
    if seen.get("chances") is None:
        return
    chances, xs = np.array(seen["chances"]), np.array(seen["candidates"])
    share = float(chances.sum())
    low, high = (xs[int((np.cumsum(chances) / share < part).sum())] for part in (0.05, 0.95))
    base = "The base measure depends on no data and makes large thresholds less probable."
    if len({*seen["base"]}) == 1:
        base = "Every candidate has the same base measure, so the score alone decides."
    draws = "Nine of ten draws lie"
    if share < _CERTAIN:
        chose = f"The run chose {run.way.mechanism} noise with a probability of {share:.1%}."
        draws = f"{chose} Of these, nine of ten draws lie"
    chosen = float(chances[int(np.abs(xs - seen["chosen"]).argmin())])
    yield (
        f"Each candidate is drawn with a probability in proportion to its base measure times the exponential of its "
        f"score. {base} {draws} between {number(low)} and {number(high)}; this one, {number(seen['chosen'])}, had a "
        f"probability of {chosen:.1%}."
    )


def _other_thresholds(run: RunData) -> Iterator[str]:
    """How much more than the best threshold the one of this run, half of it and double of it are expected to lose."""
    if (curve := run.exact.get("curve")) is not None:
        xs, losses = np.array(curve["thresholds"]), np.array(curve["loss"])
        own, half, double = (
            float(losses[int(np.abs(np.log(xs) - np.log(run.threshold * factor)).argmin())] / losses.min())
            - 1
            for factor in (1, 0.5, 2)
        )
        others = f"Half of it would lose {half:.0%} more than the best, double of it {double:.0%}."
        yield f"{_CURVE_NOTE} The one of this run {'is the best' if own < 0.005 else f'loses {own:.0%} more'}. {others}"


def _cost(run: RunData, charts: Charts) -> str:
    document, rows = run.document, []
    for entry, equal in groupby(document["ledger"]):
        times = len(list(equal))
        name = f"{entry['name']}{f' x {times}' if times > 1 else ''}"
        name = name if entry.get("private", True) else f"{name} (not private)"
        bounded = entry["sensitivity"] is not None
        sensitivity = f"{number(entry['sensitivity'])} {entry['norm']}" if bounded else "unbounded"
        rows.append((entry["round"], name, sensitivity, entry))
    totals = {"basic": document["total"], "tight": document["tight"]}
    rows += [("total", f"{name} composition", "", cost) for name, cost in totals.items()]
    cells = [
        [*row, "not private" if cost["epsilon"] is None else number(cost["epsilon"]), f"{cost['delta']:.3g}"]
        for *row, cost in rows
    ]
    ledger = table(["round", "mechanism", "sensitivity", "epsilon", "delta"], cells, numeric=2)
    lead = "Together they are the basic total; the tight total is what is proved for all of them, and is never more."
    if document["tight"]["epsilon"] is None:
        lead = "A step without an epsilon is not private, and so the run is not."
    lead = f"Each charge is written before its noise is drawn. {lead}"
    return section("cost", "What it cost", _figures(charts, "budget", more=panel(ledger)), lead=lead)


def _sides(run: RunData, charts: Charts) -> str:
    told = ""
    for line, words in timeline(lines_of(run), run.plan):
        look = "dropped" if line.event.kind == "drop-out" else getattr(line.event, "round", "")
        at = "" if line.at is None else f"<small>{line.at:.4f} s</small> "
        told += f'<li class="{text(look)}">{at}{text(words, 900)}</li>'
    timed = run.trace is not None and run.trace.simulated
    marked = f'<p class="lead">Times, scores and views are {BADGE}</p>' if timed else ""
    views = grid(*map(_view, run.exact.get("views", [])))
    title = "What happened, and what each side saw"
    return section("timeline", title, marked, f'<ol class="panel timeline">{told}</ol>', views)


def _view(view: dict[str, Any]) -> str:
    """One device's message: what it had, and what the server saw."""
    said, *heads = VIEW_WORDS[view["masked"]]
    columns = dict(zip(heads, (view["had"], view["seen"]), strict=True))
    if view["data"] is not None:
        columns = {"the user has": view["data"], **columns}
    rows = [[name, *map(number, row)] for name, *row in zip(view["places"], *columns.values(), strict=True)]
    title = f"<h3>Round {text(view['round'])}, {text(view['participant'])} {BADGE}</h3>"
    return panel(title, paragraphs([said]), table(["", *columns], rows))


def _effort(run: RunData, charts: Charts) -> str:
    lead = "Times are withheld: they depend on what the users have." if not run.seconds else ""
    if run.withheld:
        rounds = f"is withheld for {' and '.join(run.withheld)}: it depends on what the users have."
        lead = f"The number of bytes sent {rounds} {lead}"
    heads, rows = ["round", "participants", "users", "bytes", "seconds", "left out"], []
    for name, report in run.document.get("rounds", {}).items():
        size, seconds = report.get("bytes"), report["seconds"]
        sent = ("withheld" if name in run.withheld else "") if size is None else f"{size:,}"
        if size is not None and length_tells(run.plan, name):
            sent += f" ({NOT_PRIVATE})"
        # Counts of drop-outs, and who they are: by the reason that they gave, or for which the server left them out.
        gone = [", ".join(f"{count} {fault}" for fault, count in report.get("faults", {}).items())]
        gone += [names_by_reason(report.get(kind, {})) for kind in ("dropped", "left_out")]
        took = "withheld" if seconds is None else f"{seconds:.3f} ({NOT_PRIVATE})"
        there = f"{report['answered']:,} of {report['nodes']:,}", f"{report['users']:,}"
        rows.append([name, *there, sent, took, "; ".join(filter(None, gone)) or "none"])
    if not any(row[3] for row in rows):  # in one process nothing is sent
        heads, *rows = ([*row[:3], *row[4:]] for row in (heads, *rows))
    listed = panel(table(heads, rows)) if rows else ""
    drawn = _figures(charts, "seconds", "bytes")
    return section("effort", "How long, and how many bytes", drawn, listed, lead=lead)


def _plan(run: RunData, charts: Charts) -> str:
    settings = run.plan.to_json() | {"digest": run.document.get("plan_digest", "")}
    rows = [[name, "" if value is None else value] for name, value in settings.items()]
    listed = f"<details class=panel><summary>Every setting</summary>{table(['', ''], rows)}</details>"
    return section("plan", "The plan", listed)


SECTIONS: tuple[Callable[[RunData, Charts], str], ...] = (
    _first,
    _released,
    _faults,
    _threshold,
    _cost,
    _sides,
    _effort,
    _plan,
)
