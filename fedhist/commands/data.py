"""`fedhist data`: populations from published files, what they look like, and synthetic ones by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from fedhist.client.files.matrix_files import MATRIX_SUFFIXES, write_matrix
from fedhist.client.files.new_files import check_new_file, new_file
from fedhist.commands.description_view import print_description
from fedhist.commands.progress import progress_on
from fedhist.commands.summary import print_notes, stdout_console
from fedhist.commands.terminal import line
from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.datasets.description import describe as describe_population
from fedhist.simulations.datasets.loading import Wanted, load
from fedhist.simulations.datasets.registry import DATASETS, PREFIX
from fedhist.simulations.figures.describe import draw_description
from fedhist.simulations.figures.painting import FORMATS as FIGURE_SUFFIXES
from fedhist.simulations.importing.reading import FORMATS, MAX_MALFORMED, Imported, import_population

if TYPE_CHECKING:
    from fedhist.simulations.importing.sentiment140 import By
    from fedhist.simulations.importing.text_lines import Encoding

ITEMS_NOTE = (
    "the items were read off the data, which is not private: give run a public --items-file or --domain open"
)
IMPORT_HELP = """Turn a published file into a population.

'fedhist run --data' reads it. Formats; text may be packed with gzip:

\b
sentiment140  CSV: polarity,id,date,query,user,text. Items are words.
snap          check-ins of Gowalla and Brightkite: user, time, latitude,
              longitude, location id, between tabs. Items are locations.
movielens     ratings.csv, ratings.dat (::) or u.data (tabs). Items are
              the movies that a user rated.
records       CSV or TSV with a header, JSON lines or Parquet, with user,
              item and maybe count.

Words of sentiment140: HTML entities are undone, upper case becomes lower case, addresses (http://, https://, www.)
and mentions (@name) are left out, and words are the longest runs of a-z, 0-9 and '. A user is the tweet's author,
or with --by addressee the first account that it mentions; tweets without one are then left out.

Malformed lines are left out, counted and named. Users' names are not kept; items' names are.
"""


@click.group()
def data() -> None:
    """Populations: import published files, look at them, list synthetic ones."""


@data.command("import", help=IMPORT_HELP, context_settings={"show_default": True})
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", required=True, help="The .npz file to write."
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["auto", *FORMATS]),
    default="auto",
    help="What the file is; auto tells it by the first lines.",
)
@click.option(
    "--by",
    type=click.Choice(["author", "addressee"]),
    default=None,
    help="Whose words a tweet of Sentiment140 is. [default: author]",
)
@click.option(
    "--encoding",
    type=click.Choice(["utf-8", "latin-1"]),
    default=None,
    help="How the text is encoded. [default: latin-1 for sentiment140, utf-8 for the others]",
)
@click.option(
    "--max-malformed",
    type=float,
    default=MAX_MALFORMED,
    metavar="SHARE",
    help="Above this share of malformed lines nothing is imported; 0.001 is 0.1 percent.",
)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def import_(
    *,
    source: Path,
    out: Path,
    format_name: str,
    by: By | None,
    encoding: Encoding | None,
    max_malformed: float,
    force: bool,
    as_json: bool,
) -> None:
    """Read, write, and tell what was read."""
    check_new_file(out, suffixes=MATRIX_SUFFIXES, force=force)
    start = perf_counter()
    with progress_on(sys.stderr) as progress:
        progress.phase("population")
        imported = import_population(
            source, format_name=format_name, by=by, encoding=encoding, max_malformed=max_malformed
        )
        progress.phase("write")
        write_matrix(imported.population, out, force=force)
    document = _import_document(imported, source, out, seconds=perf_counter() - start)
    if as_json:
        click.echo(json.dumps(document, allow_nan=False))
        return
    console = stdout_console()
    for name in ("source", "population", "written"):
        console.print(line(f"{name:<16}{_import_row(name, document)}"), markup=False, soft_wrap=True)
    notes = [ITEMS_NOTE]
    if imported.tally.malformed:
        notes.insert(0, f"{imported.tally.in_words()} and left out")
    print_notes(console, notes)


def _import_document(imported: Imported, source: Path, out: Path, *, seconds: float) -> dict[str, Any]:
    population, tally = imported.population, imported.tally
    return {
        "source": str(source),
        "format": imported.format.name,
        "lines": tally.lines,
        "malformed": tally.malformed,
        "malformed_lines": tally.named,
        "users": population.users,
        "items": population.domain_size,
        "total": int(population.totals().sum()),
        "nonzeros": population.nonzeros,
        "written": str(out),
        "seconds": seconds,
        "notes": [ITEMS_NOTE],
    }


def _import_row(name: str, found: dict[str, Any]) -> str:
    match name:
        case "source":
            return f"{found['source']}: {found['format']}, {found['lines']:,} lines, {found['malformed']:,} malformed"
        case "population":
            return f"{found['users']:,} users x {found['items']:,} items, {found['total']:,} counts"
        case _:
            return f"{found['written']} in {found['seconds']:.2f} s"


@data.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--head", type=int, default=10, show_default=True, metavar="N", help="How many frequent items to name."
)
@click.option("--seed", type=int, default=0, metavar="S", help="What a synthetic population is drawn from.")
@click.option("--figure", type=click.Path(path_type=Path), metavar="FILE", help="Draw it, as .svg or .png.")
@click.option("--force", is_flag=True, help="Replace a figure that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def describe(*, file: Path, head: int, seed: int, figure: Path | None, force: bool, as_json: bool) -> None:
    """Tell what a population looks like.

    These are exact figures, which are not private. FILE is anything that 'fedhist run --data' reads, or
    synthetic:NAME?key=value of 'fedhist data list'.
    """
    if head < 0:
        raise InvalidInput(f"--head is {head}", allowed="a whole number from 0")
    if figure is not None:
        check_new_file(figure, suffixes=FIGURE_SUFFIXES, force=force)
    with progress_on(sys.stderr) as progress:
        progress.phase("population")
        loaded = load(Wanted(data=file), seed)
        found = describe_population(progress.watch(loaded.population), name=loaded.name, head=head)
        if figure is not None:
            progress.phase("write")
            with new_file(figure, suffixes=FIGURE_SUFFIXES, force=force) as target:
                draw_description(found, target, kind=figure.suffix.lower().removeprefix("."))
    if as_json:
        click.echo(json.dumps(found.to_json(), allow_nan=False))
        return
    console = stdout_console()
    print_description(console, found)
    if figure is not None:
        console.print(line(f"written: {figure}"), markup=False, soft_wrap=True)


@data.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """List the synthetic populations and their parameters."""
    if as_json:
        document = {
            name: {"line": one.line, "parameters": dict(one.defaults)} for name, one in DATASETS.items()
        }
        click.echo(json.dumps(document, allow_nan=False))
        return
    for name, one in DATASETS.items():
        query = "&".join(f"{key}={value}" for key, value in one.defaults.items())
        click.echo(f"{PREFIX}{name}?{query}\n    {one.line}")
