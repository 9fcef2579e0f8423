"""Key agreements of a simulation: both sides of a pair are in one process, so each pair agrees once.

A device computes its side of every agreement. Where both sides run here, the second computation would give the bytes
of the first, because X25519 does: they are kept until the other side asks for them, and then forgotten. Devices run the
same steps as ever, and what they send does not change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from fedhist.protocol.masking.crypto import KeyPair


class AgreedOnce:
    """Stands in for `KeyPair.derive_for`.

    What one side derived is found by all that goes into it (purpose, session, size, ids and public keys), so a side
    that was told another key than its peer has gets nothing of the peer's.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[bytes, bytes, int], dict[bytes, bytes]] = defaultdict(dict)

    def __call__(  # noqa: PLR0917 - as derive_for
        self,
        pair: KeyPair,
        purpose: bytes,
        context: bytes,
        me: int,
        peers: Iterable[tuple[int, bytes]],
        size: int,
    ) -> Iterator[bytes]:
        """For each peer (id, public key): `size` bytes that only the two can derive."""
        kept, everyone = self._kept[purpose, context, size], list(peers)
        texts = [pair.pair_text(me, peer, public) for peer, public in everyone]
        found = [kept.pop(text, None) for text in texts]
        missing = [peer for peer, known in zip(everyone, found, strict=True) if known is None]
        fresh = pair.derive_for(purpose, context, me, missing, size)
        for text, known in zip(texts, found, strict=True):
            if known is None:
                kept[text] = derived = next(fresh)
                yield derived
            else:
                yield known
