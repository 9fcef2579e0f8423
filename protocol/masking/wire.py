"""Every message as bytes.

    magic "FM" · version u8 · kind u8 · bound to 32 bytes · body, and nothing after it

    ADVERTISEMENT   device   box key 32 · mask key 32 · commitment 32 [· signature 64]
    ROSTER          server   devices u32 · neighbours u32 · threshold u32 · (id u64 · advertisement) each
    SHARES          device   (receiver u64 · box 94) each
    BOXES           server   (sender u64 · box 94) each
    COMPLAINTS      device   id u64 of each sender whose box does not open, most often none
    PEERS           server   id u64 of each neighbour to mask with
    MASKED          device   residues, 4 or 8 bytes each
    SURVIVORS       server   id u64 each                                        signed mode only
    CONFIRMATION    device   signature 64                                       signed mode only
    UNMASK          server   dead u32 · id u64 each [· (id u64 · signature 64) each]
    OPENING         device   (id u64 · kind u8 · share 33) each

An ADVERTISEMENT is bound to the session, all others to the digest of the terms. All little-endian. In brackets: in
signed mode, and only there. Lists ascend strictly by id, so that each message has one encoding and no list can hold an
id twice.

## Stages

The stages of a masked sum, in their order: the one vocabulary of servers, devices, simulations, audits and traces.

A stage is named after what devices do in it. Each is one exchange: the server's messages, and the devices' answers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum, StrEnum
from operator import lt
from typing import Any, NamedTuple

from fedhist.protocol.errors import DecodeError
from fedhist.protocol.masking.crypto import KEY_BYTES, SIGNATURE_BYTES
from fedhist.protocol.masking.graph import GraphParameters, MaskingTerms
from fedhist.protocol.masking.shamir import BOX_BYTES, SHARE_BYTES, check_share

VERSION = 4
MAGIC = b"FM"
_HEADER = struct.Struct("<2sBB32s")
HEADER_BYTES = _HEADER.size
_ROSTER = struct.Struct("<III")
_COUNT = struct.Struct("<I")
_ID = struct.Struct("<Q")
_BOX = struct.Struct(f"<Q{BOX_BYTES}s")
_SIGNED_BY = struct.Struct(f"<Q{SIGNATURE_BYTES}s")
_OPENED = struct.Struct(f"<QB{SHARE_BYTES}s")


class MaskingStage(StrEnum):
    """One exchange of messages between the server and the devices."""

    ADVERTISING = "advertising"
    SHARING = "sharing"
    CHECKING = "checking"
    MASKING = "masking"
    CONFIRMING = "confirming"
    """In signed mode only."""
    UNMASKING = "unmasking"


class Kind(IntEnum):
    """What a message is."""

    ADVERTISEMENT = 1
    ROSTER = 2
    SHARES = 3
    BOXES = 4
    COMPLAINTS = 5
    PEERS = 6
    MASKED = 7
    SURVIVORS = 8
    CONFIRMATION = 9
    UNMASK = 10
    OPENING = 11


class ShareKind(IntEnum):
    """Of which secret a share is: the mask secret of a dead device, or the self-mask seed of a living one."""

    MASK_SECRET = 1
    SEED = 2


_SHARE_KINDS: dict[int, ShareKind] = {kind.value: kind for kind in ShareKind}


class Advertisement(NamedTuple):
    """A device's public keys for one session."""

    box_key: bytes
    mask_key: bytes
    commitment: bytes
    signature: bytes

    @property
    def unsigned(self) -> bytes:
        """All but the signature: what is signed."""
        return self.box_key + self.mask_key + self.commitment


class UnmaskRequest(NamedTuple):
    """The dead among a device's neighbours and, in signed mode, who confirmed the survivors."""

    dead: tuple[int, ...]
    confirmations: tuple[tuple[int, bytes], ...]


class OpenedShare(NamedTuple):
    """A share of one of the owner's secrets."""

    owner: int
    kind: ShareKind
    share: bytes


