"""Which devices share a mask: the number of neighbours, the threshold of their shares, and the graph.

A device masks with k neighbours and gives each a share of its secrets; t shares rebuild one. Let N devices be asked
and n of them advertise. At most c = floor(corrupt share N) collude with the server, and all of these may be among the
n. At most floor(drop-out share N) fall silent, N - n of them already, so d = floor(drop-out share N) - (N - n) more.
Both are chosen without knowledge of the graph. The graph is a Harary graph, that is a ring on which everybody is
linked to the h = k/2 next on both sides, with the devices placed on the ring by a uniform random permutation. We
take the smallest even k, and for it the smallest t, for which (after Bell et al. 2020, section 3):

1. *Shares*: n P[corrupt among k of n - 1 others >= t] < 2^-(sigma + 1). The neighbours of an honest device are a
   uniform k-subset of the others, c of which are corrupt: a hypergeometric tail, and a union over the devices.
   When it holds, nobody's secrets can be rebuilt from what corrupt devices hold.
2. *Connected*: n (n - k + 1)/2 prod_{i<k} (R - i)/(n - i) < 2^-(sigma + 1), with R = c + d devices removed. Two
   honest survivors that follow each other on the ring are linked unless h or more removed devices stand between
   them. If that happens at most once around the ring, the others still form a path. So a graph that falls apart has
   two disjoint runs of h removed devices; there are n (n - 2h + 1)/2 places for two runs, each of which is removed
   altogether with probability prod_{i<2h} (R - i)/(n - i). When it holds, the server learns the sum over *all*
   honest survivors and no sum over fewer: the pairwise masks of a connected graph are uniform except for their sum.
3. *Correct*: n P[silent among k of n - 1 others > k - t] < 2^-eta: every device keeps t neighbours that answer.

1 and 2 together fail with probability below 2^-sigma. All three are decided in whole numbers, without rounding.
Also t >= k/3, so that one share is never a whole secret, even when no device is assumed to be corrupt.

The graph is complete below 100 devices, where c and d are so small that their rounding would decide, and wherever no
smaller k will do. There t is more than half of the neighbours and more than c.

The *signed* mode is for a server that deviates. Such a server would also choose the graph, or corrupt devices after it
knows it, and the probabilities above would mean nothing without more machinery (Bell et al. 2020, section 4). So this
mode takes the complete graph, with 2t > n + c: of two sets of survivors that t devices of one roster each confirmed,
one honest device would have confirmed both, which it does not do. Devices that were shown different rosters have no
keys in common (the proof is at the top of `client.py`). It is limited to 512 devices.

## Terms

What both sides of a masked sum agree on before it starts; its digest is bound into every key and message.

All but the advertisement of public keys: that is bound to the session alone, which is known before the other terms.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import comb, floor, prod

import numpy as np
import numpy.typing as npt

from fedhist.protocol.errors import DecodeError, InvalidInput
from fedhist.protocol.masking.crypto import derive
from fedhist.protocol.masking.vectors import MaskAdder

SESSION_BYTES = 32
REQUEST_BYTES = 32
_LONGEST = 1 << 28
MAX_DEVICES = 1 << 24
WIDTHS = (32, 64)
_BELOW_HALF = "0 or more, and less than one half"
_TAG = b"fedhist/masking/2/terms"
_LAYOUT = struct.Struct("<32sIBddIBI32s")
TERMS_BYTES = _LAYOUT.size

PRIVACY_BITS = 40
"""sigma: privacy fails with a probability below 2^-40."""

CORRECTNESS_BITS = 20
"""eta: a sum can't be unmasked with a probability below 2^-20."""

MINIMUM_DEVICES = 3
MINIMUM_SPARSE_DEVICES = 100
MAX_SIGNED_DEVICES = 512
MAX_SPARSE_NEIGHBOURS = 512
MAX_COMPLETE_DEVICES = 2048

Positions = npt.NDArray[np.int32]


