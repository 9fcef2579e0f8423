"""`fedhist run`: its options, apart from what it runs, so that --help answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from fedhist.commands.data_options import column_options, memory_option, normalise_option, time_option
from fedhist.commands.option_groups import Command
from fedhist.commands.plan_options import PATH, meant_budget, plan_options, total_options
from fedhist.commands.plugin_option import plugin_option
from fedhist.protocol.errors import InvalidInput
from fedhist.protocol.plan.fields import FIELDS
from fedhist.simulations.datasets import DEFAULT_ITEMS, DEFAULT_USERS
from fedhist.simulations.engines.contract import ENGINES
from fedhist.simulations.engines.cores import PAYS_FROM_USERS

FROM_POPULATION = ("users", "items", "participants")
"""Fields of the plan without an option of their own: the population says them, and --nodes."""


def _read_faulty(texts: Sequence[str]) -> dict[str, float]:
    """The values of `--faulty`, each KIND=SHARE."""
    from fedhist.simulations.faults import ALLOWED, faults_of

    shares: dict[str, float] = {}
    for text in texts:
        kind, _, share = text.partition("=")
        if kind in shares:
            raise InvalidInput(f"--faulty is {text!r} a second time", allowed=ALLOWED, code="bad-faulty")
        try:
            shares[kind] = float(share)
        except ValueError:
            raise InvalidInput(f"--faulty is {text!r}", allowed=ALLOWED, code="bad-faulty") from None
    faults_of(faulty=shares)
    return shares


@click.command(
    cls=Command,
    context_settings={"show_default": True},
    examples=(
        "# synthetic users, to see what a run is like",
        "fedhist run",
        "# your own table, the public list of what to count, and a budget for all of it",
        "fedhist run --data visits.csv --items-file shops.txt --total-epsilon 1",
        "# one of several columns about the same people, under the limit of one ledger",
        "fedhist run --data visits.csv --item-column day --ledger people.ledger",
    ),
)
@click.option(
    "--data",
    type=PATH,
    metavar="FILE",
    help="The table of who has which items: .csv, .tsv, .jsonl or .parquet with columns user, item and optionally "
    "count; a folder or a quoted pattern of such files; of any size. Or .npz of scipy.sparse.save_npz (users x "
    "items), or synthetic:NAME?key=value of 'fedhist data list'. Without it, "
    "synthetic users, few of whom have most of the counts.",
)
@column_options
@time_option
@click.option(
    "--items-file",
    type=PATH,
    metavar="FILE",
    help="The public list of the items to count, one per line, for data with names. Without it the items are found "
    "privately, which leaves out rare ones.",
)
@click.option(
    "--users",
    type=int,
    metavar="N",
    help="The number of synthetic users. With --data and --neighbours add-or-remove-one, a number that stands for that "
    f"of the users, which is hidden then: about as many, but not read off the data. [default: {DEFAULT_USERS}]",
)
@click.option(
    "--items",
    type=int,
    metavar="D",
    help=f"The number of items of synthetic users. [default: {DEFAULT_ITEMS}]",
)
@click.option(
    "--top-items",
    type=int,
    metavar="D",
    help="Count the D most frequent items only. The choice is inferred from the data, which is not private: it needs "
    "--evaluate, unless the users are synthetic.",
)
@normalise_option
@memory_option
@click.option(
    "--seed",
    type=int,
    metavar="S",
    help="Make the run repeatable, noise included. NOT private: anyone who knows the seed can subtract the noise, so "
    "--ledger refuses it for all but synthetic users. Without it noise comes from the operating system.",
)
@plan_options(
    *(name for name in FIELDS if name not in FROM_POPULATION),
    domain={
        "default": None,
        "help": f"{FIELDS['domain'].meaning} [default: open for a table without a list of items, else closed; "
        "closed without a list needs --evaluate]",
    },
)
@total_options()
@click.option(
    "--dropout",
    type=float,
    default=0.0,
    metavar="S",
    help="Simulate that this share of the nodes gives no answer, in each round others; with masking, at every stage in "
    "turn, and if it is above --dropout-share, expect the round to fail.",
)
@click.option(
    "--faulty",
    multiple=True,
    metavar="KIND=SHARE",
    callback=lambda context, parameter, texts: _read_faulty(texts),
    help="Simulate that this share of the nodes is faulty in all rounds; may be given several times. KIND: "
    "fail, answers with an error, or with masking not at all; inflate, lies within the bounds: all its users have the "
    "last item alone, as often as may be.",
)
@click.option(
    "--ledger",
    type=PATH,
    metavar="FILE",
    help="Charge the run to this file, which counts what is spent on the same people; made if missing. See 'fedhist "
    "ledger'.",
)
@click.option(
    "--engine",
    type=click.Choice(tuple(ENGINES)),
    default="in-process",
    help="Where the devices run: on the cores of this machine, in parts on Ray, or on nodes of Flower, which run on "
    "Ray. The release is the same for the same seed.",
)
@click.option(
    "--nodes",
    type=int,
    metavar="N",
    help="The number of nodes that the users are spread over, with --engine flower-simulation, --masking, --dropout or "
    "--faulty. [default: 100]",
)
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="For --engine ray and flower-simulation: join the Ray cluster at HOST:PORT, or auto for the one in "
    "RAY_ADDRESS or recorded on this machine. All its machines must share TMPDIR. Without it, Ray runs on this "
    "machine alone.",
)
@click.option(
    "--workers",
    type=int,
    metavar="N",
    help="The number of processes of --engine in-process. The release is the same for any. [default: one for each "
    f"core, and one in all below {PAYS_FROM_USERS:,} users]",
)
@click.option(
    "--evaluate/--no-evaluate",
    default=None,
    help="Also measure errors against the exact data, with times and sizes that depend on it: NOT private, and "
    "--ledger refuses it for all but synthetic users. [default: --evaluate for synthetic users "
    "alone]",
)
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="New folder for result.json, histogram.csv, plan.json and the report. [default: fedhist-run-TIME; none with "
    "--json]",
)
@plugin_option
@click.option("--trace", is_flag=True, help="Also write what happened, as trace.jsonl; see 'fedhist trace'.")
@click.option("--quiet", is_flag=True, help="No progress and no summary; errors and --json only.")
@click.option("--verbose", is_flag=True, help="Explain each step in the protocol's words, on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else.")
@click.pass_context
def run(context: click.Context, /, **flags: Any) -> None:
    """Choose a contribution bound privately and release a private histogram.

    The bound is called the threshold: who has more than that is scaled down to it, so that nobody's data counts for
    much, and noise hides the rest. Without arguments: 50,000 synthetic users, a summary and a result folder.
    """
    from fedhist.commands.run import run_here

    run_here(meant_budget(context, flags))
