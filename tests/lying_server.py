"""A server of a signed masked sum that lies to every device as it likes, together with the corrupt devices.

It shows each honest device a roster, peers and a list of survivors of its own (a `Face`), signs with the corrupt ones
whatever there is to sign, and takes the masks off every sum that it can from what the devices answer.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedhist import SeededSource
from tests.support.api import (
    KEY_BYTES,
    MASK_PURPOSE,
    Checked,
    Confirmed,
    Finished,
    Identity,
    Integers,
    KeyPair,
    MaskAdder,
    Masked,
    MaskingTerms,
    ShareKind,
    commit,
    parameters_for,
    read_residues,
    reconstruct,
    self_mask_key,
    share_of,
    start,
    survivors_text,
    to_integers,
    zeros,
)
from tests.support.api import MaskingKind as Kind
from tests.support.api import advance_session as advance
from tests.support.api import wire_module as wire

Group = frozenset[int]


@dataclass(frozen=True)
class Face:
    """What the server shows one honest device. Without peers it is never asked to mask, and so on."""

    roster: Group
    peers: Group = frozenset()
    survivors: Group = frozenset()


class LyingServer:
    """One session with it. `learned` has the sums that it unmasked, by the honest devices that are in them."""

    def __init__(
        self,
        terms: MaskingTerms,
        faces: Mapping[int, Face],
        corrupt: Collection[int],
        *,
        fewest: int = 0,
        seed: int = 0,
    ) -> None:
        self.terms, self.faces, self.corrupt = terms, faces, frozenset(corrupt)
        self.source = SeededSource(seed)
        everybody = sorted([*faces, *corrupt])
        secrets = {device: self.source.fork("identity", device).words(4).tobytes() for device in everybody}
        known = {device: Identity(secret, {}).public for device, secret in secrets.items()}
        self.identities = {device: Identity(secret, known) for device, secret in secrets.items()}
        self.states: dict[int, Any] = {}
        self.bodies: dict[int, bytes] = {}
        for device in everybody:
            self.states[device], message = start(
                terms,
                device,
                source=self.source.fork("start", device),
                identity=self.identities[device],
                fewest=fewest,
            )
            self.bodies[device] = message[wire.HEADER_BYTES :]
        self.contexts: dict[int, bytes] = {}
        self.peers: dict[int, Group] = {}
        self.masked: dict[int, Any] = {}
        self.shares: dict[tuple[int, ShareKind], dict[int, bytes]] = defaultdict(dict)
        self._exchange_boxes()
        self._ask_to_mask()
        self.signed = self._ask_to_confirm()
        self._ask_to_open()

    @property
    def honest(self) -> list[int]:
        return sorted(self.faces)

    @property
    def opened(self) -> set[int]:
        """The honest devices that opened shares."""
        return {device for device in self.honest if isinstance(self.states[device], Finished)}

    def vector(self, device: int) -> Integers:
        return np.arange(self.terms.length, dtype=np.int64) + 7 * device - 20

    def total(self, devices: Collection[int]) -> Integers:
        return sum(map(self.vector, devices), np.zeros(self.terms.length, dtype=np.int64))

    def _tell(self, device: int, message: bytes, state: Any = None) -> tuple[Any, bytes]:
        state = self.states[device] if state is None else state
        source = self.source.fork("step", device, type(state).__name__)
        return advance(state, message, source=source, vector=self.vector(device))

    def _roster_for(self, device: int, roster: Group) -> bytes:
        entries = [wire.roster_entry(peer, self.bodies[peer]) for peer in sorted(roster - {device})]
        return wire.encode_roster(parameters_for(len(roster), self.terms), entries, self.terms)

    def _exchange_boxes(self) -> None:
        boxes: dict[int, dict[tuple[int, Group], bytes]] = defaultdict(dict)
        forked: dict[tuple[int, Group], Any] = {}
        # A corrupt device takes part once for each roster that anybody is shown.
        takes_part = [(device, face.roster) for device, face in self.faces.items()]
        rosters = {face.roster for face in self.faces.values()}
        takes_part += [(bad, roster) for roster in rosters for bad in sorted(self.corrupt & roster)]
        for device, roster in takes_part:
            forked[device, roster], answer = self._tell(device, self._roster_for(device, roster))
            if answer:
                self.contexts[device] = context_of(forked[device, roster])
                for receiver, box in wire.decode_boxes(answer, Kind.SHARES, self.terms):
                    boxes[receiver][device, roster] = box
        for (device, roster), state in forked.items():
            found = {
                sender: box
                for (sender, theirs), box in boxes[device].items()
                if sender in roster and (sender not in self.corrupt or theirs == roster)
            }
            message = wire.encode_boxes(Kind.BOXES, sorted(found.items()), self.terms)
            checked, answer = self._tell(device, message, state)
            if device in self.faces:
                self.states[device] = checked
                complaints = wire.decode_ids(answer, Kind.COMPLAINTS, self.terms) if answer else ()
                self.peers[device] = self.faces[device].peers - set(complaints) - {device}
            if isinstance(checked, Checked) and device in self.corrupt:
                for owner, (secret_share, seed_share) in checked.shares.items():
                    self.shares[owner, ShareKind.MASK_SECRET][device] = secret_share
                    self.shares[owner, ShareKind.SEED][device] = seed_share

    def _ask_to_mask(self) -> None:
        for device in self.honest:
            if self.peers[device] and isinstance(self.states[device], Checked):
                message = wire.encode_ids(Kind.PEERS, sorted(self.peers[device]), self.terms)
                self.states[device], answer = self._tell(device, message)
                if answer:
                    body = wire.masked_body(answer, self.terms)
                    self.masked[device] = read_residues(body, self.terms.width)

    def _ask_to_confirm(self) -> dict[Group, dict[int, bytes]]:
        """The signatures of each list of survivors."""
        signed: dict[Group, dict[int, bytes]] = defaultdict(dict)
        for device in self.honest:
            survivors = self.faces[device].survivors
            if survivors and isinstance(self.states[device], Masked):
                body = wire.id_list(sorted(survivors))
                self.states[device], answer = self._tell(
                    device, wire.message(Kind.SURVIVORS, self.terms, body)
                )
                if answer:
                    signed[survivors][device] = wire.decode_confirmation(answer, self.terms)
                    text = survivors_text(self.contexts[device], body)
                    for bad in self.corrupt & survivors:
                        signed[survivors][bad] = self.identities[bad].sign(text)
        return signed

    def _ask_to_open(self) -> None:
        for device in self.honest:
            if isinstance(self.states[device], Confirmed):
                survivors = self.faces[device].survivors
                entries = sorted(self.signed[survivors].items())
                confirmed = b"".join(wire.confirmation_entry(*entry) for entry in entries)
                dead = sorted(self.peers[device] - survivors)
                self.states[device], answer = self._tell(
                    device, wire.encode_unmask(dead, confirmed, self.terms)
                )
                for share in wire.decode_opening(answer, self.terms) if answer else ():
                    self.shares[share.owner, share.kind][device] = share.share

    def _rebuilt(self, kind: ShareKind) -> Iterator[tuple[int, bytes]]:
        for owner in self.honest:
            roster = self.faces[owner].roster
            holders, threshold = sorted(roster - {owner}), parameters_for(len(roster), self.terms).threshold
            found = [
                (place, self.shares[owner, kind][holder])
                for place, holder in enumerate(holders, start=1)
                if holder in self.shares[owner, kind]
            ][:threshold]
            if len(found) == threshold:
                secret = reconstruct(*zip(*found, strict=True))
                assert secret is not None
                yield owner, secret

    @cached_property
    def seeds(self) -> dict[int, bytes]:
        """The self-mask seeds that it rebuilt."""
        found = dict(self._rebuilt(ShareKind.SEED))
        for owner, seed in found.items():
            assert (
                commit(seed, self.terms.session, owner) == self.bodies[owner][2 * KEY_BYTES : 3 * KEY_BYTES]
            )
        return found

    @cached_property
    def secrets(self) -> dict[int, KeyPair]:
        """The mask secrets that it rebuilt, and those of the corrupt devices."""
        found = {owner: KeyPair.from_secret(secret) for owner, secret in self._rebuilt(ShareKind.MASK_SECRET)}
        for owner, pair in found.items():
            assert pair.public == self.bodies[owner][KEY_BYTES : 2 * KEY_BYTES]
        return found | {bad: self.states[bad].mask_pair for bad in self.corrupt}

    @cached_property
    def learned(self) -> dict[Group, Integers]:
        """Each smallest sum over honest devices of which no unknown mask is left.

        A mask of two devices is unknown unless one of their mask secrets is known. It leaves a sum only where both
        devices used it and both are in the sum: such devices are in one sum, or in none.
        """
        left = {device for device in self.masked if device in self.seeds}
        unknown = {
            device: set() if device in self.secrets else self.peers[device] - self.secrets.keys()
            for device in left
        }
        sums: dict[Group, Integers] = {}
        while left:
            first = min(left)
            part, edge = set[int](), {first}
            while edge:
                part |= edge
                edge = set().union(*(unknown.get(device, set()) for device in edge)) - part
            whole = all(device in unknown[peer] for device in part & left for peer in unknown[device] & left)
            if part <= left and whole:
                sums[frozenset(part)] = self._unmasked(part)
                left -= part
            else:
                left.remove(first)
        return sums

    @property
    def stolen(self) -> dict[Group, Integers]:
        """Those of the sums that are not over all honest devices of a list, or of fewer than the terms promise."""
        whole = {survivors - self.corrupt for survivors in self.signed}
        fewest = self.terms.minimum_survivors - len(self.corrupt)
        return {part: sums for part, sums in self.learned.items() if part not in whole or len(part) < fewest}

    def _unmasked(self, devices: Collection[int]) -> Integers:
        total = zeros(self.terms.length, self.terms.width)
        adder = MaskAdder(total)
        for device in devices:
            np.add(total, self.masked[device], out=total)
            adder.subtract(self_mask_key(self.seeds[device], self.contexts[device], device))
            for peer in self.peers[device]:
                if (key := self._mask_key(device, peer)) is not None:
                    (adder.subtract if device < peer else adder.add)(key)
        return to_integers(total)

    def _mask_key(self, device: int, peer: int) -> bytes | None:
        """The key that the device masked with, if one of the two secrets is known."""
        known, other = (peer, device) if peer in self.secrets else (device, peer)
        if known not in self.secrets:
            return None
        public = self.bodies[other][KEY_BYTES : 2 * KEY_BYTES]
        derived = self.secrets[known].derive_for(
            MASK_PURPOSE, self.contexts[device], known, [(other, public)], KEY_BYTES
        )
        return next(derived)


def context_of(state: Any) -> bytes:
    """What the keys of this state's session are bound to."""
    return state.terms.digest + state.roster


