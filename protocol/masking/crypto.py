"""Key pairs, agreements, and what is derived from them.

Each device has two X25519 pairs for one session. From the *box* pair come the keys that seal shares; from the *mask*
pair the pairwise masks. One pair can't serve for both: when a device drops out, the server rebuilds the secret of its
mask pair, and with it every key that follows from that secret.

Every derivation is HKDF-SHA256 (RFC 5869) over a tag with version and purpose, the digest of the terms (and thus the
session and what is summed), in signed mode the digest of the roster, both ids in ascending order and both public keys
in the same order. X25519 does not bind the public keys to the shared secret (RFC 7748, section 7), so the derivation
does.

## Keys for signed masking

Keys for signed masking: a device's own, and the directory of all devices'. Neither may come from the server.

Both have the format of `ssh-keygen -t ed25519`: the device's private key, and a list of public keys, one a line, the
same on every device.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from fedhist.protocol.errors import BadKey, InvalidFile, InvalidInput
from fedhist.protocol.privacy.randomness import Source

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF


KEY_BYTES = 32
SIGNATURE_BYTES = 64
MAX_ID = (1 << 64) - 1
_TAG = b"fedhist/masking/1/"
_IDS = struct.Struct("<QQ")
_FIELD = (1 << 255) - 19
_ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
# All u-coordinates of order 1, 2, 4 and 8 on the curve and its twist, with those that are not reduced.
LOW_ORDER = frozenset(
    point.to_bytes(KEY_BYTES, "little") for point in (0, 1, *_ORDER_8, _FIELD - 1, _FIELD, _FIELD + 1)
)
# X25519 ignores the highest bit.
_REFUSED = LOW_ORDER | {point[:-1] + bytes([point[-1] | 0x80]) for point in LOW_ORDER}

_PARTICIPANT_TAG = b"fedhist/1/participant\x00"
MAX_KEY_FILE_BYTES = 1 << 20
"""The largest file of keys. Readers stop a byte after this."""


def draw_bytes(count: int, *, source: Source) -> bytes:
    """The next `count` random bytes."""
    return source.words(-(-count // 8)).tobytes()[:count]


@dataclass(frozen=True)
class KeyPair:
    """An X25519 pair. The library's object is kept, because making it costs as much as an agreement."""

    secret: bytes = field(repr=False)
    public: bytes
    _key: X25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def from_secret(cls, secret: bytes) -> KeyPair:
        """The pair of these 32 secret bytes."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        if len(secret) != KEY_BYTES:
            raise InvalidInput(f"a secret key has {len(secret)} bytes", allowed=f"{KEY_BYTES} bytes")
        key = X25519PrivateKey.from_private_bytes(secret)
        return cls(secret=secret, public=key.public_key().public_bytes_raw(), _key=key)

    @classmethod
    def draw(cls, *, source: Source) -> KeyPair:
        """A fresh pair."""
        return cls.from_secret(draw_bytes(KEY_BYTES, source=source))

    def derive_for(
        self, purpose: bytes, context: bytes, me: int, peers: Iterable[tuple[int, bytes]], size: int
    ) -> Iterator[bytes]:
        """For each peer (id, public key): `size` bytes that only the two of us can derive. The hot path."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        hkdf, sha256 = _hkdf()
        exchange, read = self._key.exchange, X25519PublicKey.from_public_bytes
        bound = _info(purpose, context)
        for peer, public in peers:
            try:
                shared = exchange(read(public))
            except ValueError:  # a wrong length, or an all-zero shared secret
                raise BadKey("no key agreement is possible with this public key") from None
            yield hkdf(sha256, size, None, bound + self.pair_text(me, peer, public)).derive(shared)

    def pair_text(self, me: int, peer: int, public: bytes) -> bytes:
        """Both ids in ascending order, and both public keys in the same order: the same bytes on both sides."""
        if me < peer:
            return _IDS.pack(me, peer) + self.public + public
        return _IDS.pack(peer, me) + public + self.public


Derive = Callable[[KeyPair, bytes, bytes, int, Iterable[tuple[int, bytes]], int], Iterator[bytes]]
"""`KeyPair.derive_for`, or in a simulation that has both sides of a pair something that gives the same bytes."""


