"""Which method is the best for some data: `fedhist.compare`, and what `fedhist compare` is thin over."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fedhist.display.tables import data_frame
from fedhist.protocol.errors import InvalidInput, NotWritten
from fedhist.protocol.plan.fields import FIELDS
from fedhist.server.advice import warnings_of_all
from fedhist.server.disk import why_refused
from fedhist.simulations.engines.contract import check_workers
from fedhist.simulations.experiments.choices import NONE, OPTIONAL, RANKINGS, SEVERAL, SINGLE, Counting
from fedhist.simulations.experiments.comparison import (
    Grid,
    LoadedSets,
    Sources,
    combinations,
    load_sets,
    names_of,
    rows_of,
)
from fedhist.simulations.experiments.running import (
    Experiment,
    Group,
    run_experiment,
)
from fedhist.simulations.experiments.tables import Row, write_csv, write_parquet
from fedhist.simulations.report.comparison import Answer, answers_of
from fedhist.simulations.workbench.checks import check_count, check_trials, shaped_file
from fedhist.simulations.workbench.reading import reading_of
from fedhist.simulations.workbench.spelling import in_python, python_words

if TYPE_CHECKING:
    from fedhist.simulations.experiments.trials import Cell


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: a row for each combination.

    `cells` are what the rows are of, in their order; `loaded` has the users.
    """

    rows: list[Row]
    cells: tuple[Cell, ...]
    loaded: LoadedSets

    @property
    def answers(self) -> list[Answer]:
        """The best method for each set of users and each budget."""
        return answers_of(self.rows)

    def cell_of(self, row: Mapping[str, Any]) -> Cell:
        """The combination that a row is of."""
        return next(cell for cell, one in zip(self.cells, self.rows, strict=True) if one is row)


def compare(
    data: Any = None,
    *,
    user: str | int = "user",
    item: str | int = "item",
    count: str | int | None = None,
    separator: str | None = None,
    strict: bool = False,
    bins: Collection[float] | None = None,
    items: Any = None,
    users: int | None = None,
    top_items: int | Sequence[int] | None = None,
    normalise: str | None = None,
    memory: str | int | None = None,
    selectors: str | Sequence[str] | None = None,
    mechanism: str | Sequence[str] | None = None,
    release: str | Sequence[str] | None = None,
    debias: str | Sequence[str | None] | None = None,
    masking: str | Sequence[str] = NONE,
    noise_from: str | Sequence[str] = "server",
    epsilon: float | Sequence[float] | None = None,
    delta: float | str | Sequence[float | str] | None = None,
    total_epsilon: float | Sequence[float] | None = None,
    total_delta: float | str | Sequence[float | str] | None = None,
    best_by: str = "loss",
    trials: int = 20,
    seed: int = 0,
    workers: int | None = None,
    nodes: int | None = None,
    out: str | PathLike[str] | None = None,
    **settings: Any,
) -> Any:
    """Every combination of methods, budgets and data sets, measured against the truth: NOT private.

    Methods and budgets take one value or several. A combination that can't run is left out, with a warning that says
    why. `fedhist.figure` draws what this returns.

    Args:
        data: a data frame, a scipy matrix, a path, `synthetic:NAME?...` or a population; several as a list, or as a
            dict with their names. None for synthetic users, drawn anew for each trial.
        user: the column of users.
        item: the column of items.
        count: the column of counts, if there is one.
        separator: between the fields of a text file.
        strict: stop at the first row without a user, an item or a count, instead of leaving such rows out.
        bins: rising edges, to make items of numbers.
        items: the public list of items; without data the number of items of synthetic users, or several.
        users: the number of synthetic users.
        top_items: keep this number of the most frequent items, or several numbers.
        normalise: nfc or casefold, to unify the spelling of names.
        memory: how much reading a table may use, such as "1GB"; half of what is available without it.
        selectors: names of selectors; None for all that fit, without fixed.
        mechanism: gaussian, laplace or auto.
        release: release rules.
        debias: poisson; "none" in a list is the method without.
        masking: none, secagg or secagg-signed. Sums are those of masked rounds without drop-outs.
        noise_from: server, or devices, which needs masking.
        epsilon: the budget of the histogram.
        delta: of the histogram; "1/2n" is one over twice the users.
        total_epsilon: the budget of all rounds together, instead of epsilon.
        total_delta: of all rounds together.
        best_by: loss, of the released values, or estimate-loss, of the estimates.
        trials: of each combination.
        seed: all trials follow from it.
        workers: processes; None for one for each core.
        nodes: the participants of masked rounds. None for 100, or all users if they are fewer.
        out: a folder for the trials, table.csv, table.parquet and the figure. The same call with the same folder goes
            on where it was stopped.
        settings: other fields of a plan; epsilon_select, delta_select, max_threshold and threshold take several
            values, too.

    Returns:
        A data frame of the kind that came in, else of polars, with a row for each combination: the mean of the loss
        and its 95 % interval (`loss_mean`, `loss_low`, `loss_high`), the same for `estimate_loss`, `threshold`,
        `released` and `significant` (the number of items significantly above 0), the cost, and `result`: best, not
        different or worse among the private methods with the same users and budget. `gap_mean` is how far a method is
        behind the best, trial by trial.
    """
    with python_words():
        named = _named(data)
        # Without data, numbers are sizes.
        sizes = _listed(items) if items is not None and (not named or isinstance(items, int)) else None
        sources = Sources(
            data=named,
            kinds=() if named else ("heavy-tailed",),
            users=users,
            items=sizes,
            top_items=None if top_items is None else _listed(top_items),
            reading=reading_of(
                user=user,
                item=item,
                count=count,
                separator=separator,
                strict=strict,
                bins=bins,
                items=None if sizes else items,
                normalise=normalise,
                memory=memory,
                domain=settings.get("domain"),
            ),
        )
        named_settings = {
            "mechanism": mechanism, "release": release, "debias": debias, "masking": masking,
            "noise_from": noise_from, "epsilon": epsilon, "delta": delta, "total_epsilon": total_epsilon,
            "total_delta": total_delta,
        }  # fmt: skip
        told: list[str] = []
        found = run_comparison(
            sources,
            grid_of(selectors=selectors, participants=nodes, settings=settings | named_settings),
            tell=told.append,
            trials=trials,
            seed=seed,
            workers=workers,
            out=None if out is None else Path(out),
            best_by=best_by,
        )
    for note in told:
        if note not in found.loaded.notes:
            warnings.warn(in_python(note), stacklevel=2)
    columns = {name: [row[name] for row in found.rows] for name in found.rows[0]}
    return data_frame(columns, found.loaded.frame_kind)


