"""Keys, agreements, derivations, commitments and signatures."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedhist import InvalidInput, SeededSource
from tests.support.api import (
    LOW_ORDER,
    BadKey,
    Identity,
    KeyPair,
    check_public_key,
    commit,
    derive,
    draw_bytes,
    roster_digest,
    survivors_text,
    verify,
)

CONTEXT = bytes(range(32))


def pair(seed: int) -> KeyPair:
    return KeyPair.draw(source=SeededSource(seed))


def derived(mine: KeyPair, me: int, theirs: KeyPair, peer: int, **changes: bytes) -> bytes:
    purpose, context = changes.get("purpose", b"mask"), changes.get("context", CONTEXT)
    (key,) = mine.derive_for(purpose, context, me, [(peer, theirs.public)], 32)
    return key


def test_both_sides_derive_the_same_and_nobody_else_does() -> None:
    one, two, three = pair(1), pair(2), pair(3)
    key = derived(one, 5, two, 9)
    assert derived(two, 9, one, 5) == key
    others = [
        derived(one, 5, three, 9),
        derived(one, 6, two, 9),
        derived(one, 9, two, 5),
        derived(one, 5, two, 9, purpose=b"box"),
        derived(one, 5, two, 9, context=bytes(32)),
    ]
    assert len({key, *others}) == 6


def test_the_derivation_is_hkdf_of_rfc_5869() -> None:
    """Written out with HMAC: extract under a zero salt, then one block of expand."""
    import hmac

    extracted = hmac.digest(bytes(32), b"s" * 32, "sha256")
    info = b"fedhist/masking/1/" + b"purpose" + b"\x00" + b"context"
    assert derive(b"s" * 32, b"purpose", b"context") == hmac.digest(extracted, info + b"\x01", "sha256")


@pytest.mark.parametrize("point", sorted(LOW_ORDER))
def test_points_of_low_order_are_known_and_refused(point: bytes) -> None:
    """The list is right: the library finds an all-zero secret with each."""
    for high_bit in (0, 0x80):
        key = point[:-1] + bytes([point[-1] | high_bit])
        with pytest.raises(ValueError, match="shared key"):
            X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))
        with pytest.raises(BadKey):
            check_public_key(key)
        with pytest.raises(BadKey):
            list(pair(1).derive_for(b"mask", CONTEXT, 1, [(2, key)], 32))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_have_32_bytes(length: int) -> None:
    with pytest.raises(BadKey):
        check_public_key(b"\x09" * length)
    with pytest.raises(BadKey):
        list(pair(1).derive_for(b"mask", CONTEXT, 1, [(2, b"\x09" * length)], 32))
    with pytest.raises(InvalidInput):
        KeyPair.from_secret(b"\x09" * length)
    with pytest.raises(InvalidInput):
        Identity(b"\x09" * length, {}).sign(b"")


def test_a_commitment_is_to_one_seed_of_one_device_in_one_session() -> None:
    texts = [
        (b"a" * 32, CONTEXT, 1),
        (b"b" * 32, CONTEXT, 1),
        (b"a" * 32, bytes(32), 1),
        (b"a" * 32, CONTEXT, 2),
    ]
    assert len({commit(*text) for text in texts}) == 4


def test_signatures() -> None:
    signer, other = Identity(bytes([1]) * 32, {}), Identity(bytes([2]) * 32, {})
    directory = {1: signer.public, 2: other.public, 3: b"short"}
    signature = signer.sign(b"text")
    assert verify(directory, 1, signature, b"text")
    assert not verify(directory, 1, signature, b"texts")
    for signer_id in (2, 3, 4):
        assert not verify(directory, signer_id, signature, b"text")
    assert not verify(directory, 1, b"", b"text")


def test_a_roster_s_digest_depends_on_everything_but_the_order_of_arrival() -> None:
    bodies = {1: b"a" * 96, 2: b"b" * 96}
    assert roster_digest(bodies) == roster_digest(dict(reversed(bodies.items())))
    assert roster_digest(bodies) != roster_digest({1: b"b" * 96, 2: b"a" * 96})
    assert survivors_text(CONTEXT, b"x") != survivors_text(CONTEXT, b"y")


def test_drawn_bytes_come_from_the_source_alone() -> None:
    assert draw_bytes(13, source=SeededSource(1)) == draw_bytes(16, source=SeededSource(1))[:13]
    assert draw_bytes(32, source=SeededSource(1)) != draw_bytes(32, source=SeededSource(2))
