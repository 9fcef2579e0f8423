"""Requests and replies as flat fields, the form in which a message carrier such as Flower takes them.

    request   version · run · round · plan (JSON) · plan-digest · items-digest · asks · what the rounds before hand on
              (`protocol/measurements/base.py`) and settle (`protocol/rounds.py`) · seeded, in simulations alone
    reply     version · run · round · plan-digest · status · reason · user data apart, as the codec's bytes

A run's name is new for every run, so that an answer to an older one can be told from an answer to this one.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from fedhist.display.text import is_hidden
from fedhist.protocol.errors import (
    DecodeError,
    InvalidInput,
    OtherPlugin,
    OutOfBounds,
    Refused,
    UnexpectedMessage,
)
from fedhist.protocol.histograms import MAX_USER_TOTAL, Integers
from fedhist.protocol.items import item_bytes
from fedhist.protocol.masking.wire import MaskingStage
from fedhist.protocol.measurements import MEASUREMENTS
from fedhist.protocol.measurements.base import take
from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.rules import MAX_USERS
from fedhist.protocol.plugins import Plugin, registered
from fedhist.protocol.privacy.randomness import Source
from fedhist.protocol.rounds import SETTLED_FIELDS, Contribution, Labels, Request, Round, Settled
from fedhist.protocol.wire.keyed_codec import decode_keyed, encode_keyed

# Contributions as bytes: a fixed header, then the values, and nothing after them.
#
#   magic "FH" · version u8 · round u8 · plan digest 32 bytes · users u32 · width u8 · length u32 · values · keyed part
#
# The keyed part is there over an open domain only, see `protocol/wire/keyed_codec.py`. All little-endian; values are
# signed and 4 or 8 bytes wide. The width is the smallest that holds the largest value the plan admits for the number
# of users, so it tells nothing of the data.

VERSION = 1
_HEADER = struct.Struct("<2sBB32sIBI")
_MAGIC = b"FH"
_ROUND_CODES = {Round.SELECT: 1, Round.RELEASE: 2, Round.DISCOVER: 3}
_ROUNDS = {code: round_ for round_, code in _ROUND_CODES.items()}


def value_width(request: Request, users: int) -> int:
    """4 bytes when every value that `users` users can add up to fits in them, else 8."""
    return 4 if request.measurement.shape.largest * users <= MAX_USER_TOTAL else 8


def encode(contribution: Contribution, request: Request, labels: Labels | None = None) -> bytes:
    """The bytes of a contribution that answers the request; `labels` name its item numbers, None by themselves."""
    shape = request.measurement.shape
    columns = 0 if contribution.keyed is None else contribution.keyed.values.shape[1]
    if (contribution.round, len(contribution.values), columns) != (
        request.round,
        shape.length,
        shape.columns,
    ):
        raise UnexpectedMessage(state=request, message=contribution)
    width = value_width(request, contribution.users)
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        _ROUND_CODES[contribution.round],
        contribution.plan_digest,
        contribution.users,
        width,
        len(contribution.values),
    )
    dense = header + contribution.values.astype(f"<i{width}").tobytes()
    if contribution.keyed is None:
        return dense
    return dense + encode_keyed(contribution.keyed, shape.bins, labels)


def decode(data: bytes, request: Request) -> tuple[Contribution, Labels | None]:
    """The contribution in these bytes, refused unless it answers this very request, and its items' labels."""
    shape = request.measurement.shape
    if len(data) < _HEADER.size:
        raise DecodeError(f"a contribution has at least {_HEADER.size} bytes, this one {len(data)}")
    magic, version, round_code, digest, users, width, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise DecodeError("these bytes are not a contribution")
    if version != VERSION:
        raise DecodeError(f"contribution of version {version}; this side speaks version {VERSION}")
    if _ROUNDS.get(round_code) is not request.round:
        raise DecodeError(f"contribution of another round (code {round_code}) than {request.round}")
    if digest != request.plan.digest:
        raise DecodeError("contribution for another plan")
    if not 1 <= users <= MAX_USERS:
        raise DecodeError(f"contribution of {users} users; allowed: 1 to {MAX_USERS}")
    if width != value_width(request, users):
        raise DecodeError(f"values of {width} bytes where {value_width(request, users)} are due")
    if length != shape.length:
        raise DecodeError(f"{length} values where {shape.length} are due")
    end = _HEADER.size + width * length
    if len(data) < end or (len(data) != end and not shape.columns):
        raise DecodeError(f"{len(data)} bytes where {end} are due")
    values = np.frombuffer(data[:end], dtype=f"<i{width}", offset=_HEADER.size).astype(np.int64)
    keyed, labels = None, None
    if shape.columns:
        keyed, labels = decode_keyed(data[end:], shape.columns, shape.bins)
        _check_bounds(keyed.values, shape.largest * users)
    _check_bounds(values, shape.largest * users)
    contribution = Contribution(
        round=request.round, plan_digest=digest, users=users, values=values, keyed=keyed
    )
    return contribution, labels


