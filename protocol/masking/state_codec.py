"""A device's state as bytes, for whoever keeps it between two messages.

    magic "FS" · version u8 · kind u8 · terms · me u64 · what the state holds · SHA-256 of all before

The bytes hold the session's secrets in the clear: keep them where only the device can read them, and only the newest.
The digest notices damage, not malice: whoever can write a device's memory owns the device.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

from fedhist.protocol.errors import DecodeError
from fedhist.protocol.masking.device_states import (
    Aborted,
    AbortReason,
    Advertised,
    Confirmed,
    DeviceState,
    Finished,
    Masked,
    Shared,
)
from fedhist.protocol.masking.graph import GraphParameters
from fedhist.protocol.masking.keys import KEY_BYTES, Identity, KeyPair
from fedhist.protocol.masking.shamir import SHARE_BYTES
from fedhist.protocol.masking.terms import TERMS_BYTES, MaskingTerms

STATE_VERSION = 2
_MAGIC = b"FS"
_TAG = b"fedhist/masking/1/state\x00"
_DIGEST_BYTES = 32
_HEAD = struct.Struct(f"<2sBB{TERMS_BYTES}sQ")
_PARAMETERS = struct.Struct("<III")
_COUNT = struct.Struct("<I")
_ID = struct.Struct("<Q")
_KEY_OF = struct.Struct(f"<Q{KEY_BYTES}s")
_KEYS_OF = struct.Struct(f"<Q{KEY_BYTES}s{KEY_BYTES}s")
_SHARES_OF = struct.Struct(f"<Q{SHARE_BYTES}s{SHARE_BYTES}s")
_KINDS: tuple[type[DeviceState], ...] = (Advertised, Shared, Masked, Confirmed, Finished, Aborted)
_REASONS = tuple(AbortReason)


def save(state: DeviceState) -> bytes:
    """The state as bytes."""
    head = _HEAD.pack(_MAGIC, STATE_VERSION, _KINDS.index(type(state)), state.terms.to_bytes(), state.me)
    data = head + _fields(state)
    return data + hashlib.sha256(_TAG + data).digest()


def restore(data: bytes) -> DeviceState:
    """The state in these bytes; DecodeError if they are damaged, or of another version."""
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(content) < _HEAD.size or content[:2] != _MAGIC:
        raise DecodeError("the bytes are no state of a masking session")
    _, version, kind, terms, me = _HEAD.unpack_from(content)
    if version != STATE_VERSION:
        raise DecodeError(f"a state of version {version}; this side reads version {STATE_VERSION}")
    if hashlib.sha256(_TAG + content).digest() != digest or kind >= len(_KINDS):
        raise DecodeError("the state of a masking session is damaged")
    reader = _Reader(content[_HEAD.size :])
    state = _read(_KINDS[kind], MaskingTerms.from_bytes(terms), me, reader)
    reader.finish()
    return state


def _fields(state: DeviceState) -> bytes:
    match state:
        case Advertised():
            secrets = state.box_pair.secret + state.mask_pair.secret + state.seed
            return secrets + _identity(state.identity) + _COUNT.pack(state.fewest)
        case Shared():
            keys = b"".join(
                _KEYS_OF.pack(peer, state.mask_keys[peer], state.receiving_keys[peer])
                for peer in state.mask_keys
            )
            return (
                _parameters(state.parameters)
                + state.mask_pair.secret
                + state.seed
                + _counted(len(state.mask_keys), keys)
                + state.roster
                + _identity(state.identity)
                + _COUNT.pack(state.fewest)
            )
        case Masked():
            shares = b"".join(_SHARES_OF.pack(peer, *pair) for peer, pair in state.shares.items())
            return (
                _parameters(state.parameters)
                + _counted(len(state.shares), shares)
                + state.roster
                + _identity(state.identity)
                + _COUNT.pack(state.fewest)
            )
        case Confirmed():
            ids = b"".join(map(_ID.pack, state.survivors))
            return _fields(state.masked) + _counted(len(state.survivors), ids)
        case Finished():
            return b""
        case Aborted():
            return bytes([_REASONS.index(state.reason)])


def _read(kind: type[DeviceState], terms: MaskingTerms, me: int, reader: _Reader) -> DeviceState:
    if kind is Advertised:
        box_pair, mask_pair = reader.key_pair(), reader.key_pair()
        seed = reader.take(KEY_BYTES)
        return Advertised(terms, me, box_pair, mask_pair, seed, reader.identity(terms), reader.count())
    if kind is Shared:
        parameters, mask_pair, seed = reader.parameters(), reader.key_pair(), reader.take(KEY_BYTES)
        keys = reader.entries(_KEYS_OF)
        return Shared(
            terms=terms,
            me=me,
            parameters=parameters,
            mask_pair=mask_pair,
            seed=seed,
            mask_keys={peer: mask_key for peer, mask_key, _ in keys},
            receiving_keys={peer: box_key for peer, _, box_key in keys},
            roster=reader.roster(terms),
            identity=reader.identity(terms),
            fewest=reader.count(),
        )
    if kind is Masked:
        return reader.masked(terms, me)
    if kind is Confirmed:
        masked = reader.masked(terms, me)
        return Confirmed(masked=masked, survivors=tuple(device for (device,) in reader.entries(_ID)))
    if kind is Finished:
        return Finished(terms, me)
    (reason,) = reader.take(1)
    if reason >= len(_REASONS):
        raise DecodeError("a state that was aborted for no known reason")
    return Aborted(terms, me, _REASONS[reason])


def _parameters(parameters: GraphParameters) -> bytes:
    return _PARAMETERS.pack(parameters.devices, parameters.neighbours, parameters.threshold)


def _counted(count: int, entries: bytes) -> bytes:
    return _COUNT.pack(count) + entries


def _identity(identity: Identity | None) -> bytes:
    if identity is None:
        return b""
    directory: Mapping[int, bytes] = identity.directory
    keys = b"".join(_KEY_OF.pack(device, key) for device, key in directory.items())
    return identity.secret + _counted(len(directory), keys)


class _Reader:
    """Takes fields off the front, and knows when there are too few or too many bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise DecodeError("the state of a masking session is cut short")
        self._at += count
        return taken

    def finish(self) -> None:
        if self._at != len(self._data):
            raise DecodeError("the state of a masking session is followed by other bytes")

    def count(self) -> int:
        (count,) = _COUNT.unpack(self.take(_COUNT.size))
        return int(count)

    def entries(self, layout: struct.Struct) -> list[tuple[Any, ...]]:
        return list(layout.iter_unpack(self.take(self.count() * layout.size)))

    def key_pair(self) -> KeyPair:
        return KeyPair.from_secret(self.take(KEY_BYTES))

    def parameters(self) -> GraphParameters:
        return GraphParameters(*_PARAMETERS.unpack(self.take(_PARAMETERS.size)))

    def roster(self, terms: MaskingTerms) -> bytes:
        return self.take(KEY_BYTES) if terms.signed else b""

    def identity(self, terms: MaskingTerms) -> Identity | None:
        if not terms.signed:
            return None
        secret = self.take(KEY_BYTES)
        return Identity(secret=secret, directory=dict(self.entries(_KEY_OF)))

    def masked(self, terms: MaskingTerms, me: int) -> Masked:
        parameters = self.parameters()
        shares = {peer: (secret, seed) for peer, secret, seed in self.entries(_SHARES_OF)}
        roster, identity = self.roster(terms), self.identity(terms)
        return Masked(terms, me, parameters, shares, roster, identity, self.count())
