"""The page of one run: what was released, how good it is, what it cost, and how it came about.

`SECTIONS` is the page from top to bottom. A new part is a function of the run and its charts that returns HTML, or
nothing where it has nothing to say, and a line in that list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from fedhist.display.plurals import counted
from fedhist.protocol.errors import names_by_reason
from fedhist.server.withholding import length_tells
from fedhist.server.words import sender
from fedhist.simulations.report.charts import Chart, figure, number, style_rules
from fedhist.simulations.report.first_screen import bias_words, bound_words, first_screen, why_not
from fedhist.simulations.report.page import (
    BADGE,
    NOT_PRIVATE,
    Tile,
    fill,
    grid,
    panel,
    paragraphs,
    section,
    table,
    text,
    tiles,
)
from fedhist.simulations.report.run_charts import run_charts
from fedhist.simulations.report.run_data import RunData
from fedhist.simulations.report.timeline import VIEW_WORDS, lines_of, timeline

Charts = Mapping[str, Chart]
_ROWS_SHOWN = 100
_CERTAIN = 0.9999
_CURVE_NOTE = (
    "Low thresholds cut heavy users' counts, high ones need more noise. The best is where the two meet."
)


def run_page(run: RunData) -> str:
    """One self-contained HTML document."""
    charts = run_charts(run)
    body = "".join(part(run, charts) for part in SECTIONS)
    return fill(title=f"fedhist: {run.name}", body=body, styles=style_rules())


def _first(run: RunData, charts: Charts) -> str:
    # Why the run is not private is said on the first screen.
    notes = [text(note, 600) for note in run.document.get("notes", []) if not why_not(note)]
    listed = f'<ul class="notes"><li>{"</li><li>".join(notes)}</li></ul>' if notes else ""
    return f"{first_screen(run)}{listed}{tiles(_tiles(run))}"


def _tiles(run: RunData) -> list[Tile]:
    sent, shown = sum(run.sizes.values()), []
    if not run.found_nothing:
        chosen = "fixed by the plan" if run.plan.selector == "fixed" else f"chosen by {run.plan.selector}"
        largest = "largest threshold" if run.plan.thresholds > 1 else "threshold"
        shown.append(Tile(largest, number(run.threshold), chosen))
    if len(run.values):
        most = ", at most" if run.has_own_noise else ""
        error = number(float(run.errors.max()))
        shown.append(Tile("standard error", error, f"of the noise on a count{most}"))
    if run.document.get("clipped_users") is not None and not run.found_nothing:
        mean = ", mean of the trials" if run.trials > 1 else ""
        share = f"{run.document['clipped_users']:.2%}"
        shown.append(Tile("clipped", share, f"of the users{mean}", truth=True))
    if sent and not run.withheld:
        shown.append(Tile("sent", f"{sent:,} B", f"by {sender(run.plan)}, all rounds", truth=run.sizes_tell))
    if run.seconds:
        shown.append(Tile("time", f"{sum(run.seconds.values()):.2f} s", "all phases", truth=True))
    return shown


def _figures(charts: Charts, *names: str, more: str = "") -> str:
    return grid(*(figure(charts[name]) for name in names if name in charts), more)


def _released(run: RunData, charts: Charts) -> str:
    count, true = len(run.values), run.true
    if count == 0:
        return ""
    rows = np.argsort(-run.values, kind="stable")[:_ROWS_SHOWN].tolist()
    listed = [
        [
            run.labels[row],
            *(number(float(column[row])) for column in (run.estimates, run.at_least, run.values)),
            *([number(true[row]) if row in true else ""] if true else []),
        ]
        for row in rows
    ]
    heading = f"The {len(rows)} largest of {count:,} items"
    if count == len(rows):
        heading = f"All {counted(count, 'item')}" if count > 1 else "The item"
    heads = ["item", "estimate", "at least", "value", *(["true count (not private)"] if true else [])]
    listing = panel(table(heads, listed, caption=f"{heading}, by value"), kind="panel long")
    hidden = ""
    if missed := run.exact.get("missed"):
        where = "were not found" if run.plan.discovers else "stayed below the bar"
        counts = table(["item", "true count"], [[name, f"{count:,}"] for name, count in missed])
        summary = f"<summary>The largest items that {where} {BADGE}</summary>"
        hidden = f"<details class=panel>{summary}{counts}</details>"
    use = run.document.get("which_to_use", "use value")
    lead = " ".join(filter(None, [f"{use[:1].upper()}{use[1:]}.", bias_words(run)]))
    return section("released", "The counts", _figures(charts, "released", more=listing), hidden, lead=lead)


_FAULTS = {
    "dropout": "dropped out. The server continues with the rest; in every round others drop out.",
    "fail": "failed. The server counted them and continued with the rest.",
    "inflate": "lied within the bounds: all their users claim the last item alone. No server can see that. Clipping "
    "limits each of their users to the threshold.",
}


def _faults(run: RunData, charts: Charts) -> str:
    """What simulated faults did; nothing for a run without."""
    faults: dict[str, Any] | None = run.document.get("faults")
    if faults is None:
        return ""
    struck, reports, told = faults["rounds"], run.document.get("rounds", {}), ""
    names, last = dict.fromkeys(kind for one in struck.values() for kind in one), [{}, *struck.values()][-1]
    kinds = [f"{last[kind]:,} of {faults['nodes']:,} nodes {_FAULTS[kind]}" for kind in names if kind in last]
    without = faults.get("loss_without_faults")
    if not names:
        kinds = [f"No node was faulty: the shares that were asked for are none of {faults['nodes']:,} nodes."]
    elif without is not None and run.document.get("relative_loss") is not None:
        # Of several trials faults are those of the first.
        loss = float((run.document.get("trials") or [run.document])[0]["relative_loss"])
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
    fixed, said = run.plan.selector == "fixed", [bound_words(run)]
    if not run.simulated:
        how = f"It was chosen by {run.plan.selector} in a round before the release."
        said.append("It was fixed by the plan." if fixed else how)
        said.append("Only a simulation with the truth knows what another threshold would have cost.")
    title = "What the threshold does" if fixed else "How the threshold was chosen"
    known = "".join(
        f'<p class="odds">{text(one, 600)} {BADGE}</p>' for one in (_odds(run), _others(run)) if one
    )
    drawn = _figures(charts, "curve", "scores", "chances", "users")
    return section("threshold", title, known, drawn, lead=" ".join(said))


def _odds(run: RunData) -> str:
    """How the exponential mechanism comes to a threshold, with this run's numbers."""
    seen = run.exact.get("scores")
    if seen is None or seen.get("chances") is None:
        return ""
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
    return (
        f"Each candidate is drawn with a probability in proportion to its base measure times the exponential of its "
        f"score. {base} {draws} between {number(low)} and {number(high)}; this one, {number(seen['chosen'])}, had a "
        f"probability of {chosen:.1%}."
    )