def _check_bounds(values: Integers, largest: int) -> None:
    if len(values) and (int(values.min()) < 0 or int(values.max()) > largest):
        raise OutOfBounds(f"a value outside 0 to {largest}, the most that its users can add up to")


RECORD = "fedhist"
"""The name of our record in a message, and in a node's state."""

ANSWER = "fedhist-answer"
"""The name of the record that holds an answer's bytes."""

MASKING = "fedhist-masking"
"""The name of a masked round's message in our record, and of the session's record in a node's state."""

MASKED_STAGES = tuple(MaskingStage)
"""The stages of a masked round; messages are of type `query.advertising` and so on."""

PARTICIPANT_BYTES = 8
"""The first answer of a masked round begins with the participant's number, little-endian, in this number of bytes."""

ENVELOPE_VERSION = 2
MAX_RUN_NAME = 64
_ITEMS_TAG = b"fedhist/1/items"
_SEEDED = "seeded"
_OTHER_FIELDS = {"version", "run", "round", "plan", "plan-digest", "items-digest", "asks", _SEEDED, MASKING}

Field = str | int | bytes | list[int]


class Refusal(StrEnum):
    """Why a device declines or fails; the whole vocabulary, so that no reply can carry data. Each has a sentence."""

    in_words: str

    def __new__(cls, value: str, in_words: str = "") -> Refusal:
        """A reason, and what it says of the node."""
        reason = str.__new__(cls, value)
        reason._value_, reason.in_words = value, in_words
        return reason

    MALFORMED = "malformed", "the node can't read the request; it may have another version of fedhist"
    OVER_BUDGET = "over-budget", "the node's own limit on cost would be passed"
    LARGE_DELTA = "large-delta", "the plan's rounds may cost more delta than the node's max-plan-delta"
    NOT_PRIVATE = (
        "not-private",
        "the plan has a method that is not private, or the run a seed; only simulated nodes answer",
    )
    SMALL_COHORT = "small-cohort", "the node wants more users than the plan's minimum-cohort"
    SECOND_REQUEST = "second-request", "the node was asked something else, or the same, in this round before"
    OTHER_PLAN = "other-plan", "the node was asked about another plan in this run before"
    OTHER_PLUGIN = (
        "other-plugin",
        "the node lacks a plugin of the plan, or has another version; its configuration names files as plugin",
    )
    OTHER_ITEMS = "other-items", "the node's list of items is not the server's, or is in another order"
    NO_USERS = "no-users", "the node has no users"
    TELLS_USERS = "tells-users", "the plan hides the number of users, and every answer of a node has it"
    NO_WINDOW = "no-window", "the plan has a window and the node no time-column, or the other way round"
    ANSWERED_WINDOW = "answered-window", "the node has answered this window, or a part of it, in another run"
    NOT_MASKED = "not-masked", "the node demands masks, or got a masked plan without them"
    NOT_SIGNED = "not-signed", "the node demands signed masks"
    FEW_PARTICIPANTS = "few-participants", "the node wants to be one of more participants"
    SMALL_CORRUPT_SHARE = (
        "small-corrupt-share",
        "the node wants the plan to expect more corrupt participants: 5 % of its directory, or what it was set to",
    )
    SERVER_NOISE = "server-noise", "the node demands noise from devices"
    NO_IDENTITY = "no-identity", "the node has no key for signed masks"
    NO_MEMORY = "no-memory", "the node has no memory-path, which masked rounds and windows need"
    NO_SESSION = "no-session", "the node does not remember the beginning of this masking session"
    UNSAFE = "unsafe", "the node gave up the masking session: something in it was not as it should be"
    MISSING_FILE = "missing-file", "a file that the node's configuration names is not there"
    BAD_FILE = (
        "bad-file",
        "a file or database of the node can't be read, or is not what its configuration says",
    )
    BAD_MEMORY = "bad-memory", "the node's memory file can't be read or written"
    BAD_CONFIGURATION = "bad-configuration", "the node's configuration is incomplete or wrong"
    FAILED = "failed", "something else went wrong on the node; its log has more"

    @property
    def lasts(self) -> bool:
        """Whether the node would say the same to the next round of the run: all but what is about one session."""
        return self not in (Refusal.NO_SESSION, Refusal.UNSAFE)


