"""Attack what is installed, and print the table of docs/privacy.md: attack, tries, successes.

    python benchmarks/attacks.py                    # all attacks
    python benchmarks/attacks.py --only window      # those whose name holds this
    python benchmarks/attacks.py --quick --list     # fewer tries; only the names

An attack is code in attack_rows/ that does what an attacker would: asks nodes again, copies files while they are used,
sends what no client of ours would send. The exit code is 1 if any attack succeeds.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Attackers share builders with the tests, as pyproject.toml has them there.
ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / folder) for folder in (".", "tests/scenarios", "tests/fuzz")]

from attack_rows import all_attacks  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="attacks whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="fewer tries")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    options = parser.parse_args(arguments)
    # Refusals are what is hoped for here: no log of thousands.
    logging.getLogger("fedhist").setLevel(logging.CRITICAL)
    chosen = [one for one in all_attacks() if options.only.lower() in one.name.lower()]
    if options.list:
        print(*(one.name for one in chosen), sep="\n")
        return 0
    print("| attack | tries | successes |\n|---|---:|---:|")
    broken = 0
    for one in chosen:
        began = time.monotonic()
        tries, successes = one.mount(options.quick)
        print(f"| {one.name} | {tries:,} | {successes:,} |", flush=True)
        print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)
        broken += successes > 0 or not tries
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
