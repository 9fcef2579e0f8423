"""A device's state as bytes, to be kept between two messages.

    magic "FS" · version u8 · kind u8 · terms · me u64 · what the state holds · SHA-256 of all before

The bytes hold the session's secrets in the clear: keep them where only the device can read them, and only the newest.
The digest notices damage, not malice: anyone who can write a device's memory owns the device.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
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
_KEY_AND_SHARES_OF = struct.Struct(f"<Q{KEY_BYTES}s{SHARE_BYTES}s{SHARE_BYTES}s")
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
        raise DecodeError("the bytes are not the state of a masking session")
    _, version, kind, terms, me = _HEAD.unpack_from(content)
    if version != STATE_VERSION:
        raise DecodeError(f"the state has version {version}; this side reads version {STATE_VERSION}")
    if hashlib.sha256(_TAG + content).digest() != digest or kind >= len(_KINDS):
        raise DecodeError("the state of a masking session is damaged")
    reader = _StateReader(content[_HEAD.size :], name="the fields of a masking session's state")
    state = _READERS[_KINDS[kind]](reader, MaskingTerms.from_bytes(terms), me)
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
            return _parameters(state.parameters) + _counted(len(state.shares), shares) + _seen(state)
        case Confirmed():
            ids = b"".join(map(_ID.pack, state.survivors))
            return _fields(state.masked) + _counted(len(state.survivors), ids)
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

    def roster(self, terms: MaskingTerms) -> bytes:
        return self.take(KEY_BYTES) if terms.signed else b""

    def identity(self, terms: MaskingTerms) -> Identity | None:
        if not terms.signed:
            return None
        secret = self.take(KEY_BYTES)
        return Identity(secret=secret, directory=dict(self.counted(_KEY_OF)))

    def advertised(self, terms: MaskingTerms, me: int) -> Advertised:
        box_pair, mask_pair = self.key_pair(), self.key_pair()
        seed, identity = self.take(KEY_BYTES), self.identity(terms)
        return Advertised(terms, me, box_pair, mask_pair, seed, identity, self.count())

    def shared(self, terms: MaskingTerms, me: int) -> Shared:
        parameters, mask_pair, seed = self.parameters(), self.key_pair(), self.take(KEY_BYTES)
        keys = self.counted(_KEYS_OF)
        return Shared(
            terms=terms,
            me=me,
            parameters=parameters,
            mask_pair=mask_pair,
            seed=seed,
            mask_keys={peer: mask_key for peer, mask_key, _ in keys},
            receiving_keys={peer: box_key for peer, _, box_key in keys},
            roster=self.roster(terms),
            identity=self.identity(terms),
            fewest=self.count(),
        )

    def checked(self, terms: MaskingTerms, me: int) -> Checked:
        parameters, mask_pair, seed = self.parameters(), self.key_pair(), self.take(KEY_BYTES)
        opened = self.counted(_KEY_AND_SHARES_OF)
        return Checked(
            terms=terms,
            me=me,
            parameters=parameters,
            mask_pair=mask_pair,
            seed=seed,
            mask_keys={peer: mask_key for peer, mask_key, _, _ in opened},
            shares={peer: (secret_share, seed_share) for peer, _, secret_share, seed_share in opened},
            roster=self.roster(terms),
            identity=self.identity(terms),
            fewest=self.count(),
        )

    def masked(self, terms: MaskingTerms, me: int) -> Masked:
        parameters = self.parameters()
        shares = {peer: (secret, seed) for peer, secret, seed in self.counted(_SHARES_OF)}
        return Masked(terms, me, parameters, shares, self.roster(terms), self.identity(terms), self.count())

    def confirmed(self, terms: MaskingTerms, me: int) -> Confirmed:
        masked = self.masked(terms, me)
        return Confirmed(masked=masked, survivors=tuple(device for (device,) in self.counted(_ID)))

    def aborted(self, terms: MaskingTerms, me: int) -> Aborted:
        (reason,) = self.take(1)
        if reason >= len(_REASONS):
            raise DecodeError("the state was aborted for an unknown reason")
        return Aborted(terms, me, _REASONS[reason])


_READERS: dict[type[DeviceState], Callable[[_StateReader, MaskingTerms, int], DeviceState]] = {
    Advertised: _StateReader.advertised,
    Shared: _StateReader.shared,
    Checked: _StateReader.checked,
    Masked: _StateReader.masked,
    Confirmed: _StateReader.confirmed,
    Finished: lambda _, terms, me: Finished(terms, me),
    Aborted: _StateReader.aborted,
}
_KINDS = tuple(_READERS)
"""The place of a state here is its kind in the bytes."""
