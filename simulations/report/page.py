"""The frame of every page: one file with its style, its script and its data inside, and nothing fetched."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from fedhist.simulations.report.escaping import script_json, text


def fill(*, title: str, body: str, data: dict[str, Any]) -> str:
    """The whole document. `body` is HTML; the title and the data are made harmless here."""
    return Template(_asset("template.html")).substitute(
        title=text(title),
        style=_asset("report.css"),
        body=body,
        data=script_json(data),
        script=_asset("report.js"),
    )


@cache
def _asset(name: str) -> str:
    return files("fedhist.simulations.report").joinpath(name).read_text(encoding="utf-8")
