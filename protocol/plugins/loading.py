"""Where plugins come from: a single file, an installed package, or the session that started a worker process."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from importlib.metadata import Distribution, EntryPoint, entry_points
from types import ModuleType

from fedhist.protocol.errors import FedhistError, InvalidFile, InvalidInput, OtherPlugin
from fedhist.protocol.plugins.digests import module_files, package_digest, text_digest
from fedhist.protocol.plugins.identity import Identity, Kind, Origin, Plugin
from fedhist.protocol.plugins.registry import (
    enter,
    forget,
    loading_from,
    module_of,
    plugin_named,
    registered,
    registering_from,
)

MAX_FILE_BYTES = 1 << 24
_loaded_kinds: set[Kind] = set()
"""Kinds of which all installed plugins were loaded."""
_loaded_points: set[EntryPoint] = set()
"""Entry points that were loaded, or that failed and were reported."""


def load_file(path: str) -> tuple[Plugin, ...]:
    """Run a file that registers plugins, and return what it registered.

    InvalidFile says in a sentence what is wrong, with the line and the kind of the error.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - protocol/ has no pathlib
            code = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidFile(
            f"the plugin {path} can't be read ({error.strerror or type(error).__name__})",
            allowed="a Python file",
            advice="check the path",
        ) from None
    if len(code) > MAX_FILE_BYTES:
        raise InvalidFile(f"the plugin {path} is too large", allowed="a Python file of up to 16 MiB")
    known = set(sys.modules)
    found = _run_file(path, _whole(path), code)
    _warn_of_neighbours(path, set(sys.modules) - known)
    return found


