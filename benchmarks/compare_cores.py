"""How much of the cores `fedhist compare` uses: `python benchmarks/compare_cores.py`.

CPU seconds of the command and its workers over wall seconds times workers, and the same with the time in which a worker
was ready to run but another program had the core (Linux's run delay). On an idle machine the two are equal; on a busy
one the second shows what the command would use if it were alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from time import perf_counter

POLL_SECONDS = 0.2


def family(pid: int) -> list[int]:
    """The ids of a process and its children that are alive."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *map(int, children)]


def run_delay(pid: int) -> float:
    """The seconds in which the process was ready but did not run; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    delays: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "fedhist", "compare", "--users", str(arguments.users), "--items", "1000",
            "--trials", str(arguments.trials), "--workers", str(arguments.workers), "--out", str(Path(folder, "run")),
        ]  # fmt: skip
        start = perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            for pid in family(process.pid):
                delays[pid] = max(delays.get(pid, 0.0), run_delay(pid))
            time.sleep(POLL_SECONDS)
        wall = perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, delayed = used.ru_utime + used.ru_stime, sum(delays.values())
    room = wall * arguments.workers
    print(
        f"{'workers':>8}{'wall s':>9}{'CPU s':>9}{'waited s':>10}{'CPU share':>11}{'with waiting':>14}{'load':>7}"
    )
    shares = f"{cpu / room:>11.0%}{(cpu + delayed) / room:>14.0%}"
    print(f"{arguments.workers:>8}{wall:>9.1f}{cpu:>9.1f}{delayed:>10.1f}{shares}{load:>7.1f}")


if __name__ == "__main__":
    main()
