"""Checks two wheels, from the source distribution and from the checkout: `python .ci/check_wheels.py A.whl B.whl`.

They must hold the same files, which are the package fedhist and its metadata.
"""

import csv
import io
import sys
import zipfile


def record(path: str) -> dict[str, str]:
    """The hash of every file of the wheel but the list of hashes itself."""
    with zipfile.ZipFile(path) as wheel:
        (name,) = (one for one in wheel.namelist() if one.endswith(".dist-info/RECORD"))
        rows = csv.reader(io.StringIO(wheel.read(name).decode()))
        return {row[0]: row[1] for row in rows if row[0] != name}


first, second = map(record, sys.argv[1:])
if different := sorted(name for name, _ in first.items() ^ second.items()):
    sys.exit(f"the wheel of the source distribution is another one than that of the checkout: {different}")
tops = {name.split("/")[0] for name in first}
if not {"fedhist"} < tops or len(tops) != 2 or not (tops - {"fedhist"}).pop().endswith(".dist-info"):
    sys.exit(f"the wheel holds {sorted(tops)}, and should hold the package fedhist and its metadata alone")
print(f"{len(first)} files, the package fedhist and its metadata")