def terms_for(devices: int, corrupt: float, dropout: float, *, least: int | None = None) -> MaskingTerms:
    """Those of a plan: as many must survive as are sure to, unless it is said how many."""
    return MaskingTerms(
        session=bytes(32),
        length=3,
        width=32,
        corrupt_share=corrupt,
        dropout_share=dropout,
        minimum_survivors=least or devices - share_of(devices, dropout),
        signed=True,
        participants=devices,
    )


def dealt(*sizes: int) -> list[Group]:
    """Groups of devices of these sizes."""
    ids = iter(range(10, 1000))
    return [frozenset(next(ids) for _ in range(size)) for size in sizes]


THIRTY = terms_for(30, 0.2, 0.3)
FORTY = terms_for(40, 0.125, 0.4)


def two_lists() -> LyingServer:
    """Thirty devices, six of them corrupt: each half is shown 21, itself, six in both lists, and the corrupt ones.

    Under a roster of 21 a list takes 14 signatures, which nine honest and six corrupt devices have.
    """
    left, right, both, corrupt = dealt(9, 9, 6, 6)
    one, other, everybody = left | both | corrupt, right | both | corrupt, left | right | both | corrupt
    faces = dict.fromkeys(left, Face(one, one, one)) | dict.fromkeys(right, Face(other, other, other))
    return LyingServer(THIRTY, faces | dict.fromkeys(both, Face(everybody, everybody)), corrupt)


