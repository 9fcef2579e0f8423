"""Sealed boxes: one device's shares for one neighbour, AES-256-GCM under a key that only the two have.

The nonce is random, though a key seals one box in a session: a device that was set back to an older state and seals
again must not repeat a nonce. The associated data binds the session, the sender and the receiver, so a box that is
replayed, swapped or sent back does not open.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from fedhist.protocol.errors import DecodeError
from fedhist.protocol.masking.keys import draw_bytes
from fedhist.protocol.masking.shamir import SHARE_BYTES, check_share
from fedhist.protocol.privacy.randomness import Source

NONCE_BYTES = 12
_TAG_BYTES = 16
BOX_BYTES = NONCE_BYTES + 2 * SHARE_BYTES + _TAG_BYTES
PAIR_KEY_BYTES = 64
_AAD_TAG = b"fedhist/masking/1/box\x00"
_IDS = struct.Struct("<QQ")

SharePair = tuple[bytes, bytes]
"""A share of the mask secret, and a share of the self-mask seed."""


def sending_key(pair_key: bytes, me: int, peer: int) -> bytes:
    """The half of a pair's key that seals from me to the peer, and opens what I sealed."""
    return pair_key[:32] if me < peer else pair_key[32:]


def seal_all(
    me: int, keys: Sequence[tuple[int, bytes]], shares: Sequence[SharePair], context: bytes, *, source: Source
) -> list[tuple[int, bytes]]:
    """A box for each receiver (id, key), in their order."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonces = draw_bytes(NONCE_BYTES * len(keys), source=source)
    bound, sealed = _AAD_TAG + context, []
    for number, ((receiver, key), (secret_share, seed_share)) in enumerate(zip(keys, shares, strict=True)):
        nonce = nonces[number * NONCE_BYTES : (number + 1) * NONCE_BYTES]
        aad = bound + _IDS.pack(me, receiver)
        sealed.append((receiver, nonce + AESGCM(key).encrypt(nonce, secret_share + seed_share, aad)))
    return sealed


def open_all(
    me: int, keys: Mapping[int, bytes], boxes: Sequence[tuple[int, bytes]], context: bytes
) -> tuple[dict[int, SharePair], list[int]]:
    """The two shares in each box (sender, box), and the senders of those that they did not seal for me in this session.

    A box that holds no shares is one of these. `keys` has the key of each sender.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    bound, shares, bad = _AAD_TAG + context, dict[int, SharePair](), list[int]()
    for sender, box in boxes:
        aad = bound + _IDS.pack(sender, me)
        try:
            if len(box) != BOX_BYTES:
                raise DecodeError(f"a box of {len(box)} bytes where {BOX_BYTES} are due")
            opened = AESGCM(keys[sender]).decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], aad)
            pair = opened[:SHARE_BYTES], opened[SHARE_BYTES:]
            check_share(pair[0])
            check_share(pair[1])
        except (InvalidTag, DecodeError):
            bad.append(sender)  # audited: bad box
        else:
            shares[sender] = pair
    return shares, bad