@dataclass(frozen=True)
class MaskingTerms:
    """The settings of one masked sum.

    Args:
        session: new for every round; derived from the run's name, the round and the plan's digest. Devices may
            advertise keys for a session before they know the other terms.
        length: the number of values in a vector.
        width: the number of bits of a value, see `vectors.width_for`.
        corrupt_share: the part of the participants that may collude with the server. The graph allows for it.
        dropout_share: the part of the participants that may fall silent. The graph allows for it.
        minimum_survivors: a sum of fewer inputs is never unmasked.
        signed: True for the mode that withstands an active server.
        participants: the number of devices that were asked. Both shares are parts of it and not of the devices that
            advertise, because a device that colludes does not stay away. 0: all devices that were asked advertise.
        request: a digest of what is summed, where the session does not say it all.
    """

    session: bytes
    length: int
    width: int
    corrupt_share: float = 0.05
    dropout_share: float = 0.10
    minimum_survivors: int = 2
    signed: bool = False
    participants: int = 0
    request: bytes = bytes(REQUEST_BYTES)

    def __post_init__(self) -> None:
        size, named = len(self.session), len(self.request)
        low, asked = self.minimum_survivors, self.participants
        for holds, problem, allowed in (
            (size == SESSION_BYTES, f"the session has {size} bytes", f"{SESSION_BYTES} bytes"),
            (named == REQUEST_BYTES, f"the request has {named} bytes", f"{REQUEST_BYTES} bytes"),
            (1 <= self.length <= _LONGEST, f"a vector has {self.length} values", f"1 to {_LONGEST}"),
            (self.width in WIDTHS, f"a value has {self.width} bits", "32 or 64"),
            (0 <= self.corrupt_share < 0.5, f"corrupt_share is {self.corrupt_share}", _BELOW_HALF),
            (0 <= self.dropout_share < 0.5, f"dropout_share is {self.dropout_share}", _BELOW_HALF),
            (2 <= low <= MAX_DEVICES, f"minimum_survivors is {low}", f"2 to {MAX_DEVICES}"),
            (
                asked == 0 or low <= asked <= MAX_DEVICES,
                f"participants is {asked}",
                f"0, or {low} (minimum_survivors) to {MAX_DEVICES}",
            ),
        ):
            if not holds:
                raise InvalidInput(problem, allowed=allowed)

    def to_bytes(self) -> bytes:
        """The terms in a fixed layout, in the order of the fields."""
        return _LAYOUT.pack(*astuple(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> MaskingTerms:
        """The terms in these bytes. DecodeError if the bytes are not terms."""
        try:
            session, length, width, corrupt, dropout, least, signed, participants, request = _LAYOUT.unpack(
                data
            )
            if signed not in (0, 1):
                raise DecodeError("the bytes are not the terms of a masked sum")
            return cls(session, length, width, corrupt, dropout, least, bool(signed), participants, request)
        except (struct.error, InvalidInput):
            raise DecodeError("the bytes are not the terms of a masked sum") from None

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all settings."""
        return hashlib.sha256(_TAG + self.to_bytes()).digest()


@dataclass(frozen=True)
class GraphParameters:
    """The number of neighbours of each device, and how many of their shares rebuild a secret."""

    devices: int
    neighbours: int
    threshold: int

    @property
    def complete(self) -> bool:
        """Whether every device is a neighbour of every other."""
        return self.neighbours == self.devices - 1


def parameters_for(devices: int, terms: MaskingTerms) -> GraphParameters:
    """The parameters that each side computes for itself. InvalidInput when there are none.

    The shares are parts of the N devices that were asked. All floor(corrupt_share N) corrupt ones may be among the n
    that advertise, since only honest devices stay away for no reason. The N - n that stayed away count among the
    floor(dropout_share N) that may fall silent.
    """
    asked = terms.participants or devices
    if devices > asked:
        raise InvalidInput(
            f"{devices} devices advertised where {asked} were asked",
            allowed=f"at most {asked} devices",
            code="too-many-devices",
        )
    silent = max(share_of(asked, terms.dropout_share) - (asked - devices), 0)
    return _parameters(devices, share_of(asked, terms.corrupt_share), silent, terms.signed)


@lru_cache(maxsize=256)
def _parameters(n: int, corrupt: int, silent: int, signed: bool) -> GraphParameters:
    most = MAX_SIGNED_DEVICES if signed else MAX_DEVICES
    if not MINIMUM_DEVICES <= n <= most:
        raise InvalidInput(
            f"{n} devices in a masked sum{' with signatures' if signed else ''}",
            allowed=f"{MINIMUM_DEVICES} to {most}",
            advice="lower --nodes, or use --masking secagg" if signed and n > most else "",
            code="bad-number-of-devices",
        )
    if signed:
        return _complete(n, silent, threshold=(n + corrupt) // 2 + 1)
    for k in range(2, min(n - 1, MAX_SPARSE_NEIGHBOURS + 1) if n >= MINIMUM_SPARSE_DEVICES else 0, 2):
        # The cheap conditions first: most k fail them.
        if not _stays_connected(n, corrupt + silent, k):
            continue
        threshold = _safe_threshold(n, corrupt, k)
        if threshold is not None and _stays_correct(n, silent, k, threshold):
            return GraphParameters(devices=n, neighbours=k, threshold=threshold)
    if n > MAX_COMPLETE_DEVICES:
        raise InvalidInput(
            f"no graph of at most {MAX_SPARSE_NEIGHBOURS} neighbours is safe for these shares of {n} devices",
            allowed="smaller shares of corrupt and silent devices",
            advice="lower --corrupt-share or --dropout-share",
            code="no-safe-graph",
        )
    return _complete(n, silent, threshold=max(corrupt, (n - 1) // 2) + 1)


@lru_cache(maxsize=256)
def share_of(devices: int, share: float) -> int:
    """The number of devices in this share, rounded down; the share is read as the decimal that it prints."""
    return floor(Fraction(repr(float(share))) * devices)


def _complete(n: int, silent: int, *, threshold: int) -> GraphParameters:
    if threshold > n - 1 - silent:
        raise InvalidInput(
            f"{n} devices of which {silent} may fall silent can't rebuild secrets from {threshold} shares",
            allowed="more devices, or smaller shares of corrupt and silent ones",
            advice="raise --nodes, or lower --corrupt-share or --dropout-share",
            code="too-few-shares",
        )
    return GraphParameters(devices=n, neighbours=n - 1, threshold=threshold)


def _safe_threshold(n: int, corrupt: int, k: int) -> int | None:
    """The smallest t of condition 1, from a third of the neighbours to all of them."""
    others, ways = n - 1, comb(n - 1, k)
    tail, threshold = 0, k + 1
    for count in range(k, 0, -1):
        tail += comb(corrupt, count) * comb(others - corrupt, k - count)
        if (n * tail) << (PRIVACY_BITS + 1) >= ways:
            break
        threshold = count
    return max(threshold, -(-k // 3)) if threshold <= k else None


def _stays_connected(n: int, removed: int, k: int) -> bool:
    places = n * (n - k + 1)
    lost = prod(removed - i for i in range(k)) if removed >= k else 0
    return (places * lost) << (PRIVACY_BITS + 1) < 2 * prod(n - i for i in range(k))


def _stays_correct(n: int, silent: int, k: int, threshold: int) -> bool:
    others = n - 1
    bad = sum(
        comb(silent, count) * comb(others - silent, k - count) for count in range(k - threshold + 1, k + 1)
    )
    return (n * bad) << CORRECTNESS_BITS < comb(others, k)


def ring_of(devices: int, salt: bytes, context: bytes = b"") -> Positions:
    """The devices, numbered from 0 in the order of their ids, as they stand on the ring; `context` binds the salt."""
    words = np.zeros(devices, dtype=np.uint64)
    MaskAdder(words).add(derive(salt, b"graph", context))
    # Sorting by 64 random bits: a tie, which the sort would break by number, has probability n^2/2^65.
    return np.argsort(words, kind="stable").astype(np.int32)


def all_neighbours(parameters: GraphParameters, ring: Positions) -> Positions:
    """The neighbours of every device: one ascending row each."""
    n, k = parameters.devices, parameters.neighbours
    if parameters.complete:
        columns = np.arange(k, dtype=np.int32)
        everybody: Positions = columns + (columns >= np.arange(n)[:, None]).astype(np.int32)
        return everybody
    half = np.arange(1, k // 2 + 1, dtype=np.int32)
    place = np.argsort(ring).astype(np.int32)
    found: Positions = ring[(place[:, None] + np.concatenate([-half, half])) % n]
    found.sort(axis=1)
    return found