def grid_of(
    *, selectors: str | Sequence[str] | None, settings: Mapping[str, Any], participants: int | None = None
) -> Grid:
    """The grid of these settings, each with one value or several."""
    varied: dict[str, tuple[Any, ...]] = {}
    fixed: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in (*SEVERAL, *SINGLE):
            raise InvalidInput(
                f"there is no setting {name!r} to compare",
                allowed=", ".join((*SEVERAL, *SINGLE)),
                advice="check its spelling",
                code="unknown-setting",
            )
        if value is None:
            continue
        if not _listed(value):
            raise InvalidInput(f"{name} is an empty list", allowed="one value or several", code="empty-list")
        values = tuple(dict.fromkeys(_meant(name, one) for one in _listed(value)))
        if name in SEVERAL:
            varied[name] = values
        elif len(values) == 1:
            (fixed[name],) = values
        else:
            raise InvalidInput(
                f"{name} has {len(values)} values",
                allowed=f"one; several of {', '.join(SEVERAL)}",
                code="several-values",
            )
    if (
        "mechanism" not in varied
        and fixed.get("domain", "closed") == "closed"
        and varied.get("delta") == (0.0,)
    ):
        # The one that needs no delta, as in a run.
        fixed["mechanism"] = "laplace"
    names = None if selectors is None else tuple(dict.fromkeys(_listed(selectors)))
    if names is not None and not (names and all(isinstance(name, str) for name in names)):
        raise InvalidInput(
            "the selectors are no names", allowed="a name or a list of names", code="bad-selectors"
        )
    return Grid(
        selectors=names,
        varied=varied,
        fixed=fixed,
        participants=participants,
    )


