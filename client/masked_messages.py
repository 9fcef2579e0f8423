"""A Flower mod that lets a ClientApp's own answers leave the node under masks only.

    @app.train(mods=[fedhist.masking.mod()])
    def train(message: Message, context: Context) -> Message: ...

The handler stays as it is: it gets the server's content and returns arrays. The mod answers the other messages of the
masked sum itself, calls the handler once, when its arrays are due, and masks them.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flwr.app import Context, Error, Message

from fedhist.client.context_memory import ContextMemory
from fedhist.client.memory_file import MemoryFile
from fedhist.client.node_config import NodeSettings, read_node_config
from fedhist.client.node_replies import answered, log_refusal, not_answered
from fedhist.client.policy import Policy
from fedhist.display.log_lines import TIMED, log_shown
from fedhist.display.visible_text import line
from fedhist.protocol.errors import DecodeError, HandlerFailed, InvalidInput, Refused
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.privacy.randomness import SystemSource
from fedhist.protocol.wire.envelope import Refusal
from fedhist.protocol.wire.sum_request import (
    FEWEST_NODES,
    SUM_RECORD,
    SUM_VERSION,
    SumRequest,
    content_digest,
    read_sum_request,
)

if TYPE_CHECKING:
    from fedhist.protocol.masking.keys import Identity

log = logging.getLogger("fedhist")
Handler = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Handler], Message]

KEYS_OF_A_NODE = (
    "memory-path",
    "identity-path",
    "directory-path",
    "minimum-participants",
    "minimum-corrupt-share",
)
"""The keys of a node's configuration that its operator may set for any app with the mod; others are the app's."""
_FAILED_PRECONDITION = 6
"""Flower's code for a mod that does not let a message pass."""


def node_settings(context: Context) -> NodeSettings:
    """What the node's own configuration says about masks. The server has no say in it."""
    config = context.node_config
    return read_node_config({name: config[name] for name in KEYS_OF_A_NODE if name in config})


def mod(
    *,
    require: bool = True,
    minimum_participants: int | None = None,
    minimum_corrupt_share: float | None = None,
    max_sums: int | None = None,
    memory: Callable[[Context], Path | None] = lambda context: node_settings(context).memory_path,
    identity: Callable[[Context], Identity | None] = lambda context: node_settings(context).identity(),
    simulated: Callable[[Context], bool] = lambda context: False,
) -> Mod:
    """A mod for handlers whose arrays are summed under masks by `sum_on_grid`. Put it before other mods.

    Args:
        require: whether messages that are not part of a masked sum are refused. With False the server may as well ask
            for the same arrays in the clear.
        minimum_participants: the fewest nodes in a sum; 3 is the least. None is 3, and with an identity more than half
            of its directory. A node's configuration may ask for more.
        minimum_corrupt_share: the least share of nodes that the sum must allow for as colluding with the server, and
            with an identity of those in its directory, all of whom may be in the sum. None is 0, and with an identity
            a twentieth. A node's configuration may ask for more.
        max_sums: the most sums that the node takes part in, by its memory file. None is any number.
        memory: a file of the node's own, in which the session's state and the names of sums survive a crash; by default
            the `memory-path` of its configuration. A node without one refuses, unless it is simulated.
        identity: for signed masks, the node's own key and the directory of all keys; by default those at the
            `identity-path` and `directory-path` of its configuration. A node with an identity takes part in no other
            sums. The server must not have had a hand in either.
        simulated: True for a virtual node, which keeps the session in its Context. See
            `fedhist.client.virtual_nodes.is_virtual`.
    """
    policy = Policy(minimum_participants=minimum_participants, minimum_corrupt_share=minimum_corrupt_share)
    if max_sums is not None and max_sums < 0:
        raise InvalidInput(f"max_sums is {max_sums}", allowed="0 or more, or None")
    return _Mod(require, policy, max_sums, memory, identity, simulated)


