"""A run as its page and its figures read it: what the result folder holds, and the charts of it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.protocol.errors import FedhistError, InvalidFile, InvalidInput, OtherPlugin
from fedhist.protocol.histograms import Floats
from fedhist.protocol.plan import Plan
from fedhist.protocol.rounds import Round
from fedhist.server.steps import length_tells
from fedhist.server.trace import Trace, trace_in
from fedhist.server.words import lost_words, release_words, sender
from fedhist.simulations.evaluate import SIMULATION_FILE, read_object, read_simulation
from fedhist.simulations.report.charts import Bar, BarChart, Chart, Line, LineChart, Rule, damaged
from fedhist.simulations.simulation import Result

RESULT_FILE, HISTOGRAM_FILE = "result.json", "histogram.csv"
BARS_SHOWN = 40
_COLUMNS = {"value": "values", "standard_error": "errors", "estimate": "estimates", "at_least": "at_least"}
_THRESHOLD = "threshold C (counts)"


@dataclass(frozen=True, eq=False)
class RunData:
    """Everything that a report shows.

    Args:
        name: the title of the page.
        plan: the run's plan.
        document: the content of `result.json`.
        labels: names of the released items.
        values, errors: the released values and the standard errors of their noise.
        estimates, at_least: the estimates, and the lower limits of the true counts.
        exact: the content of `simulation.json`, which only an evaluated run has.
        trace: what happened, of a run with --trace.
    """

    name: str
    plan: Plan
    document: dict[str, Any] = field(repr=False)
    labels: Sequence[str] = field(repr=False)
    values: Floats = field(repr=False)
    errors: Floats = field(repr=False)
    estimates: Floats = field(repr=False)
    at_least: Floats = field(repr=False)
    exact: dict[str, Any] = field(repr=False)
    trace: Trace | None = field(default=None, repr=False)

    @property
    def threshold(self) -> float:
        """The bound that was used."""
        return float(self.document["threshold"])

    @property
    def way(self) -> Plan:
        """The plan of the release, with the mechanism that the run chose if it did."""
        way, chosen = self.plan.releasing, str(self.document.get("mechanism"))
        return way.ways[chosen] if way.chooses_mechanism and chosen in way.ways else way

    @property
    def evaluated(self) -> bool:
        """Whether anything was computed from the exact data."""
        return bool(self.exact) or self.document.get("relative_loss") is not None

    @property
    def has_own_noise(self) -> bool:
        """Whether items have noise of different sizes."""
        return len(self.errors) > 0 and bool(self.errors.min() < self.errors.max())

    @property
    def true(self) -> dict[int, int]:
        """The true counts of the rows with the largest values."""
        return dict(self.exact.get("true", []))

    @property
    def found_nothing(self) -> bool:
        """Whether a discovery found no item, so that there is no threshold."""
        return self.plan.discovers and self.threshold == 0

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that one user's device sent, by round, without the rounds whose size is withheld."""
        sizes: dict[str, int | None] = self.document.get("bytes_per_user", {})
        return {name: size for name, size in sizes.items() if size is not None}

    @property
    def withheld(self) -> list[str]:
        """The rounds whose size is withheld, because it depends on the data."""
        return [name for name in self.document.get("bytes_per_user", {}) if name not in self.sizes]

    @property
    def sizes_tell(self) -> bool:
        """Whether one of the sizes depends on the data."""
        return any(size and length_tells(self.plan, name) for name, size in self.sizes.items())

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase, without the phases whose time is withheld."""
        return {name: float(spent) for name, spent in self.document["seconds"].items() if spent is not None}


def read_run(folder: Path) -> RunData:
    """The run in this result folder. InvalidFile, in one sentence, if there is none or it is damaged."""
    if not (folder / RESULT_FILE).is_file():
        raise InvalidFile(
            f"{folder} holds no {RESULT_FILE}" if folder.is_dir() else f"there is no folder {folder}",
            allowed="a result folder of 'fedhist run' or of a Flower run with out; for a report also one of a finished "
            "'fedhist compare' or 'fedhist paper'",
            code="no-result-folder",
        )
    try:
        document: Any = read_object(folder / RESULT_FILE)
        plan = Plan.recorded(document["plan"])
        seconds = document["seconds"].values()
        numbers = (document["threshold"], document["standard_error"], document["total"]["epsilon"], *seconds)
        known = all(number is None or isinstance(number, int | float) for number in numbers)
        if not known or not isinstance(document["ledger"], list):
            raise TypeError
    except OtherPlugin:
        raise
    except (InvalidInput, KeyError, TypeError, ValueError, AttributeError):
        raise damaged(folder / RESULT_FILE) from None
    path = folder / SIMULATION_FILE
    return RunData(
        name=folder.resolve().name,
        plan=plan,
        document=document,
        exact=(read_simulation(path) or {}) if path.exists() else {},
        trace=trace_in(folder, plan),
        **_read_histogram(folder / HISTOGRAM_FILE),
    )


def run_of(result: Result, name: str) -> RunData:
    """A run of this process, as its result folder would have it."""
    columns, exact = result.release.columns(), {} if result.story is None else result.story()
    return RunData(
        name, result.release.plan, result.to_json(), exact=exact, **_numbers(columns["item"], columns)
    )


def _read_histogram(path: Path) -> dict[str, Any]:
    try:
        with path.open(newline="", encoding="utf-8", errors="surrogatepass") as file:
            rows = list(csv.DictReader(file))
        read = _numbers(
            [row["item"] for row in rows], {column: [row[column] for row in rows] for column in _COLUMNS}
        )
    except (OSError, KeyError, TypeError, ValueError, csv.Error):
        raise damaged(path) from None
    if not all(np.isfinite(read[name]).all() for name in _COLUMNS.values()):
        raise damaged(path)
    return read


def _numbers(items: Sequence[object], columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Names and numbers by what `RunData` calls them."""
    numbers = {name: np.array(columns[column], dtype=np.float64) for column, name in _COLUMNS.items()}
    return {"labels": [str(item) for item in items], **numbers}