class Status(StrEnum):
    """What a reply is."""

    ANSWER = "answer"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Envelope:
    """A request with the name of its run and, over a closed domain with names, the digest of the public list.

    `seeded` says that the server's noise comes from a seed, so that it hides nobody.
    """

    run: str
    request: Request
    items_digest: bytes = b""
    seeded: bool = False

    def to_fields(self) -> dict[str, Field]:
        """The request as flat fields."""
        request = self.request
        return {
            "version": ENVELOPE_VERSION,
            "run": self.run,
            "round": request.round.value,
            "plan": json.dumps(request.plan.to_json(), allow_nan=False),
            "plan-digest": request.plan.digest,
            "items-digest": self.items_digest,
            "asks": request.asks,
            **request.given.to_fields(),
            **request.settled.to_fields(),
            **({_SEEDED: 1} if self.seeded else {}),  # audited: seeded said
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> Envelope:
        """The request in these fields; DecodeError if they are not one, or if the plan is not the one named."""
        if fields.get("version") != ENVELOPE_VERSION:
            raise DecodeError(f"a request of another version; this side speaks version {ENVELOPE_VERSION}")
        run, digest = take(fields, "run", str), take(fields, "items-digest", bytes)
        if not 1 <= len(run) <= MAX_RUN_NAME or is_hidden(run):
            raise DecodeError(f"the run's name is no text of 1 to {MAX_RUN_NAME} visible characters")
        try:
            plan = _read_plan(take(fields, "plan", str), registered())
        except OtherPlugin as other:
            raise Refused(Refusal.OTHER_PLUGIN) from other
        except (InvalidInput, ValueError, TypeError, AttributeError, RecursionError):
            raise DecodeError("the plan is not a valid one") from None
        if plan.digest != fields.get("plan-digest"):
            raise DecodeError("the plan is not the one that its digest names")
        return cls(run, _read_request(plan, fields), digest, seeded=_SEEDED in fields)

    @property
    def fingerprint(self) -> str:
        """A short name of all that was asked; equal requests have equal ones."""
        canonical = {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in self.to_fields().items()
        }
        text = json.dumps(canonical, sort_keys=True)
        return hashlib.sha256(b"fedhist/request\x00" + text.encode()).hexdigest()

    def reply_fields(self, status: Status, reason: str = "") -> dict[str, Field]:
        """The fields of a reply to this request."""
        return {
            "version": ENVELOPE_VERSION,
            "run": self.run,
            "round": self.request.round.value,
            "plan-digest": self.request.plan.digest,
            "status": status.value,
            "reason": reason,
        }


def new_run_name(*, source: Source) -> str:
    """A name that no other run has, if the source is the operating system."""
    return source.words(2).tobytes().hex()


def items_digest(labels: Labels | None) -> bytes:
    """The digest of a public list of items, in its order; empty when items have only numbers."""
    if labels is None:
        return b""
    digest = hashlib.sha256(_ITEMS_TAG)
    for label in labels:
        encoded = item_bytes(label)
        digest.update(len(encoded).to_bytes(4, "little") + encoded)
    return digest.digest()


@lru_cache(maxsize=8)
def _read_plan(text: str, plugins: tuple[Plugin, ...]) -> Plan:
    """The plan in this text. A node hears the same one in both rounds, and to check it again costs milliseconds.

    Checked again once the plugins of this side have changed.
    """
    return Plan.from_json(json.loads(text))


def _read_request(plan: Plan, fields: Mapping[str, object]) -> Request:
    """The question.

    A measurement that the plan does not admit is refused, because it could be one without the device's noise; so is
    one of another round, because each round is charged for, and answered, once.
    """
    if not any(
        kind.round is Round.RELEASE and kind.admitted(plan.releasing) for kind in MEASUREMENTS.values()
    ):
        raise DecodeError("the plan's release is unknown here", code="unknown-release")
    settled = Settled.from_fields(fields, plan)
    round_plan = settled.plan_for(plan)
    kind = MEASUREMENTS.get(take(fields, "asks", str))
    if kind is None or not kind.admitted(round_plan) or kind.round != fields.get("round"):
        raise DecodeError("the request asks for a measurement that is unknown or not of its plan and round")
    if plan.chooses_mechanism and (kind.round is Round.RELEASE) != (settled.mechanism is not None):
        raise DecodeError("the request does not name its mechanism, or names it before it is chosen")
    given = kind.takes.from_fields(fields, round_plan)
    if set(fields) - _OTHER_FIELDS - SETTLED_FIELDS != set(given.to_fields()):
        raise DecodeError("the request has fields that its measurement does not take")
    request = Request(plan=plan, asks=kind.name, given=given, settled=settled)
    try:
        request.measurement.shape  # noqa: B018 - a measurement whose noise can't be drawn has none
    except InvalidInput:
        raise DecodeError("the plan's measurement is not a valid one") from None
    return request