def run_comparison(
    sources: Sources,
    grid: Grid,
    *,
    trials: int,
    seed: int,
    workers: int | None,
    out: Path | None,
    best_by: str = "loss",
    counting: Counting | None = None,
    tell: Callable[[str], None],
    running: AbstractContextManager[None] | None = None,
) -> Comparison:
    """Check every plan, run all trials that the folder does not have yet, and write its table and figure.

    `tell` is called with what the user has to know: of the data, of what is left out and of plans that can't give a
    useful answer before anything runs. `running` is entered when everything is read and checked.
    """
    processes = check_workers(workers)
    for flag, count in (("--trials", trials), ("--seed", seed)):
        if not isinstance(count, int):
            raise InvalidInput(f"{flag} is {count!r}", allowed="a whole number", code="bad-value")
    check_trials(trials)
    _check_sizes(sources, grid)
    if best_by not in RANKINGS:
        raise InvalidInput(f"best by {best_by!r}", allowed=", ".join(RANKINGS), code="bad-value")
    loaded = load_sets(sources, seed)
    found = combinations(grid, loaded.sets, loaded.sizes)
    noted = [found.note] if found.note else []
    for note in (*loaded.notes, *noted, *warnings_of_all(found.plans.values())):
        tell(note)
    experiment = Experiment(seed=seed, groups=(Group(found.cells, trials),))
    with _working_folder(out) as folder, running or nullcontext():
        results = run_experiment(
            experiment,
            folder,
            loaded.populations,
            workers=processes,
            counting=counting or Counting(),
        )
        rows = rows_of(found.cells, found.plans, results, loaded.sizes, ranking=best_by)
        if out is not None:
            from fedhist.simulations.report.plot import comparison_figure, write_both

            write_csv(folder / "table.csv", rows)
            write_parquet(folder / "table.parquet", rows)
            write_both(comparison_figure(rows), folder / "figure")
    for note in _failures(rows):
        tell(note)
    return Comparison(rows, found.cells, loaded)


@contextmanager
def _working_folder(out: Path | None) -> Iterator[Path]:
    """The folder to work in: the user's, or a temporary one.

    A failure to write to the temporary folder is NotWritten and names the folder, because the user did not choose it.
    """
    if out is not None:
        yield out
        return
    place = "a temporary folder"
    try:
        with TemporaryDirectory(prefix="fedhist-") as folder:
            place = f"the temporary folder {folder}"
            yield Path(folder)
    except OSError as error:
        raise NotWritten(
            f"{place} can't be written ({why_refused(error)}): make room, or name a folder on another disk with --out "
            "or the environment variable TMPDIR"
        ) from None


def _check_sizes(sources: Sources, grid: Grid) -> None:
    """Refuse sizes that are no numbers of things, and those of synthetic users where there are none."""
    drawn = sources.kinds or any(sources.wanted(name).synthetic for name in sources.data)
    if (sources.users is not None or sources.items is not None) and not drawn:
        raise shaped_file()
    for flag, values in (
        ("--users", (sources.users,)),
        ("--items", sources.items),
        ("--top-items", sources.top_items),
        ("--nodes", (grid.participants,)),
    ):
        for value in values or ():
            if value is not None and not isinstance(value, int):
                raise InvalidInput(
                    f"{flag} is {value!r}", allowed="a whole number of at least 1", code="bad-value"
                )
            check_count(flag, value)


def _failures(rows: Sequence[Row]) -> list[str]:
    notes = []
    failed = sum(row["failed"] for row in rows)
    if failed:
        notes.append(
            f"in {failed:,} trials a round failed and nothing was released, which is a loss of 1: over an open domain "
            "with masking, raise --max-items"
        )
    unknown = sum(row["loss_mean"] is None for row in rows)
    if unknown:
        notes.append(
            f"{unknown:,} combinations have no loss, because a trial released values that are no numbers"
        )
    return notes


def _named(data: Any) -> dict[str, Any]:
    """The sources by name: a dict's own names, the shortest names of paths, else numbered."""
    if data is None:
        return {}
    if isinstance(data, Mapping | list | tuple) and not data:
        raise InvalidInput(
            "the list of data is empty", allowed="one source of users or several", code="empty-list"
        )
    if isinstance(data, Mapping):
        return {str(name): source for name, source in data.items()}
    listed = list(data) if isinstance(data, list | tuple) else [data]
    paths = {number: Path(one) for number, one in enumerate(listed) if isinstance(one, str | PathLike)}
    in_memory = [f"data {number + 1}" if len(listed) > 1 else "data" for number in range(len(listed))]
    short = names_of(list(dict.fromkeys(paths.values())), taken=in_memory)
    return {
        short[paths[number]] if number in paths else in_memory[number]: str(one) if number in paths else one
        for number, one in enumerate(listed)
    }


def _listed(value: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple; arrays and numbers of numpy as Python's own."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _meant(name: str, value: Any) -> Any:
    """A value of a list; NONE stands for the absence of an optional setting."""
    if name in OPTIONAL and value in (None, NONE):
        return None
    if name in FIELDS and FIELDS[name].choices and value not in FIELDS[name].choices:
        raise InvalidInput(
            f"{name.replace('_', ' ')} is {value!r}",
            allowed=", ".join((*FIELDS[name].choices, *([NONE] if name in OPTIONAL else []))),
            code="bad-value",
        )
    return value