def message(kind: Kind, terms: MaskingTerms, body: bytes | memoryview) -> bytes:
    """A body with its header."""
    return b"".join((_HEADER.pack(MAGIC, VERSION, kind, _bound_to(kind, terms)), body))


def advertisement(session: bytes, body: bytes) -> bytes:
    """The message that advertises keys for a session, whose other terms need not be known yet."""
    return _HEADER.pack(MAGIC, VERSION, Kind.ADVERTISEMENT, session) + body


def _bound_to(kind: Kind, terms: MaskingTerms) -> bytes:
    return terms.session if kind is Kind.ADVERTISEMENT else terms.digest


def body_of(data: bytes, kind: Kind, terms: MaskingTerms) -> memoryview:
    """What follows the header, refused unless the header says that it is this kind of message under these terms."""
    if len(data) < HEADER_BYTES:
        raise DecodeError(
            f"a message has at least {HEADER_BYTES} bytes, this one {len(data)}", code="too-short"
        )
    magic, version, number, bound = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DecodeError("these bytes are no message of masking", code="not-masking")
    if version != VERSION:
        raise DecodeError(
            f"a message of version {version}; this side speaks version {VERSION}", code="other-version"
        )
    if number != kind:
        raise DecodeError(
            f"a message of kind {number} where {kind.name.lower()} ({kind.value}) is due", code="other-kind"
        )
    if bound != _bound_to(kind, terms):
        raise DecodeError("a message under other terms, or of another session", code="other-session")
    return memoryview(data)[HEADER_BYTES:]


def advertisement_bytes(terms: MaskingTerms) -> int:
    """The length of an advertisement's body."""
    return 3 * KEY_BYTES + (SIGNATURE_BYTES if terms.signed else 0)


def read_advertisement(body: bytes | memoryview, terms: MaskingTerms) -> Advertisement:
    """The keys in the body of an advertisement."""
    if len(body) != advertisement_bytes(terms):
        raise DecodeError(
            f"an advertisement of {len(body)} bytes where {advertisement_bytes(terms)} are due",
            code="wrong-length",
        )
    raw = bytes(body)
    return Advertisement(raw[:32], raw[32:64], raw[64:96], raw[96:])


def roster_entry(device: int, body: bytes) -> bytes:
    """One device in a roster."""
    return _ID.pack(device) + body


def encode_roster(parameters: GraphParameters, entries: Iterable[bytes], terms: MaskingTerms) -> bytes:
    """The roster of these entries."""
    head = _ROSTER.pack(parameters.devices, parameters.neighbours, parameters.threshold)
    return message(Kind.ROSTER, terms, head + b"".join(entries))


def decode_roster(data: bytes, terms: MaskingTerms) -> tuple[GraphParameters, dict[int, Advertisement]]:
    """The claimed parameters, and the neighbours' advertisements in the order of their ids."""
    body = body_of(data, Kind.ROSTER, terms)
    if len(body) < _ROSTER.size:
        raise DecodeError("a roster without its head", code="too-short")
    parameters = GraphParameters(*_ROSTER.unpack_from(body))
    entry = struct.Struct(f"<Q{KEY_BYTES}s{KEY_BYTES}s{KEY_BYTES}s{SIGNATURE_BYTES if terms.signed else 0}s")
    entries = _entries(entry, body[_ROSTER.size :])
    return parameters, {device: Advertisement._make(advert) for device, *advert in entries}


def encode_boxes(kind: Kind, boxes: Iterable[tuple[int, bytes]], terms: MaskingTerms) -> bytes:
    """Boxes by the other side's id: SHARES names receivers, BOXES senders."""
    return message(kind, terms, b"".join(_BOX.pack(device, box) for device, box in boxes))


def decode_boxes(data: bytes, kind: Kind, terms: MaskingTerms) -> list[tuple[int, bytes]]:
    """The boxes of a message of this kind."""
    return _entries(_BOX, body_of(data, kind, terms))


