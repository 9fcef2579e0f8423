"""Methods from outside of the project: their names and versions, who holds them, and where they come from.

A registry is made where its kind is defined, and says what it accepts. Others are entered by `fedhist.register`, by a
file (`--plugin FILE`), or by an installed package with an entry point. A plan names those that it uses, and every side
answers with its own copy: what is compared is the name and the version.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from fedhist.protocol.errors import FedhistError, InvalidFile, InvalidInput, InvalidPlan, OtherPlugin
from fedhist.protocol.plan.fields import RELEASE_NAMES, SELECTOR_NAMES

T = TypeVar("T")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,63}")
_NAMED = re.compile(rf"(selector|measurement|release) {_NAME.pattern}(@{_VERSION.pattern})?")


class Kind(StrEnum):
    """What can be written outside of the project."""

    SELECTOR = "selector"
    MEASUREMENT = "measurement"
    RELEASE = "release"

    @property
    def group(self) -> str:
        """The group of entry points of installed packages."""
        return f"fedhist.{self.value}s"

    @property
    def words(self) -> str:
        """For sentences."""
        return "release rule" if self is Kind.RELEASE else self.value


@dataclass(frozen=True)
class Source:
    """Where a plugin comes from: a file, an installed package or, with neither, a notebook or script.

    Args:
        file: its path as it was given.
        whole: its whole path, by which it is known.
        package: the distribution's name.
        version: the distribution's.
    """

    file: str = field(default="", compare=False)
    whole: str = ""
    package: str = ""
    version: str = ""

    @property
    def words(self) -> str:
        """For sentences."""
        return self.file or (f"the package {self.package}" if self.package else "this session")


@dataclass(frozen=True, eq=False)
class Plugin:
    """Something that was registered.

    Args:
        kind: what it is.
        name: as plans and options name it.
        version: as its author calls it; may be empty.
        thing: what its registry keeps.
        given: what was registered.
        source: where it comes from.
    """

    kind: Kind
    name: str
    version: str
    thing: Any = field(repr=False)
    given: Any = field(repr=False)
    source: Source

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidInput(
                f"the name of a {self.kind.words} is {self.name!r}",
                allowed="up to 64 lower-case letters, digits, dots and dashes",
                advice="set name on the class",
                code="bad-name",
            )
        if not isinstance(self.version, str) or (self.version and not _VERSION.fullmatch(self.version)):
            raise InvalidInput(
                f"the version of the {self.kind.words} {self.name} is {self.version!r}",
                allowed="a short text such as 1.0",
            )

    def __str__(self) -> str:
        """As plans name it."""
        return f"{self.kind.value} {self.name}" + (f"@{self.version}" if self.version else "")


_PLUGINS: dict[tuple[Kind, str], Plugin] = {}
_REGISTRIES: dict[Kind, Registry[Any]] = {}
_BROKEN: set[EntryPoint] = set()
"""What can't be loaded, and was reported."""
_SESSION = Source()
_source: ContextVar[Source] = ContextVar("fedhist_plugin_source", default=_SESSION)
"""The file or package whose code runs just now."""


class Registry(dict[str, T], Generic[T]):
    """The things of a kind by name.

    Args:
        kind: of all of them.
        built_in: the project's own.
        base: what others derive from.
        instances: whether instances are kept, not classes.
        check: raises InvalidInput for something from outside that can't be used.
        also: other names of the project's own that a plugin can't have.
    """

    def __init__(
        self,
        kind: Kind,
        built_in: Mapping[str, T],
        *,
        base: type,
        instances: bool,
        check: Callable[[T], None],
        also: Iterable[str] = (),
    ) -> None:
        super().__init__(built_in)
        self.kind, self.base, self.instances, self.check = kind, base, instances, check
        self.built_in = tuple(built_in)
        self.reserved = frozenset(built_in).union(also)
        _REGISTRIES[kind] = self

    def find(self, name: str) -> T | None:
        """The thing of this name; installed packages are looked at for one that is not known. None for none."""
        if name not in self:
            look_for(self.kind, name)
        return self.get(name)

    def with_installed(self) -> dict[str, T]:
        """All there are, with those of installed packages: the project's own, then the others by name."""
        look_for(self.kind)
        others = sorted(set(self) - set(self.built_in))
        return {name: self[name] for name in (*self.built_in, *others)}

    def taken(self, thing: Any) -> T:
        """What is kept of this class or instance."""
        if self.instances and isinstance(thing, type):
            try:
                thing = thing()
            except Exception as error:
                raise InvalidInput(
                    f"no instance of {thing.__qualname__} can be made without arguments ({type(error).__name__})",
                    allowed="a class that needs no arguments, or an instance",
                    advice="register an instance: fedhist.register(MyClass(...))",
                    code="needs-arguments",
                ) from error
        self.check(thing)
        return cast(T, thing)


