"""The documentation site: `sphinx-build -W docs build/site`, with the extra `docs`.

The pages stay plain Markdown, to be read in a checkout as well. What only a site needs stands here and in
`generated_parts.py`: the navigation, and what is made of the code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))  # for generated_parts

NAVIGATION = {
    "Start here": ["protocol", "tutorial", "report", "estimates"],
    "Your data": ["data", "open-domain", "open-domain-bar", "debiased-counts", "import"],
    "Choosing": ["choosing", "selectors", "plan-ahead", "plan-ahead-measured", "ledger", "questions"],
    "Studying the protocol": [
        "comparing",
        "reproducing",
        "reproducing-figures",
        "trace",
        "faults",
        "scaling",
        "scaling-measured",
        "notation",
    ],
    "On Flower": ["on-flower", "plug-into-flower", "masking-your-messages"],
    "In deployment": [
        "deployment",
        "node-settings",
        "deployment-failures",
        "masking",
        "masking-sessions",
        "masking-parameters",
    ],
    "Extending": ["extending", "architecture", "adding-parts"],
    "Privacy": [
        "privacy",
        "privacy-not-protected",
        "privacy-neighbours",
        "privacy-noise",
        "privacy-open-domains",
        "privacy-masking",
        "privacy-device-noise",
        "privacy-composition",
        "privacy-rounds",
        "privacy-audit",
        "privacy-and-the-paper",
    ],
    "Reference": [
        "api",
        "api-rounds",
        "public-names",
        "commands",
        "plan-fields",
        "known-limits",
        "accuracy-limits",
        "file-limits",
        "decisions/index",
    ],
}
"""The pages behind the start page. A page that is missing here is a warning, and CI fails on warnings."""

project = "fedhist"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated_parts"]
exclude_patterns = ["**/.ipynb_checkpoints"]

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 4  # as GitHub makes them, so that one link serves both

default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_typehints = "none"  # Args say what a value means; a signature with types fills a screen
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

lexers["csv"] = TextLexer()  # pygments knows none

html_theme = "furo"
html_title = "fedhist"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_math_renderer = "mathml"  # the default loads a program from another host
html_copy_source = False
html_show_search_summary = False  # summaries are fetched page by page, which a browser refuses for files


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the tables of contents behind the start page, where a reader of the file does not meet them."""
    if page == "index":
        for caption, names in NAVIGATION.items():
            listed = "\n".join(names)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: {caption}\n\n{listed}\n```\n"
    if page == "decisions/index":
        source[0] += "\n```{toctree}\n:glob:\n:titlesonly:\n\n0*\n```\n"


def pages_with_navigation(*_event: object) -> list[str]:
    """Read these again in every build: a change of the table above is none of their files."""
    return ["index", "decisions/index"]


def setup(app: Sphinx) -> None:
    """Hooks."""
    app.connect("source-read", add_navigation)
    app.connect("env-get-outdated", pages_with_navigation)
