"""The devices of one masked sum as the server sees them: their keys, and who is whose neighbour.

## Complaints

Which devices to leave out when some say that the boxes of others do not open.

A complaint has two sides and the server can't look into the box, so it can't tell a sender of garbage from a liar. It
leaves devices out until no complaint is left between two that stay: each time the device with the most complaints, as
accused or as accuser. A sender of garbage is the centre of a star of complaints, and so is a liar that accuses
everybody: such a device is left out and no other. Ties go to the device with more accusers, then to the smallest id.

*How many honest devices can b bad ones get left out?* Every complaint has a bad device on one side, so an honest device
has at most b. When the most complaints of any device are D, at most b D are left, and to leave an honest device out
then settles D of them. So the numbers r_j of honest devices that are left out with j complaints obey
r_1 + 2 r_2 + ... + D r_D <= b D for every D up to b. Their sum is largest when all of these are equalities, r_j = b/j:
at most b (1 + 1/2 + ... + 1/b). One bad device takes one honest device out of the sum at most, five take eleven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np

from fedhist.protocol.errors import CorruptShares, TooFewSurvivors
from fedhist.protocol.histograms import Flags
from fedhist.protocol.masking import wire
from fedhist.protocol.masking.crypto import roster_digest, session_context
from fedhist.protocol.masking.graph import GraphParameters, MaskingTerms, Positions, all_neighbours, ring_of
from fedhist.protocol.masking.wire import Advertisement


class Rejection(StrEnum):
    """Why a message was ignored."""

    DUPLICATE = "duplicate"
    STRANGER = "stranger"
    MALFORMED = "malformed"
    BAD_KEY = "bad-key"
    BAD_SIGNATURE = "bad-signature"
    WRONG_RECEIVERS = "wrong-receivers"
    WRONG_COMPLAINTS = "wrong-complaints"
    WRONG_SHARES = "wrong-shares"
    FULL = "full"


class LeftOut(StrEnum):
    """Why the server leaves out a device that answered.

    `bad-boxes`: others say that its boxes do not open. `complaints`: it says so of others, and of more than accuse it.
    `few-neighbours`: too few of its neighbours are left to rebuild its secrets.
    """

    BAD_BOXES = "bad-boxes"
    COMPLAINTS = "complaints"
    FEW_NEIGHBOURS = "few-neighbours"


@dataclass
class Incidents:
    """What went wrong so far.

    Args:
        rejected: the number of ignored messages, by reason.
        left_out: the ids of devices that answered and were left out, by reason: a `LeftOut`, or the `Rejection` of
            the device's last message.
        complaints: the senders of boxes that did not open, by the device that complained.
    """

    rejected: Counter[Rejection] = field(default_factory=Counter)
    left_out: dict[str, tuple[int, ...]] = field(default_factory=dict)
    complaints: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def leave_out(self, reason: LeftOut | Rejection, devices: Iterable[int]) -> None:
        """Note that these devices are left out."""
        if found := sorted({*self.left_out.get(reason.value, ()), *devices}):
            self.left_out[reason.value] = tuple(found)

    def too_few(self, stage: str, *, alive: int, needed: int, of: str = "devices") -> TooFewSurvivors:
        """The error of a sum that lost too many devices."""
        error = TooFewSurvivors(stage, alive=alive, needed=needed, of=of, left_out=self.left_out)
        error.complaints = dict(self.complaints)
        return error

    def corrupt(self, owners: Iterable[int]) -> CorruptShares:
        """The error of a sum for which these devices' secrets can't be rebuilt."""
        error = CorruptShares(owners=tuple(owners), left_out=self.left_out)
        error.complaints = dict(self.complaints)
        return error


def devices_to_leave_out(complaints: Mapping[int, Collection[int]]) -> dict[int, LeftOut]:
    """The devices to leave out, with the reason; `complaints` has the accused by accuser.

    There is at most one complaint between two devices: if both accuse each other, it counts once.
    """
    accusers: dict[int, set[int]] = {}
    accused: dict[int, set[int]] = {}
    for accuser, others in complaints.items():
        for other in others:
            accused.setdefault(accuser, set()).add(other)
            accusers.setdefault(other, set()).add(accuser)
    nobody: set[int] = set()

    def place(device: int) -> tuple[int, int, int]:
        against, by = accusers.get(device, nobody), accused.get(device, nobody)
        return -len(against | by), -len(against), device

    order = [place(device) for device in accusers.keys() | accused.keys()]
    heapify(order)
    gone: dict[int, LeftOut] = {}
    while order:
        found = heappop(order)
        device = found[-1]
        if device in gone or found != place(device):
            continue  # an outdated entry: the device is in the queue again, further down
        if found[0] == 0:
            break
        against, by = accusers.pop(device, nobody), accused.pop(device, nobody)
        gone[device] = LeftOut.BAD_BOXES if len(against) >= len(by) else LeftOut.COMPLAINTS
        for other in against | by:
            accused.get(other, nobody).discard(device)
            accusers.get(other, nobody).discard(device)
            heappush(order, place(other))
    return gone


@dataclass(frozen=True, eq=False, repr=False)
class Cohort:
    """The devices that advertised, and the graph over them. Devices are numbered in the order of their ids.

    Args:
        terms: what both sides agree on.
        bodies: the devices' advertisements, by id.
        directory: in signed mode, the devices' lasting public keys, by id.
        parameters: of the graph.
        salt: of the graph.
    """

    terms: MaskingTerms
    bodies: Mapping[int, bytes]
    directory: Mapping[int, bytes]
    parameters: GraphParameters
    salt: bytes

    @cached_property
    def ids(self) -> list[int]:
        """The devices' ids, ascending."""
        return sorted(self.bodies)

    @cached_property
    def number(self) -> dict[int, int]:
        """The number of each device."""
        return {device: number for number, device in enumerate(self.ids)}

    @cached_property
    def context(self) -> bytes:
        """What the devices' keys are bound to. In signed mode everybody is shown all the others."""
        return session_context(self.terms.digest, roster_digest(self.bodies) if self.terms.signed else b"")

    @cached_property
    def adjacency(self) -> Positions:
        """The numbers of each device's neighbours, one ascending row a device."""
        return all_neighbours(self.parameters, ring_of(len(self.ids), self.salt, self.terms.digest))

    def neighbours(self, device: int) -> list[int]:
        """The ids of a device's neighbours, ascending: the order of their shares' points."""
        return [self.ids[number] for number in self.adjacency[self.number[device]].tolist()]

    @cached_property
    def _points(self) -> Positions:
        """At the place of each neighbour in `adjacency`, the rank of the row's device among *its* neighbours, from 1.

        Links sorted by their second end, and by the first where the second is the same, are the links in the other
        direction in the order of `adjacency`.
        """
        links = self.adjacency.ravel()
        points = np.empty(len(links), dtype=np.int32)
        points[np.argsort(links, kind="stable")] = np.arange(len(links)) % self.parameters.neighbours + 1
        return points.reshape(self.adjacency.shape)

    def points(self, holder: int) -> dict[int, int]:
        """For each neighbour, the point of its polynomials at which the holder has its shares."""
        return dict(zip(self.neighbours(holder), self._points[self.number[holder]].tolist(), strict=True))

    def flags(self, devices: set[int]) -> Flags:
        """For each device of the cohort, whether it is one of these."""
        return np.fromiter((device in devices for device in self.ids), dtype=np.bool_, count=len(self.ids))

    def advertisement(self, device: int) -> Advertisement:
        """The keys of a device."""
        return wire.read_advertisement(self.bodies[device], self.terms)
