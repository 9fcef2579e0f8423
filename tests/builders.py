"""What tests of several folders build: small populations, cohorts without a network, files, and views of a result."""

from __future__ import annotations

import ast
import csv
import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, save_npz

from fedhist import BudgetFile, Charge, Histograms, Ledger, Population, SeededSource, SparsePopulation
from tests.support.api import (
    Floats,
    Integers,
    Labels,
    PrivacyLoss,
    Request,
    Round,
    RunRecord,
    Total,
    answer,
    cli,
    entry_counts,
    entry_items,
)

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("fedhist", "protocol", "client", "server", "simulations")


@cache
def sources() -> dict[str, str]:
    """Every module of the product, by its path in the project."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


@cache
def nodes(source: str) -> list[ast.AST]:
    """The syntax tree of a module, flat. Several tests walk through all of them."""
    return list(ast.walk(ast.parse(source)))


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    """What a fresh interpreter prints."""
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


# --- Populations.


def population_of(table: npt.ArrayLike, **options: Any) -> SparsePopulation:
    """Dense rows as a population; the options are those of `SparsePopulation.from_scipy`."""
    return SparsePopulation.from_scipy(csr_array(np.asarray(table)), **options)


def table_of(population: Population) -> Floats:
    """The users of a population as dense rows."""
    table, first = np.zeros((population.users, population.domain_size)), 0
    for shard in population.shards():
        owners = np.repeat(np.arange(shard.users), np.diff(shard.offsets))
        table[first + owners, entry_items(shard)] = entry_counts(shard)
        first += shard.users
    return table


def rows_in_any_order(population: Population) -> list[list[float]]:
    """The users of a table as dense rows; they have no order of their own."""
    rows: list[list[float]] = table_of(population).tolist()
    return sorted(rows)


def parts_of_a_sum(
    sum_of: Callable[..., Integers], histograms: Histograms, *arguments: object, **settings: object
) -> Integers:
    """What each user adds to a sum, as rows: users get items of their own, and no draw depends on items."""
    users, items = histograms.users, histograms.domain_size
    owners = np.repeat(np.arange(users), np.diff(histograms.offsets))
    apart = Histograms(
        offsets=histograms.offsets - histograms.offsets[0],
        items=entry_items(histograms) + items * owners,
        counts=entry_counts(histograms),
        domain_size=users * items,
        first_user=histograms.first_user,
    )
    return sum_of(apart, *arguments, **settings).reshape(users, items)


# --- Rounds without a network.


@dataclass
class Cohort:
    """A transport over one batch of users that can lose some of them in either round."""

    histograms: Histograms
    labels: Labels | None = None
    simulated: bool = True
    lost: dict[Round, int] = field(default_factory=dict)

    def total(self, request: Request) -> Total:
        kept = self.histograms.users - self.lost.get(request.round, 0)
        sent = answer(
            request,
            self.histograms.rows(0, kept),
            source=SeededSource(77),
            labels=self.labels,
        )
        return Total(kept, sent.values, sent.keyed, self.labels)


class Refused(Exception):
    """The ledger's journal refused a charge."""


def refusing(*rounds: str) -> Ledger:
    """A ledger that refuses the charges of these rounds, or of all."""

    def refuse(charge: Charge) -> None:
        if charge.round in rounds or not rounds:
            raise Refused

    return Ledger(journal=refuse)


class Untouched:
    """A source that nobody may draw from."""

    seeded = False

    def fork(self, *purpose: object) -> Untouched:
        return self

    def words(self, *asked: object, **options: object) -> Integers:
        raise AssertionError("something was drawn")

    user_words = words


# --- The command and its files.


class Outcome(NamedTuple):
    """What a call of the command ended with."""

    code: int
    out: str
    err: str

    def document(self) -> Any:
        """The JSON that was printed."""
        assert self.code == 0, self.err
        return json.loads(self.out)


Fedhist = Callable[..., Outcome]
"""The fixture `fedhist`."""


def commands() -> dict[str, Any]:
    """Every command and group by the words that call it."""

    def below(path: str, command: click.Command | None) -> Iterator[tuple[str, click.Command | None]]:
        yield path, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from below(f"{path} {name}", command.get_command(context, name))

    return dict(below("fedhist", cli))


def parse(words: list[str]) -> None:
    """Read the words of a call as the command would, without running it: an unknown flag or choice raises."""
    command: click.Command = cli
    context = click.Context(cli, info_name="fedhist")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    if "--help" not in words:
        command.make_context(command.name, list(words), parent=context.parent)


def write_records(
    path: Path, rows: Iterable[Sequence[object]], *header: str, quoting: int = csv.QUOTE_MINIMAL
) -> Path:
    """A .csv file; its columns are user, item and count if no others are named."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=quoting).writerows([header or ("user", "item", "count"), *rows])
    return path


def write_npz(path: Path, table: npt.ArrayLike) -> Path:
    save_npz(path, csr_array(np.asarray(table)))
    return path


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a .csv file, by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def document_in(folder: Path | str) -> dict[str, Any]:
    """The result that a run wrote."""
    document: dict[str, Any] = json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))
    return document


class Drawn(NamedTuple):
    """A chart of a report as its table tells it: its title, whether it is marked, its heads and rows."""

    title: str
    marked: bool
    heads: list[str]
    rows: list[list[str]]

    def column(self, head: str) -> dict[str, str]:
        """A column of the table by the first cell of its rows."""
        place = self.heads.index(head)
        return {row[0]: row[place] for row in self.rows}


class Page(NamedTuple):
    """A report: the whole text, what stands between <main> and </main>, and its charts by name."""

    text: str
    body: str
    charts: dict[str, Drawn]

    def words(self) -> str:
        """What a reader sees: no tags, scripts or styles."""
        return _bare(re.sub(r"<(script|style)\b.*?</\1>", "", self.text, flags=re.DOTALL))

    def elements(self) -> list[tuple[str, dict[str, str | None]]]:
        """Every element's tag and attributes."""
        found: list[tuple[str, dict[str, str | None]]] = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attrs: found.append((tag, dict(attrs)))  # type: ignore[method-assign]
        parser.feed(self.text)
        return found


def page_in(folder: Path | str, name: str = "report.html") -> Page:
    """The report in a folder."""
    text = Path(folder, name).read_text(encoding="utf-8")
    figures = re.findall(r'<figure class="panel" id="chart-(.*?)">(.*?)</figure>', text, re.DOTALL)
    charts = {html.unescape(found): _drawn(figure) for found, figure in figures}
    return Page(text, text.split("<main>")[1].split("</main>")[0], charts)


def _drawn(figure: str) -> Drawn:
    title, rest = figure.split("</figcaption>")
    rows = [
        [_bare(cell) for cell in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", rest, re.DOTALL)
    ]
    return Drawn(_bare(title.split("<span")[0]), "<span" in title, rows[0], rows[1:])


def _bare(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def charge_of(epsilon: float, delta: float, loss: PrivacyLoss, **parameters: float) -> Charge:
    """An entry of a ledger of which only the cost matters."""
    return Charge("release", "test", parameters, 1.0, "l2", "zero-out", epsilon, delta, loss)


def runs_in(ledger: Path | str) -> Sequence[RunRecord]:
    """The runs that a ledger file knows of."""
    return BudgetFile.open(Path(ledger), create=False).runs()
