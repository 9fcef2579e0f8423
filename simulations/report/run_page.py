"""The page of one run: what was released, how good it is, what it cost, and how it came about.

`SECTIONS` is the page from top to bottom. A new part is a function of the run and its charts that returns HTML, or
nothing where it has nothing to say, and a line in that list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np

from fedhist.display.plurals import counted
from fedhist.protocol.errors import names_by_reason
from fedhist.protocol.histograms import Floats
from fedhist.server.withholding import length_tells
from fedhist.server.words import lost_words, sender
from fedhist.simulations.report.charts import NOT_PRIVATE, AnyChart, number, run_charts
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.faults_part import faults_section
from fedhist.simulations.report.first_screen import bias_words, bound_words, first_screen, why_not
from fedhist.simulations.report.page import fill
from fedhist.simulations.report.pieces import BADGE, Tile, figure, section, table, tiles
from fedhist.simulations.report.run_data import RunData
from fedhist.simulations.report.timeline import VIEW_WORDS, lines_of, timeline

Charts = Mapping[str, AnyChart]
_ROWS_SHOWN = 100
_CERTAIN = 0.9999
_CURVE_NOTE = (
    "Low thresholds cut heavy users' counts, high ones need more noise. The best is where the two meet."
)


def run_page(run: RunData) -> str:
    """One self-contained HTML document."""
    charts = run_charts(run)
    data = {
        "name": run.name,
        "threshold": run.threshold,
        "charts": {name: _chart_data(chart) for name, chart in charts.items()},
    }
    body = "".join(part(run, charts) for part in SECTIONS)
    return fill(title=f"fedhist: {run.name}", body=body, data=data)


def _first(run: RunData, charts: Charts) -> str:
    return f"{first_screen(run)}{_notes(run)}{tiles(_tiles(run))}"


def _tiles(run: RunData) -> list[Tile]:
    document = run.document
    chosen = "fixed by the plan" if run.plan.selector == "fixed" else f"chosen by {run.plan.selector}"
    shown = []
    if not run.found_nothing:
        largest = "largest threshold" if run.plan.thresholds > 1 else "threshold"
        shown.append(Tile(largest, number(run.threshold), chosen))
    if len(run.values):
        most = ", at most" if run.has_own_noise else ""
        error = number(float(run.errors.max()))
        shown.append(Tile("standard error", error, f"of the noise on a count{most}"))
    if document.get("clipped_users") is not None and not run.found_nothing:
        mean = ", mean of the trials" if run.trials > 1 else ""
        shown.append(Tile("clipped", f"{document['clipped_users']:.2%}", f"of the users{mean}", truth=True))
    sent = sum(run.sizes.values())
    if sent and not run.withheld:
        shown.append(Tile("sent", f"{sent:,} B", f"by {sender(run.plan)}, all rounds", truth=run.sizes_tell))
    if run.seconds:
        shown.append(Tile("time", f"{sum(run.seconds.values()):.2f} s", "all phases", truth=True))
    return shown


def _notes(run: RunData) -> str:
    """What a reader should know, beside why the run is not private."""
    notes = [note for note in run.document.get("notes", []) if not why_not(note)]
    items = "".join(f"<li>{text(note, 600)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _grid(charts: Charts, *names: str, more: str = "") -> str:
    drawn = "".join(figure(charts[name]) for name in names if name in charts) + more
    return f'<div class="grid">{drawn}</div>' if drawn else ""


def _released(run: RunData, charts: Charts) -> str:
    if len(run.values) == 0:
        return ""
    rows = np.argsort(-run.values, kind="stable")[:_ROWS_SHOWN].tolist()
    listed = [
        [
            run.labels[row],
            number(float(run.estimates[row])),
            number(float(run.at_least[row])),
            number(float(run.values[row])),
            *([number(run.true[row]) if row in run.true else ""] if run.true else []),
        ]
        for row in rows
    ]
    several = f"All {counted(len(rows), 'item')}" if len(rows) > 1 else "The item"
    heading = (
        f"The {len(rows)} largest of {len(run.values):,} items" if len(run.values) > len(rows) else several
    )
    heads = ["item", "estimate", "at least", "value", *(["true count (not private)"] if run.true else [])]
    listing = table(heads, listed, caption=f"{heading}, by value")
    content = [f'<div class="grid">{figure(charts["released"])}<div class="panel long">{listing}</div></div>']
    missed = (run.simulation or {}).get("missed")
    if missed:
        where = "were not found" if run.plan.discovers else "stayed below the bar"
        content.append(
            f"<details class=panel><summary>The largest items that {where} {BADGE}</summary>"
            + table(["item", "true count"], [[name, f"{count:,}"] for name, count in missed])
            + "</details>"
        )
    use = run.document.get("which_to_use", "use value")
    lead = " ".join(filter(None, [f"{use[:1].upper()}{use[1:]}.", bias_words(run)]))
    return section("released", "The counts", *content, lead=lead)


def _threshold(run: RunData, charts: Charts) -> str:
    if run.found_nothing:
        return ""
    content = [_grid(charts, "curve", "scores", "chances", "users"), _others(run)]
    fixed = run.plan.selector == "fixed"
    said = [bound_words(run)]
    if not run.simulated:
        how = (
            "It was fixed by the plan."
            if fixed
            else f"It was chosen by {run.plan.selector} in a round before the release."
        )
        said += [how, "Only a simulation with the truth knows what another threshold would have cost."]
    title = "What the threshold does" if fixed else "How the threshold was chosen"
    return section("threshold", title, _odds(run), *content, lead=" ".join(said))


def _odds(run: RunData) -> str:
    """How the exponential mechanism comes to a threshold, with this run's numbers."""
    seen = (run.simulation or {}).get("scores")
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
        mechanism = f"The run chose {run.way.mechanism} noise with a probability of {share:.1%}."
        draws = f"{mechanism} Of these, nine of ten draws lie"
    chosen = float(chances[int(np.abs(xs - seen["chosen"]).argmin())])
    said = (
        f"Each candidate is drawn with a probability in proportion to its base measure times the exponential of its "
        f"score. {base} {draws} between {number(low)} and {number(high)}; this one, {number(seen['chosen'])}, had a "
        f"probability of {chosen:.1%}."
    )
    return f'<p class="odds">{text(said, 600)} {BADGE}</p>'


