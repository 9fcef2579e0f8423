"""The Flower side of a device: a query handler for each round, and one for each step of a masked round.

`app` is the ClientApp of a SuperNode that reads its own file:

    flower-supernode ... --node-config 'data-path="visits.csv" memory-path="memory.db" max-epsilon=2.0 max-delta=1e-4'

`mount` puts the same handlers on a ClientApp of your own, with your own function that returns the node's users: a data
frame, a matrix, a path or a population.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context
from flwr.clientapp import ClientApp

from fedhist.client.files.columns import USUAL_COLUMNS, Columns
from fedhist.client.freed_memory import spare_loaded_modules
from fedhist.client.node_config import NodeSettings
from fedhist.client.node_setup import (
    Load,
    node_identity,
    node_items,
    node_memory,
    node_plugins,
    node_policy,
    node_population,
)
from fedhist.client.policy import Policy
from fedhist.client.populations import Label
from fedhist.client.round_handlers import MaskedHandler, Node, PlainHandler
from fedhist.protocol.errors import Refused
from fedhist.protocol.histograms import Labels, Population
from fedhist.protocol.plan.window import Window
from fedhist.protocol.privacy.randomness import Source, SystemSource
from fedhist.protocol.rounds import Round
from fedhist.protocol.wire.envelope import MASKED_STAGES, Refusal

if TYPE_CHECKING:
    from fedhist.protocol.masking.keys import Identity

__all__ = [
    "Load",
    "app",
    "mount",
    "node_identity",
    "node_items",
    "node_memory",
    "node_plugins",
    "node_policy",
    "node_population",
]


def mount(
    app: ClientApp,
    load: Load,
    *,
    columns: Columns = USUAL_COLUMNS,
    items: Sequence[Label] | Callable[[Context], Labels | None] | None = None,
    policy: Policy | Callable[[Context], Policy] = Policy(),  # noqa: B008 - frozen
    source: Callable[[Context], Source] = lambda context: SystemSource(),
    memory: Callable[[Context], Path | None] = lambda context: None,
    identity: Callable[[Context], Identity | None] = lambda context: None,
    simulated: Callable[[Context], bool] = lambda context: False,
    plugins: Callable[[Context], None] = lambda context: None,
) -> ClientApp:
    """Let an app answer both rounds: message types `query.select` and `query.release`, and those of masked rounds.

    Args:
        app: your ClientApp; its other handlers stay as they are.
        load: the node's users: a data frame of pandas, polars or pyarrow, anything with an Arrow stream, a
            `datasets.Dataset`, a scipy matrix of users by items, a path or a population. Called once for each round,
            after the request was checked and before it is charged: what it raises costs nothing. It must not depend on
            what the server sends. Rows that break a rule are left out and counted in the node's log.
        columns: of a table or frame, those of the user, the item and the count, and bins for numbers. With a column
            of the time the node answers plans with a window, and no others; it selects the rows of the window itself,
            and answers each day once (`Policy.window_runs`). Data without times is no answer to such a plan.
        items: the public list of a closed domain, the same everywhere, or a function of the node's Context that returns
            it, for a `load` that knows it as well. Requests for another list are refused before data is read. Bins are
            such a list themselves, and a population has its own.
        policy: what the node refuses, or a function of its Context that returns it.
        source: where the node's draws come from. Anything but the default is for simulations.
        memory: a file in which the node remembers what it was asked, what that cost, and its masking sessions. A limit
            on cost and masked rounds need one. With None, the rest is kept in the node's Context, for one Flower run.
        identity: for signed masking, the node's own key and the directory of all keys. The server must not have had a
            hand in either.
        simulated: True for a virtual node, whose users are not real and which needs no memory file: `is_virtual`. No
            node is taken for one by default: people start real nodes with a partition-id, too.
        plugins: loads the methods from outside that the node has, before each request is read. A plan that uses others,
            or other code of the same name, is refused.
    """
    spare_loaded_modules()
    listed = items if callable(items) else None if items is None else tuple(items)

    def users(context: Context, window: Window | None) -> Population:
        from fedhist.client.files.read import is_population, node_users

        data, read = load(context), columns
        if isinstance(data, NodeSettings):
            data = data.population(window)
        elif window is not None and not simulated(context):
            if is_population(data) or columns.time is None:
                raise Refused(Refusal.NO_WINDOW, local="its users come without times")
            read = replace(columns, window=window)
        return node_users(data, columns=read, items=None if callable(listed) else listed)

    def has_times(context: Context) -> bool:
        return columns.time is not None or "time-column" in context.node_config

    def public(context: Context) -> Labels | None:
        return listed(context) if callable(listed) else listed

    node = Node(users, policy, source, memory, identity, simulated, plugins, public, has_times)
    for round_ in Round:
        app.query(round_.value)(PlainHandler(node, round_))
    for stage in MASKED_STAGES:
        app.query(stage)(MaskedHandler(node, stage))
    return app


app = mount(
    ClientApp(),
    node_population,
    policy=node_policy,
    memory=node_memory,
    identity=node_identity,
    plugins=node_plugins,
    items=node_items,
)
