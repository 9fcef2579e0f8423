"""Keys for signed masking: a device's own, and the directory of all devices'. Neither may come from the server.

Both have the format of `ssh-keygen -t ed25519`: the device's private key, and a list of public keys, one a line, the
same on every device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedhist.protocol.errors import InvalidFile
from fedhist.protocol.masking.keys import Identity

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_TAG = b"fedhist/1/participant\x00"
MAX_KEY_FILE_BYTES = 1 << 20
"""The largest file of keys. Readers stop a byte after this."""


def participant_number(public: bytes) -> int:
    """A participant's id under signed masking: 64 bits of a digest of its public key, so the server can't choose it."""
    return int.from_bytes(hashlib.sha256(_TAG + public).digest()[:8], "little")


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
