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

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plugins.identity import Kind
from fedhist.protocol.plugins.loading import load_file
from fedhist.protocol.plugins.registry import enter, kind_of, registry_of

__all__ = ["load_plugin", "register"]

T = TypeVar("T")

_HOMES = {
    Kind.SELECTOR: "fedhist.server.selection",
    Kind.MEASUREMENT: "fedhist.protocol.measurements",
    Kind.RELEASE: "fedhist.server.releases",
}
"""The module that makes the registry of each kind."""


def register(thing: T) -> T:
    """Make something of your own available by its name, wherever a built-in one is. Also a decorator.

    What was registered before under the same name and from the same source is replaced.

    Args:
        thing: a selector or a release rule (the class or an instance), or the class of a measurement.
    """
    for kind, home in _HOMES.items():
        if registry_of(kind) is None:
            import_module(home)
    found = kind_of(thing)
    if found is None:
        raise InvalidInput(
            f"{getattr(thing, '__qualname__', type(thing).__name__)} is no selector, measurement or release rule",
            allowed="a class that derives from Selector, Measurement or ReleaseRule",
        )
    enter(found, thing, None)
    return thing


def load_plugin(path: str | PathLike[str]) -> tuple[str, ...]:
    """Run a Python file that registers methods of your own, like `--plugin`.

    Returns the identities of what it registered. A file that was loaded before is loaded again, with what it says now.
    """
    return tuple(str(plugin.identity) for plugin in load_file(fspath(path)))