def _others(run: RunData) -> str:
    """The expected loss at half and double the threshold, at both ends and at the best."""
    curve = (run.simulation or {}).get("curve")
    if curve is None:
        return ""
    xs, losses = np.array(curve["thresholds"]), np.array(curve["loss"])
    wanted = {
        "the smallest": xs[0],
        "half of the chosen": run.threshold / 2,
        "chosen": run.threshold,
        "double the chosen": run.threshold * 2,
        "the largest": xs[-1],
        "the best": xs[losses.argmin()],
    }
    rows = []
    for name, x in wanted.items():
        if not xs[0] <= x <= xs[-1]:
            continue
        place = int(np.abs(np.log(xs) - np.log(x)).argmin())
        parts = (losses[place], curve["clipping"][place], curve["noise"][place])
        ratio = losses[place] / losses.min()
        rows.append([name, number(xs[place]), *(f"{part:.4f}" for part in parts), f"{ratio:.2f}"])
    heads = ["threshold", "C", "expected loss", lost_words(run.plan), "noise alone", "over the best"]
    return (
        f'<div class="panel others"><h3>What another threshold would have cost {BADGE}</h3>'
        f"<p>{_CURVE_NOTE} {_beside_the_best(run.threshold, xs, losses)}</p>{table(heads, rows)}</div>"
    )


def _beside_the_best(threshold: float, xs: Floats, losses: Floats) -> str:
    """How much worse than the best threshold the one of the run is expected to be."""
    place = int(np.abs(np.log(xs) - np.log(threshold)).argmin())
    more = losses[place] / losses.min() - 1
    return (
        "The one of this run is the best." if more < 0.005 else f"The one of this run loses {more:.0%} more."
    )


def _cost(run: RunData, charts: Charts) -> str:
    document = run.document
    rows = []
    for entry, equal in groupby(document["ledger"]):
        times = len(list(equal))
        name = entry["name"] if times == 1 else f"{entry['name']} x {times}"
        name = name if entry.get("private", True) else f"{name} (not private)"
        sensitivity = (
            "unbounded" if entry["sensitivity"] is None else f"{number(entry['sensitivity'])} {entry['norm']}"
        )
        epsilon = "not private" if entry["epsilon"] is None else number(entry["epsilon"])
        rows.append([entry["round"], name, sensitivity, epsilon, f"{entry['delta']:.3g}"])
    for name in ("total", "tight"):
        cost = document[name]
        said = "basic composition" if name == "total" else "tight composition"
        epsilon = "not private" if cost["epsilon"] is None else number(cost["epsilon"])
        rows.append(["total", said, "", epsilon, f"{cost['delta']:.3g}"])
    ledger = table(["round", "mechanism", "sensitivity", "epsilon", "delta"], rows, numeric=2)
    lead = "Each charge is written before its noise is drawn. "
    lead += (
        "A step without an epsilon is not private, and so the run is not."
        if document["tight"]["epsilon"] is None
        else "Together they are the basic total; the tight total is what is proved for all of them, and is never more."
    )
    return section(
        "cost", "What it cost", _grid(charts, "budget", more=f'<div class="panel">{ledger}</div>'), lead=lead
    )


