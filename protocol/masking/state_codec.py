"""A device's state as bytes, to be kept between two messages.

    magic "FS" · version u8 · kind u8 · me u64 · terms · what the state holds · SHA-256 of all before

A state whose terms are not known yet has the session in their place.

The bytes hold the session's secrets in the clear: keep them where only the device can read them, and only the newest.
The digest notices damage, not malice: anyone who can write a device's memory owns the device.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from fedhist.protocol.errors import DecodeError
from fedhist.protocol.masking.device_states import (
    Aborted,
    AbortReason,
    Advertised,
    Checked,
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
from fedhist.protocol.wire.reader import Reader

STATE_VERSION = 3
_MAGIC = b"FS"
_TAG = b"fedhist/masking/1/state\x00"
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<2sBBQ")
_PARAMETERS = struct.Struct("<III")
_COUNT = struct.Struct("<I")
_ID = struct.Struct("<Q")
_KEY_OF = struct.Struct(f"<Q{KEY_BYTES}s")
_KEYS_OF = struct.Struct(f"<Q{KEY_BYTES}s{KEY_BYTES}s")
_SHARES_OF = struct.Struct(f"<Q{SHARE_BYTES}s{SHARE_BYTES}s")
_KEY_AND_SHARES_OF = struct.Struct(f"<Q{KEY_BYTES}s{SHARE_BYTES}s{SHARE_BYTES}s")
_REASONS = tuple(AbortReason)
_KINDS: tuple[type[DeviceState], ...] = (Advertised, Shared, Checked, Masked, Confirmed, Finished, Aborted)
"""The place of a state here is its kind in the bytes."""


def save(state: DeviceState) -> bytes:
    """The state as bytes."""
    data = _HEAD.pack(_MAGIC, STATE_VERSION, _KINDS.index(type(state)), state.me)
    data += state.terms.to_bytes() + _fields(state)
    return data + hashlib.sha256(_TAG + data).digest()


def restore(data: bytes) -> DeviceState:
    """The state in these bytes; DecodeError if they are damaged, or of another version."""
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(content) < _HEAD.size or content[:2] != _MAGIC:
        raise DecodeError("the bytes are not the state of a masking session")
    _, version, kind, me = _HEAD.unpack_from(content)
    if version != STATE_VERSION:
        raise DecodeError(f"the state has version {version}; this side reads version {STATE_VERSION}")
    if hashlib.sha256(_TAG + content).digest() != digest or kind >= len(_KINDS):
        raise DecodeError("the state of a masking session is damaged")
    reader = _StateReader(content[_HEAD.size :], name="the fields of a masking session's state")
    terms = MaskingTerms.from_bytes(reader.take(TERMS_BYTES))
    state: DeviceState = _KINDS[kind](terms=terms, me=me, **reader.state(_KINDS[kind], terms))
    reader.end()
    return state


def _fields(state: DeviceState) -> bytes:
    match state:
        case Advertised():
            secrets = state.box_pair.secret + state.mask_pair.secret + state.seed
            return secrets + _identity(state.identity) + _COUNT.pack(state.fewest)
        case Shared() | Checked():
            return (
                _parameters(state.parameters)
                + state.mask_pair.secret
                + state.seed
                + _counted(len(state.mask_keys), b"".join(_of_peers(state)))
                + _seen(state)
            )
        case Masked():
            shares = b"".join(_SHARES_OF.pack(peer, *pair) for peer, pair in state.shares.items())
            data = _parameters(state.parameters) + _counted(len(state.shares), shares) + _seen(state)
            if isinstance(state, Confirmed):
                data += _counted(len(state.survivors), b"".join(map(_ID.pack, state.survivors)))
            return data
        case Aborted():
            return bytes([_REASONS.index(state.reason)])
        case Finished():
            return b""


def _parameters(parameters: GraphParameters) -> bytes:
    return _PARAMETERS.pack(parameters.devices, parameters.neighbours, parameters.threshold)


def _of_peers(state: Shared | Checked) -> Iterator[bytes]:
    for peer, mask_key in state.mask_keys.items():
        if isinstance(state, Shared):
            yield _KEYS_OF.pack(peer, mask_key, state.receiving_keys[peer])
        else:
            yield _KEY_AND_SHARES_OF.pack(peer, mask_key, *state.shares[peer])


def _seen(state: Shared | Checked | Masked) -> bytes:
    """What a device knows of the cohort and asks of it."""
    return state.roster + _identity(state.identity) + _COUNT.pack(state.fewest)


def _counted(count: int, entries: bytes) -> bytes:
    return _COUNT.pack(count) + entries


def _identity(identity: Identity | None) -> bytes:
    if identity is None:
        return b""
    directory: Mapping[int, bytes] = identity.directory
    keys = b"".join(_KEY_OF.pack(device, key) for device, key in directory.items())
    return identity.secret + _counted(len(directory), keys)


class _StateReader(Reader):
    """Reads what `_fields` writes."""

    def count(self) -> int:
        return int(self.fields(_COUNT)[0])

    def counted(self, layout: struct.Struct) -> list[tuple[Any, ...]]:
        return self.entries(layout, self.count())

    def key_pair(self) -> KeyPair:
        return KeyPair.from_secret(self.take(KEY_BYTES))

    def parameters(self) -> GraphParameters:
        return GraphParameters(*self.fields(_PARAMETERS))

    def own(self) -> dict[str, Any]:
        return {"parameters": self.parameters(), "mask_pair": self.key_pair(), "seed": self.take(KEY_BYTES)}

    def seen(self, terms: MaskingTerms) -> dict[str, Any]:
        roster = self.take(KEY_BYTES) if terms.signed else b""
        return {"roster": roster, "identity": self.identity(terms), "fewest": self.count()}

    def identity(self, terms: MaskingTerms) -> Identity | None:
        if not terms.signed:
            return None
        secret = self.take(KEY_BYTES)
        return Identity(secret=secret, directory=dict(self.counted(_KEY_OF)))

    def state(self, kind: type[DeviceState], terms: MaskingTerms) -> dict[str, Any]:
        """The fields of a state of this kind, but for the terms and the device's id."""
        if kind is Advertised:
            secrets = {
                "box_pair": self.key_pair(),
                "mask_pair": self.key_pair(),
                "seed": self.take(KEY_BYTES),
            }
            return secrets | {"identity": self.identity(terms), "fewest": self.count()}
        if kind is Shared:
            own, keys = self.own(), self.counted(_KEYS_OF)
            mask_keys = {peer: mask_key for peer, mask_key, _ in keys}
            receiving_keys = {peer: box_key for peer, _, box_key in keys}
            return own | {"mask_keys": mask_keys, "receiving_keys": receiving_keys} | self.seen(terms)
        if kind is Checked:
            own, opened = self.own(), self.counted(_KEY_AND_SHARES_OF)
            mask_keys = {peer: mask_key for peer, mask_key, *_ in opened}
            shares = {peer: tuple(pair) for peer, _, *pair in opened}
            return own | {"mask_keys": mask_keys, "shares": shares} | self.seen(terms)
        if kind in (Masked, Confirmed):
            parameters = self.parameters()
            shares = {peer: tuple(pair) for peer, *pair in self.counted(_SHARES_OF)}
            masked = {"parameters": parameters, "shares": shares} | self.seen(terms)
            if kind is Confirmed:
                masked["survivors"] = tuple(device for (device,) in self.counted(_ID))
            return masked
        if kind is Aborted:
            (reason,) = self.take(1)
            if reason >= len(_REASONS):
                raise DecodeError("the state was aborted for an unknown reason")
            return {"reason": _REASONS[reason]}
        return {}
