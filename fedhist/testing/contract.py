"""What a contract is: named checks that every subject of a kind must pass, ours and those written elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Generic, TypeVar

SubjectT = TypeVar("SubjectT")
ValueT = TypeVar("ValueT")


class Contract(Generic[SubjectT]):
    """A table of checks by name. Each is a function of the subject that raises an AssertionError.

    Args:
        of: what the subjects are, for messages.
    """

    def __init__(self, of: str) -> None:
        self.of = of
        self.checks: dict[str, Callable[[SubjectT], None]] = {}

    def check(self, function: Callable[[SubjectT], None]) -> Callable[[SubjectT], None]:
        """Enter a check, under the name of its function."""
        self.checks[function.__name__] = function
        return function

    def run(self, name: str, subject: SubjectT) -> None:
        """One check. Whatever goes wrong in it is an AssertionError that names it."""
        try:
            self.checks[name](subject)
        except Exception as problem:
            what = str(problem) if isinstance(problem, AssertionError) else repr(problem)
            raise AssertionError(f"{self.of}: {name}: {what}") from problem

    def run_all(self, subject: SubjectT, skip: Collection[str] = ()) -> None:
        """All checks but those to skip, until the first that fails."""
        unknown = sorted(set(skip) - set(self.checks))
        require(not unknown, f"there are no checks {', '.join(unknown)}; there are {', '.join(self.checks)}")
        for name in self.checks:
            if name not in skip:
                self.run(name, subject)


def require(condition: object, sentence: str) -> None:
    """Raise an AssertionError with this sentence unless the condition holds. Unlike `assert`, also under -O."""
    if not condition:
        raise AssertionError(sentence)


@contextmanager
def registered(registry: MutableMapping[str, ValueT], name: str, subject: ValueT) -> Iterator[None]:
    """The subject in its registry for a while, as it will be once it is in use."""
    missing = object()
    before = registry.get(name, missing)
    registry[name] = subject
    try:
        yield
    finally:
        if before is missing:
            del registry[name]
        else:
            registry[name] = before  # type: ignore[assignment]  # it came from there
