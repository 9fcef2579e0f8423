"""The page of one run: what was released, how good it is, what it cost, and how it came about."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np

from fedhist.protocol.errors import names_by_reason
from fedhist.protocol.histograms import Floats
from fedhist.protocol.rounds import Round
from fedhist.server.withholding import length_tells
from fedhist.server.words import lost_words, method, release_words, round_words, sender
from fedhist.simulations.report.charts import NOT_PRIVATE, AnyChart, number, run_charts
from fedhist.simulations.report.diagram import draw_steps, list_steps, run_steps
from fedhist.simulations.report.escaping import text
from fedhist.simulations.report.faults_part import faults_section
from fedhist.simulations.report.motion import motion_section
from fedhist.simulations.report.narration import VIEW_WORDS
from fedhist.simulations.report.page import fill
from fedhist.simulations.report.pieces import BADGE, Tile, figure, section, table, tiles
from fedhist.simulations.report.run_data import RunData

_ROWS_SHOWN = 100
_CURVE_NOTE = (
    "Low thresholds cut heavy users' counts, high ones need more noise. The best is where the two meet."
)


def run_page(run: RunData) -> str:
    """One self-contained HTML document."""
    charts = run_charts(run)
    parts = [
        _head(run),
        tiles(_tiles(run)),
        _notes(run.document.get("notes", [])),
        _released(run, charts),
        faults_section(run),
        "" if run.found_nothing else _threshold(run, charts),
        _cost(run, charts),
        motion_section(run),
        _sides(run),
        _effort(run, charts),
        _plan(run),
    ]
    data = {
        "name": run.name,
        "threshold": run.threshold,
        "charts": {name: _chart_data(chart) for name, chart in charts.items()},
    }
    return fill(title=f"fedhist: {run.name}", body="".join(parts), data=data)


def _head(run: RunData) -> str:
    plan, document = run.plan, run.document
    domain = "an open domain" if plan.items is None else f"{plan.items:,} items"
    kinds = []
    if not document.get("private", True):
        kinds.append('<span class="badge loud">not private: do not publish</span>')
    elif document.get("simulation_only"):
        kinds.append('<span class="badge loud">seeded simulation: do not publish</span>')
    if run.simulated:
        kinds.append(f'<span class="hint">what is marked {BADGE} was computed from the exact data</span>')
    return (
        f'<header><p class="kicker">fedhist run</p><h1><bdi>{text(run.name)}</bdi></h1>'
        f"<p>{_users(run)} users over {text(domain)}, {text(method(plan, document.get('mechanism')))}, neighbours "
        f"{text(plan.neighbours.value)}.</p><p class=kinds>{' '.join(kinds)}</p></header>"
    )


def _users(run: RunData) -> str:
    """The number of users in the histogram, and of all users if some did not answer."""
    answered = run.document.get("users_answered", {}).get(Round.RELEASE.value, run.plan.users)
    return f"{answered:,}" if answered == run.plan.users else f"{answered:,} of {run.plan.users:,}"


def _tiles(run: RunData) -> list[Tile]:
    document = run.document
    chosen = "fixed by the plan" if run.plan.selector == "fixed" else f"chosen by {run.plan.selector}"
    shown = [Tile("released", f"{len(run.values):,}", "items")]
    if not run.found_nothing:
        shown += [
            Tile("threshold", number(run.threshold), chosen),
            Tile("noise", f"± {number(document['standard_error'])}", "standard error, counts an item"),
        ]
    shown += [
        Tile("privacy", _epsilon(document["tight"]), f"delta {document['total']['delta']:g}, all rounds"),
    ]
    if document.get("relative_loss") is not None:
        taken = "not found or clipped" if run.plan.discovers else "clipping"
        split = f"{taken} {document['clipping_error']:.1%}, noise {document['noise_error']:.1%}"
        shown.insert(0, Tile("loss", f"{document['relative_loss']:.1%}", split, truth=True))
    if document.get("clipped_users") is not None:
        shown.append(Tile("clipped", f"{document['clipped_users']:.2%}", "of the users", truth=True))
    sent = sum(run.sizes.values())
    if sent and not run.withheld:
        shown.append(Tile("sent", f"{sent:,} B", f"by {sender(run.plan)}, all rounds", truth=run.sizes_tell))
    if run.seconds:
        shown.append(Tile("time", f"{sum(run.seconds.values()):.2f} s", "all phases", truth=True))
    return shown


def _epsilon(cost: dict[str, Any]) -> str:
    return "none" if cost["epsilon"] is None else f"ε {number(cost['epsilon'])}"


def _notes(notes: list[str]) -> str:
    items = "".join(f"<li>{text(note, 600)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _grid(charts: dict[str, AnyChart], *names: str, more: str = "") -> str:
    drawn = "".join(figure(charts[name]) for name in names if name in charts) + more
    return f'<div class="grid">{drawn}</div>' if drawn else ""


def _released(run: RunData, charts: dict[str, AnyChart]) -> str:
    if len(run.values) == 0:
        nothing = "found: nothing was" if run.plan.discovers else "above the bar: only the threshold was"
        return section("released", "What was released", f"<p>No item was {nothing} released.</p>")
    rows = np.argsort(-run.values, kind="stable")[:_ROWS_SHOWN].tolist()
    limited = bool(np.isfinite(run.limits).all())
    listed = [
        [
            run.labels[row],
            f"{run.estimates[row]:,.1f}",
            f"{run.lows[row]:,.1f} to {run.highs[row]:,.1f}",
            f"{run.values[row]:,.1f}",
            *([f"{run.limits[row]:,.1f}"] if limited else []),
        ]
        for row in rows
    ]
    heading = (
        f"The {len(rows)} largest of {len(run.values):,}" if len(run.values) > len(rows) else "All items"
    )
    heads = ["item", "estimate", "95 % interval", "value", *(["upper limit"] if limited else [])]
    listing = table(heads, listed, caption=f"{heading}, by value")
    content = [f'<div class="grid">{figure(charts["released"])}<div class="panel long">{listing}</div></div>']
    missed = (run.simulation or {}).get("missed")
    if missed:
        content.append(
            f"<details class=panel><summary>The largest items that stayed below the bar {BADGE}</summary>"
            + table(["item", "true count"], [[name, f"{count:,}"] for name, count in missed])
            + "</details>"
        )
    use = run.document.get("which_to_use", "use value")
    told = "upper limits include what it may have taken" if limited else "a release does not show by how much"
    bias = release_words(run.plan).bias
    clipping = f" {bias}; {told}." if bias else ""
    lead = f"Which number: {use}. Intervals are for the noise alone.{clipping}"
    return section("released", "What was released", *content, lead=lead)


def _threshold(run: RunData, charts: dict[str, AnyChart]) -> str:
    content = [_grid(charts, "curve", "scores", "users", more=_others(run))]
    if not any(content):
        how = (
            "It was fixed by the plan."
            if run.plan.selector == "fixed"
            else "It was chosen privately in round 1."
        )
        content = [
            f"<p>{how} Only a simulation with the truth knows what another threshold would have cost.</p>"
        ]
    way, chosen = run.plan.releasing, run.document.get("mechanism")
    if way.chooses_mechanism and chosen is not None and chosen in way.ways:
        way = way.ways[chosen]
    lead = round_words(way)[Round.RELEASE].bound.format(C=number(run.threshold))
    return section("threshold", "How the threshold was chosen", *content, lead=lead)


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
        f'<div class="panel"><h3>What another threshold would have cost {BADGE}</h3>'
        f"<p>{_CURVE_NOTE} {_beside_the_best(run.threshold, xs, losses)}</p>{table(heads, rows)}</div>"
    )


def _beside_the_best(threshold: float, xs: Floats, losses: Floats) -> str:
    """How much worse than the best threshold the one of the run is expected to be."""
    place = int(np.abs(np.log(xs) - np.log(threshold)).argmin())
    more = losses[place] / losses.min() - 1
    return (
        "The one of this run is the best." if more < 0.005 else f"The one of this run loses {more:.0%} more."
    )


def _cost(run: RunData, charts: dict[str, AnyChart]) -> str:
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
    lead = "Each charge is written before its noise is drawn. The tight total is the least proved for all rounds."
    return section(
        "cost", "What it cost", _grid(charts, "budget", more=f'<div class="panel">{ledger}</div>'), lead=lead
    )


def _sides(run: RunData) -> str:
    steps = list(run_steps(run))
    stepper = (
        '<div class="panel stepper" tabindex="0" role="group" aria-label="Sequence of the rounds. Arrow keys step.">'
        '<div class="controls"><button type="button" data-go="first">first</button>'
        '<button type="button" data-go="back">◀ back</button><output class="where"></output>'
        '<button type="button" data-go="forward">forward ▶</button>'
        '<button type="button" data-go="all">show all</button></div>'
        f'<div class="sequence-grid">{draw_steps(steps)}{list_steps(steps)}</div></div>'
    )
    views = "".join(_view(view) for view in (run.simulation or {}).get("views", []))
    return section(
        "sides", "What each side saw", stepper, f'<div class="grid">{views}</div>' if views else ""
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


def _effort(run: RunData, charts: dict[str, AnyChart]) -> str:
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


def _plan(run: RunData) -> str:
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
