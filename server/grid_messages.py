"""Messages over a Flower Grid: the nodes that are connected, and requests with their replies as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import monotonic, sleep

from flwr.app import Message
from flwr.serverapp import Grid

from fedhist.protocol.errors import RoundFailed, names_by_reason
from fedhist.protocol.events import Heard, Observer, ignore
from fedhist.protocol.wire.envelope import ANSWER, RECORD
from fedhist.server.collection import Reply
from fedhist.server.drop_outs import Declined

_POLL_SECONDS = 0.1
# How long to wait between looks for answers: twice as long after each that finds none.
_SHORTEST_WAIT, _LONGEST_WAIT = 0.05, 1.0
# Messages sent, or fetched, at once: the server holds no more than these, however many nodes there are.
_AT_ONCE = 64


def enough_nodes(
    grid: Grid, due: int, *, timeout: float, declined: Declined
) -> tuple[list[int], dict[str, tuple[int, ...]]]:
    """The nodes that are connected and have not declined, once they are enough, and those that have, by reason.

    Args:
        grid: where to look.
        due: the number of nodes that are enough.
        timeout: seconds to wait for them. RoundFailed after that.
        declined: the nodes that are not to be asked.
    """
    until = monotonic() + timeout
    while True:
        connected = sorted(set(grid.get_node_ids()))
        nodes = [node for node in connected if node not in declined.reasons]
        not_asked = declined.among(connected)
        if len(nodes) >= due:
            return nodes, not_asked
        if monotonic() >= until:
            earlier = f" (not asked again: {names_by_reason(not_asked)})" if not_asked else ""
            raise RoundFailed(
                f"{len(nodes)} nodes are connected and {due} are needed{earlier}; nothing was released",
                code="too-few-nodes",
            )
        sleep(_POLL_SECONDS)


def ask(
    grid: Grid,
    messages: Iterable[Message],
    *,
    timeout: float,
    observe: Observer = ignore,
    on_error: Callable[[str], None] = lambda reason: None,
) -> tuple[dict[str, int], Iterator[Reply]]:
    """Send the messages: the node of each by its id, and the replies as they come, until the time is up.

    Args:
        grid: where to.
        messages: what to send.
        timeout: seconds to wait for replies.
        observe: called with the number of replies so far.
        on_error: called with Flower's reason for each error in place of an answer. It may quote users' data.
    """
    nodes: dict[str, int] = {}
    waiting: set[str] = set()
    coming = iter(messages)
    while some := list(islice(coming, _AT_ONCE)):
        waiting |= set(grid.push_messages(some))
        nodes |= {message.metadata.message_id: message.metadata.dst_node_id for message in some}
    return nodes, _replies(
        grid, waiting & set(nodes), asked=len(nodes), timeout=timeout, observe=observe, on_error=on_error
    )


def _replies(
    grid: Grid,
    waiting: set[str],
    *,
    asked: int,
    timeout: float,
    observe: Observer,
    on_error: Callable[[str], None],
) -> Iterator[Reply]:
    """The replies to these messages. Flower's own `send_and_receive` looks every 3 s and holds all of them."""
    until, pause = monotonic() + timeout, _SHORTEST_WAIT
    while waiting and monotonic() < until:
        due = sorted(waiting)
        for first in range(0, len(due), _AT_ONCE):
            for message in grid.pull_messages(due[first : first + _AT_ONCE]):
                waiting.discard(message.metadata.reply_to_message_id)
                if message.has_error():
                    on_error(message.error.reason or "")
                yield _read_reply(message)
        observe(Heard(answered=asked - len(waiting), asked=asked))
        pause = min(2 * pause, _LONGEST_WAIT) if len(waiting) == len(due) else _SHORTEST_WAIT
        if waiting:
            sleep(min(pause, max(until - monotonic(), 0)))


def _read_reply(message: Message) -> Reply:
    """A reply with its header and its answer; anything missing or of another type is left out."""
    fields: dict[str, object] = {}
    data = None
    if message.has_content():
        fields = dict(message.content.config_records.get(RECORD, {}))
        arrays = message.content.array_records.get(ANSWER)
        array = None if arrays is None else arrays.get("answer")
        data = None if array is None or array.dtype != "uint8" else array.data
    metadata = message.metadata
    return Reply(metadata.reply_to_message_id, metadata.src_node_id, message.has_error(), fields, data)
