"""The command line's one table of options, and commands whose help has them in groups.

An option is declared once, in `OPTIONS`, under the heading of help that it stands under and in the order of help; those
that are fields of a plan are only named there, and come from the plan's declaration. A command names the options that
it takes (`options`), and says what is different about one there. Nothing heavy is loaded here, so that --help answers
at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedhist.protocol.errors import InvalidFile, InvalidInput
from fedhist.protocol.plan.fields import FIELDS
from fedhist.simulations.datasets import (
    DEFAULT_ITEMS,
    DEFAULT_MEAN_TOTAL,
    DEFAULT_TAIL_INDEX,
    DEFAULT_USERS,
)
from fedhist.simulations.engines.contract import ENGINES, PAYS_FROM_USERS

MOST_SHOWN = 35
"""Options that --help shows of a command. Of one that has more, those of MATTER; --help-all shows the others too."""


class _FilePath(click.Path):
    """A path. An empty one, of a shell's variable that is not set, would be the folder that one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as a path."""
        if value == "":
            self.fail("it is empty.", param, ctx)
        return super().convert(value, param, ctx)


PATH = _FilePath(path_type=Path)
"""A file or folder."""


def _load_plugins(context: click.Context, parameter: click.Parameter, paths: Sequence[Path]) -> None:
    if paths and not context.resilient_parsing:
        from fedhist.extending import load_plugin

        # What a file prints while it is loaded is no part of a command's output.
        with redirect_stdout(sys.stderr):
            for path in paths:
                load_plugin(path)


def _names_in(context: click.Context, parameter: click.Parameter, path: Path | None) -> str | None:
    """The names in a file, one a line, as a plan has them."""
    from fedhist.protocol.item_lists import read_items

    return None if path is None else "\n".join(read_items(path))


