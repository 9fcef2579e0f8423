"""`fedhist data`: imports published files, describes populations, and lists the synthetic ones."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from fedhist.client.files.new_files import check_new_file
from fedhist.commands.data_options import column_options, columns_of, memory_option
from fedhist.commands.option_groups import Group
from fedhist.commands.plan_options import PATH
from fedhist.commands.terminal import echo, line
from fedhist.protocol.errors import InvalidInput
from fedhist.simulations.importing import FORMAT_NAMES, MAX_MALFORMED

IMPORT_HELP = """Turn a published file into a population.

'fedhist run --data' reads the result. These are the formats; text files may be compressed with gzip:

\b
sentiment140  CSV: polarity,id,date,query,user,text. Items are words.
snap          check-ins of Gowalla and Brightkite: user, time, latitude,
              longitude, location id, between tabs. Items are locations.
movielens     ratings.csv, ratings.dat (::) or u.data (tabs). Items are
              the movies that a user rated.
records       CSV or TSV with a header, JSON lines or Parquet, with the
              columns user, item and optionally count, or those that
              --user-column, --item-column and --count-column name.

Words of sentiment140: HTML entities are decoded, upper case becomes lower case, addresses (http://, https://, www.)
and mentions (@name) are left out, and words are the longest runs of a-z, 0-9 and '. A user is the tweet's author,
or with --by addressee the first account that the tweet mentions; tweets without mentions are then left out.

Malformed lines are left out, counted and listed. Users' names are not kept; items' names are.
"""


@click.group(
    cls=Group,
    examples=(
        "fedhist data import ratings.csv --out movies.npz",
        "fedhist data describe movies.npz",
        "fedhist run --data movies.npz",
    ),
)
def data() -> None:
    """Import published files, describe populations, list synthetic ones."""


@data.command(
    "import",
    help=IMPORT_HELP,
    context_settings={"show_default": True},
    examples=(
        "fedhist data import ratings.csv --out movies.npz",
        "fedhist data import loc-gowalla_totalCheckins.txt.gz --out places.npz",
    ),
)
@click.argument("source", type=PATH)
@click.option("--out", type=PATH, metavar="FILE", required=True, help="The .npz file to write.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["auto", *FORMAT_NAMES]),
    default="auto",
    help="The format of the file; auto recognises it by the first lines.",
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
    help="The encoding of the text. [default: latin-1 for sentiment140, utf-8 for the others]",
)
@click.option(
    "--max-malformed",
    type=float,
    default=MAX_MALFORMED,
    metavar="SHARE",
    help="The largest share of malformed lines with which a file is imported; 0.001 is 0.1 percent.",
)
@partial(column_options, bins=False)
@memory_option
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def import_(*, source: Path, out: Path, force: bool, as_json: bool, **options: Any) -> None:
    """Read the file, write the population, and print a summary."""
    from fedhist.client.files.matrix_files import MATRIX_SUFFIXES, write_matrix
    from fedhist.commands.progress import progress_on
    from fedhist.commands.summary import print_notes, stdout_console
    from fedhist.simulations.importing.reading import import_population

    check_new_file(out, suffixes=MATRIX_SUFFIXES, force=force)
    start = perf_counter()
    with progress_on(sys.stderr, as_json=as_json) as progress:
        progress.phase("population")
        imported = import_population(source, columns=columns_of(options), follow=progress, **options)
        population, tally = imported.population, imported.tally
        progress.phase("write")
        write_matrix(population, out, force=force)
    document = {
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
        "seconds": perf_counter() - start,
        "notes": [population.item_origin.note],
    }
    if as_json:
        click.echo(json.dumps(document, allow_nan=False))
        return
    console = stdout_console()
    rows = {
        "source": "{source}: {format}, {lines:,} lines, {malformed:,} malformed",
        "population": "{users:,} users x {items:,} items, {total:,} counts",
        "written": "{written} in {seconds:.2f} s",
    }
    for name, text in rows.items():
        console.print(line(f"{name:<16}{text.format(**document)}"), markup=False, soft_wrap=True)
    malformed = [f"{tally.in_words()} and left out"] if tally.malformed else []
    print_notes(console, [*malformed, population.item_origin.note])


@data.command(
    examples=(
        "fedhist data describe visits.csv --figure visits.svg",
        "fedhist data describe 'synthetic:heavy-tailed?users=1000&items=50'",
    )
)
@click.argument("file", type=PATH)
@column_options
@memory_option
@click.option(
    "--head",
    type=int,
    default=10,
    show_default=True,
    metavar="N",
    help="The number of items to list, the most frequent first.",
)
@click.option("--seed", type=int, default=0, metavar="S", help="The seed of a synthetic population.")
@click.option("--figure", type=PATH, metavar="FILE", help="Draw a figure, as .svg or .png.")
@click.option("--force", is_flag=True, help="Replace a figure that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def describe(
    *, file: Path, head: int, seed: int, figure: Path | None, force: bool, as_json: bool, **flags: Any
) -> None:
    """Describe a population.

    The statistics are exact, which is not private. FILE is anything that 'fedhist run --data' reads, or
    synthetic:NAME?key=value from 'fedhist data list'.
    """
    from fedhist.commands.description_view import print_description
    from fedhist.commands.progress import progress_on
    from fedhist.commands.summary import stdout_console
    from fedhist.simulations.datasets.description import describe as describe_population
    from fedhist.simulations.datasets.loading import Wanted, load
    from fedhist.simulations.figures.describe import draw_description
    from fedhist.simulations.figures.painting import FORMATS

    if head < 0:
        raise InvalidInput(f"--head is {head}", allowed="a whole number from 0")
    if figure is not None:
        check_new_file(figure, suffixes=FORMATS, force=force)
    with progress_on(sys.stderr, as_json=as_json) as progress:
        progress.phase("population")
        wanted = Wanted(data=file, columns=columns_of(flags), memory=flags["memory"])
        loaded = load(wanted, seed, follow=progress)
        found = describe_population(progress.watch(loaded.population), name=loaded.name, head=head)
        if figure is not None:
            progress.phase("write")
            draw_description(found, figure, force=force)
    if as_json:
        click.echo(json.dumps(found.to_json(), allow_nan=False))
        return
    console = stdout_console()
    print_description(console, found)
    if figure is not None:
        console.print(line(f"written: {figure}"), markup=False, soft_wrap=True)


@data.command(
    "list",
    examples=(
        "fedhist data list",
        "fedhist run --data 'synthetic:heavy-tailed?users=1000&items=50'",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """List the synthetic populations and their parameters."""
    from fedhist.simulations.datasets.registry import DATASETS, PREFIX

    if as_json:
        document = {
            name: {"line": one.line, "parameters": dict(one.defaults)} for name, one in DATASETS.items()
        }
        click.echo(json.dumps(document, allow_nan=False))
        return
    for name, one in DATASETS.items():
        query = "&".join(f"{key}={value}" for key, value in one.defaults.items())
        echo(f"{PREFIX}{name}?{query}")
        echo(f"    {one.line}")
