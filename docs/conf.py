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
    "Start here": ["First steps <self>", "protocol", "tutorial", "report", "estimates"],
    "Your data": ["data", "open-domain", "debiased-counts"],
    "Choosing": ["choosing", "selectors", "plan-ahead", "ledger"],
    "Studying the protocol": [
        "comparing",
        "research",
        "reproducing",
        "trace",
        "faults",
        "scaling",
        "notation",
    ],
    "On Flower": ["on-flower", "plug-into-flower"],
    "In deployment": ["deployment", "campaigns", "node-settings", "deployment-failures", "masking"],
    "Extending": ["extending", "architecture", "adding-parts"],
    "Privacy": ["privacy"],
    "Reference": ["api", "public-names", "commands", "plan-fields", "known-limits", "decisions/index"],
}
"""The pages by reader, for the side of every page."""

BELOW = {
    "open-domain": ["open-domain-bar"],
    "plan-ahead": ["plan-ahead-measured"],
    "reproducing": ["reproducing-figures"],
    "scaling": ["scaling-measured"],
    "masking": ["masking-sessions", "masking-parameters"],
    "privacy": [
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
    "api": ["api-rounds"],
    "known-limits": ["accuracy-limits", "file-limits"],
}
"""Pages that are folded away below another one. A page in neither table is a warning, and CI fails on warnings."""

project = "fedhist"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated_parts"]
exclude_patterns = ["**/.ipynb_checkpoints"]
smartquotes = False  # what is quoted may be typed

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
    """Put the tables of contents behind the text, where a reader of the file does not meet them."""
    if page == "index":
        for caption, names in NAVIGATION.items():
            source[0] += table_of_contents(names, f":caption: {caption}", ":hidden:")
    elif page in BELOW:
        source[0] += table_of_contents(BELOW[page], ":hidden:")
    elif page == "decisions/index":
        source[0] += table_of_contents(["0*"], ":glob:")


def table_of_contents(names: list[str], *options: str) -> str:
    """A block that Sphinx reads."""
    return "\n".join(["", "```{toctree}", ":titlesonly:", *options, "", *names, "```", ""])


def pages_with_navigation(*_event: object) -> list[str]:
    """Read these again in every build: a change of the tables above is none of their files."""
    return ["index", *BELOW, "decisions/index"]


def setup(app: Sphinx) -> None:
    """Hooks."""
    app.connect("source-read", add_navigation)
    app.connect("env-get-outdated", pages_with_navigation)
