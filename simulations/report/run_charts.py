"""The charts of a run: for its page, `fedhist figure` and `fedhist.figure`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedhist.protocol.rounds import Round
from fedhist.server.words import lost_words, release_words, sender
from fedhist.simulations.report.charts import Bar, BarChart, Chart, Line, LineChart, Rule
from fedhist.simulations.report.run_data import RunData

ITEMS_SHOWN = 40


def run_charts(run: RunData) -> dict[str, Chart]:
    """The charts that this run has something to show in, in the order of the page."""
    return {chart.name: chart for build in _BUILDERS.values() for chart in build(run)}


def _released(run: RunData) -> Iterator[Chart]:
    true, count = run.true, len(run.values)
    rows = np.argsort(-run.values, kind="stable")[:ITEMS_SHOWN].tolist()
    bars = [
        Bar(str(run.labels[row]), float(run.estimates[row]), mark=float(true[row]) if row in true else None)
        for row in rows
    ]
    what = f"all {count} released items" if count > 1 else "the one released item"
    if count > ITEMS_SHOWN:
        what = f"the {ITEMS_SHOWN} largest of {count:,} items"
    if bars:
        yield BarChart(
            "released",
            f"Estimate{'s' if count > 1 else ''} of {what}",
            "count",
            "item",
            truth=bool(true),
            bars=bars,
            value_name="estimate",
            mark_name="true count" if true else "",
        )


def _curve(run: RunData) -> Iterator[Chart]:
    curve = run.exact.get("curve")
    if curve is None:
        return
    xs, losses = curve["thresholds"], curve["loss"]
    marked = {"chosen": _nearest(xs, run.threshold), "best": int(np.argmin(losses))}
    ordered = sorted(losses)
    yield LineChart(
        "curve",
        "Expected loss by threshold: clipping falls, noise rises",
        "threshold C (counts)",
        "relative loss",
        truth=True,
        lines=(
            Line("expected loss", "s0", xs, losses),
            Line(lost_words(run.plan), "s1", xs, curve["clipping"]),
            Line(release_words(run.plan).adds, "s2", xs, curve["noise"]),
        ),
        points=[Line(name, name, [xs[place]], [losses[place]]) for name, place in marked.items()],
        rules=(Rule("chosen", run.threshold),),
        # Losses far above the others would press the rest to the floor.
        high_y=3 * max(ordered[len(ordered) // 2], ordered[0]),
    )


def _scores(run: RunData) -> Iterator[Chart]:
    seen = run.exact.get("scores")
    if seen is None or seen["scores"] is None:
        return
    xs, scores = seen["candidates"], np.array(seen["scores"])
    if seen.get("chances") is None:
        # A method from outside that scores candidates in a way of its own.
        span = float(scores.max() - scores.min()) or 1.0
        line = Line("score", "s0", xs, ((scores - scores.min()) / span).tolist())
        chart = _of_candidates("scores", [line], seen["chosen"])
        title = f"Scores of the {len(xs)} candidates as {run.plan.selector} saw them"
        yield replace(chart, title=title, y_label="score, worst 0 to best 1")
        return
    base, chances = np.array(seen["base"]), np.array(seen["chances"])
    lines, low = [Line("probability", "s0", xs, (chances / chances.max()).tolist())], 1e-4
    if (base != base[0]).any():
        # Proportional to exp(epsilon' u / (2 sensitivity)), u being the score.
        weights, low = chances / base, max(float(base.min()) / 10, 1e-12)
        lines = [
            replace(lines[0], name="both: probability"),
            Line("by its score", "s2", xs, (weights / weights.max()).tolist()),
            Line("by the base measure", "s1", xs, base.tolist()),
        ]
    chart = replace(_of_candidates("scores", lines, seen["chosen"]), log_y=True, low_y=low)
    title, label = (
        "Why this threshold: what makes a candidate probable",
        "each relative to its largest, log scale",
    )
    yield replace(chart, title=title, y_label=label)


def _chances(run: RunData) -> Iterator[Chart]:
    seen = run.exact.get("scores") or {}
    if seen.get("chances") is not None:
        line = Line("probability", "s0", seen["candidates"], seen["chances"])
        title = f"How probable each of the {len(line.xs)} candidates was"
        yield replace(_of_candidates("chances", [line], seen["chosen"]), title=title, y_label="probability")


def _of_candidates(name: str, lines: Sequence[Line], chosen: float) -> LineChart:
    """Lines over the candidates, with the chosen one marked on the first; its title and label follow."""
    xs, place = lines[0].xs, _nearest(lines[0].xs, chosen)
    marked = [Line("chosen", "chosen", [xs[place]], [lines[0].ys[place]])]
    rules = [Rule("chosen", xs[place])]
    return LineChart(
        name, "", "threshold C (counts)", "", truth=True, lines=lines, points=marked, rules=rules
    )


def _users(run: RunData) -> Iterator[Chart]:
    sizes = run.exact.get("users")
    if sizes is None:
        return
    norm = "total (l1 norm)" if run.exact["norm"] == "l1" else "l2 norm"
    # Where each item has a threshold of its own, none of them says which users are clipped.
    one = not run.found_nothing and run.plan.thresholds == 1
    yield LineChart(
        "users",
        "Users by size: those right of the threshold are clipped" if one else "Users by size",
        f"a user's {norm}, in counts",
        "users",
        truth=True,
        lines=(Line("users from here to the next", "bins", sizes["edges"], [*sizes["users"], 0]),),
        rules=(Rule("threshold", run.threshold),) if one else (),
    )


def _budget(run: RunData) -> Iterator[Chart]:
    charged = {entry["round"] for entry in run.document["ledger"]}
    # What finds items pays for their counts, too, unless these are charged for.
    both = not run.found_nothing and Round.RELEASE not in charged
    parts: dict[str, float] = {}
    for entry in run.document["ledger"]:
        if entry["epsilon"] is not None:
            of = f"{entry['round']}{' and release' if both and entry['round'] == Round.DISCOVER else ''}"
            label = f"{of}: {entry['name']}"
            parts[label] = parts.get(label, 0.0) + float(entry["epsilon"])
    tight = run.document.get("tight", {}).get("epsilon")
    totals = {} if tight is None else {"basic total": sum(parts.values()), "tight total": float(tight)}
    title = "Privacy budget: what each round spent"
    if tight is None:
        title = "What the private rounds spent; the whole run is not private"
    if parts:
        yield _bars("budget", title, "round", parts | totals, what="epsilon", truth=False)


def _bytes(run: RunData) -> Iterator[Chart]:
    if any(run.sizes.values()):
        yield _bars(
            "bytes", f"Sent by {sender(run.plan)}", "round", run.sizes, what="bytes", truth=run.sizes_tell
        )


def _seconds(run: RunData) -> Iterator[Chart]:
    if run.seconds:
        yield _bars("seconds", "Seconds by phase", "phase", run.seconds, what="seconds", truth=True)


def _bars(
    name: str, title: str, parts: str, values: Mapping[str, float], *, what: str, truth: bool
) -> BarChart:
    bars = [Bar(label, float(value)) for label, value in values.items()]
    return BarChart(name, title, what, parts, truth=truth, bars=bars, value_name=what)


def _nearest(xs: Sequence[float], x: float) -> int:
    """The index of the value nearest to x."""
    return int(np.abs(np.asarray(xs) - x).argmin())


_BUILDERS: dict[str, Callable[[RunData], Iterator[Chart]]] = {
    "released": _released,
    "curve": _curve,
    "scores": _scores,
    "chances": _chances,
    "users": _users,
    "budget": _budget,
    "bytes": _bytes,
    "seconds": _seconds,
}
CHART_NAMES = tuple(_BUILDERS)
