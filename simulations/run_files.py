"""What a simulation writes beside its release: simulation.json and the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedhist.simulations.report.run import read_run
from fedhist.simulations.report.run_page import run_page
from fedhist.simulations.simulation import Result
from fedhist.simulations.simulation_file import SIMULATION_FILE, write_simulation

REPORT_FILE = "report.html"


def write_report_of(folder: Path, *, name: str, result: Result) -> list[str]:
    """Write the report and, with the truth, simulation.json; the names of the files.

    Args:
        folder: the result folder, with the release in it.
        name: the title of the page.
        result: of the first trial.
    """
    written = []
    if result.story is not None:
        write_simulation(folder, result.story())
        written.append(SIMULATION_FILE)
    page = run_page(replace(read_run(folder), name=name))
    (folder / REPORT_FILE).write_text(page, encoding="utf-8")
    return [*written, REPORT_FILE]
