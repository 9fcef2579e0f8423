"""The worked example of docs/plug-into-flower.md, run as it stands on the in-process grid."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from local_grid import LocalGrid, context_of

from fedhist import RoundFailed
from tests.support.refusals import refused

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "plug-into-flower.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NODES = range(100, 110)


def run_blocks(count: int | None = None) -> dict[str, Any]:
    """What the first python blocks of the page define."""
    text = PAGE.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    assert len(found) == 4
    namespace: dict[str, Any] = {"__name__": "example"}
    for match in found[:count]:
        # Blank lines in front, so that a traceback shows the page's own line.
        line = text.count("\n", 0, match.start(1))
        exec(compile("\n" * line + match[1], str(PAGE), "exec"), namespace)  # noqa: S102 - the page's own code
    return namespace


@pytest.fixture
def example() -> dict[str, Any]:
    return run_blocks()


@pytest.fixture
def grid_of(tmp_path: Path) -> Callable[..., Any]:
    """Ten nodes, all with the example's ClientApp, as Flower would start it on each: with a file, or virtual."""

    def build(example: dict[str, Any], *, virtual: bool = False) -> Any:
        grid = LocalGrid.of([example["client_app"]] * len(NODES))
        for place, (number, node) in enumerate(grid.nodes.items()):
            node.context = context_of(node=number, partition_id=place, num_partitions=len(NODES))
            if not virtual:
                path = tmp_path / f"{number}.csv"
                example["visits_of"](node.context).write_csv(path)
                node.context = context_of(
                    node=number,
                    data_path=str(path),
                    user_column="visitor",
                    item_column="page",
                    memory_path=str(tmp_path / f"{number}.memory"),
                )
        return grid

    return build


def exact(example: dict[str, Any], grid: Any) -> Any:
    pages = [example["visits_of"](node.context)["page"] for node in grid.nodes.values()]
    return np.array([sum((column == page).sum() for column in pages) for page in example["PAGES"]])


def ask(app: ClientApp, kind: str) -> Message:
    content = RecordDict({"weights": ArrayRecord([np.array([1.0, 2.0])])})
    return app(Message(content, 100, kind), context_of(node=100))


@pytest.mark.parametrize("virtual", [False, True], ids=["deployed", "simulated"])
def test_their_server_app_trains_as_before_and_also_releases(
    example: dict[str, Any], grid_of: Callable[..., Any], capsys: pytest.CaptureFixture[str], virtual: bool
) -> None:
    grid = grid_of(example, virtual=virtual)
    example["server_app"](grid, context_of(node=1))
    kinds = [message.metadata.message_type for message in grid.asked]
    assert kinds == ["train"] * 10 + ["query.select"] * 10 + ["query.release"] * 10
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "weights 1.0 1.0 1.0"
    printed = [line.split() for line in lines]
    assert [words[0] for words in printed] == example["PAGES"]
    released, least = (np.array([float(words[place]) for words in printed]) for place in (1, 4))
    expected = exact(example, grid)
    # Ten nodes of 2,000 visitors: clipping and noise are small, whatever threshold is chosen.
    assert np.abs(released - expected).sum() < 0.03 * expected.sum()
    assert (least <= released).all()
    assert (least > 0.9 * expected).all()


@pytest.mark.parametrize("kind", ["train", "query.health"])
def test_their_handlers_answer_as_they_did_without_ours(example: dict[str, Any], kind: str) -> None:
    before, after = ask(run_blocks(1)["client_app"], kind), ask(example["client_app"], kind)
    assert list(after.content) == (["weights", "metrics"] if kind == "train" else ["health"])
    assert before.content == after.content


def test_the_nodes_policy_holds_on_the_page_too(
    example: dict[str, Any], grid_of: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grid_of(example)
    for _ in range(2):
        example["server_app"](grid, context_of(node=1))
    # A limit of epsilon and delta together counts runs tightly, so that a few more fit than their sum would allow.
    with refused(RoundFailed, "no-answer", "over-budget"):
        for _ in range(10):
            example["server_app"](grid, context_of(node=1))
