"""How much of the cores `fedhist compare` uses: `python benchmarks/compare_cores.py`.

CPU seconds of the command and its workers over wall seconds times cores, for a run of some minutes that writes its
folder into a temporary place. Other programs on the machine take their share, so the load is printed beside it; what a
worker was ready to run but had to wait for counts as not used.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "fedhist", "compare", "--users", str(arguments.users), "--items", "1000",
            "--trials", str(arguments.trials), "--workers", str(arguments.workers), "--out", str(Path(folder, "run")),
        ]  # fmt: skip
        start = perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall = perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(f"{'workers':>8}{'wall s':>9}{'CPU s':>9}{'CPU / (wall x workers)':>25}{'load before':>13}")
    share = cpu / (wall * arguments.workers)
    print(f"{arguments.workers:>8}{wall:>9.1f}{cpu:>9.1f}{share:>24.0%} {load:>12.1f}")


if __name__ == "__main__":
    main()
