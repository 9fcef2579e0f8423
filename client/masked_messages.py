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
from typing import cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict

from fedhist.client.masked_device import proceed, resume
from fedhist.client.memory_file import MemoryFile
from fedhist.client.node_config import FLOWERS_KEYS, NodeSettings, read_node_config
from fedhist.client.node_log import outcome_of
from fedhist.client.policy import Policy
from fedhist.protocol.errors import DecodeError, InvalidInput, Refused
from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.device_session import start
from fedhist.protocol.masking.device_states import DeviceState, Prepared
from fedhist.protocol.masking.identities import participant_number
from fedhist.protocol.masking.keys import Identity
from fedhist.protocol.masking.stages import MaskingStage
from fedhist.protocol.masking.state_codec import save
from fedhist.protocol.privacy.randomness import Source, SystemSource
from fedhist.protocol.wire.envelope import ANSWER, PARTICIPANT_BYTES, RECORD, Field, Refusal, Status
from fedhist.protocol.wire.sum_request import (
    FEWEST_NODES,
    HANDLER,
    SUM_RECORD,
    SUM_VERSION,
    SumRequest,
    content_digest,
    read_sum_request,
)

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


class _HandlerFailed(Exception):
    """The app's handler gave nothing that can be masked. The node's log has said why."""


def node_settings(context: Context) -> NodeSettings:
    """What the node's own configuration says about masks. The server has no say in it."""
    config = context.node_config
    return read_node_config({name: config[name] for name in KEYS_OF_A_NODE if name in config})


def is_virtual(context: Context) -> bool:
    """Whether Flower's Simulation Engine made the node: it has its two keys, and no memory file.

    Not for deployed nodes whose configurations have the same two keys: they would be taken for virtual ones.
    """
    config = context.node_config
    return "memory-path" not in config and all(key in config for key in FLOWERS_KEYS)


