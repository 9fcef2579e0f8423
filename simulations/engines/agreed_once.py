"""Key agreements of a simulation: the two sides of a pair are in one process, so each pair agrees once.

A device computes its side of every pair. Where both sides run here, the second computation gives the bytes that the
first one gave, because X25519 does: a simulation keeps them until the other side asks, and then forgets them. Devices
run the same steps as ever, and what they send does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedhist.protocol.masking.keys import KeyPair


class AgreedOnce:
    """Stands in for `KeyPair.derive_for`.

    What one side derived is found by all that goes into it (purpose, session, ids, public keys, size), so a side that
    saw another key than its peer has gets nothing of the peer's.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[bytes, bytes, int, bytes], bytes] = {}

    def __call__(
        self,
        pair: KeyPair,
        purpose: bytes,
        context: bytes,
        me: int,
        peers: Iterable[tuple[int, bytes]],
        size: int,
    ) -> Iterator[bytes]:
        """For each peer (id, public key): `size` bytes that only the two can derive."""
        waiting = self._waiting
        for peer, public in peers:
            about = (purpose, context, size, pair.pair_text(me, peer, public))
            found = waiting.pop(about, None)
            if found is None:
                (found,) = pair.derive_for(purpose, context, me, ((peer, public),), size)
                waiting[about] = found
            yield found