def _read_faulty(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> dict[str, float]:
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


def _show_all_help(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _text(metavar: str, help_: str, **more: Any) -> dict[str, Any]:
    return {"metavar": metavar, "help": help_} | more


def _number(metavar: str, help_: str, kind: type[int] | type[float] = int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "metavar": metavar, "help": help_} | more


def _file(help_: str, metavar: str = "FILE", **more: Any) -> dict[str, Any]:
    return {"type": PATH, "metavar": metavar, "help": help_} | more


def _switch(help_: str, **more: Any) -> dict[str, Any]:
    return {"is_flag": True, "help": help_} | more


def _one_of(choices: Iterable[str], help_: str, **more: Any) -> dict[str, Any]:
    return {"type": click.Choice(tuple(choices)), "help": help_} | more


def _field(name: str, **more: Any) -> dict[str, Any]:
    """The option of a plan's field, as it is declared."""
    declared = FIELDS[name]
    filled_in = f" [default: {declared.filled_in}]" if declared.filled_in else ""
    return {
        "type": click.Choice(declared.choices) if declared.choices else declared.kind,
        "default": declared.default,
        "metavar": declared.symbol or None,
        "help": declared.meaning + filled_in,
    } | more


_FIELD: dict[str, Any] = {}
"""Instead of an option that is a field of the plan."""
_ALL = "fedhist.help-all"

OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "Data": {
        "windows": _text("W..W", "The calendar: 2026-W40..2026-W52, 2026-W40x13 for thirteen from the first on, or "
            "single windows; days, months and years likewise, with commas between them. No two may share a day.",
            multiple=True, required=True),
        "data": _file("The table of who has which items: .csv, .tsv, .jsonl or .parquet with columns user, item and "
            "optionally count; a folder or a quoted pattern of such files; of any size. Or .npz of "
            "scipy.sparse.save_npz (users x items), or synthetic:NAME?key=value of 'fedhist data list'. Without it, "
            "synthetic users, few of whom have most of the counts."),
        "items_file": _file("The public list of the items to count, one per line, for data with names. Without it the "
            "items are found privately, which leaves out rare ones."),
        "user_column": _text("NAME", "The column of the user, spelled as in the file. [default: user, in any case]"),
        "item_column": _text("NAME", "The column of the item, spelled as in the file. [default: item, in any case]"),
        "count_column": _text("NAME", "The column that says how many observations a row stands for. [default: "
            "count, in "
            "any case; without such a column a row is one]"),
        "users": _number("N", "The number of synthetic users. With --data and --neighbours add-or-remove-one, a number "
            "that stands for that of the users, which is hidden then: about as many, but not read off the data. "
            f"[default: {DEFAULT_USERS}]"),
        "items": _number("D", f"The number of items of synthetic users. [default: {DEFAULT_ITEMS}]"),
        "synthetic": _text("NAME", "Population made from the seed, anew for each trial; may be given several times. "
            "[default: heavy-tailed, without --data]", multiple=True),
        "round_": _one_of(("discover", "select", "release"), "This round only.", flag="--round"),
        "participant": _text("ID", "This participant only, such as 'node 3', or just 3."),
        "every_message": _switch("A line for each message and drop-out of many participants too."),
        "time_column": _text("NAME", "The column of the time, for --window: a date or a date with a time of day, as in "
            "2026-11-18 or 2026-11-18T09:30:00+01:00. Without a zone it is UTC."),
        "window": _FIELD,
        "again": _text("W", "Charge and run this window once more, which was charged and not released; may be given "
            "several times.", multiple=True),
        "until": _text("DATE", "Run what was due at the beginning of this day of UTC, and nothing later."),
        "delay": _number("DAYS", "A window is due this long after its last day, for data that comes late.", default=0),
        "separator": _text("CHARACTER", "What stands between the fields of a text file; tab or \\t for a tab. A "
            "file with "
            "it may have any suffix. [default: a comma, a tab in .tsv files]"),
        "no_header": _switch("The text file has no line of names: columns are given by number, from 1, as in "
            "--user-column 1."),
        "strict": _switch("Stop at the first row without a user, an item or a count. Without it such rows are left "
            "out, and the screen says how many they are."),
        "bins": _text("EDGES", "Count the values of the item column, numbers, in bins between these edges: 0,10,20 or "
            "0:20:10 gives [0, 10) and [10, 20). Values outside are left out; -inf and inf as end edges take them in. "
            "The edges are public: no --items-file is needed."),
        "top_items": _number("D", "Count the D most frequent items only. The choice is inferred from the data, "
            "which is "
            "not private: it needs --evaluate, unless the users are synthetic."),
        "normalise": _one_of(("nfc", "casefold"), "Write items' names alike before counting: Unicode NFC, or NFKC and "
            "case folding. Without it, names stay as they are.", default=None),
        "memory": _text("SIZE", "How much memory reading a table may use, such as 1GB or 512MiB. What does not fit "
            "goes "
            "to a temporary file in TMPDIR that is gone afterwards. The result is the same. [default: half of what is "
            "available]"),
        "mean_total": _number("M", "A guess, for a model population: the mean number of counts of a user. "
            f"[default: {DEFAULT_MEAN_TOTAL:g}]", float),
        "distinct_items": _number("K", "A guess: the mean number of different items of a user. [default: mean total to "
            "the power of 0.6]", float),
        "tail_index": _number("A", "A guess: the share of users with a total above x falls like x^-A. 1.2 is very "
            "uneven, "
            f"3 tame. [default: {DEFAULT_TAIL_INDEX:g}]", float),
        "sizes": _text("P:T,...", "Guesses instead of mean and tail: totals at some percentiles. 50:8,99:106 says "
            "that half of all users have at most 8 counts and 99 in 100 at most 106."),
        "vocabulary": _file("The names of the columns of a .npz, one per line."),
        "by": _one_of(("author", "addressee"), "Whose words a tweet is: its author's, or those of the first account "
            "that "
            "it mentions.", default="author"),
    },
    "Privacy": {
        "epsilon": _FIELD,
        "delta": _FIELD,
        "total_epsilon": _number("E", "Privacy budget of all rounds together, instead of --epsilon. The histogram "
            "gets what their tight composition leaves beside --epsilon-select, which is a share of the total if it is "
            "left out.", float),
        "target_error": _number("E", "Find the epsilon that gives this relative error; 0.05 is 5 percent.", float),
        "best_split": _switch("Take each epsilon as a total and split it between the rounds at its best."),
        "ledger": _file("Charge the run to this file, which counts what is spent on the same people; made if missing. "
            "See 'fedhist ledger'."),
        "total_delta": _number("D", "Delta of all rounds together, shared among those that spend delta.", float),
        "spare": _number("N", "Leave room in the total for this number of windows that break off and are run again.",
            default=0),
        "epsilon_select": _FIELD,
        "delta_select": _FIELD,
        "neighbours": _FIELD,
        "minimum_cohort": _FIELD,
    },
    "Method": {
        "domain": _FIELD,
        "mechanism": _FIELD,
        "selector": _FIELD,
        "selectors": _text("NAME,...", "The ways to choose the threshold, as --selector of 'fedhist run'. "
            "[default: all that fit but fixed]"),
        "best_by": {"help": "What the best method has least of: the loss of the released values, or that of the "
            "estimates."},
        "max_threshold": _FIELD,
        "set": _text("FIELD=VALUE", "A field of the plan by its name, as on the page of fields; may be given several "
            "times.", multiple=True, flag="--set"),
        "plan_file": _file("Take the plan's fields from plan.json or result.json of a run; options that are given come "
            "first.", flag="--plan"),
        "quick": _switch("Run a short version: fewer trials, users and settings."),
        "deep": _switch("Draw about thirty times as much; takes an hour on two cores."),
        "only": _text("TEXT", "Run the checks whose names contain this text."),
        "plugin": _file("A Python file that registers methods of your own, which then go by their names; may be given "
            "several times. See docs/extending.md.", multiple=True, is_eager=True, expose_value=False,
            callback=_load_plugins),
        "threshold": _FIELD,
        "min_threshold": _FIELD,
        "candidates": _FIELD,
        "sparsity": _FIELD,
        "debias": _FIELD,
        "release": _FIELD,
        "known_items": {"type": PATH, "callback": _names_in},
    },
    "Masking": {
        "masking": _FIELD,
        "noise_from": _FIELD,
        "dropout_share": _FIELD,
        "corrupt_share": _FIELD,
        "max_items": _FIELD,
        "max_item_bytes": _FIELD,
    },
    "Engine": {
        "seed": _number("S", "Make the run repeatable, noise included. NOT private: anyone who knows the seed can "
            "subtract the noise, so --ledger refuses it for all but synthetic users. Without it noise comes from the "
            "operating system."),
        "trials": _number("T", "The number of runs of each combination.", default=20),
        "engine": _one_of(ENGINES, "Where the devices run: on the cores of this machine, in parts on Ray, or on "
            "nodes of "
            "Flower, which run on Ray. The release is the same for the same seed.", default="in-process"),
        "nodes": _number("N", "The number of nodes that the users are spread over, with --engine flower-simulation, "
            "--masking, --dropout or --faulty. [default: 100]"),
        "workers": _number("N", "The number of processes of --engine in-process. The release is the same for any. "
            f"[default: one for each core, at most 8, from {PAYS_FROM_USERS:,} users on]"),
        "ray_address": _text("ADDRESS", "For --engine ray and flower-simulation: join the Ray cluster at HOST:PORT, or "
            "auto for the one in RAY_ADDRESS or recorded on this machine. All its machines must share TMPDIR. Without "
            "it, Ray runs on this machine alone."),
        "dropout": _number("S", "Simulate that this share of the nodes gives no answer, in each round others; with "
            "masking, at every stage in turn, and if it is above --dropout-share, expect the round to fail.", float,
            default=0.0),
        "faulty": _text("KIND=SHARE", "Simulate that this share of the nodes is faulty in all rounds; may be given "
            "several times. KIND: fail, answers with an error, or with masking not at all; inflate, lies within the "
            "bounds: all its users have the last item alone, as often as may be.", multiple=True,
            callback=_read_faulty),
    },
    "Output": {
        "out": _file("New folder for result.json, histogram.csv, plan.json and the report. [default: fedhist-run-TIME; "
            "none with --json]", "DIR"),
        "evaluate": {"flag": "--evaluate/--no-evaluate", "default": None, "help": "Also measure errors against the "
            "exact "
            "data, with times and sizes that depend on it: NOT private, and --ledger refuses it for all but synthetic "
            "users. [default: --evaluate for synthetic users alone]"},
        "figure": _file("Draw the curves as .svg or .png."),
        "csv": _file("Write the rows as CSV."),
        "as_json": _switch("Print one JSON document on stdout and nothing else.", flag="--json"),
        "force": _switch("Replace the file if it exists."),
        "replace": _switch("Change a limit that is already set."),
        "moved": _switch("The folder lies somewhere else than it did, and no copy of it is left behind. Needed once."),
        "keep": _file("A new folder that keeps data and logs. Without it, they are in a temporary one and removed.",
            "FOLDER"),
        "trace": _switch("Also write what happened, as trace.jsonl; see 'fedhist trace'."),
        "quiet": _switch("No progress and no summary; errors and --json only."),
        "verbose": _switch("Explain each step in the protocol's words, on stderr."),
    },
    "Help": {
        "help": {"flag": "--help"},
        "version": {"flag": "--version"},
        "help_all": _switch("Show all options, and exit.", flag="--help-all", is_eager=True, expose_value=False,
            callback=_show_all_help),
    },
}  # fmt: skip
"""Every option by its name, under its heading and in the order of help."""

_MATTER = (
    "windows data items_file user_column item_column count_column users items synthetic epsilon delta "
    "total_epsilon target_error best_split ledger domain mechanism selector selectors best_by "
    "max_threshold set plan_file masking noise_from seed trials engine nodes out evaluate figure csv "
    "as_json force help help_all mean_total sizes epsilon_select neighbours window plugin quiet "
)
MATTER = frozenset(_MATTER.split())
"""The options that --help shows of a command with many."""

COLUMNS = ("user_column", "item_column", "count_column", "separator", "no_header", "bins")
"""Which columns of a table are read, and how."""

_OF_THE_DATA = ("users", "items", "participants")
_BUDGETS = {"epsilon", "epsilon_select", "delta", "delta_select"}
_DECLARED = {name: made for group in OPTIONS.values() for name, made in group.items()}
_TERM_WIDTH = 24
_UNBROKEN_HYPHEN = "\u2011"
"""Stands for a hyphen while lines are broken, so that no flag is."""


def options(*names: str, **changes: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Add these options to a command; `changes` are arguments of `click.option`, instead of the table's."""

    def add(command: Any) -> Any:
        for name in reversed(names):
            made = _DECLARED[name]
            made = {**(_field(name, **made) if name in FIELDS and not made.get("help") else made)}
            made |= changes.get(name, {})
            if made.get("required"):
                made.pop("default", None)
            flag = made.pop("flag", f"--{name.replace('_', '-')}")
            command = click.option(flag, name, **made)(command)
        return command

    return add


def plan_settings(
    context: click.Context, flags: Mapping[str, Any], *, totals: bool = True
) -> tuple[dict[str, Any], set[str]]:
    """The flags with what --set and --plan say; with `totals`, without default budgets that a total stands for.

    Returns:
        Flags, and the names of those that somebody gave.
    """
    settled = dict(flags)
    by_default = {ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP}
    given = {name for name in flags if context.get_parameter_source(name) not in by_default}
    known = {
        one.name: one
        for one in context.command.params
        if one.name in FIELDS and one.name in flags and one.name not in _OF_THE_DATA
    }
    said: dict[str, Any] = {}
    for text in settled.pop("set", ()):
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_")
        _check_known(f"--set {text}", name, [str(one) for one in known])
        if not sign or name in given or name in said:
            raise InvalidInput(
                f"--set {text}" + (" says a field a second time" if sign else " has no value"),
                allowed="FIELD=VALUE, once for each field",
            )
        said[name] = known[name].process_value(context, value)
    given |= set(said)
    if (path := settled.pop("plan_file", None)) is not None:
        total = totals and settled.get("total_epsilon") is not None
        for name, value in _fields_in(path).items():
            if name in known and name not in given and not (total and name in _BUDGETS):
                said[name] = (
                    value if name == "known_items" else known[name].process_value(context, str(value))
                )
                given.add(name)
    settled |= said
    if totals and settled.get("total_epsilon") is not None:
        settled |= dict.fromkeys(_BUDGETS & set(settled) - given)
    return settled, given


def _fields_in(path: Path) -> dict[str, Any]:
    """The fields of a plan that a file holds; users, items and participants are the data's."""
    try:
        document = json.loads(path.read_bytes())
        plan = document.get("plan", document)
        found = {name: value for name, value in plan.items() if value is not None}
    except (OSError, ValueError, AttributeError, RecursionError) as problem:
        why = f"can't be read ({problem.strerror})" if isinstance(problem, OSError) else "is no plan"
        raise InvalidFile(
            f"--plan {path} {why}", allowed="plan.json or result.json of a run", code="bad-plan-file"
        ) from problem
    for name in found:
        _check_known(f"--plan {path}", name, [*FIELDS, "version", "plugins"])
    return found


def _check_known(where: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, 1)
    raise InvalidInput(
        f"{where}: there is no field {name!r}",
        allowed=", ".join(known),
        advice=f"did you mean {near[0]}?" if near else "--help-all lists them as options",
        code="unknown-field",
    )


def columns_of(flags: dict[str, Any]) -> Any:
    """Take the options of columns out of the flags. A window stays: it is the plan's, too."""
    from fedhist.client.files.columns import Columns, column_number
    from fedhist.protocol.item_lists import edges_of

    user, item, count, separator, no_header, bins = (flags.pop(name, None) for name in COLUMNS)
    name = column_number if no_header else str
    time = flags.pop("time_column", None)
    return Columns(
        name("user" if user is None else user),
        name("item" if item is None else item),
        None if count is None else name(count),
        separator,
        None if bins is None else edges_of(bins),
        time=None if time is None else name(time),
        window=flags.get("window"),
        strict=flags.pop("strict", False),
    )


def name_of(option: click.Option) -> str:
    """Its name in the table; click calls its own --help as its version likes."""
    return "help" if "--help" in option.opts else str(option.name)


class _Formatter(click.HelpFormatter):
    """Breaks lines between words alone."""

    def write_text(self, text: str) -> None:
        """A paragraph."""
        super().write_text(text.replace("-", _UNBROKEN_HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Terms and what they mean."""
        whole = [(term, text.replace("-", _UNBROKEN_HYPHEN)) for term, text in rows]
        super().write_dl(whole, col_max, col_spacing)

    def getvalue(self) -> str:
        """All that was written."""
        return super().getvalue().replace(_UNBROKEN_HYPHEN, "-")


class _Context(click.Context):
    formatter_class = _Formatter


class _Helpful(click.Command):
    """A command with examples, whose help has its options in groups."""

    context_class = _Context

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        """Examples are lines for a shell; those that begin with # say what the next one does."""
        settings = {"show_default": True, "help_option_names": ["-h", "--help"]}
        kwargs["context_settings"] = settings | (kwargs.get("context_settings") or {})
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        if len(self.params) > MOST_SHOWN:
            options("help_all")(self)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; a mistake in it knows its command, and what was probably meant."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.removeprefix("--").replace("-", "_")
            if not isinstance(self, click.Group) or name not in _DECLARED:
                raise
            raise click.UsageError(f"{error.option_name} goes after the name of a command.", ctx) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            takes_data = any(one.name == "data" for one in self.params)
            if not (error.message.startswith("Got unexpected extra arg") and takes_data):
                raise
            raise click.UsageError(f"{error.message}: a file is given with --data.", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options under their headings: all, or those that matter of many."""
        taken = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        records = {name_of(one): one.get_help_record(ctx) for one in taken}
        left = {name: record for name, record in records.items() if record is not None}
        few = len(left) > MOST_SHOWN and _ALL not in ctx.meta
        # All headings have the same second column.
        width = min(max((len(term) for term, _ in left.values()), default=0), _TERM_WIDTH)
        for heading, group in OPTIONS.items():
            rows = [left.pop(name) for name in group if name in left and (not few or name in MATTER)]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl([(term.ljust(width), text) for term, text in rows], _TERM_WIDTH)
        if left:
            formatter.write(f"\n{len(left)} more options: {ctx.command_path} --help-all\n")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Usage and examples first, so that they are on the first screen; then commands, then options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)


class Command(_Helpful):
    """A command."""


class Group(_Helpful, click.Group):
    """A group of commands; a mistyped name is answered with the nearest one."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of this name."""
        name, names = args[0], self.list_commands(ctx)
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = get_close_matches(name, names, n=1, cutoff=0.5)
            advice = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(names)}."
            ctx.fail(f"No such command {name!r}. {advice}")
        return super().resolve_command(ctx, args)