def _warn_of_neighbours(path: str, imported: Collection[str]) -> None:
    """Warn of a file beside the plugin that it imports: what changes there is not in its digest."""
    folder = os.path.dirname(_whole(path))  # noqa: PTH120 - protocol/ has no pathlib
    for name in sorted(imported):
        place = getattr(sys.modules[name], "__file__", None) or ""
        if place in (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py") and name != "fedhist":
            warnings.warn(
                f"the plugin {path} imports {name} from beside it, and its digest does not notice changes there: "
                "results of other code may be taken for its own. Put all of it into one file, or into an installed "
                "package",
                RuntimeWarning,
                stacklevel=3,
            )


def load_file_once(path: str) -> None:
    """The same unless it was loaded already: for a node, which is asked many times."""
    if not any(plugin.origin.whole == _whole(path) for plugin in registered()):
        load_file(path)


def _whole(path: str) -> str:
    return os.path.realpath(path)


def _run_file(path: str, whole: str, code: bytes) -> tuple[Plugin, ...]:
    """Run these very bytes, so that the digest is that of the code that runs."""
    origin = Origin("file", path, text_digest(code), whole=whole, code=code)
    module = ModuleType(f"fedhist_plugin_{text_digest(os.fsencode(whole))[:12]}")
    module.__file__ = path
    before = sys.modules.get(module.__name__)
    with loading_from(origin):
        # Dataclasses look their module up while they are made.
        sys.modules[module.__name__] = module
        try:
            exec(compile(code, path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - what a plugin is for
            found = tuple(plugin for plugin in registered() if plugin.origin == origin)
            if not found:
                raise InvalidFile(
                    f"the plugin {path} registers nothing", allowed="a file that calls fedhist.register"
                )
        except BaseException as error:
            sys.modules.pop(module.__name__, None)
            if before is not None:
                sys.modules[module.__name__] = before
            if isinstance(error, KeyboardInterrupt | InvalidFile):
                raise
            raise _not_run(path, error) from error
    return found


def _not_run(path: str, error: BaseException) -> InvalidFile:
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    number = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
    where = f"the plugin {path}" + (f", line {number}" if number else "")
    if isinstance(error, InvalidInput):
        return InvalidFile(f"{where}: {error.problem}", allowed=error.allowed, advice=error.advice)
    kind = f"{type(error).__name__}: {error}" if isinstance(error, ImportError) else type(error).__name__
    return InvalidFile(f"{where} can't be run ({kind})", allowed="a Python file that runs without an error")


def look_for(kind: Kind, name: str | None = None) -> None:
    """Load the installed plugins of this kind, or the one of this name. One that is broken is a warning.

    A method may read a measurement of its package, so all of those are loaded with it.
    """
    if name is None:
        if kind in _loaded_kinds:
            return
        _loaded_kinds.add(kind)
    for point in entry_points(group=kind.group):
        if name in (None, point.name):
            if kind in (Kind.SELECTOR, Kind.RELEASE):
                look_for(Kind.MEASUREMENT)
            _load_installed(kind, point)


def _load_installed(kind: Kind, point: EntryPoint) -> None:
    """Load one, once. Its module loads the part of fedhist that has the registry, where that is not there yet."""
    if point in _loaded_points:
        return
    _loaded_points.add(point)
    distribution = point.dist
    before = {plugin.identity for plugin in registered()}
    try:
        with registering_from(_installed(distribution, point.module)):
            # A module may also register what it defines.
            plugin = enter(kind, point.load(), point.name)
        if plugin.identity.name != point.name:
            if plugin.identity not in before:
                forget(kind, plugin.identity.name)
            raise InvalidInput(
                f"it is called {plugin.identity.name}", allowed=f"the name of its entry point, {point.name}"
            )
    except (Exception, SystemExit) as error:
        said = str(error) if isinstance(error, FedhistError) else type(error).__name__
        package = "an installed package" if distribution is None else f"the package {distribution.name}"
        warnings.warn(
            f"the {kind.words} {point.name} of {package} can't be used and is left out: {said}",
            RuntimeWarning,
            stacklevel=2,
        )


def _installed(distribution: Distribution | None, module: str) -> Origin:
    """The distribution's version, and the digest of its Python files."""
    if distribution is None:
        raise InvalidInput("its entry point belongs to no package", allowed="an installed distribution")
    listed = [file for file in distribution.files or () if file.suffix == ".py"]
    files = [(str(file), str(distribution.locate_file(file))) for file in listed]
    if not files:
        # Installed in place: its own list has no code, so the module stands for the package.
        files = module_files(module.partition(".")[0])
    digest = package_digest(distribution.name, distribution.version, files)
    return Origin("installed", distribution.name, digest, version=distribution.version)


@dataclass(frozen=True)
class Parcel:
    """A plugin on its way to a worker process.

    Args:
        identity: what it must be there.
        origin: where it comes from.
        pickled: the thing itself, where it was made in a session.
    """

    identity: Identity
    origin: Origin
    code: bytes = field(repr=False)
    pickled: bytes = field(default=b"", repr=False)


def parcels(plugins: Iterable[Plugin]) -> tuple[Parcel, ...]:
    """What a worker process needs to have the same plugins."""
    return tuple(
        Parcel(
            one.identity, one.origin, one.origin.code, _pickled(one) if one.origin.how == "session" else b""
        )
        for one in plugins
    )


def receive(sent: Collection[Parcel]) -> None:
    """Register the plugins of the process that sent them; OtherPlugin if they are not the same here."""
    for parcel in sent:
        identity, origin = parcel.identity, parcel.origin
        known = plugin_named(identity.kind, identity.name)
        if known is not None and known.identity == identity:
            continue
        if origin.how == "file":
            _run_file(origin.place, origin.whole, parcel.code)
        elif origin.how == "installed":
            look_for(identity.kind, identity.name)
        else:
            import cloudpickle

            enter(
                identity.kind,
                cloudpickle.loads(parcel.pickled),
                identity.name,
                origin=origin,
                identity=identity,
            )
        known = plugin_named(identity.kind, identity.name)
        if known is None or known.identity != identity:
            raise OtherPlugin(
                f"a worker process was sent the {identity} and has another one or none",
                allowed="the same code in all processes",
                advice="install the same version for all of them, or pass it as a file",
            )


def _pickled(plugin: Plugin) -> bytes:
    import cloudpickle

    module = sys.modules.get(plugin.origin.place)
    # By value: a worker can't import a notebook, and must not import another version of a module.
    by_value = module is not None and not module.__name__.startswith(("fedhist.", "__main__"))
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        return bytes(cloudpickle.dumps(plugin.given))
    except Exception as error:
        raise InvalidInput(
            f"the {plugin.identity.kind.words} {plugin.identity.name} can't be sent to a worker process "
            f"({type(error).__name__})",
            allowed="classes and functions without open files or connections",
            advice="put it in a file and load that with --plugin or fedhist.load_plugin",
        ) from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)


def blamed(error: BaseException) -> str:
    """The last line of a plugin's own code that an error passed through, for a sentence; empty if there is none.

    The error's text is left out: it may hold data.
    """
    plugins = registered()
    files = {plugin.origin.place for plugin in plugins if plugin.origin.how == "file"}
    packages = {module_of(plugin.given).partition(".")[0] for plugin in plugins} - {"fedhist"}
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
