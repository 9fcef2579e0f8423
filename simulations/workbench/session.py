"""`fedhist.Session`: several questions about the same people under one budget."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from fedhist.display.tables import BarLength, data_frame, html_table
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.privacy.ledger import Cost, Limit
from fedhist.server.ledger.file import BudgetFile
from fedhist.simulations.workbench.arguments import Question, as_method
from fedhist.simulations.workbench.histogram import histogram

if TYPE_CHECKING:
    from fedhist.simulations.simulation import Result


class Session:
    """Questions about the same people, each charged before it runs, up to a limit.

    The limit lives in a ledger file (`BudgetFile`), and other sessions and commands that use the file count too. What a
    question may cost is reserved in the file before its data is touched; a question that does not fit raises
    `BudgetExceeded`, and nothing of it runs. The limit is about all questions together, also those that you choose in
    view of earlier answers, and they cost less than their sum. Whether two tables are about the same people only you
    know: use one ledger for each group of people.

    Args:
        ledger: the file, made if missing. None is a file that is gone with the session: its limit holds here only.
        epsilon: what all questions together may spend. Needed for a ledger without a limit; an existing limit can be
            repeated, and is never changed here.
        delta: the same of delta.
    """

    def __init__(
        self, ledger: str | Path | None = None, *, epsilon: float | None = None, delta: float | None = None
    ) -> None:
        if not isinstance(ledger, str | Path | None):
            raise InvalidInput(
                f"a session with a ledger of type {type(ledger).__name__}",
                allowed="the path of a file, or None",
                advice="data is given to Session.histogram",
                code="bad-ledger",
            )
        if (epsilon is None) != (delta is None):
            raise InvalidInput(
                "a session with one of epsilon and delta",
                allowed="both, or neither for a ledger that has a limit",
                advice="delta is 0 for questions that spend none, for example with delta=0 over a closed domain",
            )
        if ledger is None and epsilon is None:
            raise InvalidInput(
                "a session without a ledger and without a limit",
                allowed="a ledger that has a limit, or epsilon and delta",
                code="no-limit",
            )
        limit = None if epsilon is None or delta is None else Limit(epsilon, delta)
        self._kind: str | None = None
        self._temporary = ledger is None
        if ledger is None:
            folder = tempfile.mkdtemp(prefix="fedhist-session-")
            self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            ledger = Path(folder) / "session.ledger"
        self.ledger = _opened(Path(ledger), limit)

    def histogram(self, data: object, **question: Unpack[Question]) -> Result:
        """`fedhist.histogram` with the same arguments, charged to this session.

        Not of people's data with `evaluate` or `seed`: such a run protects nobody, so nothing can be charged for it.
        """
        # A ledger that has gone must not come back empty and without a limit.
        _ = self.limit
        result = histogram(data, ledger=self.ledger.path, **question)
        self._kind = self._kind or result.release.frame_kind
        return result

    def _check_open(self) -> None:
        if self._temporary and not self._remove.alive:
            raise InvalidInput(
                "the session is closed", allowed="questions before its end", code="session-closed"
            )
        BudgetFile.open(self.ledger.path, create=False)

    @property
    def limit(self) -> Limit:
        """What all questions together may spend."""
        self._check_open()
        limit = self.ledger.limit
        if limit is None:
            raise InvalidInput(
                f"the ledger {self.ledger.path} has lost its limit", allowed="a ledger with a limit"
            )
        return limit

    @property
    def spent(self) -> Cost:
        """What the questions so far have cost at the limit's delta, with what those that run, or broke off, hold."""
        self._check_open()
        return self.ledger.claimed() or Cost(0.0, 0.0)

    @property
    def left(self) -> Cost:
        """The limit's epsilon that is not spent, at its delta. A question adds less to `spent` than its own epsilon."""
        self._check_open()
        return self.ledger.left() or Cost(0.0, 0.0)

    @property
    def history(self) -> Any:
        """One row a question, as a data frame of the kind that came in; polars where none did."""
        self._check_open()
        runs = self.ledger.runs()
        columns: dict[str, list[Any]] = {
            "question": [run.id for run in runs],
            "time": [run.time.isoformat(timespec="seconds") for run in runs],
            "data": [run.label for run in runs],
            "status": [run.status for run in runs],
            "domain": [run.plan.get("domain") for run in runs],
            "epsilon": [run.counted.epsilon for run in runs],
            "delta": [run.counted.delta for run in runs],
        }
        return data_frame(columns, self._kind, texts=("time", "data", "status", "domain"))

    def close(self) -> None:
        """End the session; a ledger without a file of its own is gone. A file stays as it is."""
        if self._temporary:
            self._remove()

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """What is spent of what."""
        if self._temporary and not self._remove.alive:
            return "Session(closed)"
        try:
            spent, limit = self.spent, self.limit
        except InvalidInput:
            return f"Session({self._name!r}, which can't be read)"
        return (
            f"Session({self._name!r}, spent: epsilon {spent.epsilon:.4g} of {limit.epsilon:.4g} at delta "
            f"{limit.delta:.3g})"
        )

    def _repr_html_(self) -> str:
        """How a notebook shows it: what is spent and left, then the questions."""
        spent, limit, left = self.spent, self.limit, self.left
        share = spent.epsilon / limit.epsilon if limit.epsilon else 0.0
        rows = [
            ("epsilon", f"{spent.epsilon:.4g}", f"{left.epsilon:.4g}", BarLength(min(share, 1.0), whole=True))
        ]
        title = f"Session, {self._name}: epsilon {limit.epsilon:g} at delta {limit.delta:g} in all"
        return html_table(title, rows, headings=("", "spent", "left", "")) + self.ledger._repr_html_()

    @property
    def _name(self) -> str:
        return "a ledger that ends with it" if self._temporary else self.ledger.path.name


def _opened(path: Path, limit: Limit | None) -> BudgetFile:
    """The ledger with this limit, or with the limit that it has."""
    ledger = BudgetFile.open(path, create=limit is not None)
    earlier = ledger.limit
    if limit is None and earlier is None:
        raise InvalidInput(
            f"the ledger {path} has no limit", allowed="a session with epsilon and delta", code="no-limit"
        )
    if limit is not None and earlier not in (None, limit):
        raise InvalidInput(
            f"the limit of {path} is {_text(earlier)}, and {_text(limit)} was asked for",
            allowed="the limit that the ledger has, or neither epsilon nor delta",
            advice="'fedhist ledger limit --replace' changes it, and with it what its people were promised",
            code="other-limit",
        )
    if limit is not None:
        ledger.set_limit(limit)
    return ledger


def _text(cost: Limit | None) -> str:
    return "none" if cost is None else f"epsilon {cost.epsilon:g} and delta {cost.delta:g}"


Session.histogram.__signature__ = as_method(histogram, without="ledger")  # type: ignore[attr-defined]