def enter(thing: Any) -> Plugin:
    """Add a class or an instance from outside to the registry of its kind.

    A name that was registered from the same source is replaced: a notebook's cell may run twice. So is the very same
    thing: a class that its package's module registers itself, and that is an entry point too.
    """
    made = thing if isinstance(thing, type) else type(thing)
    registry = next((one for one in _REGISTRIES.values() if issubclass(made, one.base)), None)
    if registry is None:
        raise InvalidInput(
            f"{made.__qualname__} is no selector, measurement or release rule",
            allowed="a class that derives from Selector, Measurement or ReleaseRule",
            code="not-a-plugin",
        )
    if missing := sorted(getattr(made, "__abstractmethods__", ())):
        raise InvalidInput(
            f"the {registry.kind.words} {made.__qualname__} has no {', '.join(missing)}",
            allowed=f"a {registry.kind.words} with all methods of its base class",
            advice=f"define {missing[0]}",
            code="unfinished-plugin",
        )
    kept, source = registry.taken(thing), _source.get()
    plugin = Plugin(
        registry.kind, kept.name, getattr(kept, "version", "") or source.version, kept, thing, source
    )
    name = plugin.name
    if name in registry.reserved:
        raise InvalidInput(
            f"the name {name} is that of a built-in {plugin.kind.words}",
            allowed=f"a {plugin.kind.words} with a name of its own",
            advice="choose another name",
            code="built-in-name",
        )
    before = plugin_named(plugin.kind, name)
    if before is not None and before.given is not thing and before.source != source:
        raise InvalidInput(
            f"a {plugin.kind.words} {name} is registered already, from {before.source.words}",
            allowed="one of each name",
            advice="choose another name",
            code="registered-already",
        )
    _PLUGINS[plugin.kind, name] = plugin
    registry[name] = kept
    return plugin


def registered() -> tuple[Plugin, ...]:
    """All of them, in the order in which they came."""
    return tuple(_PLUGINS.values())


def plugin_named(kind: Kind, name: str | None) -> Plugin | None:
    """The plugin of this name; None for a built-in thing and for an unknown one."""
    return None if name is None else _PLUGINS.get((kind, name))


def restore(plugins: Iterable[Plugin]) -> None:
    """Exactly these, and no others."""
    plugins = tuple(plugins)
    for kind, name in list(_PLUGINS):
        del _PLUGINS[kind, name]
        _REGISTRIES[kind].pop(name, None)
    for plugin in plugins:
        _PLUGINS[plugin.kind, plugin.name] = plugin
        _REGISTRIES[plugin.kind][plugin.name] = plugin.thing


@contextmanager
def _loading(source: Source) -> Iterator[None]:
    """What is registered inside comes from here; after an error all is as before."""
    before = registered()
    token = _source.set(source)
    try:
        yield
    except BaseException:
        restore(before)
        raise
    finally:
        _source.reset(token)


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


