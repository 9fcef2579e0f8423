"""The charts of a run as data: what is shown, not where. `drawing` makes marks of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedhist.protocol.rounds import Round
from fedhist.server.words import lost_words, release_words, sender
from fedhist.simulations.report.run_data import RunData

ITEMS_SHOWN = 40

NOT_PRIVATE = "not private, simulation only"


@dataclass(frozen=True)
class Line:
    """A line through points, or points alone.

    Args:
        name: in the legend.
        look: of a line, s0 to s7; of points, chosen or best.
        xs, ys: rising along x.
        intervals: low and high end around each y, if they are known.
    """

    name: str
    look: str
    xs: Sequence[float]
    ys: Sequence[float]
    intervals: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Rule:
    """A vertical line with a name."""

    name: str
    x: float


@dataclass(frozen=True)
class Chart:
    """What all charts have.

    Args:
        name: for the command line and for links into the page.
        title: a sentence that says what the chart shows.
        x_label, y_label: what the axes measure.
        truth: whether it shows anything that was computed from the exact data.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    truth: bool


@dataclass(frozen=True)
class LineChart(Chart):
    """Lines over one axis, with single points, vertical rules, and short ticks at `ticks`.

    With `side_by_side`, marks of different lines at the same x stand beside each other, and intervals are drawn whole
    where they are not far wider than the values. A logarithmic y axis begins at `low_y`, if that is given;
    a linear one ends at about three times the median, but with `whole_y` above all values.
    """

    lines: tuple[Line, ...]
    points: tuple[Line, ...] = ()
    rules: tuple[Rule, ...] = ()
    ticks: tuple[float, ...] = ()
    log_x: bool = True
    log_y: bool = False
    low_y: float | None = None
    whole_y: bool = False
    side_by_side: bool = False


@dataclass(frozen=True)
class BinChart(Chart):
    """Counts between edges on a logarithmic axis."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Bar:
    """A named value, with an interval around it and a value to compare it with if they are known.

    The `best` of several is marked.
    """

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    mark: float | None = None
    note: str = ""
    best: bool = False


@dataclass(frozen=True)
class BarChart(Chart):
    """Horizontal bars, or dots on a logarithmic axis. Long names stand above their bars.

    Args:
        bars: from the top down.
        value_name, unit: what a bar measures.
        mark_name: what its mark is; empty if there are none.
        interval_name: what its whiskers are.
        log_x: whether the axis is logarithmic; all values must be positive.
        dots: whether values are dots on any axis.
    """

    bars: tuple[Bar, ...]
    value_name: str = "value"
    mark_name: str = ""
    interval_name: str = "95 % interval"
    unit: str = ""
    log_x: bool = False
    dots: bool = False

    @property
    def as_dots(self) -> bool:
        """Whether values are dots: a bar on a logarithmic axis would have no beginning."""
        return self.dots or self.log_x


@dataclass(frozen=True)
class StackChart(Chart):
    """Parts that add up to one bar, with rules at totals."""

    parts: tuple[Bar, ...]
    rules: tuple[Rule, ...] = ()


AnyChart = LineChart | BinChart | BarChart | StackChart


def run_charts(run: RunData) -> dict[str, AnyChart]:
    """The charts that this run has something to show in, in the order of the page."""
    made = (build(run) for build in _BUILDERS.values())
    return {chart.name: chart for chart in made if chart is not None}


def number(value: float) -> str:
    """A number as people read it: four significant digits, and commas between thousands."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _released(run: RunData) -> BarChart | None:
    if len(run.values) == 0:
        return None
    true = run.true
    rows = np.argsort(-run.values, kind="stable")[:ITEMS_SHOWN].tolist()
    bars = tuple(
        Bar(
            label=str(run.labels[row]),
            value=float(run.estimates[row]),
            mark=None if row not in true else float(true[row]),
        )
        for row in rows
    )
    several = f"all {len(rows)} released items" if len(rows) > 1 else "the one released item"
    few = len(run.values) <= ITEMS_SHOWN
    what = several if few else f"the {len(rows)} largest of {len(run.values):,} items"
    return BarChart(
        name="released",
        title=f"Estimates of {what}" if len(rows) > 1 else f"Estimate of {what}",
        x_label="count",
        y_label="item",
        truth=bool(true),
        bars=bars,
        value_name="estimate",
        mark_name="true count" if true else "",
    )


def _curve(run: RunData) -> LineChart | None:
    curve = (run.simulation or {}).get("curve")
    if curve is None:
        return None
    xs, losses = curve["thresholds"], curve["loss"]
    chosen, best = _place(xs, run.threshold), int(np.argmin(losses))
    return LineChart(
        name="curve",
        title="Expected loss by threshold: clipping falls, noise rises",
        x_label="threshold C (counts)",
        y_label="relative loss",
        truth=True,
        lines=(
            Line("expected loss", "s0", xs, losses),
            Line(lost_words(run.plan), "s1", xs, curve["clipping"]),
            Line(release_words(run.plan).adds, "s2", xs, curve["noise"]),
        ),
        points=(
            Line("chosen", "chosen", [xs[chosen]], [losses[chosen]]),
            Line("best", "best", [xs[best]], [losses[best]]),
        ),
        rules=(Rule("chosen", run.threshold),),
    )


