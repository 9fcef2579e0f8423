"""The seconds of the command and of the import, beside an empty Python: `python benchmarks/startup.py`."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

CASES = (
    ("python -c pass", ("-c", "pass"), None),
    ("import fedhist", ("-c", "import fedhist"), 0.4),
    ("fedhist --help", ("-m", "fedhist", "--help"), 0.6),
    ("fedhist run --help", ("-m", "fedhist", "run", "--help"), None),
)


def seconds(arguments: tuple[str, ...], folder: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    print(f"{'':<20}{'median s':>10}{'target':>8}   of {repeats} processes")
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments, target in CASES:
            seconds(arguments, folder)
            median = statistics.median(seconds(arguments, folder) for _ in range(repeats))
            print(f"{name:<20}{median:>10.3f}{'' if target is None else target:>8}")


if __name__ == "__main__":
    main()
