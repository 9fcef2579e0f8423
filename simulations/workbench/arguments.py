"""The keyword arguments of `histogram` beside its data, typed once for every function that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.fields import FIELDS, PlanSettings

_Function = TypeVar("_Function", bound=Callable[..., Any])
USUAL_EPSILON: float = float("1")
"""The default of epsilon. Known by its identity: beside total_epsilon, only a default may be left out."""

# The domain depends on the data.
_DEFAULTS = {"domain": None, "users": None, "dropout": 0.0, "trace": False, "strict": False}


class RunSettings(PlanSettings, total=False):
    """What a run may be told beside its data; None and a missing one are the default."""

    total_epsilon: float | None
    total_delta: float | None
    bins: Collection[float] | None
    separator: str | None
    strict: bool
    top_items: int | None
    normalise: str | None
    memory: str | int | None
    nodes: int | None
    users: int | None
    dropout: float
    faulty: Mapping[str, float] | None
    ray_address: str | None
    workers: int | None
    out: str | Path | None
    trace: bool


class Question(RunSettings, total=False):
    """All arguments of `histogram` but the data and the ledger."""

    user: str | int
    item: str | int
    count: str | int | None
    time: str | int | None
    items: Iterable[str | int] | None
    epsilon: float
    seed: int | None
    evaluate: bool | None
    engine: str


def spelled_out(function: _Function) -> _Function:
    """Show every setting in the function's signature, for help, notebooks and completion."""
    own = inspect.signature(function)
    named = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    settings = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_default(name), annotation=kind.__forward_arg__
        )
        for name, kind in RunSettings.__annotations__.items()
    ]
    function.__signature__ = own.replace(parameters=[*named, *settings])  # type: ignore[attr-defined]
    return function


def as_method(function: Callable[..., Any], *, without: str) -> inspect.Signature:
    """The signature of a method that passes its arguments on to a function, except for one."""
    shown = inspect.signature(function)
    passed = [one for one in shown.parameters.values() if one.name != without]
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return shown.replace(parameters=[this, *passed])


def _default(name: str) -> object:
    return FIELDS[name].default if name in FIELDS and name not in _DEFAULTS else _DEFAULTS.get(name)


def check_names(settings: Iterable[str]) -> None:
    """Refuse an argument that does not exist, as Python does, and say which may be meant."""
    for name in settings:
        if name not in RunSettings.__annotations__:
            close = get_close_matches(name, Question.__annotations__, 1)
            meant = f". Did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"histogram() got an unexpected keyword argument {name!r}{meant}")


def labels_in(items: object) -> list[str | int] | None:
    """A public list of items as labels, from a list, an array or a column of a frame; a set is put in order."""
    if items is None:
        return None
    table = hasattr(items, "columns") or getattr(items, "ndim", 1) != 1
    if isinstance(items, str | bytes) or table or not isinstance(items, Iterable):
        raise InvalidInput(
            f"items is a {type(items).__name__}",
            allowed="a sequence of the names of all items, or None",
            advice="pass one of its columns" if table else "read the names from a file first",
            code="bad-items",
        )
    listed = [_plain(item) for item in items]
    if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in listed):
        raise InvalidInput(
            "a name in items is no text and no whole number",
            allowed="texts and whole numbers",
            advice='truth values are called "true" and "false", and dates "2026-11-18"',
            code="bad-item",
        )
    return sorted(listed, key=str) if isinstance(items, set | frozenset) else listed


def _plain(item: Any) -> Any:
    """One of Python's own values, from numpy's and Arrow's."""
    for method in ("as_py", "item"):
        if hasattr(item, method):
            return getattr(item, method)()
    return item
