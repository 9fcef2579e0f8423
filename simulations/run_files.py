"""What a simulation writes beside its release: simulation.json and the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedhist.server.trace_file import Recorder
from fedhist.simulations.datasets.loading import Loaded
from fedhist.simulations.report.run_data import read_run
from fedhist.simulations.report.run_page import run_page
from fedhist.simulations.simulation import Result
from fedhist.simulations.simulation_file import SIMULATION_FILE, simulation_document, write_simulation

REPORT_FILE = "report.html"


def write_report_of(
    folder: Path,
    *,
    name: str,
    result: Result,
    loaded: Loaded,
    recorder: Recorder,
) -> list[str]:
    """Write the report and, with the truth, simulation.json; the names of the files.

    Args:
        folder: the result folder, with the release in it.
        name: the title of the page.
        result: of the first trial.
        loaded: its population.
        recorder: its events.
    """
    written = []
    if result.diagnostics is not None:
        simulation = simulation_document(loaded.population, result.release, recorder.events, loaded.labels)
        write_simulation(folder, simulation)
        written.append(SIMULATION_FILE)
    page = run_page(replace(read_run(folder), name=name))
    (folder / REPORT_FILE).write_text(page, encoding="utf-8")
    return [*written, REPORT_FILE]
