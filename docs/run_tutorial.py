"""Execute docs/tutorial.ipynb in this process and store its outputs: `python docs/run_tutorial.py`.

Plain `exec`, because a tutorial without plots or widgets needs no kernel: nbclient and ipykernel would bring a dozen
packages to the tests. A cell shows what it prints, and its last expression as HTML if it
has it, else as text.
"""

from __future__ import annotations

import ast
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().with_name("tutorial.ipynb")


def run_cell(source: str, names: dict[str, Any], *, where: str) -> list[dict[str, Any]]:
    """What the cell puts out, as a notebook stores it."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)  # noqa: S102 - the tutorial's own code
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        rich = hasattr(value, "_repr_html_")
        # One form is enough, and the plain one of some objects tells seconds.
        data = {"text/html": _lines(value._repr_html_())} if rich else {"text/plain": _lines(repr(value))}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return outputs


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs that its cells give, from top to bottom."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            outputs = run_cell("".join(cell["source"]), names, where=f"cell {number}")
            cells.append(cell | {"outputs": outputs, "execution_count": None})
        else:
            cells.append(cell)
    return notebook | {"cells": cells}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Execute and store."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    text = json.dumps(executed(notebook), indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