def _others(run: RunData) -> str:
    """How much more than the best threshold the one of this run, half of it and double of it are expected to lose."""
    curve = run.exact.get("curve")
    if curve is None:
        return ""
    xs, losses = np.array(curve["thresholds"]), np.array(curve["loss"])
    over = [
        float(losses[int(np.abs(np.log(xs) - np.log(run.threshold * factor)).argmin())] / losses.min()) - 1
        for factor in (1, 0.5, 2)
    ]
    own = "is the best" if over[0] < 0.005 else f"loses {over[0]:.0%} more"
    half, double = (f"{more:.0%}" for more in over[1:])
    others = f"Half of it would lose {half} more than the best, double of it {double}."
    return f"{_CURVE_NOTE} The one of this run {own}. {others}"


def _cost(run: RunData, charts: Charts) -> str:
    document, rows = run.document, []
    for entry, equal in groupby(document["ledger"]):
        times = len(list(equal))
        name = entry["name"] if times == 1 else f"{entry['name']} x {times}"
        name = name if entry.get("private", True) else f"{name} (not private)"
        sensitivity = "unbounded"
        if entry["sensitivity"] is not None:
            sensitivity = f"{number(entry['sensitivity'])} {entry['norm']}"
        rows.append([entry["round"], name, sensitivity, *_epsilon_and_delta(entry)])
    rows += [
        ["total", f"{name} composition", "", *_epsilon_and_delta(document[key])]
        for name, key in (("basic", "total"), ("tight", "tight"))
    ]
    ledger = table(["round", "mechanism", "sensitivity", "epsilon", "delta"], rows, numeric=2)
    lead = "Together they are the basic total; the tight total is what is proved for all of them, and is never more."
    if document["tight"]["epsilon"] is None:
        lead = "A step without an epsilon is not private, and so the run is not."
    shown = _figures(charts, "budget", more=panel(ledger))
    return section(
        "cost", "What it cost", shown, lead=f"Each charge is written before its noise is drawn. {lead}"
    )


def _epsilon_and_delta(cost: Mapping[str, Any]) -> tuple[str, str]:
    return "not private" if cost["epsilon"] is None else number(cost["epsilon"]), f"{cost['delta']:.3g}"


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
    rows = [
        [name, *map(number, numbers)]
        for name, *numbers in zip(view["places"], *columns.values(), strict=True)
    ]
    title = f"<h3>Round {text(view['round'])}, {text(view['participant'])} {BADGE}</h3>"
    return panel(title, paragraphs([said]), table(["", *columns], rows))


def _effort(run: RunData, charts: Charts) -> str:
    withheld = "Times are withheld: they depend on what the users have." if not run.seconds else ""
    if run.withheld:
        rounds = f"is withheld for {' and '.join(run.withheld)}: it depends on what the users have."
        withheld = f"The number of bytes sent {rounds} {withheld}"
    rows = [
        [
            name,
            f"{report['answered']:,} of {report['nodes']:,}",
            f"{report['users']:,}",
            _round_bytes(run, name, report.get("bytes")),
            "withheld" if report["seconds"] is None else f"{report['seconds']:.3f} ({NOT_PRIVATE})",
            _left_out(report),
        ]
        for name, report in run.document.get("rounds", {}).items()
    ]
    heads = ["round", "participants", "users", "bytes", "seconds", "left out"]
    if not any(row[3] for row in rows):  # in one process nothing is sent
        heads, *rows = ([*row[:3], *row[4:]] for row in (heads, *rows))
    drawn = _figures(charts, "seconds", "bytes")
    listed = panel(table(heads, rows)) if rows else ""
    return section("effort", "How long, and how many bytes", drawn, listed, lead=withheld)


def _round_bytes(run: RunData, round_: str, size: int | None) -> str:
    if size is None:
        return "withheld" if round_ in run.withheld else ""
    return f"{size:,} ({NOT_PRIVATE})" if length_tells(run.plan, round_) else f"{size:,}"


def _left_out(report: dict[str, Any]) -> str:
    """Counts of drop-outs, and who they are: by the reason that they gave, or for which the server left them out."""
    faults = ", ".join(f"{count} {fault}" for fault, count in report.get("faults", {}).items())
    named = [names_by_reason(report.get(name, {})) for name in ("dropped", "left_out")]
    return "; ".join(filter(None, (faults, *named))) or "none"


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
