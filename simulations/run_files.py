"""What a simulation writes beside its release: simulation.json and the report."""

from __future__ import annotations

from pathlib import Path

from fedhist.server.trace_file import Recorder
from fedhist.simulations.datasets.loading import Loaded
from fedhist.simulations.report.run_data import data_of
from fedhist.simulations.report.run_page import run_page
from fedhist.simulations.simulation import Result
from fedhist.simulations.simulation_file import SIMULATION_FILE, simulation_document, write_simulation

REPORT_FILE = "report.html"


def write_report_of(
    folder: Path,
    *,
    name: str,
    document: dict[str, object],
    result: Result,
    loaded: Loaded,
    recorder: Recorder,
) -> list[str]:
    """Write the report and, with the truth, simulation.json; the names of the files.

    Args:
        folder: the result folder.
        name: the title of the page.
        document: the content of result.json.
        result: of the first trial.
        loaded: its population.
        recorder: its events.
    """
    simulation, written = None, []
    if result.diagnostics is not None:
        simulation = simulation_document(loaded.population, result.release, recorder.events, loaded.labels)
        write_simulation(folder, simulation)
        written.append(SIMULATION_FILE)
    page = run_page(data_of(name, document, result.release, loaded.labels, simulation))
    (folder / REPORT_FILE).write_text(page, encoding="utf-8")
    return [*written, REPORT_FILE]
