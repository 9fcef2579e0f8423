"""A run as a report reads it from the result folder."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.protocol.errors import FedhistError, InvalidFile, InvalidInput, OtherPlugin
from fedhist.protocol.histograms import Floats
from fedhist.protocol.plan import Plan
from fedhist.server.trace_file import Trace, trace_in
from fedhist.server.withholding import length_tells
from fedhist.simulations.simulation import Result
from fedhist.simulations.simulation_file import SIMULATION_FILE, read_object, read_simulation

RESULT_FILE, HISTOGRAM_FILE = "result.json", "histogram.csv"
_NUMBERS = ("values", "errors", "estimates", "at_least")
_COLUMNS = ("value", "standard_error", "estimate", "at_least")


@dataclass(frozen=True, eq=False)
class RunData:
    """Everything that a report shows.

    Args:
        name: the title of the page.
        plan: the run's plan.
        document: the content of `result.json`.
        labels: names of the released items.
        values, errors: the released values and the standard errors of their noise.
        estimates, at_least: the estimates, and the lower limits of the true counts.
        simulation: the content of `simulation.json`, if there is one.
        trace: what happened, of a run with --trace.
    """

    name: str
    plan: Plan
    document: dict[str, Any] = field(repr=False)
    labels: Sequence[str] = field(repr=False)
    values: Floats = field(repr=False)
    errors: Floats = field(repr=False)
    estimates: Floats = field(repr=False)
    at_least: Floats = field(repr=False)
    simulation: dict[str, Any] | None = field(default=None, repr=False)
    trace: Trace | None = field(default=None, repr=False)

    @property
    def threshold(self) -> float:
        """The bound that was used; of several trials, the first one's."""
        trials = self.document.get("trials")
        return float(trials[0]["threshold"] if trials else self.document["threshold"])

    @property
    def way(self) -> Plan:
        """The plan of the release, with the mechanism that the run chose if it did."""
        way, chosen = self.plan.releasing, str(self.document.get("mechanism"))
        return way.ways[chosen] if way.chooses_mechanism and chosen in way.ways else way

    @property
    def trials(self) -> int:
        """How many times it was run; the histogram is that of the first."""
        return len(self.document.get("trials") or [None])

    @property
    def has_own_noise(self) -> bool:
        """Whether items have noise of different sizes."""
        return len(self.errors) > 0 and bool(self.errors.min() < self.errors.max())

    @property
    def exact(self) -> dict[str, Any]:
        """What only a simulation knows: nothing of a run that was not evaluated."""
        return self.simulation or {}

    @property
    def true(self) -> dict[int, int]:
        """The true counts of the rows with the largest values."""
        return dict(self.exact.get("true", []))

    @property
    def found_nothing(self) -> bool:
        """Whether a discovery found no item, so that there is no threshold."""
        return self.plan.discovers and self.threshold == 0

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that one user's device sent, by round, without the rounds whose size is withheld."""
        sizes: dict[str, int | None] = self.document.get("bytes_per_user", {})
        return {name: size for name, size in sizes.items() if size is not None}

    @property
    def withheld(self) -> list[str]:
        """The rounds whose size is withheld, because it depends on the data."""
        return [name for name in self.document.get("bytes_per_user", {}) if name not in self.sizes]

    @property
    def sizes_tell(self) -> bool:
        """Whether one of the sizes depends on the data."""
        return any(size and length_tells(self.plan, name) for name, size in self.sizes.items())

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase, without the phases whose time is withheld."""
        seconds: dict[str, float | None] = self.document["seconds"]
        return {name: float(spent) for name, spent in seconds.items() if spent is not None}

    @property
    def simulated(self) -> bool:
        """Whether anything was computed from the exact data."""
        return self.simulation is not None or self.document.get("relative_loss") is not None


def read_run(folder: Path) -> RunData:
    """The run in this result folder. InvalidFile, in one sentence, if there is none or it is damaged."""
    if not folder.is_dir():
        raise InvalidFile(
            f"there is no folder {folder}",
            allowed="a result folder of 'fedhist run'",
            code="no-result-folder",
        )
    if not (folder / RESULT_FILE).is_file():
        raise InvalidFile(
            f"{folder} holds no {RESULT_FILE}",
            allowed="a result folder of 'fedhist run' or of a Flower run with out",
        )
    document = read_object(folder / RESULT_FILE)
    if document is None:
        raise damaged(folder / RESULT_FILE)
    try:
        plan = Plan.recorded(document["plan"])
        seconds = document["seconds"].values()
        numbers = (document["threshold"], document["standard_error"], document["total"]["epsilon"], *seconds)
        known = all(number is None or isinstance(number, int | float) for number in numbers)
        if not known or not isinstance(document["ledger"], list):
            raise TypeError
    except OtherPlugin:
        raise
    except (InvalidInput, KeyError, TypeError, ValueError, AttributeError):
        raise damaged(folder / RESULT_FILE) from None
    labels, numbers_of = _read_histogram(folder / HISTOGRAM_FILE)
    path = folder / SIMULATION_FILE
    return RunData(
        name=folder.resolve().name,
        plan=plan,
        document=document,
        labels=labels,
        **numbers_of,
        simulation=read_simulation(path) if path.exists() else None,
        trace=trace_in(folder, plan),
    )


def run_of(result: Result, name: str) -> RunData:
    """A run of this process, as its result folder would have it."""
    columns = result.release.columns()
    rows = {
        kind: np.array(columns[column], dtype=np.float64)
        for kind, column in zip(_NUMBERS, _COLUMNS, strict=True)
    }
    return RunData(
        name=name,
        plan=result.release.plan,
        document=result.to_json(),
        labels=[str(name) for name in columns["item"]],
        simulation=None if result.story is None else result.story(),
        trace=None,
        **rows,
    )


def _read_histogram(path: Path) -> tuple[list[str], dict[str, Floats]]:
    """Names, and numbers by what `RunData` calls them."""
    labels, rows = [], []
    try:
        with path.open(newline="", encoding="utf-8", errors="surrogatepass") as file:
            for row in csv.DictReader(file):
                labels.append(row["item"])
                rows.append([float(row[column]) for column in _COLUMNS])
    except (OSError, KeyError, TypeError, ValueError, csv.Error):
        raise damaged(path) from None
    columns = np.array(rows, dtype=np.float64).reshape(len(rows), len(_NUMBERS))
    if not np.isfinite(columns).all():
        raise damaged(path)
    return labels, dict(zip(_NUMBERS, columns.T, strict=True))


@contextmanager
def drawn_from(folder: Path) -> Iterator[None]:
    """What fails in the block, which draws a page or a chart from the folder alone, is an InvalidFile.

    Each number is read where it is drawn. Files that a run wrote, and nobody changed, can always be drawn.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except FedhistError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidFile(
            f"the files in {folder} can't be shown: something in them is missing, or is not what a run writes "
            f"({type(error).__name__})",
            allowed="the files as a run wrote them",
            advice="run it again",
        ) from error


def damaged(path: Path) -> InvalidFile:
    """For a file of a result folder that can't be used."""
    return InvalidFile(
        f"{path} is missing or damaged",
        allowed="the file as a run wrote it",
        advice="run it again",
        code="damaged-result",
    )
