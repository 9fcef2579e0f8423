"""The frame of every page: one file that holds its style, script and data, and fetches nothing."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from fedhist.simulations.report.escaping import script_json, text
from fedhist.simulations.report.marks import style_rules


def fill(*, title: str, body: str, data: dict[str, Any]) -> str:
    """The whole document. `body` is HTML; the title and the data are escaped here."""
    return Template(asset("template.html")).substitute(
        title=text(title),
        style=f"{style_rules()}\n{style_sheet()}",
        body=body,
        data=script_json(data),
        script=asset("report.js"),
    )


def style_sheet() -> str:
    """The style of every page, with the colours by name for light and dark."""
    return asset("report.css")


@cache
def asset(name: str) -> str:
    """A file beside the pages' code."""
    return files("fedhist.simulations.report").joinpath(name).read_text(encoding="utf-8")
