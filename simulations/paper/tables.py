"""The paper's tables: its printed numbers beside ours, over unbounded domains and of single words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.experiments.running import Group, Results
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import FILE, Cell, UserSet
from fedhist.simulations.paper.drawings import draw_numbers
from fedhist.simulations.paper.figures import debias_cells
from fedhist.simulations.paper.setup import (
    NO_DATA,
    NUMBER_COLUMNS,
    OPEN,
    OTHER_DATA,
    READINGS,
    WHERE_TO_GET,
    DataFile,
    Report,
    Setup,
    Verdict,
    number_row,
)

WORDS_KEPT = (100, 1000)
"""The numbers of most frequent words of Sentiment140."""
COLUMNS = ("best C", "private C", "median", "90 % quantile")
GUESSED = "private C, t/2 and epsilon' = 1"
"""What fits the printed private losses, though the text does not say so: half the penalty, ten times the epsilon'."""
PRINTED = {
    ("i.i.d.", 50): ("0.001", "0.0015", "0.0397", "0.0049"),
    ("i.i.d.", 100): ("0.0026", "0.0026", "0.0394", "0.0053"),
    ("i.i.d.", 200): ("0.0048", "0.0048", "0.0397", "0.0068"),
    ("non-i.i.d.", 50): ("0.0094", "0.0124", "0.6957", "0.1645"),
    ("non-i.i.d.", 100): ("0.0175", "0.0224", "0.6957", "0.1685"),
    ("non-i.i.d.", 200): ("0.0461", "0.0462", "0.7016", "0.1713"),
    ("Sent. 140", 100): ("0.0076", "0.0285", "0.6027", "0.2742"),
    ("Sent. 140", 1000): ("0.1250", "0.1483", "0.5912", "0.2699"),
}


def open_cells(users: UserSet) -> dict[str, Cell]:
    """The four columns. Candidates 10, 20, ..., 1500; the exponential mechanism with sensitivity 5 C_m/2."""
    on_grid = OPEN | {"min_threshold": 10.0}
    return {
        "best C": Cell(users=users, settings=on_grid | {"selector": "oracle"}, paper_grid=True),
        "private C": Cell(
            users=users, settings=on_grid | {"selector": "exponential-v-paper"}, paper_grid=True
        ),
        "median": Cell(users=users, settings=OPEN, exact="median"),
        "90 % quantile": Cell(users=users, settings=OPEN, exact="p90"),
    }


def guessed_cell(users: UserSet) -> Cell:
    """The private column that fits the printed numbers."""
    private = open_cells(users)["private C"]
    return replace(private, settings={**private.settings, "epsilon_select": 1.0}, half_penalty=True)


def table_open(setup: Setup) -> Report:
    """Table of unbounded domains: best, private, median and 90 % thresholds.

    The full version took six minutes on two cores.
    """
    sets = {reading: _synthetic(reading) for reading in READINGS}
    if setup.quick:
        sets["text"] = {place: users for place, users in sets["text"].items() if place[1] == 50}
    files = setup.needed_tops(WORDS_KEPT)
    groups = [
        Group(_all_cells(sets["numbers"].values()), setup.pick(8, 100)),
        Group(tuple(map(guessed_cell, sets["numbers"].values())), setup.pick(8, 100)),
        Group(_all_cells(sets["text"].values()), setup.pick(3, 20)),
    ]
    if files:
        groups.append(Group(_all_cells(files), setup.pick(5, 20)))
    results = setup.run(groups, files)
    rows: list[Row] = []
    for reading, of_reading in sets.items():
        for (kind, items), users in of_reading.items():
            where, printed = {"data": kind, "d": items, "reading": reading}, PRINTED[kind, items]
            rows += _open_rows(results, users, where, printed)
            if reading == "numbers":
                guessed = results.summary(guessed_cell(users))
                rows.append(number_row(where | {"column": GUESSED}, printed[1], guessed))
    known = {file.digest: file.is_sentiment140 for file in setup.data}
    for users in files:
        size = users.top_items or 0
        why = "" if known[users.content] else OTHER_DATA
        where = {"data": users.name, "d": size, "reading": "numbers"}
        rows += _open_rows(results, users, where, PRINTED["Sent. 140", size], why)
    notes = [
        "reading 'numbers': 50,000 users, Gamma(1/2) rates, which the median and 90 % columns need; "
        "reading 'text': 500,000 users, Gamma(2) rates, as printed",
        "'away' is the distance of the printed number from our mean in standard deviations of one run",
        *(_tally(rows, reading) for reading in READINGS),
    ]
    if setup.quick:
        notes.append("the reading 'text' is run with d = 50 only; few trials make wide intervals")
    notes += setup.left_out(WORDS_KEPT)
    reproduced = {users.top_items for users in files if known[users.content]}
    if missing := [size for size in WORDS_KEPT if size not in reproduced]:
        for size in missing:
            for column, text in zip(COLUMNS, PRINTED["Sent. 140", size], strict=True):
                where = {"data": "Sent. 140", "d": size, "reading": "numbers", "column": column}
                rows.append(number_row(where, text, None, why=NO_DATA))
        notes.append(WHERE_TO_GET)
    figures = draw_numbers(rows, setup.out / "table-open")
    columns = {"data": "data", "d": "d", "reading": "reading", "column": "column"} | NUMBER_COLUMNS
    return Report("table-open", "relative loss over unbounded domains", rows, columns, [], figures, notes)


