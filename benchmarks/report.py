"""What a report adds to the default run of 50,000 users, as a ratio to the run itself: `python benchmarks/report.py`.

The clock runs over both rounds with the truth, as in `fedhist run`, then over each file that is written beside the
release. The best of a few repeats counts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from two_rounds import best_of

from fedhist.protocol.events import RunEnded
from fedhist.protocol.plan import Plan
from fedhist.server.folder import write_results
from fedhist.server.trace import Recorder, write_trace
from fedhist.simulations.datasets.synthetic import HeavyTailedPopulation
from fedhist.simulations.evaluate import SIMULATION_FILE, simulation_document, write_simulation
from fedhist.simulations.report.run import read_run
from fedhist.simulations.report.run_page import run_page
from fedhist.simulations.simulation import simulate

TARGET_SECONDS = 1.0
TARGET_BYTES = 2_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    population = HeavyTailedPopulation(users=options.users, items=options.items, seed=1)
    plan = Plan(users=options.users, items=options.items)
    recorder = Recorder(plan, simulated=True)
    result = simulate(population, plan, seed=1, observe=recorder)
    recorder(RunEnded(outcome="released", reason=None))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_results(folder, result.to_json(), result.release, None)
        write_simulation(folder, simulation_document(population, result.release, recorder.events, None))
        run = read_run(folder)
        steps: dict[str, tuple[Callable[[], object], Path | None]] = {
            "run, unwatched": (lambda: simulate(population, plan, seed=1), None),
            "run, watched": (
                lambda: simulate(population, plan, seed=1, observe=Recorder(plan, simulated=True)),
                None,
            ),
            "simulation.json": (
                lambda: write_simulation(
                    folder, simulation_document(population, result.release, recorder.events, None)
                ),
                folder / SIMULATION_FILE,
            ),
            "report.html": (
                lambda: (folder / "report.html").write_text(run_page(run), encoding="utf-8"),
                folder / "report.html",
            ),
            "trace.jsonl": (
                lambda: write_trace(folder / "trace.jsonl", recorder, engine="in-process"),
                folder / "trace.jsonl",
            ),
        }
        seconds = {step: best_of(call, options.repeats) for step, (call, _) in steps.items()}
        print(f"{'':<18}{'seconds':>9}{'of the run':>12}{'bytes':>12}")
        for step, (_, path) in steps.items():
            size = "" if path is None else f"{path.stat().st_size:,}"
            print(
                f"{step:<18}{seconds[step]:>9.3f}{seconds[step] / seconds['run, unwatched']:>12.2f}{size:>12}"
            )
        added = seconds["simulation.json"] + seconds["report.html"]
        size = (folder / "report.html").stat().st_size
        print(
            f"a report adds {added:.2f} s (target {TARGET_SECONDS:g}) and {size:,} bytes (target {TARGET_BYTES:,})"
        )


if __name__ == "__main__":
    main()
