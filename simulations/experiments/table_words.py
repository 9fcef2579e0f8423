"""The paper's table of single words of Sentiment140, clipped and debiased; it needs the user's data."""

from __future__ import annotations

from dataclasses import replace

from fedhist.client.populations import SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.experiments.figure_debias import cells_for
from fedhist.simulations.experiments.paper_setup import (
    NO_DATA,
    NUMBER_COLUMNS,
    OTHER_DATA,
    WHERE_TO_GET,
    DataFile,
    Report,
    Setup,
)
from fedhist.simulations.experiments.running import Group
from fedhist.simulations.experiments.tables import Row
from fedhist.simulations.experiments.trials import FILE, UserSet
from fedhist.simulations.experiments.verdicts import number_row

PRINTED = {"the": ("0.0289", "0.0257"), "today": ("0.0381", "0.0155"), "you": ("0.0745", "0.0671")}
COLUMNS = {"clipping": "loss_clipped", "debiasing": "loss"}


def table_words(setup: Setup) -> Report:
    """Table of single words of Sentiment140; needs --data.

    The full version took seconds on two cores.
    """
    found: dict[UserSet, SparsePopulation] = {}
    files: dict[UserSet, tuple[DataFile, str]] = {}
    for file in setup.data:
        for word in PRINTED:
            population = _only(file, word)
            if population is not None:
                users = UserSet(kind=FILE, name=file.name, content=f"{file.digest}/{word}")
                found[users], files[users] = population, (file, word)
    cells = cells_for(found)
    rows: list[Row] = []
    if cells:
        results = setup.run("table-words", [Group(tuple(cells.values()), setup.pick(5, 20))], found)
        for (users, bound), cell in cells.items():
            file, word = files[users]
            why = "" if file.is_sentiment140 else OTHER_DATA
            for (column, name), text in zip(COLUMNS.items(), PRINTED[word], strict=True):
                where = {"data": file.name, "word": word, "bound": bound, "column": column}
                rows.append(number_row(where, text, results.summary(cell, name), why=why))
    notes: list[str] = []
    if not any(file.is_sentiment140 for file, _ in files.values()):
        notes.append(WHERE_TO_GET)
        for word, printed in PRINTED.items():
            for column, text in zip(COLUMNS, printed, strict=True):
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
    words = ", ".join(PRINTED)
    if not data:
        raise InvalidInput(
            "table-words has no data: its table is of single words of Sentiment140",
            allowed=f"--data with a table whose items are words, among them {words}",
            advice="get Sentiment140 from help.sentiment140.com/for-students, and read it with 'fedhist paper "
            "sentiment140'",
        )
    if not any(_only(file, word) is not None for file in data for word in PRINTED):
        raise InvalidInput(
            f"no file of --data has the words {words}",
            allowed="csv, tsv or parquet with words as items",
            advice="for a .npz, name its columns with --vocabulary",
        )
