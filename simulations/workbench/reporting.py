"""`fedhist.report`: a result or a folder of results as one HTML page; `fedhist.figure`: its charts with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidInput
from fedhist.server.disk import check_new_file, new_file
from fedhist.simulations.report.comparison import experiment_page, is_experiment
from fedhist.simulations.report.plot import draw
from fedhist.simulations.report.run import drawn_from, read_run, run_of
from fedhist.simulations.report.run_page import run_page
from fedhist.simulations.simulation import Result
from fedhist.simulations.workbench.spelling import python_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def report(result_or_folder: Result | str | Path, path: str | Path, *, force: bool = False) -> Path:
    """Write one self-contained HTML page and return its path.

    Args:
        result_or_folder: what `fedhist.histogram` or `fedhist.simulate` returned; or a folder of a run, of `fedhist
            compare` or of `fedhist paper`. The page of a result with the truth shows what the noise and the clipping
            did, and is NOT private.
        path: the new file.
        force: replace the file if it exists.
    """
    with python_words():
        return write_page(result_or_folder, Path(path), force=force)


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


def write_page(result_or_folder: object, target: Path, *, force: bool) -> Path:
    """The page as a new file; nothing is written if it can't be made."""
    if isinstance(result_or_folder, Result):
        check_new_file(target, force=force)
        text = run_page(run_of(result_or_folder, target.stem))
    elif isinstance(result_or_folder, str | Path):
        folder = Path(result_or_folder)
        if folder.is_dir():
            check_new_file(target, force=force)
        with drawn_from(folder):
            text = experiment_page(folder) if is_experiment(folder) else run_page(read_run(folder))
    else:
        raise InvalidInput(
            f"a report of a {type(result_or_folder).__name__}",
            allowed="a Result, or the path of a result folder",
            code="nothing-to-report",
        )
    with new_file(target, force=force) as file:
        file.write(text.encode("utf-8"))
    return target
