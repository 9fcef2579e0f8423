"""Prints the size of product and tests and fails where it passes .ci/size.toml: `python .ci/size.py`, from anywhere.

A statement is a node of Python's syntax tree, docstrings aside, so that packing lines changes nothing. The limits in
size.toml go down with the code; they go up only in a commit that says why.
"""

import ast
import pathlib
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = {"product": ("protocol", "client", "server", "simulations", "fedhist"), "tests": ("tests",)}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def statements(text: str) -> int:
    """The statements of a module."""
    nodes = list(ast.walk(ast.parse(text)))
    described = sum(isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None for node in nodes)
    return sum(isinstance(node, ast.stmt) for node in nodes) - described


limits = tomllib.loads((HERE / "size.toml").read_text(encoding="utf-8"))
passed = False
for name, folders in FOLDERS.items():
    paths = [path for folder in folders for path in (HERE.parent / folder).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    size = {
        "statements": sum(map(statements, texts)),
        "lines": sum(text.count("\n") for text in texts),
        "files": len(texts),
    }
    print(f"{name}: " + ", ".join(f"{size[unit]:,} of {limits[name][unit]:,} {unit}" for unit in size))
    passed = passed or any(size[unit] > limits[name][unit] for unit in size)
if passed:
    sys.exit("the code is larger than .ci/size.toml allows: make it smaller, or raise the limit and say why")
