"""How help is laid out: options in groups, the few that matter first, and examples.

`GROUPS` is the one table of groups. A new option needs an entry there; a test fails for one without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import cleandoc
from typing import Any, NamedTuple

import click


class OptionGroup(NamedTuple):
    """Options under one heading: the few that most people need, then the others; `-h` shows the few alone."""

    heading: str
    few: str
    others: str


GROUPS = (
    OptionGroup(
        "Data",
        "--windows --data --items-file --user-column --item-column --count-column --users --items "
        "--synthetic --round --participant --every-message",
        "--time-column --window --again --until --delay --separator "
        "--no-header --bins --top-items --normalise --memory --mean-total --distinct-items --tail-index --sizes "
        "--vocabulary --by",
    ),
    OptionGroup(
        "Privacy",
        "--epsilon --delta --total-epsilon --target-error --best-split --ledger",
        "--total-delta --spare --epsilon-select --delta-select --neighbours --minimum-cohort",
    ),
    OptionGroup(
        "Method",
        "--domain --mechanism --selector --selectors --best-by --max-threshold --quick --deep --only",
        "--plugin --threshold --min-threshold --candidates --sparsity --debias "
        " --release --known-items --score-sensitivity",
    ),
    OptionGroup(
        "Masking",
        "--masking --noise-from",
        "--dropout-share --corrupt-share --max-items --max-item-bytes",
    ),
    OptionGroup(
        "Engine",
        "--seed --trials --engine --nodes",
        "--workers --ray-address --dropout --faulty",
    ),
    OptionGroup(
        "Output",
        "--out --evaluate --figure --csv --json --force --replace",
        "--moved --keep --trace --quiet --verbose",
    ),
    OptionGroup("Help", "-h --help --version", ""),
)
"""Where every option of every command stands in its help, and in which order."""

_FLAGS = frozenset(flag for group in GROUPS for flag in f"{group.few} {group.others}".split())
_TERM_WIDTH = 24
_UNBROKEN_HYPHEN = "\u2011"
"""Stands for a hyphen while lines are broken, so that no flag is."""


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
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; a mistake in it knows its command, and what was probably meant."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not isinstance(self, click.Group) or error.option_name not in _FLAGS:
                raise
            raise click.UsageError(f"{error.option_name} goes after the name of a command.", ctx) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            if not (error.message.startswith("Got unexpected extra arg") and self._takes("--data")):
                raise
            raise click.UsageError(f"{error.message}: a file is given with --data.", ctx) from None

    def _takes(self, flag: str) -> bool:
        return any(flag in one.opts for one in self.params)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options under their headings."""
        self._write_groups(ctx, formatter, few=False)

    def _write_examples(self, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")

    def _write_groups(self, ctx: click.Context, formatter: click.HelpFormatter, *, few: bool) -> int:
        """Write the options; how many were left out."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        left = {one.opts[0]: record for one in options if (record := one.get_help_record(ctx)) is not None}
        # All headings have the same second column.
        width = min(max((len(term) for term, _ in left.values()), default=0), _TERM_WIDTH)
        for heading, first, others in GROUPS:
            flags = first.split() + ([] if few else others.split())
            rows = [left.pop(flag) for flag in flags if flag in left]
            if rows:
                with formatter.section(heading):
                    shown = [(term.ljust(width), _start(text) if few else text) for term, text in rows]
                    formatter.write_dl(shown, _TERM_WIDTH)
        return len(left)


def _start(text: str) -> str:
    """The first sentence, and the default."""
    body, bracket, default = text.partition("[")
    sentence = body.partition(". ")[0].rstrip().removesuffix(".")
    return f"{sentence}. {bracket}{default}"


class Command(_Helpful):
    """A command whose -h shows the few options that matter, and --help all of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_short_help_option())

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Usage and examples first, so that they are on the first screen."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self._write_examples(formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option --help, beside -h."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "Show all options, and exit."
        return option

    def short_help_page(self, ctx: click.Context) -> str:
        """What -h shows."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(cleandoc(self.help or "").partition("\n\n")[0])
        self._write_examples(formatter)
        left_out = self._write_groups(ctx, formatter, few=True)
        if left_out:
            formatter.write(f"\n{left_out} more options: {ctx.command_path} --help\n")
        return formatter.getvalue().rstrip("\n")


def _short_help_option() -> click.Option:
    return click.Option(
        ["-h"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_short_help,
        help="Show the options that matter most, and exit.",
    )


def _show_short_help(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing and isinstance(ctx.command, Command):
        click.echo(ctx.command.short_help_page(ctx), color=ctx.color)
        ctx.exit()


class Group(_Helpful, click.Group):
    """A group of commands; a mistyped name is answered with the nearest one."""

    command_class = Command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Usage, commands, examples, options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self._write_examples(formatter)
        self.format_commands(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of this name."""
        name, names = args[0], self.list_commands(ctx)
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            near = get_close_matches(name, names, n=1, cutoff=0.5)
            advice = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(names)}."
            ctx.fail(f"No such command {name!r}. {advice}")
        return super().resolve_command(ctx, args)
