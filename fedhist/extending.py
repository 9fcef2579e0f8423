"""Your own selectors, measurements and release rules, beside the built-in ones.

    @fedhist.register
    class Mine(Selector):
        name = "mine"
        ...

`docs/extending.md` leads from an empty file to a figure.
"""

from __future__ import annotations

from importlib import import_module
from os import PathLike, fspath
from typing import TypeVar

from fedhist.protocol.plugins import enter, load_file

__all__ = ["load_plugin", "register"]

T = TypeVar("T")

_REGISTRIES = ("fedhist.server.selection", "fedhist.protocol.measurements", "fedhist.server.releases")
"""The modules that make the registries."""


def register(thing: T) -> T:
    """Make something of your own available by its name, wherever a built-in one is. Also a decorator.

    What was registered before under the same name and from the same source is replaced.

    Args:
        thing: a selector or a release rule (the class or an instance), or the class of a measurement.
    """
    for module in _REGISTRIES:
        import_module(module)
    enter(thing)
    return thing


def load_plugin(path: str | PathLike[str]) -> tuple[str, ...]:
    """Run a Python file that registers methods of your own, like `--plugin`.

    Returns what it registered, by kind, name and version. A file that was loaded before is loaded
    again, with what it says now.
    """
    return tuple(str(plugin) for plugin in load_file(fspath(path)))
