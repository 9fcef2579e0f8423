"""Your own selectors, measurements, release rules, populations and engines, beside the built-in ones.

    @fedhist.register
    class Mine(Selector):
        name = "mine"
        ...

`docs/extending.md` leads from an empty file to a figure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from os import PathLike, fspath
from typing import Any, TypeVar, overload

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
    Kind.POPULATION: "fedhist.simulations.datasets.registry",
    Kind.ENGINE: "fedhist.simulations.engines.contract",
}
"""The module that makes the registry of each kind."""


@overload
def register(thing: T, *, name: str | None = None, kind: str | None = None) -> T: ...


@overload
def register(thing: None = None, *, name: str | None = None, kind: str | None = None) -> Callable[[T], T]: ...


def register(thing: Any = None, *, name: str | None = None, kind: str | None = None) -> Any:
    """Make something of your own available by its name, wherever a built-in one is. Also a decorator.

    What was registered before under the same name and from the same source is replaced.

    Args:
        thing: a selector or a release rule (the class or an instance), the class of a measurement, or a function that
            makes a population or opens an engine.
        name: of a population or an engine; the others have one.
        kind: "population" or "engine", which can't be told from their type.
    """
    if thing is None:
        return partial(register, name=name, kind=kind)
    chosen = _kind(thing, kind)
    try:
        import_module(_HOMES[chosen])
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("fedhist.simulations"):
            raise
        # A deployed node has no simulations, and no use for their populations and engines.
        return thing
    if chosen in (Kind.POPULATION, Kind.ENGINE) and name is None:
        raise InvalidInput(
            f"a {chosen.words} without a name",
            allowed=f'register(..., kind="{chosen.value}", name="mine")',
        )
    if name is not None and getattr(thing, "name", name) != name:
        raise InvalidInput(
            f"the name is {name!r} and that of the {chosen.words} itself is {thing.name!r}",
            allowed="one name",
            advice="leave name= out",
        )
    enter(chosen, thing, name)
    return thing


def load_plugin(path: str | PathLike[str]) -> tuple[str, ...]:
    """Run a Python file that registers methods of your own, like `--plugin`.

    Returns the identities of what it registered. A file that was loaded before is loaded again, with what it says now.
    """
    return tuple(str(plugin.identity) for plugin in load_file(fspath(path)))


def _kind(thing: Any, kind: str | None) -> Kind:
    for one in (Kind.SELECTOR, Kind.MEASUREMENT, Kind.RELEASE):
        if registry_of(one) is None:
            import_module(_HOMES[one])
    found = kind_of(thing)
    if kind is None:
        if found is None:
            raise InvalidInput(
                f"{getattr(thing, '__qualname__', type(thing).__name__)} is no selector, measurement or release rule",
                allowed="a class that derives from Selector, Measurement or ReleaseRule",
                advice='a function that makes a population or opens an engine needs kind="population" or kind="engine"',
            )
        return found
    if kind not in list(Kind) or (found is not None and found != kind):
        raise InvalidInput(
            f"the kind {kind!r}" + (f" for a {found.words}" if found else ""),
            allowed=", ".join(Kind) if found is None else f"{found.value}, or left out",
        )
    return Kind(kind)