def masked_body(data: bytes, terms: MaskingTerms) -> memoryview:
    """The residues' bytes of a masked input."""
    body = body_of(data, Kind.MASKED, terms)
    if len(body) != terms.length * terms.width // 8:
        raise DecodeError(
            f"a masked input of {len(body)} bytes where {terms.length * terms.width // 8} are due",
            code="wrong-length",
        )
    return body


def id_list(ids: Iterable[int]) -> bytes:
    """Ids in the order given."""
    return b"".join(map(_ID.pack, ids))


def encode_ids(kind: Kind, ids: Iterable[int], terms: MaskingTerms) -> bytes:
    """A message that is a list of ids: COMPLAINTS, PEERS or SURVIVORS."""
    return message(kind, terms, id_list(ids))


def decode_ids(data: bytes, kind: Kind, terms: MaskingTerms) -> tuple[int, ...]:
    """The ids of a message that is a list of them."""
    return tuple(device for (device,) in _entries(_ID, body_of(data, kind, terms)))


def decode_confirmation(data: bytes, terms: MaskingTerms) -> bytes:
    """The signature of a confirmation."""
    body = body_of(data, Kind.CONFIRMATION, terms)
    if len(body) != SIGNATURE_BYTES:
        raise DecodeError(
            f"a confirmation of {len(body)} bytes where {SIGNATURE_BYTES} are due", code="wrong-length"
        )
    return bytes(body)


def encode_unmask(dead: Sequence[int], confirmations: bytes, terms: MaskingTerms) -> bytes:
    """A request to unmask; `confirmations` are `confirmation_entry`s by ascending id."""
    return message(Kind.UNMASK, terms, _COUNT.pack(len(dead)) + id_list(dead) + confirmations)


def confirmation_entry(device: int, signature: bytes) -> bytes:
    """One confirmation in a request to unmask."""
    return _SIGNED_BY.pack(device, signature)


def decode_unmask(data: bytes, terms: MaskingTerms) -> UnmaskRequest:
    """The dead, and the confirmations."""
    body = body_of(data, Kind.UNMASK, terms)
    if len(body) < _COUNT.size:
        raise DecodeError("a request to unmask without its count", code="too-short")
    end = _COUNT.size + _COUNT.unpack_from(body)[0] * _ID.size
    if len(body) < end or (len(body) != end and not terms.signed):
        raise DecodeError(
            f"a request to unmask of {len(body)} bytes where {end} are due", code="wrong-length"
        )
    dead = tuple(device for (device,) in _entries(_ID, body[_COUNT.size : end]))
    return UnmaskRequest(dead, tuple(_entries(_SIGNED_BY, body[end:])))


def encode_opening(opened: Iterable[tuple[int, ShareKind, bytes]], terms: MaskingTerms) -> bytes:
    """The shares that a device gives to the server, by ascending id of their owners."""
    return message(Kind.OPENING, terms, b"".join(_OPENED.pack(*entry) for entry in opened))


def decode_opening(data: bytes, terms: MaskingTerms) -> list[OpenedShare]:
    """The shares of an opening."""
    found = []
    for owner, number, share in _entries(_OPENED, body_of(data, Kind.OPENING, terms)):
        kind = _SHARE_KINDS.get(number)
        if kind is None:
            raise DecodeError(f"a share of unknown kind {number}", code="unknown-share")
        check_share(share)
        found.append(OpenedShare(owner, kind, share))
    return found


def _entries(layout: struct.Struct, body: bytes | memoryview) -> list[tuple[Any, ...]]:
    if len(body) % layout.size:
        raise DecodeError(f"a list of {len(body)} bytes; entries have {layout.size}", code="wrong-length")
    entries = list(layout.iter_unpack(body))
    ids = [entry[0] for entry in entries]
    if not all(map(lt, ids, ids[1:])):
        raise DecodeError("a list that does not ascend strictly by id", code="not-ascending")
    return entries