@dataclass(frozen=True)
class _Mod:
    """What `mod` was given. It never raises: what a mod raises is sent to the server with its text.

    What masks is loaded in a step of a masked sum alone: a node starts a process for every message.
    """

    require: bool
    policy: Policy
    max_sums: int | None
    memory: Callable[[Context], Path | None]
    identity: Callable[[Context], Identity | None]
    simulated: Callable[[Context], bool]

    def __call__(self, message: Message, context: Context, handler: Handler) -> Message:
        fields = message.content.config_records.get(SUM_RECORD) if message.has_content() else None
        if fields is None:
            return self._unmasked(message, context, handler)
        request, about = None, [message.metadata.message_type]
        with log_shown(TIMED):
            try:
                request, stage = _request_in(message)
                about = [f"sum {request.name}", stage.value]
                sent = fields.get("message")
                del message.content[SUM_RECORD]
                vector = partial(_vector, request, message, context, handler)
                data = self._answer(request, stage, sent, context, vector)
            except Exception as error:
                return not_answered(error, message, context, request, about=about, version=SUM_VERSION)
        return answered(message, request, data)

    def _unmasked(self, message: Message, context: Context, handler: Handler) -> Message:
        if not self.require:
            return handler(message, context)
        with log_shown(TIMED):
            log_refusal(Refused(Refusal.NOT_MASKED), context, [message.metadata.message_type])
        reason = "this node answers such messages as part of a masked sum only: fedhist.masking.sum_on_grid"
        return Message(Error(code=_FAILED_PRECONDITION, reason=reason), reply_to=message)

    def _answer(
        self,
        request: SumRequest,
        stage: MaskingStage,
        sent: object,
        context: Context,
        vector: Callable[[], Integers],
    ) -> bytes:
        from fedhist.client.masked_device import step

        memory = self._memory(context)
        # A name is new in its Flower run; a memory file outlives that.
        name = f"sum/{context.run_id}/{request.name}"
        return step(
            name,
            request.terms,
            sent,
            begins=stage is MaskingStage.ADVERTISING,
            sessions=memory,
            node=context.node_id,
            admitted=partial(self._admitted, request, name, context, memory),
            vector=vector,
            source=SystemSource(),
        )

    def _memory(self, context: Context) -> MemoryFile | ContextMemory:
        file = self.memory(context)
        if file is not None:
            return MemoryFile(file)
        if not self.simulated(context):
            advice = "add a memory-path to the node's configuration, or memory= to fedhist.masking.mod"
            raise Refused(Refusal.NO_MEMORY, local=advice)
        return ContextMemory(context, virtual=True)

    def _admitted(
        self, request: SumRequest, name: str, context: Context, memory: MemoryFile | ContextMemory
    ) -> tuple[Identity | None, int]:
        """The node's identity in a signed sum, and its floor. Raises Refused, or notes that the sum begins."""
        identity = self.identity(context)
        policy = _stricter(self.policy, node_settings(context).policy)
        policy = policy.for_device(directory=0 if identity is None else len(identity.directory))
        fewest = max(policy.fewest, FEWEST_NODES)
        for holds, refusal in (
            (request.signed or identity is None, Refusal.NOT_SIGNED),
            (identity is not None or not request.signed, Refusal.NO_IDENTITY),
            (request.minimum_survivors >= fewest, Refusal.FEW_PARTICIPANTS),
            (policy.expects(request.corrupt_share, request.participants), Refusal.SMALL_CORRUPT_SHARE),
        ):
            if not holds:
                raise Refused(refusal)
        memory.begin_sum(name, most=self.max_sums)
        return identity, fewest


def _request_in(message: Message) -> tuple[SumRequest, MaskingStage]:
    try:
        request, stage = read_sum_request(message.content.config_records[SUM_RECORD])
    except DecodeError:
        raise Refused(Refusal.MALFORMED) from None
    # A handler may look at either, so the server must not choose them for each node.
    metadata = message.metadata
    if (metadata.message_type, metadata.group_id) != (request.message_type, request.name):
        raise Refused(Refusal.MALFORMED)
    return request, stage


def _stricter(app: Policy, node: Policy) -> Policy:
    """The floors of both; None where neither has one."""
    fewest = [one.minimum_participants for one in (app, node) if one.minimum_participants is not None]
    shares = [one.minimum_corrupt_share for one in (app, node) if one.minimum_corrupt_share is not None]
    return Policy(
        minimum_participants=max(fewest, default=None), minimum_corrupt_share=max(shares, default=None)
    )


def _vector(request: SumRequest, message: Message, context: Context, handler: Handler) -> Integers:
    """What the handler answers to the content that all nodes were promised, as the vector to mask."""
    if content_digest(message.content) != request.content:
        raise Refused(Refusal.OTHER_CONTENT)
    try:
        reply = handler(message, context)
        if not reply.has_content():
            raise InvalidInput("the handler returned an error", allowed="a message with the arrays")
        arrays = {
            record: {name: array.numpy() for name, array in named.items()}
            for record, named in reply.content.array_records.items()
        }
        vector, clamped = request.layout.to_vector(arrays, _weight_in(reply, request.weighted_by))
    except InvalidInput as problem:
        raise HandlerFailed(f"its answer can't be masked: {line(problem)}") from None
    except Exception as error:
        # Where it was, and not what it says: that may quote users' data.
        frames = traceback.extract_tb(error.__traceback__)
        where = "".join(f"\n  {frame.filename}, line {frame.lineno}, in {frame.name}" for frame in frames)
        raise HandlerFailed(f"it raised {type(error).__name__} in{where}") from None
    if clamped:
        log.warning(
            "%d of %d values were beyond the public bound of the masked sum and were clamped to it",
            clamped,
            len(vector),
        )
    return vector


def _weight_in(reply: Message, name: str) -> int | None:
    records: Sequence[object] = [metrics.get(name) for metrics in reply.content.metric_records.values()]
    found = [value for value in records if value is not None]
    return cast(int, found[0]) if len(found) == 1 else None
