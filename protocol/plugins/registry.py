"""The things of each kind by name: the built-in ones, and beside them those that were registered.

A registry is made where its kind is defined, and says how it takes something from outside. Nothing here knows selectors
from engines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, cast

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.fields import RELEASE_NAMES, SELECTOR_NAMES
from fedhist.protocol.plugins.digests import session_digest
from fedhist.protocol.plugins.identity import Identity, Kind, Origin, Plugin

T = TypeVar("T")
Accept = Callable[[Any, str | None], tuple[str, Any]]
"""The name of something from outside, and what the registry keeps of it; an InvalidInput if it is not of the kind."""

_PLUGINS: dict[tuple[Kind, str], Plugin] = {}
_REGISTRIES: dict[Kind, Registry[Any]] = {}
_MOST_UNKNOWN = 1000
_unknown: set[tuple[Kind, str]] = set()
"""Kinds and names of methods that no installed package has."""
_origin: ContextVar[Origin | None] = ContextVar("fedhist_plugin_origin", default=None)
"""The file or package whose code runs just now."""


class Registry(dict[str, T], Generic[T]):
    """The things of a kind by name.

    Args:
        kind: of all of them.
        built_in: the project's own.
        accept: takes something from outside.
        base: what it derives from, or None for any function.
        also: other names of the project's own that a plugin can't have.
    """

    def __init__(
        self,
        kind: Kind,
        built_in: Mapping[str, T],
        *,
        accept: Accept,
        base: type | None = None,
        also: Iterable[str] = (),
    ) -> None:
        super().__init__(built_in)
        self.kind, self.accept, self.base = kind, accept, base
        self.built_in = tuple(built_in)
        self.reserved = frozenset(built_in).union(also)
        _REGISTRIES[kind] = self

    def find(self, name: str) -> T | None:
        """The thing of this name; installed packages are looked at for one that is not known. None for none."""
        if name not in self:
            from fedhist.protocol.plugins.loading import look_for

            look_for(self.kind, name)
        return self.get(name)

    def with_installed(self) -> Registry[T]:
        """The same, after all installed packages were looked at."""
        from fedhist.protocol.plugins.loading import look_for

        look_for(self.kind)
        return self


def registry_of(kind: Kind) -> Registry[Any] | None:
    """The registry of a kind; None as long as nothing has loaded the part of fedhist that defines it."""
    return _REGISTRIES.get(kind)


def kind_of(thing: object) -> Kind | None:
    """The kind that takes this, from its type alone."""
    made = thing if isinstance(thing, type) else type(thing)
    kinds = (kind for kind, one in _REGISTRIES.items() if one.base is not None and issubclass(made, one.base))
    return next(kinds, None)


def instance_of(kind: Kind, base: Callable[..., T], thing: Any) -> T:
    """The thing itself, or an instance of the class; an InvalidInput unless it derives from the base."""
    if isinstance(thing, base):  # type: ignore[arg-type] # mypy takes an abstract class for a function only
        made: T = thing
        return made
    if not (isinstance(thing, type) and issubclass(thing, base)):  # type: ignore[arg-type] # the same
        raise InvalidInput(
            f"{_called(thing)} is no {kind.words}",
            allowed=f"a class that derives from {base.__module__}.{base.__qualname__}, or an instance of one",
        )
    check_whole(kind, thing)
    try:
        return cast(T, thing())
    except Exception as error:
        raise InvalidInput(
            f"no instance of {thing.__qualname__} can be made without arguments ({type(error).__name__})",
            allowed="a class that needs no arguments, or an instance",
            advice="register an instance: fedhist.register(MyClass(...))",
        ) from error


def check_whole(kind: Kind, made: type) -> None:
    """Refuse a class that lacks something that its kind needs."""
    missing = sorted(getattr(made, "__abstractmethods__", ()))
    if missing:
        raise InvalidInput(
            f"the {kind.words} {made.__qualname__} has no {', '.join(missing)}",
            allowed=f"a {kind.words} with all methods of its base class",
            advice=f"define {missing[0]}",
        )


def _called(thing: Any) -> str:
    return f"{thing.__qualname__}" if hasattr(thing, "__qualname__") else f"a {type(thing).__name__}"


def enter(
    kind: Kind,
    thing: Any,
    name: str | None,
    *,
    origin: Origin | None = None,
    identity: Identity | None = None,
) -> Plugin:
    """Add something from outside to the registry of its kind.

    A name that was registered from the same source is replaced: a notebook's cell may run twice. So is the very same
    thing: a class that its package's module registers itself, and that is an entry point too.

    Args:
        kind: its kind.
        thing: what its registry takes.
        name: for things without a name of their own.
        origin: where it comes from; None for the code that runs just now.
        identity: what it must be, where it was registered in another process.
    """
    registry = _REGISTRIES[kind]
    name, kept = registry.accept(thing, name)
    origin = origin or _origin.get() or _session_of(thing)
    version = getattr(thing, "version", "") or origin.version
    made = identity or Identity(kind, name, version, origin.digest)
    if name in registry.reserved:
        raise InvalidInput(
            f"the name {name} is that of a built-in {kind.words}",
            allowed=f"a {kind.words} with a name of its own",
            advice="choose another name",
        )
    before = _PLUGINS.get((kind, name))
    if before is not None and before.given is not thing and not before.origin.is_same(origin):
        raise InvalidInput(
            f"a {kind.words} {name} is registered already, from {before.origin.words}",
            allowed="one of each name",
            advice="choose another name",
        )
    plugin = Plugin(made, kept, origin, thing)
    _PLUGINS[kind, name] = plugin
    registry[name] = kept
    return plugin


def registered() -> tuple[Plugin, ...]:
    """All of them, in the order in which they came."""
    return tuple(_PLUGINS.values())


def plugin_named(kind: Kind, name: str) -> Plugin | None:
    """The plugin of this name; None for a built-in thing and for an unknown one."""
    return _PLUGINS.get((kind, name))


def forget(kind: Kind, name: str) -> None:
    """Take a plugin out."""
    if _PLUGINS.pop((kind, name), None) is not None and kind in _REGISTRIES:
        _REGISTRIES[kind].pop(name, None)


@contextmanager
def registering_from(origin: Origin) -> Iterator[None]:
    """What is registered inside comes from here."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