def load_file(path: str) -> tuple[Plugin, ...]:
    """Run a file that registers plugins, and return what it registered. What it registered before goes.

    InvalidFile says in a sentence what is wrong, with the line and the kind of the error.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - protocol/ has no pathlib
            code = file.read()
    except OSError as error:
        raise InvalidFile(
            f"the plugin {path} can't be read ({error.strerror or type(error).__name__})",
            allowed="a Python file",
            advice="check the path",
            code="not-readable",
        ) from None
    source = Source(path, os.path.realpath(path))
    # Dataclasses look their module up while they are made.
    module = sys.modules[f"plugin {source.whole}"] = ModuleType(f"plugin {source.whole}")
    module.__file__ = path
    with _loading(source):
        restore(plugin for plugin in registered() if plugin.source != source)
        try:
            exec(compile(code, path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - what a plugin is for
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _not_run(path, error) from error
        found = tuple(plugin for plugin in registered() if plugin.source == source)
        if not found:
            raise InvalidFile(
                f"the plugin {path} registers nothing",
                allowed="a file that calls fedhist.register",
                code="registers-nothing",
            )
    return found


def load_files_once(paths: Iterable[str]) -> None:
    """The same for files that were not loaded yet: for nodes and workers, which are asked many times."""
    for path in paths:
        if not any(plugin.source.whole == os.path.realpath(path) for plugin in registered()):
            load_file(path)


def _not_run(path: str, error: BaseException) -> InvalidFile:
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    number = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
    where = f"the plugin {path}" + (f", line {number}" if number else "")
    if isinstance(error, InvalidInput):
        return InvalidFile(
            f"{where}: {error.problem}", allowed=error.allowed, advice=error.advice, code=error.code
        )
    kind = f"{type(error).__name__}: {error}" if isinstance(error, ImportError) else type(error).__name__
    return InvalidFile(
        f"{where} can't be run ({kind})",
        allowed="a Python file that runs without an error",
        code="plugin-failed",
    )


@cache
def _points(group: str) -> EntryPoints:
    return entry_points(group=group)


def look_for(kind: Kind, name: str | None = None) -> None:
    """Load the installed plugins of this kind, or the one of this name. One that is broken is a warning.

    A method may read a measurement of its package, so all of those are loaded with it.
    """
    for point in _points(kind.group):
        before = plugin_named(kind, point.name)
        # A package that was imported may have registered its own, as if it were a session's.
        known = point.name in _REGISTRIES.get(kind, ()) and (before is None or before.source != _SESSION)
        if name in (None, point.name) and not known and point not in _BROKEN:
            if kind is not Kind.MEASUREMENT:
                look_for(Kind.MEASUREMENT)
            _load_installed(kind, point)


def _load_installed(kind: Kind, point: EntryPoint) -> None:
    """Load one. Its module loads the part of fedhist that has the registry, where that is not there yet."""
    package, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
    try:
        with _loading(Source(package=package, version=version)):
            # A module may also register what it defines.
            plugin = enter(point.load())
            if (plugin.kind, plugin.name) != (kind, point.name):
                raise InvalidInput(
                    f"it is the {plugin.kind.words} {plugin.name}",
                    allowed=f"what its entry point says, the {kind.words} {point.name}",
                )
    except (Exception, SystemExit) as error:
        _BROKEN.add(point)
        said = str(error) if isinstance(error, FedhistError) else type(error).__name__
        warnings.warn(
            f"the {kind.words} {point.name} of the package {package} can't be used and is left out: {said}",
            RuntimeWarning,
            stacklevel=2,
        )


def found(kind: Kind, name: str | None) -> Plugin | None:
    """The plugin of this name, which is looked for in installed packages if it is not known; None for our own."""
    if name is not None and name not in (SELECTOR_NAMES if kind is Kind.SELECTOR else RELEASE_NAMES):
        look_for(kind, name)
    return plugin_named(kind, name)


def used_by(selector: str | None, release: str | None) -> tuple[Plugin, ...]:
    """The plugins of a plan with this selector and this release: they, and the measurements that they read."""
    used = []
    for plugin in (found(Kind.SELECTOR, selector), found(Kind.RELEASE, release)):
        if plugin is not None:
            used += [plugin, *_measurements_of(plugin.thing)]
    return tuple(dict.fromkeys(used))


def _measurements_of(thing: Any) -> Iterator[Plugin]:
    """The measurements from outside that a selector reads, or a rule releases."""
    wanted = {name for name, *_ in getattr(thing, "reads", ())}
    measured = getattr(thing, "measures", None)
    for (kind, name), plugin in _PLUGINS.items():
        if kind is Kind.MEASUREMENT and (name == measured or wanted & plugin.thing.offers):
            yield plugin


def named_by(selector: str | None, release: str | None) -> tuple[str, ...]:
    """The same as a plan names them."""
    return tuple(map(str, used_by(selector, release)))


def measured_by(release: str | None) -> str | None:
    """What a release rule from outside measures; None for the project's own."""
    plugin = plugin_named(Kind.RELEASE, release)
    return None if plugin is None else plugin.thing.measures