def _scores(run: RunData) -> LineChart | None:
    seen = (run.simulation or {}).get("scores")
    if seen is None or seen["scores"] is None:
        return None
    xs, scores = seen["candidates"], np.array(seen["scores"])
    chosen, rule = _place(xs, seen["chosen"]), (Rule("chosen", float(seen["chosen"])),)
    if seen.get("chances") is None:
        # A method from outside that scores candidates in a way of its own, or a folder of an older version.
        span = float(scores.max() - scores.min()) or 1.0
        scaled = ((scores - scores.min()) / span).tolist()
        return LineChart(
            name="scores",
            title=f"Scores of the {len(xs)} candidates as {run.plan.selector} saw them",
            x_label="threshold C (counts)",
            y_label="score, worst 0 to best 1",
            truth=True,
            lines=(Line("score", "s0", xs, scaled),),
            points=(Line("chosen", "chosen", [xs[chosen]], [scaled[chosen]]),),
            rules=rule,
            ticks=tuple(xs),
        )
    base, chances = np.array(seen["base"]), np.array(seen["chances"])
    level = bool((base == base[0]).all())
    lines = [
        Line("probability" if level else "both: probability", "s0", xs, (chances / chances.max()).tolist())
    ]
    if not level:
        # Proportional to exp(epsilon' u / (2 sensitivity)), u being the score.
        weights = chances / base
        lines.insert(0, Line("by its score", "s2", xs, (weights / weights.max()).tolist()))
        lines.insert(1, Line("by the base measure", "s1", xs, base.tolist()))
    return LineChart(
        name="scores",
        title="Why this threshold: what makes a candidate probable",
        x_label="threshold C (counts)",
        y_label="relative to the most probable, log scale"
        if level
        else "each relative to its largest, log scale",
        truth=True,
        lines=tuple(lines),
        points=(Line("chosen", "chosen", [xs[chosen]], [float(chances[chosen] / chances.max())]),),
        rules=rule,
        ticks=tuple(xs),
        log_y=True,
        low_y=1e-4 if level else max(float(base.min()) / 10, 1e-12),
    )


def _chances(run: RunData) -> LineChart | None:
    seen = (run.simulation or {}).get("scores")
    if seen is None or seen.get("chances") is None:
        return None
    xs, chances = seen["candidates"], seen["chances"]
    chosen = _place(xs, seen["chosen"])
    return LineChart(
        name="chances",
        title=f"How probable each of the {len(xs)} candidates was",
        x_label="threshold C (counts)",
        y_label="probability",
        truth=True,
        lines=(Line("probability", "s0", xs, chances),),
        points=(Line("chosen", "chosen", [xs[chosen]], [chances[chosen]]),),
        rules=(Rule("chosen", float(seen["chosen"])),),
        ticks=tuple(xs),
        whole_y=True,
    )


def _users(run: RunData) -> BinChart | None:
    sizes = (run.simulation or {}).get("users")
    if sizes is None:
        return None
    norm = "total (l1 norm)" if run.simulation and run.simulation["norm"] == "l1" else "l2 norm"
    # Where each item has a threshold of its own, none of them says which users are clipped.
    one = not run.found_nothing and run.plan.thresholds == 1
    return BinChart(
        name="users",
        title="Users by size: those right of the threshold are clipped" if one else "Users by size",
        x_label=f"a user's {norm}, in counts",
        y_label="users",
        truth=True,
        edges=tuple(sizes["edges"]),
        counts=tuple(sizes["users"]),
        rules=(Rule("threshold", run.threshold),) if one else (),
    )


def _budget(run: RunData) -> StackChart | None:
    ledger = [entry for entry in run.document["ledger"] if entry["epsilon"] is not None]
    if not ledger:
        return None
    charged = {entry["round"] for entry in run.document["ledger"]}
    parts: dict[tuple[str, str], float] = {}
    for entry in ledger:
        # What finds items pays for their counts, too, unless these are charged for.
        both = entry["round"] == Round.DISCOVER and not run.found_nothing and Round.RELEASE not in charged
        key = (f"{entry['round']} and release" if both else str(entry["round"]), str(entry["name"]))
        parts[key] = parts.get(key, 0.0) + float(entry["epsilon"])
    rules, title = [], "What the private rounds spent; the whole run is not private"
    tight = run.document.get("tight", {}).get("epsilon")
    if tight is not None:
        title = "Privacy budget: what each round spent"
        rules = [Rule("basic total", sum(parts.values())), Rule("tight total", float(tight))]
    return StackChart(
        name="budget",
        title=title,
        x_label="epsilon",
        y_label="",
        truth=False,
        parts=tuple(Bar(label=round_, value=spent, note=name) for (round_, name), spent in parts.items()),
        rules=tuple(rules),
    )


def _bytes(run: RunData) -> BarChart | None:
    title = f"Sent by {sender(run.plan)}"
    return (
        _totals("bytes", title, "round", "B", run.sizes, truth=run.sizes_tell)
        if any(run.sizes.values())
        else None
    )


def _seconds(run: RunData) -> BarChart | None:
    return (
        _totals("seconds", "Seconds by phase", "phase", "s", run.seconds, truth=True) if run.seconds else None
    )


def _totals(
    name: str, title: str, parts: str, unit: str, values: Mapping[str, float], *, truth: bool
) -> BarChart:
    return BarChart(
        name=name,
        title=title,
        x_label=name,
        y_label=parts,
        truth=truth,
        bars=tuple(Bar(label, float(value)) for label, value in values.items()),
        value_name=name,
        unit=unit,
    )


_BUILDERS: dict[str, Callable[[RunData], AnyChart | None]] = {
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


def _place(xs: Sequence[float], x: float) -> int:
    """The index of the value nearest to x."""
    return int(np.abs(np.asarray(xs) - x).argmin())
