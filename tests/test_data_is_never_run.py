"""Nothing that came over a wire or from a file is ever run: no pickle, no eval, wherever in the product.

But for plugins: a user names a file to be run. And for what a run sends to its own workers, forked or on Ray, and they
back.
"""

from __future__ import annotations

import ast

import pytest

from tests.builders import nodes, sources

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "copyreg", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "__import__"}
PLUGINS = {"protocol/plugins.py": {"exec", "compile"}}
OWN_WORKERS = {
    "simulations/engines/forked_crew.py": {"pickle"},
    "simulations/engines/ray_engine.py": {"pickle"},
}
UNSAFE = {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}


def found(source: str) -> list[str]:
    """What in the source could run data."""
    names = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            names.append(str(node.module))
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS | UNSAFE or called.split(".")[-1] in {"read_pickle", "to_pickle"}:
                names.append(called)
            names += [
                f"{called}({keyword.arg})"
                for keyword in node.keywords
                if keyword.arg in ("allow_pickle", "shell")
                and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            ]
    return names


def test_no_module_runs_data() -> None:
    assert sources()
    assert {place: set(names) for place, source in sources().items() if (names := found(source))} == (
        PLUGINS | OWN_WORKERS
    )


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from marshal import loads",
        "import shelve as s",
        "eval(text)",
        "exec(code, {})",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "yaml.load(text)",
        "pandas.read_pickle(path)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_check_sees_it(source: str) -> None:
    assert found(source) != []


def test_the_check_lets_other_things_pass() -> None:
    assert found("np.load(path, allow_pickle=False)\njson.loads(text)\nre.compile('x')") == []