@contextmanager
def loading_from(origin: Origin) -> Iterator[None]:
    """The same, and all that comes from here: things of an earlier version go; after an error they are back."""
    before = dict(_PLUGINS)
    for (kind, name), plugin in before.items():
        if plugin.origin.is_same(origin):
            forget(kind, name)
    try:
        with registering_from(origin):
            yield
    except BaseException:
        restore(before)
        raise


def restore(plugins: Mapping[tuple[Kind, str], Plugin]) -> None:
    """Exactly these, and no others."""
    for kind, name in list(_PLUGINS):
        forget(kind, name)
    for (kind, name), plugin in plugins.items():
        _PLUGINS[kind, name] = plugin
        _REGISTRIES[kind][name] = plugin.thing


@contextmanager
def as_built_in() -> Iterator[None]:
    """For the contracts: inside, plugins are treated like built-in things, and plans do not name them."""
    before = dict(_PLUGINS)
    _PLUGINS.clear()
    try:
        yield
    finally:
        _PLUGINS.clear()
        _PLUGINS.update(before)


def identities_used(selector: str, release: str | None) -> tuple[str, ...]:
    """The same as texts, for a plan; a name that is not known is looked for in installed packages."""
    for kind, name, own in (
        (Kind.SELECTOR, selector, SELECTOR_NAMES),
        (Kind.RELEASE, release, RELEASE_NAMES),
    ):
        if name is None or name in own:
            continue
        if (kind, name) not in _PLUGINS and (kind, name) not in _unknown:
            from fedhist.protocol.plugins.loading import look_for

            look_for(kind, name)
            # Not looked for again: a plan is made thousands of times.
            if len(_unknown) < _MOST_UNKNOWN:
                _unknown.add((kind, name))
    return tuple(str(plugin.identity) for plugin in used_by(selector, release))


def used_by(selector: str | None, release: str | None) -> tuple[Plugin, ...]:
    """The plugins of a plan with this selector and this release: they, and the measurements that they read."""
    found = []
    for kind, name in ((Kind.SELECTOR, selector), (Kind.RELEASE, release)):
        plugin = None if name is None else _PLUGINS.get((kind, name))
        if plugin is not None:
            found += [plugin, *_measurements_of(plugin.thing)]
    return tuple(dict.fromkeys(found))


def measured_by(release: str | None) -> str | None:
    """What a release rule from outside measures; None for the project's own."""
    plugin = None if release is None else _PLUGINS.get((Kind.RELEASE, release))
    return None if plugin is None else plugin.thing.measures


def _measurements_of(thing: Any) -> Iterator[Plugin]:
    """The measurements from outside that a selector reads, or a rule releases."""
    wanted = {name for name, *_ in getattr(thing, "reads", ())}
    for (kind, name), plugin in _PLUGINS.items():
        if kind is Kind.MEASUREMENT and (
            name == getattr(thing, "measures", None) or wanted & plugin.thing.offers
        ):
            yield plugin


def module_of(thing: Any) -> str:
    """The module in which a class or function was made, or the class of an instance."""
    made = thing if hasattr(thing, "__qualname__") else type(thing)
    return getattr(made, "__module__", None) or "__main__"


def _session_of(thing: Any) -> Origin:
    module = module_of(thing)
    return Origin("session", module if module in sys.modules else "__main__", session_digest(thing))
