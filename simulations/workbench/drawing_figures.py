"""`fedhist.figure`: one chart of a result, or the charts of a comparison, as a matplotlib figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.figures.frames import figure_of_folder, figure_of_frame
from fedhist.simulations.figures.painting import painted
from fedhist.simulations.report.charts import Chart
from fedhist.simulations.report.comparison import is_experiment
from fedhist.simulations.report.run_charts import CHART_NAMES, run_charts
from fedhist.simulations.report.run_data import RunData, drawn_from, read_run, run_of
from fedhist.simulations.simulation import Result
from fedhist.simulations.workbench.spelling import python_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WITHHELD = {
    "bytes": "over an open domain sizes depend on the data, and only a simulation with the truth has them",
    "seconds": "times depend on the data, and only a simulation with the truth has them",
}


def figure(what: object, chart: str | None = None) -> Figure:
    """A chart as a matplotlib figure, which a notebook shows and `savefig` writes. Nothing else of matplotlib changes.

    Args:
        what: what `fedhist.histogram` or `fedhist.simulate` returned, or the path of a run's result folder; or what
            `fedhist.compare` or `fedhist.predict` returned, or a comparison's folder.
        chart: of a run: released (the default), curve, scores, chances, users, budget, bytes or seconds. curve, scores,
            chances, users and seconds need an evaluated run, and are NOT private.
    """
    with python_words():
        return draw(what, chart)


def draw(what: object, chart: str | None = None) -> Figure:
    """The same with sentences that name options."""
    if chart is None and isinstance(what, str | Path) and is_experiment(Path(what)):
        return figure_of_folder(Path(what))
    if chart is None and not isinstance(what, Result | str | Path):
        return figure_of_frame(what)
    name = "released" if chart is None else chart
    if isinstance(what, Result):
        return painted([run_chart(run_of(what, "result"), name)])
    if isinstance(what, str | Path):
        with drawn_from(Path(what)):
            return painted([run_chart(read_run(Path(what)), name)])
    raise InvalidInput(
        f"a chart by name of a {type(what).__name__}", allowed="a Result, or the path of a result folder"
    )


def check_chart(name: str) -> None:
    """Refuse a chart that no run has."""
    if name not in CHART_NAMES:
        raise InvalidInput(
            f"there is no chart {name!r}", allowed=", ".join(CHART_NAMES), code="unknown-chart"
        )


def run_chart(run: RunData, name: str) -> Chart:
    """The chart of this name; InvalidInput if this run has nothing to show in it."""
    check_chart(name)
    charts = run_charts(run)
    if name not in charts:
        raise InvalidInput(
            f"this run has nothing to show in the chart {name!r}",
            allowed=", ".join(charts),
            advice=_WITHHELD.get(
                name,
                "curve, scores, chances and users need an evaluated run, in a folder its simulation.json",
            ),
            code="chart-without-data",
        )
    return charts[name]