@contextmanager
def drawn_from(folder: Path) -> Iterator[None]:
    """What fails in the block, which draws a page or a chart from the folder alone, is an InvalidFile.

    Each number is read where it is drawn. Files that a run wrote, and nobody changed, can always be drawn.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except FedhistError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidFile(
            f"the files in {folder} can't be shown: something in them is missing, or is not what a run writes "
            f"({type(error).__name__})",
            allowed="the files as a run wrote them",
            advice="run it again",
        ) from error


# --- Charts.


def run_charts(run: RunData) -> dict[str, Chart]:
    """The charts that this run has something to show in, in the order of the page."""
    built = {name: build(run) for name, build in _BUILDERS.items()}
    return {name: chart for name, chart in built.items() if chart is not None}


def _released(run: RunData) -> Chart | None:
    true, count = run.true, len(run.values)
    rows = np.argsort(-run.values, kind="stable")[:BARS_SHOWN].tolist()
    what = f"all {count} released items" if count > 1 else "the one released item"
    if count > BARS_SHOWN:
        what = f"the {BARS_SHOWN} largest of {count:,} items"
    chart = BarChart(
        "released",
        f"Estimate{'s' if count > 1 else ''} of {what}",
        "count",
        "item",
        truth=bool(true),
        bars=[Bar(run.labels[row], float(run.estimates[row]), mark=true.get(row)) for row in rows],
        value_name="estimate",
        mark_name="true count" if true else "",
    )
    return chart if rows else None


def _curve(run: RunData) -> Chart | None:
    curve = run.exact.get("curve")
    if curve is None:
        return None
    xs, losses = curve["thresholds"], curve["loss"]
    marked = {"chosen": _nearest(xs, run.threshold), "best": int(np.argmin(losses))}
    return LineChart(
        "curve",
        "Expected loss by threshold: clipping falls, noise rises",
        _THRESHOLD,
        "relative loss",
        truth=True,
        lines=(
            Line("expected loss", "s0", xs, losses),
            Line(lost_words(run.plan), "s1", xs, curve["clipping"]),
            Line(release_words(run.way).adds, "s2", xs, curve["noise"]),
        ),
        points=[Line(name, name, [xs[place]], [losses[place]]) for name, place in marked.items()],
        rules=(Rule("chosen", run.threshold),),
        # Losses far above the others would press the rest to the floor.
        high_y=3 * max(sorted(losses)[len(losses) // 2], min(losses)),
    )


def _scores(run: RunData) -> Chart | None:
    seen = run.exact.get("scores") or {"scores": None}
    if seen["scores"] is None:
        return None
    xs, scores = seen["candidates"], np.array(seen["scores"])
    if seen.get("chances") is None:
        # A method from outside that scores candidates in a way of its own.
        span = float(scores.max() - scores.min()) or 1.0
        line = Line("score", "s0", xs, ((scores - scores.min()) / span).tolist())
        title = f"Scores of the {len(xs)} candidates as {run.plan.selector} saw them"
        return _of_candidates("scores", title, "score, worst 0 to best 1", [line], seen["chosen"])
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
    title = "Why this threshold: what makes a candidate probable"
    chart = _of_candidates("scores", title, "each relative to its largest, log scale", lines, seen["chosen"])
    return replace(chart, log_y=True, low_y=low)


def _chances(run: RunData) -> Chart | None:
    seen = run.exact.get("scores") or {}
    if seen.get("chances") is None:
        return None
    line = Line("probability", "s0", seen["candidates"], seen["chances"])
    title = f"How probable each of the {len(line.xs)} candidates was"
    return _of_candidates("chances", title, "probability", [line], seen["chosen"])


def _of_candidates(name: str, title: str, label: str, lines: Sequence[Line], chosen: float) -> LineChart:
    """Lines over the candidates, with the chosen one marked on the first."""
    xs, place = lines[0].xs, _nearest(lines[0].xs, chosen)
    marked = [Line("chosen", "chosen", [xs[place]], [lines[0].ys[place]])]
    rules = [Rule("chosen", xs[place])]
    return LineChart(name, title, _THRESHOLD, label, truth=True, lines=lines, points=marked, rules=rules)


def _users(run: RunData) -> Chart | None:
    sizes = run.exact.get("users")
    if sizes is None:
        return None
    norm = "total (l1 norm)" if run.exact["norm"] == "l1" else "l2 norm"
    # Where each item has a threshold of its own, none of them says which users are clipped.
    one = not run.found_nothing and run.plan.thresholds == 1
    return LineChart(
        "users",
        "Users by size: those right of the threshold are clipped" if one else "Users by size",
        f"a user's {norm}, in counts",
        "users",
        truth=True,
        lines=(Line("users from here to the next", "bins", sizes["edges"], [*sizes["users"], 0]),),
        rules=(Rule("threshold", run.threshold),) if one else (),
    )


def _budget(run: RunData) -> Chart | None:
    ledger, tight = run.document["ledger"], run.document.get("tight", {}).get("epsilon")
    # What finds items pays for their counts, too, unless these are charged for.
    both = not run.found_nothing and Round.RELEASE not in {entry["round"] for entry in ledger}
    parts: dict[str, float] = {}
    for entry in ledger:
        if entry["epsilon"] is not None:
            of = f"{entry['round']}{' and release' if both and entry['round'] == Round.DISCOVER else ''}"
            label = f"{of}: {entry['name']}"
            parts[label] = parts.get(label, 0.0) + float(entry["epsilon"])
    if not parts:
        return None
    if tight is None:
        title = "What the private rounds spent; the whole run is not private"
        return _bars("budget", title, "round", parts, what="epsilon", truth=False)
    totals = {"basic total": sum(parts.values()), "tight total": tight}
    title = "Privacy budget: what each round spent"
    return _bars("budget", title, "round", parts | totals, what="epsilon", truth=False)


def _bytes(run: RunData) -> Chart | None:
    title = f"Sent by {sender(run.plan)}"
    chart = _bars("bytes", title, "round", run.sizes, what="bytes", truth=run.sizes_tell)
    return chart if any(run.sizes.values()) else None


def _seconds(run: RunData) -> Chart | None:
    chart = _bars("seconds", "Seconds by phase", "phase", run.seconds, what="seconds", truth=True)
    return chart if run.seconds else None


def _bars(
    name: str, title: str, parts: str, values: Mapping[str, float], *, what: str, truth: bool
) -> BarChart:
    bars = [Bar(label, float(value)) for label, value in values.items()]
    return BarChart(name, title, what, parts, truth=truth, bars=bars, value_name=what)


def _nearest(xs: Sequence[float], x: float) -> int:
    """The index of the value nearest to x."""
    return int(np.abs(np.asarray(xs) - x).argmin())


_BUILDERS: dict[str, Callable[[RunData], Chart | None]] = {
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