def _tally(rows: list[Row], reading: str) -> str:
    """The number of printed numbers that are inside, for both intervals."""
    judged = [
        row for row in rows if row["reading"] == reading and row["column"] in COLUMNS and row["of_mean"]
    ]
    inside, of_mean = (sum(row[name] == Verdict.INSIDE for row in judged) for name in ("verdict", "of_mean"))
    return (
        f"reading {reading!r}: of {len(judged)} printed numbers, {inside} are in the 95 % interval of three runs and "
        f"{of_mean} in the 95 % interval of our mean"
    )


def _synthetic(reading: str) -> dict[tuple[str, int], UserSet]:
    alike, different, users = READINGS[reading]
    kinds = {"i.i.d.": alike, "non-i.i.d.": different}
    return {
        (name, items): UserSet(kind=kinds[name], name=name, users=users, items=items)
        for name, items in PRINTED
        if name in kinds
    }


def _all_cells(sets: Iterable[UserSet]) -> tuple[Cell, ...]:
    return tuple(cell for users in sets for cell in open_cells(users).values())


def _open_rows(
    results: Results, users: UserSet, where: Row, printed: tuple[str, ...], why: str = ""
) -> list[Row]:
    found = open_cells(users)
    return [
        number_row(where | {"column": column}, text, results.summary(found[column]), why=why)
        for column, text in zip(COLUMNS, printed, strict=True)
    ]


WORDS = {"the": ("0.0289", "0.0257"), "today": ("0.0381", "0.0155"), "you": ("0.0745", "0.0671")}
WORD_COLUMNS = {"clipping": "loss_clipped", "debiasing": "loss"}


def table_words(setup: Setup) -> Report:
    """Table of single words of Sentiment140; needs --data.

    The full version took seconds on two cores.
    """
    found: dict[UserSet, SparsePopulation] = {}
    files: dict[UserSet, tuple[DataFile, str]] = {}
    for file in setup.data:
        for word in WORDS:
            population = _only(file, word)
            if population is not None:
                users = UserSet(kind=FILE, name=file.name, content=f"{file.digest}/{word}")
                found[users], files[users] = population, (file, word)
    cells = debias_cells(found)
    rows: list[Row] = []
    if cells:
        results = setup.run([Group(tuple(cells.values()), setup.pick(5, 20))], found)
        for (users, bound), cell in cells.items():
            file, word = files[users]
            why = "" if file.is_sentiment140 else OTHER_DATA
            for (column, name), text in zip(WORD_COLUMNS.items(), WORDS[word], strict=True):
                where = {"data": file.name, "word": word, "bound": bound, "column": column}
                rows.append(number_row(where, text, results.summary(cell, name), why=why))
    notes: list[str] = []
    if not any(file.is_sentiment140 for file, _ in files.values()):
        notes.append(WHERE_TO_GET)
        for word, printed in WORDS.items():
            for column, text in zip(WORD_COLUMNS, printed, strict=True):
                where = {"data": "Sent. 140", "word": word, "bound": "", "column": column}
                rows.append(number_row(where, text, None, why=NO_DATA))
    columns = {"data": "data", "word": "word", "bound": "C", "column": "column"} | NUMBER_COLUMNS
    return Report("table-words", "single words, clipped and debiased", rows, columns, [], [], notes)


def _only(file: DataFile, word: str) -> SparsePopulation | None:
    """The users' counts of one word; None if the file does not have the word."""
    if file.population.labels is None or word not in file.population.labels:
        return None
    number = list(file.population.labels).index(word)
    return replace(file.population.select_items([number], labels=[word]), labels=None)


def check_words(data: tuple[DataFile, ...]) -> None:
    """Refuse data if no file has any of the words, and no data at all."""
    words = ", ".join(WORDS)
    if not data:
        raise InvalidInput(
            "table-words has no data: its table is of single words of Sentiment140",
            allowed=f"--data with a table whose items are words, among them {words}",
            advice="get Sentiment140 from help.sentiment140.com/for-students, and read it with 'fedhist paper "
            "sentiment140'",
        )
    if not any(_only(file, word) is not None for file in data for word in WORDS):
        raise InvalidInput(
            f"no file of --data has the words {words}",
            allowed="csv, tsv or parquet with words as items",
            advice="for a .npz, name its columns with --vocabulary",
        )
