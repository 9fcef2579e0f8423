"""Feed damaged inputs to everything that reads bytes, and count what it said.

    python tests/fuzz/run_long.py --inputs 200000

Prints a line for each target: inputs, how many were read, and the errors by kind. Exits with 1 if anything but the
errors of the project was raised, or if memory ran out. `--only` takes part of a target's name, `--seed` begins
elsewhere, `--memory` is how much more memory than at the start the process may use.
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from time import perf_counter

sys.path.append(str(Path(__file__).resolve().parents[2]))
from fuzz_targets import Target, targets

_MIB = 1 << 20
_SHOWN = 2


def main() -> int:
    arguments = _arguments()
    faulthandler.enable()
    warnings.simplefilter("error")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        chosen = [target for target in targets(Path(folder)) if arguments.only in target.name]
        _limit_memory(arguments.memory * _MIB)
        print(f"{'target':<32}{'inputs':>9}{'read':>9}{'seconds':>9}  errors")
        each = arguments.inputs / sum(target.share for target in chosen)
        for target in chosen:
            bad += _run(target, math.ceil(each * target.share), arguments.seed)
    print(f"{bad} inputs raised something else")
    return 1 if bad else 0


def _run(target: Target, inputs: int, seed: int) -> int:
    kinds: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    begin = perf_counter()
    for number in range(inputs):
        random = Random(f"{target.name}/{seed}/{number}")
        data = target.draw(random)
        try:
            target.read(data)
        except target.refusals as error:
            kinds[type(error).__name__] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            bad[type(error).__name__] += 1
            if bad[type(error).__name__] <= _SHOWN:
                print(f"--- {target.name}, input {number}: {str(data)[:300]}")
                traceback.print_exc(limit=-6, file=sys.stdout)
    read = inputs - kinds.total() - bad.total()
    errors = ", ".join(f"{count} {kind}" for kind, count in (kinds + bad).most_common())
    seconds = perf_counter() - begin
    print(f"{target.name:<32}{inputs:>9}{read:>9}{seconds:>9.1f}  {errors}", flush=True)
    return bad.total()


def _limit_memory(more: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=200_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the name of a target")
    parser.add_argument("--memory", type=int, default=768, help="mebibytes beyond those in use at the start")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