def derive(secret: bytes, purpose: bytes, context: bytes, *, size: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256 of a uniform secret, bound to a purpose and a context of fixed length."""
    hkdf, sha256 = _hkdf()
    return hkdf(sha256, size, None, _info(purpose, context)).derive(secret)


def _info(purpose: bytes, context: bytes) -> bytes:
    return _TAG + purpose + b"\x00" + context  # audited: separation


@cache
def _hkdf() -> tuple[type[HKDF], SHA256]:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF, SHA256()


def check_public_key(public: bytes) -> None:
    """Raise BadKey unless these bytes may be an honest device's public key."""
    if len(public) != KEY_BYTES:
        raise BadKey(f"a public key has {len(public)} bytes; allowed: {KEY_BYTES} bytes")
    if public in _REFUSED:
        raise BadKey("a public key has a low order")


def commit(seed: bytes, session: bytes, device: int) -> bytes:
    """A commitment to a self-mask seed. It hides because a seed has 256 random bits."""
    return hashlib.sha256(_TAG + b"commitment\x00" + session + device.to_bytes(8, "little") + seed).digest()


@dataclass(frozen=True)
class Identity:
    """A device's lasting Ed25519 key, and the public keys of all devices that it knows, by id.

    The directory must come from somewhere other than the server: it is what an active server can't forge.
    """

    secret: bytes = field(repr=False)
    directory: Mapping[int, bytes] = field(repr=False)

    @property
    def public(self) -> bytes:
        """The public key, for the directories of other devices."""
        return self._key().public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature."""
        return self._key().sign(message)

    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if len(self.secret) != KEY_BYTES:
            raise InvalidInput(f"an identity has {len(self.secret)} bytes", allowed=f"{KEY_BYTES} bytes")
        return Ed25519PrivateKey.from_private_bytes(self.secret)


def verify(directory: Mapping[int, bytes], signer: int, signature: bytes, message: bytes) -> bool:
    """Whether the directory's key of this signer made the signature."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = directory.get(signer)
    if public is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def advertisement_text(session: bytes, device: int, body: bytes) -> bytes:
    """What a device signs when it advertises its keys: for one session, as this device, and these keys."""
    return _TAG + b"sign-advertisement\x00" + session + device.to_bytes(8, "little") + body


def session_context(terms: bytes, roster: bytes) -> bytes:
    """What is bound into all that is derived, sealed and signed once the roster is known.

    Args:
        terms: the digest of the terms.
        roster: in signed mode the digest of the roster that the device was shown; empty outside of it.
    """
    return terms + roster


def survivors_text(context: bytes, survivors: bytes) -> bytes:
    """What a device signs when it confirms the survivors: the session, all advertised keys, and the set itself."""
    return _TAG + b"sign-survivors\x00" + context + hashlib.sha256(survivors).digest()


def roster_digest(bodies: Mapping[int, bytes]) -> bytes:
    """A digest of all devices' advertisements, in the order of their ids."""
    digest = hashlib.sha256(_TAG + b"roster\x00")
    for device in sorted(bodies):
        digest.update(device.to_bytes(8, "little") + bodies[device])
    return digest.digest()


def participant_number(public: bytes) -> int:
    """A participant's id under signed masking: 64 bits of a digest of its public key, so the server can't choose it."""
    return int.from_bytes(hashlib.sha256(_PARTICIPANT_TAG + public).digest()[:8], "little")


def parse_identity(key: bytes, directory: bytes, *, key_name: str, directory_name: str) -> Identity:
    """The device's key and the directory, which must list the device itself. The names are for errors."""
    secret = _private_key(key, key_name).private_bytes_raw()
    known = parse_directory(directory, name=directory_name)
    identity = Identity(secret, known)
    if participant_number(identity.public) not in known:
        raise InvalidFile(
            f"the directory {directory_name} does not list the key of {key_name}",
            allowed="a directory with the public keys of all devices",
            advice="add the device's .pub file to it, on every device",
        )
    return identity


def parse_directory(data: bytes, *, name: str) -> Mapping[int, bytes]:
    """Public keys by participant number; empty lines and lines that begin with # are skipped."""
    _check_size(data, name)
    known: dict[int, bytes] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith(b"#"):
            raw = _public_key(line.strip(), f"{name}, line {number},").public_bytes_raw()
            if known.setdefault(participant_number(raw), raw) != raw:
                raise InvalidFile(
                    f"{name} has two keys with the same participant number",
                    allowed="keys with distinct numbers",
                    advice="make a new key for one of the two devices",
                )
    if not known:
        raise InvalidFile(f"{name} lists no key", allowed="one public key a line, as ssh-keygen writes it")
    return known


def _check_size(data: bytes, name: str) -> None:
    if len(data) > MAX_KEY_FILE_BYTES:
        raise InvalidFile(f"{name} is too large for a file of keys", allowed="up to 1 MiB", code="too-large")


def _private_key(data: bytes, name: str) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    _check_size(data, name)
    try:
        key = load_ssh_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidFile(
            f"{name} is not a private Ed25519 key without a password",
            allowed="a key as ssh-keygen -t ed25519 -N '' writes it",
        )
    return key


def _public_key(line: bytes, place: str) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(line)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidFile(
            f"{place} is not a public Ed25519 key", allowed="a line as ssh-keygen -t ed25519 writes it"
        )
    return key