def _sides(run: RunData, charts: Charts) -> str:
    told, timed = "", run.trace is not None and run.trace.simulated
    for line, words in timeline(lines_of(run), run.plan):
        look = "dropped" if line.event.kind == "drop-out" else getattr(line.event, "round", "")
        at = "" if line.at is None else f"<small>{line.at:.4f} s</small> "
        told += f'<li class="{text(look)}">{at}{text(words, 900)}</li>'
    marked = f'<p class="lead">Times, scores and views are {BADGE}</p>' if timed else ""
    views = "".join(_view(view) for view in (run.simulation or {}).get("views", []))
    shown = f'<div class="grid">{views}</div>' if views else ""
    return section(
        "timeline",
        "What happened, and what each side saw",
        marked,
        f'<ol class="panel timeline">{told}</ol>',
        shown,
    )


def _view(view: dict[str, Any]) -> str:
    """One device's message: what it had, and what the server saw."""
    most = max([1e-9, *map(abs, view["had"]), *map(abs, view.get("data") or [0.0])])
    most_seen = max([1e-9, *map(abs, view["seen"])])
    rows = []
    for place, name in enumerate(view["places"]):
        own = "" if view["data"] is None else _cell(view["data"][place], most, "own")
        rows.append(
            f"<tr><td><bdi>{text(name, 24)}</bdi></td>{own}{_cell(view['had'][place], most, 'had')}"
            f"{_cell(view['seen'][place], most_seen, 'masked' if view['masked'] else 'seen')}</tr>"
        )
    own = "" if view["data"] is None else "<th>the user has</th>"
    said, before, after = VIEW_WORDS[view["masked"]]
    return (
        f'<div class="panel view"><h3>Round {text(view["round"])}, {text(view["participant"])} '
        f"{BADGE}</h3>"
        f"<p>{said}</p><div class=scroll tabindex=0><table><thead><tr><th></th>{own}<th>{before}</th>"
        f"<th>{after}</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div></div>"
    )


def _cell(value: float, most: float, look: str) -> str:
    share = min(abs(value) / most, 1.0)
    bar = f'<i style="width:calc({share:.4f} * (100% - 12px))"></i>'
    return f'<td class="spark {look}">{bar}<span>{number(value)}</span></td>'


def _effort(run: RunData, charts: Charts) -> str:
    withheld = []
    if run.withheld:
        rounds = " and ".join(run.withheld)
        withheld.append(
            f"The number of bytes sent is withheld for {rounds}: it depends on what the users have."
        )
    if not run.seconds:
        withheld.append("Times are withheld: they depend on what the users have.")
    lead = " ".join(withheld)
    content = (_grid(charts, "seconds", "bytes"), _rounds(run))
    return section("effort", "How long, and how many bytes", *content, lead=lead)


def _round_bytes(run: RunData, round_: str, size: int | None) -> str:
    if size is None:
        return "withheld" if round_ in run.withheld else ""
    return f"{size:,} ({NOT_PRIVATE})" if length_tells(run.plan, round_) else f"{size:,}"


def _left_out(report: dict[str, Any]) -> str:
    """Counts of drop-outs, and who they are: by the reason that they gave, or for which the server left them out."""
    faults = ", ".join(f"{count} {fault}" for fault, count in report.get("faults", {}).items())
    named = [names_by_reason(report.get(name, {})) for name in ("dropped", "left_out")]
    return "; ".join(filter(None, (faults, *named))) or "none"


def _rounds(run: RunData) -> str:
    reports: dict[str, Any] = run.document.get("rounds", {})
    rows = [
        [
            name,
            f"{report['answered']:,} of {report['nodes']:,}",
            f"{report['users']:,}",
            _round_bytes(run, name, report.get("bytes")),
            "withheld" if report["seconds"] is None else f"{report['seconds']:.3f} ({NOT_PRIVATE})",
            _left_out(report),
        ]
        for name, report in reports.items()
    ]
    heads = ["round", "participants", "users", "bytes", "seconds", "left out"]
    if not any(row[3] for row in rows):  # in one process nothing is sent
        heads, rows = [*heads[:3], *heads[4:]], [[*row[:3], *row[4:]] for row in rows]
    return f'<div class="panel">{table(heads, rows)}</div>' if rows else ""


def _plan(run: RunData, charts: Charts) -> str:
    rows = [[name, "" if value is None else value] for name, value in run.plan.to_json().items()]
    rows.append(["digest", run.document.get("plan_digest", "")])
    return section(
        "plan",
        "The plan",
        f"<details class=panel><summary>Every setting</summary>{table(['', ''], rows)}</details>",
    )


def _chart_data(chart: AnyChart) -> dict[str, Any]:
    known = asdict(chart)
    return {"warning": NOT_PRIVATE} | known if chart.truth else known


SECTIONS: tuple[Callable[[RunData, Charts], str], ...] = (
    _first,
    _released,
    lambda run, charts: faults_section(run),
    _threshold,
    _cost,
    _sides,
    _effort,
    _plan,
)
