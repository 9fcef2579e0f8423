"""The worked example of docs/masking-your-messages.md, run as it stands: on the in-process grid and on Flower's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, RecordDict
from local_grid import LocalGrid, context_of, silent

from tests.support.api import ENVIRONMENT, open_federation

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "masking-your-messages.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = 2.0**-20
PRINTED = re.compile(r"round (\d): (\d) nodes, (\d+) examples, loss (\d\.\d+)")


def code_of_page() -> str:
    """All python blocks of the page, at the page's own lines."""
    text = PAGE.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for match in BLOCK.finditer(text):
        start = text.count("\n", 0, match.start(1))
        block = match[1].splitlines()
        lines[start : start + len(block)] = block
    return "\n".join(lines)


@pytest.fixture
def example() -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(code_of_page(), str(PAGE), "exec"), namespace)  # noqa: S102 - the page's own code
    return namespace


@pytest.fixture
def grid(example: dict[str, Any]) -> Any:
    """Eight virtual nodes with the example's ClientApp."""
    grid = LocalGrid.of([example["client_app"]] * 8)
    for place, (number, node) in enumerate(grid.nodes.items()):
        node.context = context_of(node=number, partition_id=place, num_partitions=8)
    return grid


def plain_average(example: dict[str, Any], contexts: list[Context], weights: np.ndarray) -> np.ndarray:
    """Federated averaging without masks, rounding or messages."""
    data = [example["examples_of"](context) for context in contexts]
    models = [example["fitted"](weights, rows, labels) for rows, labels in data]
    return np.average(models, axis=0, weights=[len(labels) for _, labels in data])


def lose(grid: Any, place: int, stage: str) -> None:
    """One node falls silent at this stage of the sums to come."""

    def fault(message: Message, node: Any) -> list[Message]:
        now = message.content.config_records["fedhist-sum"]["stage"]
        return silent(message, node) if now == stage else [node.answer(message)]

    grid.nodes[100 + place].fault = fault


def test_the_masked_model_is_that_of_federated_averaging(example: dict[str, Any], grid: Any) -> None:
    """Round by round, to within half a step, also in the one that loses a node; and the loss falls."""
    weights, losses = np.zeros(3), []
    for number in range(3):
        if number == 1:
            lose(grid, 5, "masking")
        masked, result = example["train_round"](grid, weights)
        inside = [node.context for place, node in enumerate(grid.nodes.values()) if number != 1 or place != 5]
        grid.nodes[105].fault = None
        assert list(result.nodes) == [context.node_id for context in inside]
        assert result.left_out == ({"no-answer": (105,)} if number == 1 else {})
        assert np.abs(masked - plain_average(example, inside, weights)).max() <= STEP / 2 + 1e-15
        weights = masked
        losses.append(example["evaluate_round"](grid, weights))
        exact = [
            (example["loss_of"](weights, *example["examples_of"](node.context)), node)
            for node in grid.nodes.values()
        ]
        counts = [len(example["examples_of"](node.context)[1]) for _, node in exact]
        assert abs(losses[-1] - np.average([loss for loss, _ in exact], weights=counts)) <= STEP / 2 + 1e-15
    assert np.log(2) > losses[0] > losses[1] > losses[2]


def test_the_server_app_trains(
    example: dict[str, Any], grid: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    example["server_app"](grid, context_of(node=1))
    assert_trained(capsys.readouterr().out)


def assert_trained(printed: str) -> None:
    rounds = PRINTED.findall(printed)
    assert [found[:3] for found in rounds] == [(number, "8", "450") for number in "123"]
    losses = [float(found[3]) for found in rounds]
    assert np.log(2) > losses[0] > losses[1] > losses[2]


def test_a_plain_message_gets_no_arrays(example: dict[str, Any]) -> None:
    content = RecordDict({"model": ArrayRecord([np.zeros(3)])})
    for kind in ("train", "evaluate"):
        context = context_of(node=100, partition_id=0, num_partitions=8)
        assert example["client_app"](Message(content, 100, kind), context).has_error()


# Flower reads its environment once, so it runs in a process of its own.
SIMULATION = """
import sys
from pathlib import Path

namespace = {"__name__": "example"}
exec(compile(Path(sys.argv[1]).read_text(), "page", "exec"), namespace)

from flwr.simulation import run_simulation

run_simulation(
    server_app=namespace["server_app"],
    client_app=namespace["client_app"],
    num_supernodes=8,
    backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2, "include_dashboard": False}},
)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_trains_on_flowers_simulation_engine(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(code_of_page(), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR", "RAY"))}
    done = subprocess.run(
        [sys.executable, "-c", SIMULATION, str(page)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
        env=environment | ENVIRONMENT | {"FLWR_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert_trained(done.stdout)


PROJECT = """
[project]
name = "averaging"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "averaging.app:server_app"
clientapp = "averaging.app:client_app"
"""


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_an_app_of_somebodys_trains_on_a_deployment(tmp_path: Path, example: dict[str, Any]) -> None:
    """The page's code in an app of its own, on three SuperNodes: every message is a new process.

    One sum is enough for that. Evaluating is another, which the simulation engine runs.
    """
    package = tmp_path / "app" / "averaging"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (package / "__init__.py").touch()
    code = code_of_page()
    for shown, used in {
        "minimum_nodes=8": "minimum_nodes=3",
        "range(3)": "range(1)",
        "loss = evaluate_round(grid, weights)": 'loss = print("weights", *weights) or 0.0',
    }.items():
        assert shown in code
        code = code.replace(shown, used)
    (package / "app.py").write_text(code, encoding="utf-8")
    configs: list[dict[str, Any]] = [
        {"partition-id": number, "num-partitions": 3, "memory-path": str(tmp_path / f"{number}.memory")}
        for number in range(3)
    ]
    with open_federation(tmp_path, configs) as federation:
        run = federation.submit(package.parent)
        federation.wait(run, seconds=300)
        printed = federation.log(run)
    assert [found[:3] for found in PRINTED.findall(printed)] == [("1", "3", str(40 + 50 + 60))]
    (weights,) = re.findall(r"weights (\S+) (\S+) (\S+)", printed)
    contexts = [context_of(node=100, partition_id=number, num_partitions=3) for number in range(3)]
    exact = plain_average(example, contexts, np.zeros(3))
    assert np.abs(np.array(weights, dtype=float) - exact).max() <= STEP / 2 + 1e-15