def fewer_than_promised() -> LyingServer:
    """Forty devices, five of them corrupt: the 24 of a list must have 19 honest ones, and five of these are dead.

    They are alive to those who sign the list, and dead to others, who know a larger roster and sign another list.
    """
    signers, revealed, silent, others, corrupt = dealt(11, 5, 3, 16, 5)
    listed, alive = signers | revealed | silent | corrupt, others | silent | corrupt
    faces = dict.fromkeys(signers, Face(listed, listed, listed))
    faces |= dict.fromkeys(silent, Face(listed | others, listed))
    faces |= {one: Face((listed | others) - revealed | {one}) for one in revealed}
    faces |= dict.fromkeys(others, Face(alive | revealed, alive | revealed, alive))
    return LyingServer(FORTY, faces, corrupt)


def more_corrupt_than_expected() -> LyingServer:
    """Sixty devices, three of them corrupt, and a server that asks 34 with all three: five percent of 34 is one.

    Under one roster there are two lists, with and without the first device, and the three sign both.
    """
    target, left, right, corrupt = dealt(1, 15, 15, 3)
    everybody = target | left | right | corrupt
    faces = dict.fromkeys(left, Face(everybody, everybody, everybody)) | dict.fromkeys(
        target, Face(everybody, everybody)
    )
    faces |= dict.fromkeys(right, Face(everybody, everybody, everybody - target))
    return LyingServer(terms_for(34, 0.05, 0.1), faces, corrupt)


def random_lies(seed: int) -> LyingServer:
    """A few devices, of which a seventh are corrupt, each shown one of a few rosters and one of a few lists."""
    dice = random.Random(seed)
    devices = dice.randrange(8, 22)
    honest, corrupt = dealt(devices - devices // 7, devices // 7)

    def some(of: Group, share: float) -> Group:
        return frozenset(one for one in sorted(of) if dice.random() < share)

    everybody = honest | corrupt
    rosters = [some(honest, dice.choice([0.6, 0.8, 1.0])) | corrupt for _ in range(dice.choice([1, 2, 3]))]
    # Of fewer than six, with three corrupt, no secret could be rebuilt.
    rosters = [everybody, *(roster for roster in rosters if len(roster) >= 6)]
    lists = {
        roster: [some(roster, dice.choice([0.8, 0.9, 1.0])) | corrupt for _ in range(dice.choice([1, 1, 2]))]
        for roster in rosters
    }
    faces = {}
    for device in sorted(honest):
        roster = dice.choice([one for one in rosters[1:] if device in one] or [everybody])
        survivors = dice.choice(lists[roster])
        peers = roster if dice.random() < 0.8 else some(roster, 0.9) | survivors
        faces[device] = Face(roster, peers, survivors if device in survivors else frozenset())
    return LyingServer(terms_for(devices, 1 / 7, 0.2, least=3), faces, corrupt, seed=seed)
