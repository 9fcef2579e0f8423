"""What the site makes of the code when it is built: the command line, a plan's fields, docstrings, notebooks, formulas.

A page asks for them with a block: `{command-line}` or `{plan-fields}`. In a checkout `fedhist COMMAND --help` and
`help(fedhist.Plan)` say the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import click
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fedhist.commands.cli import COMMANDS, cli
from fedhist.commands.options import OPTIONS, name_of
from fedhist.protocol.plan.fields import FIELDS, Field


class CommandLine(SphinxDirective):
    """Every command with its options, under the headings that its help has."""

    def run(self) -> list[nodes.Node]:
        """Written as Markdown, and read as a page is."""
        root = click.Context(cli, info_name="fedhist")
        text = "\n".join(line for name in COMMANDS for line in _command(_named(cli, root, name), root, name))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class PlanFields(SphinxDirective):
    """Every field of a plan: its default, its choices, what it means."""

    def run(self) -> list[nodes.Node]:
        """Written as Markdown, and read as a page is."""
        text = "\n".join(line for field in FIELDS.values() for line in _field(field))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def _named(group: click.Group, context: click.Context, name: str) -> click.Command:
    found = group.get_command(context, name)
    if found is None:
        raise LookupError(f"there is no command {name}")
    return found


def _command(command: click.Command, parent: click.Context, name: str) -> Iterator[str]:
    """A command, and the commands of a group, as Markdown."""
    context = command.context_class(command, info_name=name, parent=parent)
    yield f"## {context.command_path}\n"
    yield f"```text\n{command.get_usage(context)}\n```\n"
    yield _escaped(cleandoc(command.help or "").replace("\b\n", "")) + "\n"
    if examples := getattr(command, "examples", ()):
        yield "```sh\n" + "\n".join(examples) + "\n```\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _command(_named(command, context, inner), context, inner)
        return
    records = {
        name_of(option): record
        for option in command.get_params(context)
        if isinstance(option, click.Option) and (record := option.get_help_record(context))
    }
    for heading, group in OPTIONS.items():
        rows = [records.pop(name) for name in group if name in records]
        if rows and heading != "Help":
            yield f"**{heading}**\n"
            yield from (f"`{term}`\n: {_escaped(text)}\n" for term, text in rows)


def _field(field: Field) -> Iterator[str]:
    yield f"## {field.name}\n"
    yield _escaped(field.meaning) + "\n"
    if field.choices:
        yield "- Choices: " + ", ".join(f"`{json.dumps(choice)}`" for choice in field.choices)
    default = f"`{json.dumps(field.default)}`".replace("null", "None")
    yield "- Required\n" if field.required else f"- Default: {_escaped(field.filled_in) or default}\n"


def _escaped(text: str) -> str:
    """Help is plain text: flags become code, and no letter of it marks anything up."""
    plain = re.sub(r"([\\*_<>\[\]$|])", r"\\\1", text)
    return re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", plain)


class Notebook(MystParser):
    """A notebook with the outputs that it was stored with. Nothing is run, so no kernel needs to be installed."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Read its cells as one page of Markdown."""
        cells = json.loads(inputstring)["cells"]
        super().parse("\n\n".join(part for cell in cells for part in _cell(cell)), document)


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
    elif cell["cell_type"] == "code":
        yield _fenced("python", source)
        yield from map(_output, cell["outputs"])


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            return _fenced("{raw} html", "".join(data[kind]))
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return _fenced("{raw} html", f'<img alt="output" src="data:image/png;base64,{picture}">')
    return _fenced("text", "".join(output.get("text", data.get("text/plain", ""))))


def _fenced(language: str, text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def tables_as_text(*event: Any) -> None:
    """Docstrings hold tables in Markdown, and autodoc reads another language: show them as they are typed."""
    lines: list[str] = event[-1]
    shown: list[str] = []
    for line in lines:
        in_table = line.startswith("|")
        if in_table and not (shown and shown[-1].startswith("   |")):
            shown += ["", ".. code-block:: text", ""]
        elif shown and shown[-1].startswith("   |") and not in_table:
            shown.append("")
        shown.append(f"   {line}" if in_table else line)
    lines[:] = shown


def _formula(visitor: Any, node: nodes.Node, *, block: bool) -> None:
    """A formula as MathML, which browsers draw by themselves."""
    visitor.body.append(tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(Notebook)
    app.add_directive("command-line", CommandLine)
    app.add_directive("plan-fields", PlanFields)
    app.connect("autodoc-process-docstring", tables_as_text, priority=600)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda visitor, node: _formula(visitor, node, block=False), None),
        block_renderers=(lambda visitor, node: _formula(visitor, node, block=True), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
