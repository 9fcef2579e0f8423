"""The Flower app of the README, run as it stands on the in-process grid."""

from __future__ import annotations

import re
from typing import Any

import pytest
from local_grid import LocalGrid, context_of

from tests.builders import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_two_calls_release_a_histogram_on_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    for block in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        exec(block, names)  # noqa: S102 - the page's own code
    capsys.readouterr()
    names["main"](LocalGrid.of([names["app"]] * 4), context_of(node=1))
    park, zoo, library = (float(word) for word in capsys.readouterr().out.strip("[]\n ").split())
    # Four nodes with 2,000, 1,000 and 0 counts each; the noise of a bound of a few counts is far below 1,000.
    assert park > zoo + 1_000 > library + 2_000
