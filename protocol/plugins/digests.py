"""Digests of code: of a file, an installed package, something made in a session, and fedhist itself."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import CodeType, FunctionType, ModuleType
from typing import Any

_TAG = b"fedhist/1/plugin/"
_CODE_OF_RESULTS = ("protocol", "client", "server", "simulations")
"""The packages that a measured number depends on."""
_NOT_OF_RESULTS = ("__pycache__", "report", "figures", "deployment", "audit", "importing")
"""Folders of them that show results, or have no part in them."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_DATA = (*_PLAIN, tuple, list, set, frozenset, dict)
_MADE_BY_PYTHON = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__", "_abc_impl", "__parameters__",
    "__firstlineno__", "__static_attributes__", "__qualname__", "__annotations__", "__dataclass_fields__",
    "__dataclass_params__", "__match_args__", "__orig_bases__", "__hash__",
}  # fmt: skip


def text_digest(content: bytes) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def package_digest(name: str, version: str, files: Iterable[tuple[str, str]]) -> str:
    """Of an installed distribution: its name and version, and its .py files, as names inside of it and paths."""
    return _hashed(f"{name} {version}", sorted(files))


def module_files(name: str) -> list[tuple[str, str]]:
    """The .py files of a module or package that can be imported, as names inside of it and paths."""
    spec = find_spec(name)
    if spec is None:
        return []
    places = list(spec.submodule_search_locations or ())
    if not places:
        return [(name, spec.origin)] if spec.origin else []
    return [(file, f"{place}/{file}") for place in places for file in sources_in(place)]


@cache
def own_digest() -> str:
    """Of fedhist's own sources, as far as measured numbers depend on them. Empty where they can't be read."""
    files: list[tuple[str, str]] = []
    for package in _CODE_OF_RESULTS:
        try:
            (place, *_) = import_module(f"fedhist.{package}").__path__
        except ModuleNotFoundError:
            continue
        files += [
            (f"{package}/{name}", f"{place}/{name}") for name in sources_in(place, skip=_NOT_OF_RESULTS)
        ]
    return _hashed("fedhist", sorted(files)) if files else ""


def sources_in(place: str, within: str = "", *, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """The Python files of a folder and the folders in it, named from there; not of folders of these names."""
    for entry in os.scandir(f"{place}/{within}"):
        name = f"{within}{entry.name}"
        if entry.name.endswith(".py"):
            yield name
        elif entry.is_dir() and entry.name not in skip:
            yield from sources_in(place, f"{name}/", skip=skip)


def session_digest(thing: object) -> str:
    """Of something that was made in a notebook or script, and of what its code names in the same module.

    From compiled code, so that a cell which is run again unchanged has the same digest, and helpers are part of it.
    """
    digest = hashlib.sha256(_TAG + b"session\x00")
    made = thing if isinstance(thing, type | FunctionType) else type(thing)
    for part in _parts(thing, made.__module__, {}):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _hashed(about: str, files: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256(_TAG + about.encode() + b"\x00")
    for name, path in files:
        with open(path, "rb") as file:  # noqa: PTH123 - protocol/ has no pathlib
            content = file.read()
        digest.update(f"{name}\x00{len(content)}\x00".encode() + content)
    return digest.hexdigest()


def _parts(value: Any, module: str, seen: dict[int, object]) -> Iterator[bytes]:
    """The value in bytes that do not depend on where it stands or when it was made."""
    if isinstance(value, _PLAIN):
        yield repr(value).encode()
    elif isinstance(value, CodeType):
        yield from _of_code(value, module, seen)
    elif id(value) in seen:
        yield b"again"
    else:
        # Kept, so that no other object gets its place in memory.
        seen[id(value)] = value
        yield from _of_object(value, module, seen)


def _of_object(value: Any, module: str, seen: dict[int, object]) -> Iterator[bytes]:
    if isinstance(value, staticmethod | classmethod | property):
        for name in ("__func__", "fget", "fset"):
            yield from _parts(getattr(value, name, None), module, seen)
    elif isinstance(value, set | frozenset):
        yield from sorted(b"".join(_parts(one, module, seen)) for one in value)
    elif isinstance(value, tuple | list | dict):
        for one in value.items() if isinstance(value, dict) else value:
            yield from _parts(one, module, seen)
    elif isinstance(value, FunctionType):
        yield from _of_function(value, module, seen)
    elif isinstance(value, type):
        yield from _of_class(value, module, seen)
    elif hasattr(value, "tobytes"):
        yield value.tobytes()
    else:
        yield from _parts(type(value), module, seen)
        function = getattr(value, "func", None) or getattr(value, "__wrapped__", None)
        for inner in (function, getattr(value, "__dict__", None)):
            yield from _parts(inner, module, seen)


def _of_class(value: type, module: str, seen: dict[int, object]) -> Iterator[bytes]:
    yield f"{value.__module__}.{value.__qualname__}".encode()
    if value.__module__ != module:
        yield _module_digest(value.__module__)
        return
    for base in value.__bases__:
        yield from _parts(base, module, seen)
    for name, member in sorted(vars(value).items()):
        if name not in _MADE_BY_PYTHON:
            yield name.encode()
            yield from _parts(member, module, seen)


def _of_function(value: FunctionType, module: str, seen: dict[int, object]) -> Iterator[bytes]:
    if value.__module__ != module:
        yield f"{value.__module__}.{value.__qualname__}".encode()
        yield _module_digest(value.__module__)
        return
    yield from _of_code(value.__code__, module, seen)
    for more in (value.__defaults__, value.__kwdefaults__):
        yield from _parts(more, module, seen)
    for cell in value.__closure__ or ():
        with suppress(ValueError):
            # Empty for a function that names itself, while it is decorated.
            yield from _parts(cell.cell_contents, module, seen)
    for name in sorted(_names_in(value.__code__)):
        named = value.__globals__.get(name)
        made = named.__module__ if isinstance(named, FunctionType | type) else None
        if made == module or (isinstance(named, _DATA) and name in value.__globals__):
            yield name.encode()
            yield from _parts(named, module, seen)
        elif source := _module_digest(named.__name__ if isinstance(named, ModuleType) else made):
            yield name.encode()
            yield source


def _of_code(code: CodeType, module: str, seen: dict[int, object]) -> Iterator[bytes]:
    yield code.co_code
    yield " ".join((*code.co_names, *code.co_varnames)).encode()
    for constant in code.co_consts:
        yield from _parts(constant, module, seen)


def _names_in(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _module_digest(name: str | None) -> bytes:
    """Of the source of a module that a session imports from; empty where it has none, or is installed or Python's."""
    if name is None:
        return b""
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    known = name.partition(".")[0] in {"fedhist", *sys.stdlib_module_names}
    if known or not path.endswith(".py") or "site-packages" in path:
        return b""
    with open(path, "rb") as file:  # noqa: PTH123 - protocol/ has no pathlib
        return hashlib.sha256(file.read()).digest()
