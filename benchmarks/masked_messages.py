"""What `fedhist.masking` costs: a masked sum of arrays next to a plain one, on the same nodes of Flower's simulation.

    python benchmarks/masked_messages.py                # 20 nodes
    python benchmarks/masked_messages.py --nodes 10 --repeats 2

The plain sum is one exchange: the server sends an array, every node returns one of the same shape, 64-bit floats, and
the server adds them up. The masked one has five. The two alternate, and the least of each counts. The milliseconds are
the CPU of one node in all its messages, handler included, without what Flower does around them. Bytes are those that a
node sends.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic, process_time, sleep

import numpy as np

from fedhist.simulations.engines.quiet import quieten

quieten()  # before Flower is imported

from flower_rounds import start_flower  # noqa: E402
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402

from fedhist import masking  # noqa: E402

SIZES = (1_000, 100_000, 1_000_000)
COUNTED = "counted"


def counted(message: Message, context: Context, answer: Callable[[Message, Context], Message]) -> Message:
    """Keeps count of a node's CPU and of the bytes that it sends, for the query that asks for both."""
    before = process_time()
    reply = answer(message, context)
    spent = process_time() - before
    record = context.state.metric_records.get(COUNTED, MetricRecord({"cpu": 0.0, "sent": 0}))
    sent = sum(
        len(array.data) for arrays in reply.content.array_records.values() for array in arrays.values()
    )
    counts = {"cpu": float(record["cpu"]) + spent, "sent": int(record["sent"]) + sent}
    context.state.metric_records[COUNTED] = MetricRecord(counts)
    return reply


def make_client() -> ClientApp:
    """The app of every node: a handler that returns an array, and one that tells what that took."""
    app = ClientApp()

    @app.train(mods=[counted, masking.mod(require=False, simulated=masking.is_virtual)])
    def train(message: Message, context: Context) -> Message:
        values = message.content["model"].to_numpy_ndarrays()[0]
        return Message(RecordDict({"model": ArrayRecord([values + 0.5])}), reply_to=message)

    @app.query()
    def tell(message: Message, context: Context) -> Message:
        return Message(RecordDict({COUNTED: context.state.metric_records.pop(COUNTED)}), reply_to=message)

    return app


def ask(grid: Grid, content: RecordDict, kind: str) -> list[Message]:
    """One plain exchange, without the three seconds between two looks of Flower's own `send_and_receive`."""
    messages = [Message(content, node, kind) for node in grid.get_node_ids()]
    waiting, replies = set(grid.push_messages(messages)), []
    while waiting:
        came = list(grid.pull_messages(sorted(waiting)))
        replies += came
        waiting -= {message.metadata.reply_to_message_id for message in came}
        sleep(0 if came else 0.02)
    return replies


def plain_sum(grid: Grid, content: RecordDict) -> np.ndarray:
    return sum(reply.content["model"].to_numpy_ndarrays()[0] for reply in ask(grid, content, "train"))


def masked_sum(grid: Grid, content: RecordDict) -> np.ndarray:
    return masking.sum_on_grid(grid, content, bound=8.0).sums["model"].to_numpy_ndarrays()[0]


def measured(run: Callable[[Grid, RecordDict], np.ndarray], grid: Grid, content: RecordDict) -> np.ndarray:
    """Seconds, and the mean node's CPU and bytes, of one sum that is right."""
    began = monotonic()
    total = run(grid, content)
    seconds = monotonic() - began
    told = [reply.content[COUNTED] for reply in ask(grid, RecordDict(), "query")]
    if np.abs(total - 0.5 * len(told)).max() > 1e-6 * len(told):
        raise SystemExit("the sum is wrong")
    return np.array([seconds, *(np.mean([record[name] for record in told]) for name in ("cpu", "sent"))])


def serve(grid: Grid, context: Context, *, nodes: int, repeats: int) -> None:
    """The ServerApp: a line of the table for each size."""
    while len(list(grid.get_node_ids())) < nodes:
        sleep(0.1)
    for size in SIZES:
        content = RecordDict({"model": ArrayRecord([np.zeros(size)])})
        measured(plain_sum, grid, content)  # starts the workers
        measured(masked_sum, grid, content)
        runs = [
            (measured(plain_sum, grid, content), measured(masked_sum, grid, content)) for _ in range(repeats)
        ]
        plain, masked = (np.min([run[place] for run in runs], axis=0) for place in (0, 1))
        ratio = masked / plain
        print(
            f"{size:>10,}{nodes:>7}{plain[0]:>9.2f}{masked[0]:>10.2f}{ratio[0]:>7.1f}{1e3 * plain[1]:>10.1f}"
            f"{1e3 * masked[1]:>11.1f}{ratio[1]:>7.1f}{plain[2]:>12,.0f}{masked[2]:>12,.0f}{ratio[2]:>7.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement")
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    print(
        f"{'values':>10}{'nodes':>7}{'plain s':>9}{'masked s':>10}{'ratio':>7}{'plain ms':>10}{'masked ms':>11}"
        f"{'ratio':>7}{'plain B':>12}{'masked B':>12}{'ratio':>7}",
        flush=True,
    )
    server = ServerApp()
    server.main()(partial(serve, nodes=arguments.nodes, repeats=arguments.repeats))
    start_flower(server, make_client(), arguments.nodes)


if __name__ == "__main__":
    main()
