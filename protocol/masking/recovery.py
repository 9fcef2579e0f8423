"""The server's last step: rebuild secrets from shares, and take the masks off.

A rebuilt secret is checked against what its owner advertised: a seed against its commitment, a mask secret against its
public key. If more shares came than are needed, decoding finds the wrong ones as long as they are at most half of the
spare ones; beyond that, some subsets are tried. The holders of wrong shares come last for the next secret. (X25519
ignores five bits of a secret; secrets that differ in these alone give the same masks.)
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import comb

from fedhist.protocol.histograms import Integers
from fedhist.protocol.masking.client import MASK_PURPOSE, self_mask_key
from fedhist.protocol.masking.cohort import Cohort, Incidents
from fedhist.protocol.masking.crypto import KEY_BYTES, KeyPair, commit
from fedhist.protocol.masking.shamir import correct, reconstruct
from fedhist.protocol.masking.vectors import MaskAdder, Residues, to_integers
from fedhist.protocol.masking.wire import MaskingStage, OpenedShare

MAX_SUBSETS = 600
"""The number of subsets of a secret's shares that are tried before it is given up."""

PointShare = tuple[int, bytes]


@dataclass(frozen=True)
class MaskedSum:
    """The sum over the included devices, and what went wrong on the way.

    Args:
        values: the sum.
        included: the ids of the devices whose inputs are in it.
        rejected: the number of ignored messages, by reason.
        left_out: the ids of devices that answered and are not in the sum, by reason, see `incidents`.
        complaints: the senders of boxes that did not open, by the device that complained.
    """

    values: Integers = field(repr=False)
    included: tuple[int, ...] = field(repr=False)
    rejected: Mapping[str, int]
    left_out: Mapping[str, tuple[int, ...]]
    complaints: Mapping[int, tuple[int, ...]]


class Recovery:
    """Collects the opened shares of one session, by owner."""

    def __init__(self, cohort: Cohort, masked: Residues, *, shared: set[int], included: set[int]) -> None:
        self.cohort = cohort
        self.shared = shared
        self.included = included
        self._masked = masked
        self._shares: dict[int, list[PointShare]] = {device: [] for device in shared}
        self._doubts: Counter[int] = Counter()

    def keep(self, holder: int, opened: Sequence[OpenedShare]) -> None:
        """Keep the shares of one holder, whose kinds have been checked."""
        points = self.cohort.points(holder)
        for share in opened:
            self._shares[share.owner].append((points[share.owner], share.share))

    def unmask(self, incidents: Incidents) -> MaskedSum:
        """The sum. Every secret is rebuilt and checked before the first mask is taken off."""
        seeds, pairs = self._rebuild_all(incidents)
        context = self.cohort.context
        adder = MaskAdder(self._masked)
        for device, seed in seeds.items():
            adder.subtract(self_mask_key(seed, context, device))
        for dead, pair in pairs.items():
            survivors = [peer for peer in self.cohort.neighbours(dead) if peer in self.included]
            peers = [(peer, self.cohort.advertisement(peer).mask_key) for peer in survivors]
            keys = pair.derive_for(MASK_PURPOSE, context, dead, peers, KEY_BYTES)
            for peer, key in zip(survivors, keys, strict=True):
                # The survivor added the mask if its id is the smaller one.
                if peer < dead:
                    adder.subtract(key)
                else:
                    adder.add(key)
        return MaskedSum(
            values=to_integers(self._masked),
            included=tuple(sorted(self.included)),
            rejected={reason.value: count for reason, count in incidents.rejected.items()},
            left_out=dict(incidents.left_out),
            complaints=dict(incidents.complaints),
        )

    def _rebuild_all(self, incidents: Incidents) -> tuple[dict[int, bytes], dict[int, KeyPair]]:
        """The seeds of included devices, and the key pairs of dead ones that some included device masked with."""
        neighbours, threshold = self.cohort.neighbours, self.cohort.parameters.threshold
        due = [one for one in sorted(self.shared) if not self.included.isdisjoint((one, *neighbours(one)))]
        fewest = min(len(self._shares[device]) for device in due)
        if fewest < threshold:
            raise incidents.too_few(
                MaskingStage.UNMASKING, alive=fewest, needed=threshold, of="shares of a secret"
            )
        found: dict[int, bytes] = {}
        while waiting := [device for device in due if device not in found]:
            before = len(found)
            for device in waiting:
                secret = self._decoded(device)
                if secret is not None:
                    found[device] = secret
            if len(found) == before:
                break  # knowing the liars helps no further
        for device in waiting:
            secret = searched(self._shares[device], threshold, self._accept(device))
            if secret is not None:
                found[device] = secret
        if corrupt := [device for device in due if device not in found]:
            raise incidents.corrupt(corrupt)
        seeds = {device: found[device] for device in due if device in self.included}
        pairs = {device: KeyPair.from_secret(found[device]) for device in due if device not in self.included}
        return seeds, pairs

    def _accept(self, device: int) -> Callable[[bytes], bool]:
        advert, session = self.cohort.advertisement(device), self.cohort.terms.session
        if device in self.included:
            return lambda seed: commit(seed, session, device) == advert.commitment
        return lambda secret: KeyPair.from_secret(secret).public == advert.mask_key

    def _decoded(self, device: int) -> bytes | None:
        """The secret, if decoding finds it. Then its shares are forgotten, and the holders of wrong ones remembered."""
        shares, threshold, doubted = sorted(self._shares[device]), self.cohort.parameters.threshold, 0
        if self._doubts:
            holders = self.cohort.neighbours(device)
            doubts = {point: self._doubts[holders[point - 1]] for point, _ in shares}
            shares.sort(key=lambda share: doubts[share[0]])
            doubted = sum(count > 0 for count in doubts.values())
        found = decoded(shares, threshold, self._accept(device), doubted=doubted)
        if found is None:
            return None
        secret, wrong = found
        if wrong:
            holders = self.cohort.neighbours(device)
            self._doubts.update(holders[point - 1] for point in wrong)
        self._shares[device] = []
        return secret