def mod(
    *,
    require: bool = True,
    minimum_participants: int | None = None,
    minimum_corrupt_share: float = 0.0,
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
        minimum_corrupt_share: the least share of nodes that the sum must allow for as colluding with the server. A
            node's configuration may ask for more.
        max_sums: the most sums that the node takes part in, by its memory file. None is any number.
        memory: a file of the node's own, in which the session's state and the names of sums survive a crash; by default
            the `memory-path` of its configuration. A node without one refuses, unless it is simulated.
        identity: for signed masks, the node's own key and the directory of all keys; by default those at the
            `identity-path` and `directory-path` of its configuration. A node with an identity takes part in no other
            sums. The server must not have had a hand in either.
        simulated: True for a virtual node, which keeps the session in its Context. See `is_virtual`.
    """
    policy = Policy(minimum_participants=minimum_participants, minimum_corrupt_share=minimum_corrupt_share)
    if max_sums is not None and max_sums < 0:
        raise InvalidInput(f"max_sums is {max_sums}", allowed="0 or more, or None")
    return _Mod(require, policy, max_sums, memory, identity, simulated)


@dataclass(frozen=True)
class _InContext:
    """What a MemoryFile does, in a virtual node's Context: the names of one run's sums, and its newest session."""

    context: Context

    def begin_sum(self, name: str, *, most: int | None) -> None:
        asked = self._asked()
        if name in asked:
            raise Refused(Refusal.SECOND_REQUEST)
        if most is not None and len(asked) >= most:
            raise Refused(Refusal.OVER_BUDGET)
        self.context.state.config_records[SUM_RECORD] = ConfigRecord({"asked": [*asked, name]})

    def keep(self, name: str, state: bytes) -> None:
        record = ConfigRecord({"asked": self._asked(), "name": name, "state": state})
        self.context.state.config_records[SUM_RECORD] = record

    def take(self, name: str, resume: Callable[[bytes], DeviceState | Prepared]) -> DeviceState | Prepared:
        record = self.context.state.config_records.get(SUM_RECORD, ConfigRecord())
        state = record.get("state")
        if record.get("name") != name or not isinstance(state, bytes):
            raise Refused(Refusal.NO_SESSION)
        session = resume(state)
        self.context.state.config_records[SUM_RECORD] = ConfigRecord({"asked": self._asked()})
        return session

    def _asked(self) -> list[str]:
        record = self.context.state.config_records.get(SUM_RECORD, ConfigRecord())
        return cast(list[str], record.get("asked", []))


@dataclass(frozen=True)
class _Mod:
    """What `mod` was given. It never raises: what a mod raises is sent to the server with its text."""

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
        request = None
        try:
            request, stage = read_sum_request(fields)
            if request.message_type != message.metadata.message_type:
                raise Refused(Refusal.MALFORMED)
            sent = fields.get("message")
            del message.content[SUM_RECORD]
            vector = partial(_vector, request, message, context, handler)
            data = self._answer(request, stage, sent, context, vector)
        except DecodeError:
            return _reply_to(message, request, Status.REFUSED, Refusal.MALFORMED)
        except _HandlerFailed:
            return _reply_to(message, request, Status.FAILED, HANDLER)
        except Exception as error:
            if isinstance(error, InvalidInput):
                # The node's own files: its operator must know, and the server learns no more than the kind.
                log.error("%s", error)
            return _reply_to(message, request, *outcome_of(error))
        return _reply_to(message, request, Status.ANSWER, data=data)

    def _unmasked(self, message: Message, context: Context, handler: Handler) -> Message:
        if not self.require:
            return handler(message, context)
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
        memory, source = self._memory(context), SystemSource()
        # A name is new in its Flower run; a memory file outlives that.
        name = f"sum/{context.run_id}/{request.name}"
        if stage is MaskingStage.ADVERTISING:
            state, answer = self._begin(request, name, context, memory, source)
        else:
            # Gone before it is used: a step that fails half way, or a handler that does, is not repeated.
            session = memory.take(name, partial(resume, request.terms))
            if not isinstance(sent, bytes) or isinstance(session, Prepared):
                raise Refused(Refusal.MALFORMED)
            state, answer = proceed(session, sent, vector=vector, source=source)
        memory.keep(name, state)
        if not answer:
            raise Refused(Refusal.UNSAFE)
        return answer

    def _memory(self, context: Context) -> MemoryFile | _InContext:
        file = self.memory(context)
        if file is not None:
            return MemoryFile(file)
        if not self.simulated(context):
            log.error(
                "a masked sum was refused: the node has no file in which a masking session would survive; add a "
                "memory-path to its configuration, or memory= to fedhist.masking.mod."
            )
            raise Refused(Refusal.NO_MEMORY)
        return _InContext(context)

    def _begin(
        self,
        request: SumRequest,
        name: str,
        context: Context,
        memory: MemoryFile | _InContext,
        source: Source,
    ) -> tuple[bytes, bytes]:
        identity = self.identity(context)
        policy = _stricter(self.policy, node_settings(context).policy)
        policy = policy.for_device(directory=0 if identity is None else len(identity.directory))
        fewest = max(policy.fewest, FEWEST_NODES)
        for holds, refusal in (
            (request.signed or identity is None, Refusal.NOT_SIGNED),
            (identity is not None or not request.signed, Refusal.NO_IDENTITY),
            (request.minimum_survivors >= fewest, Refusal.FEW_PARTICIPANTS),
            (request.corrupt_share >= policy.minimum_corrupt_share, Refusal.SMALL_CORRUPT_SHARE),
        ):
            if not holds:
                raise Refused(refusal)
        memory.begin_sum(name, most=self.max_sums)
        me = context.node_id if identity is None else participant_number(identity.public)
        state, advertisement = start(request.terms, me, source=source, identity=identity, fewest=fewest)
        return save(state), me.to_bytes(PARTICIPANT_BYTES, "little") + advertisement


def _stricter(app: Policy, node: Policy) -> Policy:
    """The floors of both; None where neither has one."""
    floors = [one.minimum_participants for one in (app, node) if one.minimum_participants is not None]
    return Policy(
        minimum_participants=max(floors, default=None),
        minimum_corrupt_share=max(app.minimum_corrupt_share, node.minimum_corrupt_share),
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
        log.error("the handler's answer can't be masked, and the node is no part of the sum: %s", problem)
        raise _HandlerFailed from None
    except Exception as error:
        # Where it was, and not what it says: that may quote users' data.
        frames = traceback.extract_tb(error.__traceback__)
        where = "".join(f"\n  {frame.filename}, line {frame.lineno}, in {frame.name}" for frame in frames)
        log.error("the handler raised %s, and the node is no part of the sum:%s", type(error).__name__, where)
        raise _HandlerFailed from None
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


def _reply_to(
    message: Message, request: SumRequest | None, status: Status, reason: str = "", data: bytes | None = None
) -> Message:
    fields: dict[str, Field] = {"version": SUM_VERSION, "status": status.value, "reason": str(reason)}
    if request is not None:
        fields |= request.reply_fields(status, str(reason))
    content = RecordDict({RECORD: ConfigRecord({**fields})})
    if data is not None:
        array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
        content.array_records[ANSWER] = ArrayRecord({"answer": array})
    return Message(content, reply_to=message)
