"""What a contract is: named checks that every subject of a kind must pass, ours and those written elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

SubjectT = TypeVar("SubjectT")


class Contract(Generic[SubjectT]):
    """A table of checks by name. Each is a function of the subject that raises an AssertionError.

    Args:
        of: what the subjects are, for messages.
        around: what surrounds each check, such as the subject in its registry.
    """

    def __init__(
        self,
        of: str,
        around: Callable[[SubjectT], AbstractContextManager[object]] = lambda subject: nullcontext(),
    ) -> None:
        self.of, self._around = of, around
        self.checks: dict[str, Callable[[SubjectT], None]] = {}

    def check(self, function: Callable[[SubjectT], None]) -> Callable[[SubjectT], None]:
        """Enter a check, under the name of its function."""
        self.checks[function.__name__] = function
        return function

    def run(self, name: str, subject: SubjectT) -> None:
        """One check. Whatever goes wrong in it is an AssertionError that names it."""
        try:
            with self._around(subject):
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