def decoded(
    shares: Sequence[PointShare], threshold: int, accept: Callable[[bytes], bool], *, doubted: int = 0
) -> tuple[bytes, frozenset[int]] | None:
    """The secret that `accept` confirms, and the points of wrong shares; None if too many are wrong.

    The first shares are tried by themselves. The secret is found if at most half of the shares beyond the threshold are
    wrong, among all shares or among those before the last `doubted` ones.
    """
    points, values = zip(*shares, strict=True)
    secret = reconstruct(points[:threshold], values[:threshold])
    if secret is not None and accept(secret):
        return secret, frozenset()
    for count in {len(shares), max(len(shares) - doubted, threshold)}:
        found = correct(points[:count], values[:count], threshold)
        if found is not None and accept(found[0]):
            return found
    return None


def searched(shares: Sequence[PointShare], threshold: int, accept: Callable[[bytes], bool]) -> bytes | None:
    """The secret that `accept` confirms, or None if none of the subsets tried gives it."""
    for subset in islice(_subsets(shares, threshold), MAX_SUBSETS):
        points, values = zip(*subset, strict=True)
        secret = reconstruct(points, values)
        if secret is not None and accept(secret):
            return secret
    return None


def _subsets(shares: Sequence[PointShare], threshold: int) -> Iterator[Sequence[PointShare]]:
    """All subsets of `threshold` shares if they are few; else windows of neighbouring points, then pseudo-random ones.

    Every share is outside of some window, so a single liar is left out sooner or later.
    """
    count = len(shares)
    ordered = sorted(shares)
    if comb(count, threshold) <= MAX_SUBSETS:
        yield from combinations(ordered, threshold)
        return
    around = ordered + ordered
    for begin in range(count):
        yield around[begin : begin + threshold]
    for attempt in range(MAX_SUBSETS):
        ranked = sorted((_rank(attempt, point), point, value) for point, value in ordered)
        yield [(point, value) for _, point, value in ranked[:threshold]]


def _rank(attempt: int, point: int) -> bytes:
    return hashlib.sha256(b"fedhist/masking/1/subset/%d/%d" % (attempt, point)).digest()