def read_names(value: object) -> tuple[str, ...] | None:
    """The plugins in a plan's JSON; None where it names none."""
    if value is None:
        return None
    if not (isinstance(value, list) and all(isinstance(one, str) and _NAMED.fullmatch(one) for one in value)):
        raise InvalidPlan(
            "the plan's plugins are not a list of names",
            allowed="what to_json wrote",
            code="not-a-list-of-plugins",
        )
    return tuple(value)


def check_same(named: tuple[str, ...] | None, here: tuple[str, ...]) -> None:
    """Refuse a plan whose methods are missing here or of another version. One that names none takes what there is."""
    if named is not None and named != here:
        raise OtherPlugin(
            f"this plan uses the {', the '.join(named) or 'built-in methods'}; "
            f"here there is {'the ' if here else ''}{', the '.join(here) or 'none of that name'}",
            allowed="the same methods, in the same versions, on every side",
            advice="load them with --plugin FILE or fedhist.load_plugin, or install their package",
        )


def check_described(named: tuple[str, ...] | None) -> None:
    """Refuse to read about a run whose release rule or measurement is not here: they describe what it released."""
    here = {f"{plugin.kind.value} {plugin.name}" for plugin in registered()}
    for text in named or ():
        if not text.startswith(Kind.SELECTOR) and text.partition("@")[0] not in here:
            raise OtherPlugin(
                f"this run used the {text}, which is missing here",
                allowed="runs whose release rules and measurements are loaded",
                advice="add --plugin FILE",
            )


def files_for(named: Iterable[str], where: str) -> tuple[str, ...]:
    """The files that other processes load for such a plan; one that is made of a session's methods is refused.

    Installed packages are found by whoever meets a name of theirs.

    Args:
        named: the plugins, as plans name them.
        where: the other processes, for the sentence.
    """
    used = [plugin for plugin in registered() if str(plugin) in named]
    for plugin in used:
        if plugin.source == _SESSION:
            raise InvalidPlan(
                f"the {plugin.kind.words} {plugin.name} was made in this session, and {where} can't have it",
                allowed="methods from a file or an installed package",
                advice="put it into a file, and load that with --plugin FILE or fedhist.load_plugin",
            )
    return files_of(used)


def files_of(plugins: Iterable[Plugin]) -> tuple[str, ...]:
    """The files that they come from."""
    return tuple(dict.fromkeys(plugin.source.whole for plugin in plugins if plugin.source.whole))


def blamed(error: BaseException) -> str:
    """The last line of a plugin's own code that an error passed through, for a sentence; empty if there is none.

    The error's text is left out: it may hold data.
    """
    plugins = registered()
    files = {plugin.source.file for plugin in plugins} - {""}
    modules = (getattr(plugin.given, "__module__", None) or "__main__" for plugin in plugins)
    packages = {module.partition(".")[0] for module in modules} - {"fedhist"}
    lines = [
        (frame.f_code.co_filename, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename in files
        or str(frame.f_globals.get("__name__")).partition(".")[0] in packages
    ]
    if not lines:
        return ""
    file, number = lines[-1]
    return f"the plugin {file} failed in line {number} ({type(error).__name__})"
