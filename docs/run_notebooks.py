"""Execute the notebooks of this folder and store their outputs: `python docs/run_notebooks.py [--check] [NAME ...]`.

With --check nothing is written: a stored text that is not what the cell gives now, or a picture that looks different,
is an error. So no cell may print a time.

Plain `exec`, because nbclient and ipykernel would bring a dozen packages to the tests. A cell shows what it prints,
then its figures, then its last expression as a picture or HTML if it has one, else as text. A warning is an error.
"""

from __future__ import annotations

import ast
import base64
import difflib
import io
import json
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

HERE = Path(__file__).resolve().parent
NOTEBOOKS = ("tutorial.ipynb", "research.ipynb")
DOTS_AN_INCH = 100
MOST_PIXELS = 0.005
"""Pictures are alike if a smaller share of their pixels differs visibly."""
_VISIBLE = 0.2


def run_cell(source: str, names: dict[str, Any], *, where: str) -> list[dict[str, Any]]:
    """What the cell puts out, as a notebook stores it."""
    from matplotlib import pyplot

    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error")
        # `plt.show()`: figures are shown below.
        warnings.filterwarnings("ignore", message=".*is non-interactive", category=UserWarning)
        exec(compile(tree, where, "exec"), names)  # noqa: S102 - the notebook's own code
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    for number in pyplot.get_fignums():
        outputs.append(_shown(pyplot.figure(number)))
    pyplot.close("all")
    if value is not None:
        outputs.append(_shown(value))
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    """A value as an output, in one form: the plain one of some objects tells seconds. A picture says who drew it."""
    metadata: dict[str, Any] = {}
    if isinstance(value, Figure):
        data: dict[str, Any] = {"image/png": _png(value)}
        metadata["matplotlib"] = matplotlib.__version__
    elif hasattr(value, "_repr_html_"):
        data = {"text/html": _lines(value._repr_html_())}
    else:
        data = {"text/plain": _lines(repr(value))}
    return {"data": data, "metadata": metadata, "output_type": "display_data"}


def _png(figure: Figure) -> str:
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DOTS_AN_INCH, facecolor="white")
    # A palette is enough for charts, and a third of the bytes.
    Image.open(drawn).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs that its cells give, from top to bottom."""
    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "notebook"}
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            outputs = run_cell("".join(cell["source"]), names, where=f"cell {number}")
            cells.append(cell | {"outputs": outputs, "execution_count": None})
        else:
            cells.append(cell)
    return notebook | {"cells": cells}


def differences(stored: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """What the stored outputs say and the cells do not, in words; empty for a true notebook."""
    found = []
    for number, (kept, new) in enumerate(zip(stored["cells"], given["cells"], strict=True)):
        before, after = kept.get("outputs", []), new.get("outputs", [])
        if [_text(one) for one in before] != [_text(one) for one in after]:
            old, now = ([line for one in outputs for line in _text(one)] for outputs in (before, after))
            changes = difflib.unified_diff(old, now, "stored", "given", lineterm="")
            found.append("\n".join([f"cell {number}:", *changes]))
        elif not all(_looks_alike(*pair) for pair in zip(before, after, strict=True)):
            found.append(f"cell {number}: the picture is another one")
    return found


def _text(output: dict[str, Any]) -> list[str]:
    """The lines of an output; of a picture, only that it is one."""
    data = output.get("data", {"text": output.get("text", [])})
    lines = []
    for kind in sorted(data):
        lines += ["(a picture)"] if kind == "image/png" else "".join(data[kind]).splitlines()
    return lines


def _looks_alike(stored: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether two outputs have the same picture, if any. Versions of matplotlib set letters differently."""
    if "image/png" not in stored.get("data", {}) or stored["metadata"] != given["metadata"]:
        return True
    before, after = (_pixels(one["data"]["image/png"]) for one in (stored, given))
    if before.shape != after.shape:
        return False
    return float((np.abs(before - after) > _VISIBLE).any(axis=2).mean()) < MOST_PIXELS


def _pixels(png: str) -> Any:
    return matplotlib.image.imread(io.BytesIO(base64.b64decode(png)), format="png")


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(arguments: list[str]) -> int:
    """Execute, then store or compare."""
    check = "--check" in arguments
    wrong = 0
    for name in [one for one in arguments if one != "--check"] or NOTEBOOKS:
        path = HERE / name
        notebook = json.loads(path.read_text(encoding="utf-8"))
        given = executed(notebook)
        if not check:
            path.write_text(json.dumps(given, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            continue
        for difference in differences(notebook, given):
            wrong += 1
            print(f"{name}, {difference}", file=sys.stderr)
    if wrong:
        print("to store what the cells give now: python docs/run_notebooks.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
