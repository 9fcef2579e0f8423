"""A node's users, from whatever holds them, so that no row of one user decides about another.

One user's odd row must not decide whether the node's other users are in a sum. So rows without a user, an item or a
whole count are left out, and so are those of a user whose counts add up to too much. A user whose rows are all left out
stays, as an empty one: how many users there are must not tell what one of them has. A table without rows is a node
without users.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.files.data_kinds import is_matrix, is_path, is_population
from fedhist.client.files.database import Database
from fedhist.client.files.item_choice import ItemChoice
from fedhist.client.files.memory import memory_limit
from fedhist.client.files.records import (
    NOBODY,
    check_bins,
    check_not_text,
    over_items,
    populated,
    population_in,
    read_rows,
    read_tables,
    tabulated,
)
from fedhist.client.files.tabulation import Tabulation
from fedhist.client.populations import Label, SparsePopulation
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.histograms import MAX_USER_TOTAL, Population, labels_of
from fedhist.protocol.labels.item_origin import origin_of
from fedhist.protocol.privacy.randomness import SystemSource

log = logging.getLogger("fedhist")


def read_node_data(
    data: Any,
    *,
    columns: Columns = USUAL_COLUMNS,
    items: Sequence[Label] | None = None,
    rename: Callable[[str], str] | None = None,
    memory: str | int | None = None,
) -> tuple[Population, int]:
    """A node's users, and how many rows were left out.

    Args:
        data: a path as `read_population` takes it, a `Database`, a data frame or anything with an Arrow stream, a scipy
            matrix or a population.
        columns: the columns of a table, and the bins for its values. A population has none, and may come from elsewhere
            on some nodes.
        items: the public list of a closed domain; for a matrix, what its columns are called.
        rename: writes the names of items alike.
        memory: what reading may use, as of `read_population`.
    """
    choice = ItemChoice(listed=items, rename=rename)
    if is_population(data):
        return _of_items(data, choice), 0
    check_bins(columns, choice)
    if is_matrix(data):
        _check_no_columns(columns)
        return SparsePopulation.from_scipy(data, labels=items), 0
    limit, rng = memory_limit(memory), SystemSource()
    if isinstance(data, Database):
        check_not_text(columns, "a database")
        tabulation: Tabulation | None = tabulated(
            lambda: data.batches(columns), columns, limit, rng=rng, lenient=True
        )
    elif is_path(data):
        tabulation = read_tables(Path(data), columns, limit, rng=rng, lenient=True)
    else:
        tabulation = read_rows(data, columns, limit, rng=rng, lenient=True)
    if tabulation is None:
        whole = population_in(Path(data), choice, columns=columns, memory=memory, follow=NOBODY, rng=rng)
        return whole, 0
    population = populated(tabulation, columns, choice)
    return population, tabulation.left_out


def node_users(data: Any, **how: Any) -> Population:
    """The same, with a line in the node's log when rows were left out.

    Args:
        data: see `read_node_data`.
        how: its other arguments.
    """
    population, left_out = read_node_data(data, **how)
    if left_out:
        log.warning(
            "%d rows of %s were left out: a row needs a user, an item (with bins, a finite number), in the column "
            "of counts a whole number and, for a window, a time, and a user's counts may add up to at most %d.",
            left_out,
            data if is_path(data) else "the node's data",
            MAX_USER_TOTAL,
        )
    return population


def _of_items(population: Population, choice: ItemChoice) -> Population:
    """A population over a public list, if there is one and it is not of that list already.

    A population with a public list of its own, from `items-path` or bins, is not counted over another: what stands in
    one list alone would be left out without a word.
    """
    labels = labels_of(population)
    if choice.listed is None or (labels is not None and list(labels) == list(choice.listed)):
        return population
    is_public = labels is not None and not origin_of(population).tells("closed")
    if is_public or not isinstance(population, SparsePopulation):
        raise InvalidInput(
            "the node's users come with a list of items, and the app has another or another order",
            allowed="one list, the same in both",
            advice="leave items-path or bins out of the node's configuration, or items= out of mount",
        )
    return over_items(population, choice)


def _check_no_columns(columns: Columns) -> None:
    if columns.given:
        raise InvalidInput(
            f"{columns.in_words()} for a matrix, whose columns are the items",
            allowed="names of columns, a separator and bins for tables",
            advice="leave them out",
        )
