"""The command of Flower's own on docs/on-flower.md, in a checkout, on a Flower for which nothing else is set."""

from __future__ import annotations

from pathlib import Path

import pytest
from pasted_commands import needs_proc, pasted, shell_blocks

ROOT = Path(__file__).resolve().parents[2]


@needs_proc
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_checkout_runs_by_flower_s_own_command(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "on-flower.md").read_text(encoding="utf-8")
    (block,) = [block for block in shell_blocks(page) if "flwr run" in block]
    printed = pasted(block, tmp_path.resolve(), cwd=ROOT, seconds=220)
    assert "fedhist: round release: 2 of 2 nodes, 2000 users" in printed
